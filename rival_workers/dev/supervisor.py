"""The parent process of the embedded servers: starts requested servers, restarts those that die, and stops all of them
when the last user has gone. Also `python -m rival_workers.dev.supervisor DIRECTORY`."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from rival_workers.dev.broker_server import BrokerServer
from rival_workers.dev.file_lock import FileLock
from rival_workers.dev.postgres_server import PostgresServer
from rival_workers.dev.server import Server
from rival_workers.dev.stack_files import BROKER, DATABASE, Running, StackState, read_request, write_state
from rival_workers.dev.stack_paths import StackPaths

TICK = 0.05
#: At most so many restarts of a server in any `WITHIN` seconds.
ATTEMPTS = 5
WITHIN = 60.0
FIRST_DELAY = 0.2
KINDS: dict[str, type[Server]] = {DATABASE: PostgresServer, BROKER: BrokerServer}


@dataclass
class RestartBudget:
    """When a server that has died may be started again: at once, then with growing delays, then not at all."""

    deaths: list[float] = field(default_factory=list)

    def next_start(self, died_at: float) -> float | None:
        """When to start again after a death, or None when it has died too often."""
        self.deaths = [*(death for death in self.deaths if died_at - death < WITHIN), died_at]
        earlier = len(self.deaths) - 1
        if earlier >= ATTEMPTS:
            return None
        return died_at if earlier == 0 else died_at + FIRST_DELAY * 2 ** (earlier - 1)


@dataclass
class ManagedServer:
    """A requested server, and when it may be started again if it is down."""

    server: Server
    budget: RestartBudget = field(default_factory=RestartBudget)
    next_start: float | None = None
    failure: str | None = None


class Supervisor:
    """`run` repeats `run_once` until no process uses the servers."""

    def __init__(self, paths: StackPaths) -> None:
        self._places = paths
        self._users = FileLock(paths.users_lock)
        self._servers: dict[str, ManagedServer] = {}
        self._answered = ""
        self._stop_requested = False

    def run(self) -> None:
        try:
            while self.run_once(time.monotonic()):
                time.sleep(TICK)
        finally:
            self._stop_all()

    def run_once(self, now: float) -> bool:
        """Returns False when the supervisor must end."""
        if self._stop_requested or self._is_unused():
            return False
        self._answer_request()
        for managed in self._servers.values():
            self._restart_if_due(managed, now)
        return True

    def stop_soon(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        self._stop_requested = True

    def _is_unused(self) -> bool:
        # The exclusive lock is kept to the end: a new user waits until the servers have stopped, then starts them.
        return not self._users.is_current() or self._users.try_lock()

    def _answer_request(self) -> None:
        request = read_request(self._places)
        if request is None or request.id == self._answered:
            return
        for name in request.names:
            self._bring_up(name)
        self._answered = request.id
        self._write_state()

    def _bring_up(self, name: str) -> None:
        managed = self._servers.get(name)
        if managed is None or managed.failure is not None:
            managed = self._servers[name] = ManagedServer(KINDS[name](self._places.directory))
        self._try_start(managed)

    def _try_start(self, managed: ManagedServer) -> None:
        try:
            managed.server.start()
        except Exception as error:
            traceback.print_exc()
            managed.failure = str(error)
        managed.next_start = None

    def _restart_if_due(self, managed: ManagedServer, now: float) -> None:
        if managed.failure is not None or managed.server.running:
            return
        if managed.next_start is None:
            self._record_death(managed, now)
        if managed.next_start is not None and managed.next_start <= now:
            self._try_start(managed)
            self._write_state()

    def _record_death(self, managed: ManagedServer, now: float) -> None:
        print(f"the {managed.server.name} server has died", flush=True)
        managed.next_start = managed.budget.next_start(now)
        if managed.next_start is None:
            managed.failure = str(managed.server.failed("has died too often"))
        self._write_state()

    def _write_state(self) -> None:
        if not self._users.is_current():
            return  # the directory was removed: do not create it again
        running = {
            name: Running(managed.server.url, managed.server.pid)
            for name, managed in self._servers.items()
            if managed.server.pid is not None
        }
        failures = {name: managed.failure for name, managed in self._servers.items() if managed.failure is not None}
        write_state(self._places, StackState(os.getpid(), self._answered, running, failures))

    def _stop_all(self) -> None:
        self._places.state.unlink(missing_ok=True)
        for managed in self._servers.values():
            managed.server.stop()


def main(directory: str) -> int:
    paths = StackPaths(Path(directory).absolute())
    lock = FileLock(paths.supervisor_lock)
    if not lock.lock(timeout=1.0):  # `is_locked` holds it for an instant
        print("another supervisor is running in this directory", file=sys.stderr)
        return 1
    # The child inherits the lock, so a supervisor always holds it; and the starter has no child to wait for.
    if os.fork():
        return 0
    supervise(paths)
    return 0


def supervise(paths: StackPaths) -> None:
    supervisor = Supervisor(paths)
    signal.signal(signal.SIGTERM, supervisor.stop_soon)
    signal.signal(signal.SIGINT, supervisor.stop_soon)
    supervisor.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
