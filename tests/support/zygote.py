"""Many `rival` commands, workers and scripts, each a process of its own, without paying for the imports each time: they
are forked from a process that has done them. `python -m tests.support.zygote` is that process."""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

Being = Literal["command", "worker", "script"]


class Zygote:
    """The other side: one request at a time, by lines of JSON."""

    def __init__(self, root: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__], cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._one_at_a_time = threading.Lock()

    def run(
        self,
        args: Sequence[str],
        cwd: Path,
        env: dict[str, str],
        stdin: str = "",
        *,
        be: Being = "command",
        timeout: int = 0,
    ) -> tuple[int, str, str]:
        """A `rival` command, or `python` with a script, to its end; after `timeout` seconds SIGALRM ends it."""
        with tempfile.TemporaryDirectory() as place:
            files = [str(Path(place) / name) for name in ("stdin", "stdout", "stderr")]
            Path(files[0]).write_text(stdin)
            code = self._ask(do="run", be=be, args=args, cwd=str(cwd), env=env, files=files, timeout=timeout)
            return code, Path(files[1]).read_text(), Path(files[2]).read_text()

    def start(self, be: Being, args: Sequence[str], cwd: Path, env: dict[str, str], log: str) -> Forked:
        """One that stays, as the leader of its process group."""
        files = [os.devnull, log, log]
        return Forked(self, self._ask(do="start", be=be, args=args, cwd=str(cwd), env=env, files=files))

    def code_of(self, pid: int) -> int | None:
        """How one that was started has ended; None as long as it lives."""
        code: int | None = self._ask(do="poll", pid=pid)
        return code

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(10)

    def _ask(self, **request: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._one_at_a_time:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            return json.loads(self._process.stdout.readline())


class Forked:
    """A process that the zygote has started, in the manner of `subprocess.Popen`."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self._zygote, self.pid = zygote, pid
        self._code: int | None = None

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self._zygote.code_of(self.pid)
        return self._code

    def wait(self, timeout: float = 60.0) -> int:
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# -- the process itself -----------------------------------------------------------------------------------------------


def _become(request: dict[str, Any]) -> None:
    """In the forked child: be what a shell would have started."""
    for number, path in enumerate(request["files"]):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_CREAT | os.O_APPEND
        os.dup2(os.open(path, flags, 0o600), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    # A shell that runs the tests in the background ignores Ctrl-C in all processes that it starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.alarm(request.get("timeout", 0))
    if request["be"] == "worker":
        from rival_workers.runtime.celery.worker import main

        sys.exit(main(request["args"]))
    if request["be"] == "script":
        sys.argv, sys.path[0] = request["args"], str(Path(request["args"][0]).parent)
        runpy.run_path(request["args"][0], run_name="__main__")
        sys.exit()
    from rival_workers.cli.main import cli

    cli(request["args"])


#: What is otherwise imported on the way.
_LATE = (
    "psycopg",
    "redis",
    "sqlalchemy.dialects.postgresql.psycopg",
    "sqlalchemy.dialects.sqlite",
    "rich.table",
    "rival_client.api.async_client",
    "alembic.command",
    "alembic.config",
    "celery.app.amqp",
    "celery.app.events",
    "celery.app.routes",
    "celery.apps.worker",
    "celery.worker.components",
    "celery.app.control",
    "celery.app.log",
    "celery.backends.base",
    "celery.events.receiver",
    "celery.fixups.django",
    "celery.loaders.app",
    "celery.worker.autoscale",
    "billiard.pool",
    "kombu.pidbox",
)


def _import_all() -> None:
    import rival_workers
    from rival_workers.cli.main import COMMANDS

    commands = {f"cli.{module}" for module in COMMANDS.values()}
    others = {"runtime.celery.worker", "runtime.celery.redis_transport", "testing.lab", "library.inproc_worker"}
    for module in commands | others:
        importlib.import_module(f"rival_workers.{module}")
    for name in rival_workers.__all__:
        getattr(rival_workers, name)
    for late in _LATE:
        importlib.import_module(late)


def _answer(request: dict[str, Any]) -> int | None:
    if request["do"] == "poll":
        ended, status = os.waitpid(request["pid"], os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if ended else None
    child = os.fork()
    if child == 0:
        _become(request)
    if request["do"] == "run":
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    # Here and not in the child, so that a process that knows the pid can signal the group.
    os.setpgid(child, child)
    return child


def _serve() -> None:
    _import_all()
    # The children leave what is there alone: a collection would copy every page of it.
    gc.freeze()
    while line := sys.stdin.readline():
        print(json.dumps(_answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    _serve()
