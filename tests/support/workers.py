"""Real worker processes for tests: started, killed, frozen, read."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from rival_client.settings import Settings
from tests.support.zygote import Forked, Zygote

ROOT = Path(__file__).parents[2]
#: The lines of a worker that is ready, on a console or as JSON; see `lines_like`.
READY = "…worker … is ready (…, … at a time): …"
JOINED = "…worker … also runs workflows: …"


def wait_until(condition: Callable[[], object], timeout: float = 15.0, what: str | Callable[[], str] = "") -> None:
    """Poll until it is true; the only waiting that tests do. A `what` that is a function is called when the time is
    over: it can say what there is instead."""
    until = time.monotonic() + timeout
    while not (found := condition()):
        if time.monotonic() > until:
            expected = what() if callable(what) else what or inspect.getsource(condition).strip()
            raise AssertionError(f"not within {timeout:g} s, the last value was {found!r}: {expected}")
        time.sleep(0.02)


def lines_like(log: str, line: str) -> list[str]:
    """The whole lines of a log that are like `line`, in which "…" stands for any text."""
    pattern = re.compile(re.escape(line).replace("…", ".*"))
    return [one for one in log.splitlines() if pattern.fullmatch(one)]


def wait_for_line(read: Callable[[], str], line: str, times: int = 1, timeout: float = 30.0) -> None:
    """Until the log has the line as often as that; see `lines_like`."""
    wait_until(lambda: len(lines_like(read(), line)) >= times, timeout, lambda: f"{line!r} x {times} in:\n{read()}")


def worker_env(settings: Settings) -> dict[str, str]:
    """What a worker for these databases and queues finds in its environment, and nothing of ours."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RIVAL_", "CELERY_"))}
    return env | {
        "RIVAL_DATABASE_URL": settings.database_url or "",
        "RIVAL_BROKER_URL": settings.broker_url or "",
        "RIVAL_QUEUE": settings.queue,
        "PYTHONPATH": str(ROOT),
    }


class WorkerProcess:
    """One Celery worker with Rival in it, as a process in its own group; `start` is given where it may log to."""

    def __init__(self, name: str, start: Callable[[str], Forked | subprocess.Popen[bytes]], says: str = READY) -> None:
        self.name, self._says = name, says
        handle, self._log = tempfile.mkstemp(suffix=f".{name}.log")
        os.close(handle)
        self.process = start(self._log)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return Path(self._log).read_text()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    def wait_ready(self, timeout: float = 40.0) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, f"worker {self.name} ended:\n{self.log}"
            return bool(lines_like(self.log, self._says))

        wait_until(ready, timeout, lambda: f"worker {self.name} is ready:\n{self.log}")

    def wait_for_line(self, line: str, timeout: float = 30.0) -> None:
        wait_for_line(lambda: self.log, line, timeout=timeout)

    def signal(self, number: int) -> None:
        os.killpg(self.pid, number)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.wait(10)

    def freeze(self) -> None:
        self.signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self.signal(signal.SIGCONT)

    def terminate(self, timeout: float = 30.0) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout)

    def clean_up(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
        self.kill()
        os.unlink(self._log)


class Workers:
    """A test's fleet. Everything is killed when the test ends."""

    def __init__(self, env: dict[str, str], zygote: Zygote) -> None:
        self.env, self._zygote = env, zygote
        self.all: list[WorkerProcess] = []

    def start(
        self,
        workflows: str | Path,
        count: int = 1,
        *,
        pool: str = "threads",
        concurrency: int = 4,
        events: bool = False,
        reload: bool = False,
        wait: bool = True,
        **settings: object,
    ) -> list[WorkerProcess]:
        """`settings` are RIVAL_… by their lower-case names: lease=2, continuation_budget=0."""
        env = {**self.env, "RIVAL_WORKFLOWS": str(workflows)}
        env |= {f"RIVAL_{name.upper()}": str(value) for name, value in settings.items()}
        names = [f"w{len(self.all) + n}" for n in range(count)]
        options = ["--pool", pool, "--concurrency", str(concurrency), *(["--events"] if events else [])]
        options += ["--reload"] if reload else []
        started = [self._fork(name, ["--name", f"{name}@test", *options], env) for name in names]
        return self._wait_for(started) if wait else self._keep(started)

    def start_celery(self, directory: Path, app: str, *options: str, says: str = JOINED) -> WorkerProcess:
        """A team's own worker, as the team starts it: `celery -A app worker …` in the project's directory."""
        name = f"w{len(self.all)}"
        command = [sys.executable, "-m", "celery", "-A", app, "worker", "-n", f"{name}@test", "-l", "INFO", *options]
        [worker] = self._wait_for([WorkerProcess(name, lambda log: self._spawn(command, directory, log), says)])
        return worker

    def _fork(self, name: str, args: list[str], env: dict[str, str]) -> WorkerProcess:
        return WorkerProcess(name, lambda log: self._zygote.start("worker", args, ROOT, env, log))

    def _spawn(self, command: list[str], cwd: Path, log: str) -> subprocess.Popen[bytes]:
        with Path(log).open("wb") as out:
            return subprocess.Popen(command, env=self.env, cwd=cwd, stdout=out, stderr=out, start_new_session=True)

    def _wait_for(self, started: list[WorkerProcess]) -> list[WorkerProcess]:
        for worker in self._keep(started):
            worker.wait_ready()
        return started

    def _keep(self, started: list[WorkerProcess]) -> list[WorkerProcess]:
        self.all += started
        return started

    def clean_up(self) -> None:
        for worker in self.all:
            worker.clean_up()
