"""Real worker processes for tests: started, killed, frozen, read."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]
RIVAL_WORKER = [sys.executable, "-m", "rival_workers.runtime.worker_main"]


def wait_until(condition: Callable[[], object], timeout: float = 15.0, what: str = "") -> None:
    """Poll until it is true; the only waiting that tests do."""
    until = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > until:
            raise AssertionError(f"not within {timeout:g} s: {what or condition}")
        time.sleep(0.02)


class WorkerProcess:
    """One Celery worker with Rival in it, as a subprocess in its own group."""

    def __init__(
        self, env: dict[str, str], name: str, command: list[str], cwd: Path = ROOT, says: str = "is ready"
    ) -> None:
        self.name, self._says = name, says
        self._log = tempfile.NamedTemporaryFile("w+", suffix=f".{name}.log", delete=False)  # noqa: SIM115 - open as long as the worker
        self.process = subprocess.Popen(
            command, env=env, stdout=self._log, stderr=subprocess.STDOUT, start_new_session=True, cwd=cwd
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()

    def children(self) -> list[psutil.Process]:
        return psutil.Process(self.pid).children(recursive=True)

    def wait_ready(self, timeout: float = 40.0) -> None:
        def ready() -> bool:
            assert self.process.poll() is None, f"worker {self.name} ended:\n{self.log}"
            return self._says in self.log

        wait_until(ready, timeout, f"worker {self.name} ready")

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
        self.process.terminate()
        return self.process.wait(timeout)

    def clean_up(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGCONT)
        self.kill()
        self._log.close()
        os.unlink(self._log.name)


class Workers:
    """A test's fleet. Everything is killed when the test ends."""

    def __init__(self, env: dict[str, str]) -> None:
        self.env = env
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
        started = [WorkerProcess(env, name, [*RIVAL_WORKER, "--name", f"{name}@test", *options]) for name in names]
        return self._wait_for(started) if wait else self._keep(started)

    def start_celery(self, directory: Path, app: str, *options: str, says: str = "runs workflows") -> WorkerProcess:
        """A team's own worker, as the team starts it: `celery -A app worker …` in the project's directory."""
        name = f"w{len(self.all)}"
        command = [sys.executable, "-m", "celery", "-A", app, "worker", "-n", f"{name}@test", "-l", "INFO", *options]
        [worker] = self._wait_for([WorkerProcess(self.env, name, command, directory, says)])
        return worker

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
