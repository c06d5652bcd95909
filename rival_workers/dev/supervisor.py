"""The parent of the embedded servers: brings up what is asked for, starts again what dies, and stops everything
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

from rival_workers.dev.board import (
    BROKER,
    DATABASE,
    Board,
    Places,
    Running,
    read_request,
    write_board,
)
from rival_workers.dev.locks import FileLock
from rival_workers.dev.restarts import RestartBudget
from rival_workers.dev.servers import BrokerServer, PostgresServer, Server

TICK = 0.05
KINDS: dict[str, type[Server]] = {DATABASE: PostgresServer, BROKER: BrokerServer}


@dataclass
class Charge:
    """A server that somebody asked for, and when it may be started again if it is down."""

    server: Server
    budget: RestartBudget = field(default_factory=RestartBudget)
    next_start: float | None = None
    failure: str | None = None


class Supervisor:
    """`run_once` is one look at everything; `run` repeats it until nobody needs the servers."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._users = FileLock(places.users_lock)
        self._charges: dict[str, Charge] = {}
        self._answered = ""
        self._told_to_stop = False

    def run(self) -> None:
        try:
            while self.run_once(time.monotonic()):
                time.sleep(TICK)
        finally:
            self._stop_all()

    def run_once(self, now: float) -> bool:
        """False when it is time to go."""
        if self._told_to_stop or self._nobody_left():
            return False
        self._answer_request()
        for charge in self._charges.values():
            self._look_after(charge, now)
        return True

    def stop_soon(self, _signal: int = 0, _frame: FrameType | None = None) -> None:
        self._told_to_stop = True

    def _nobody_left(self) -> bool:
        # The exclusive lock is kept to the end: whoever comes now waits until the servers are gone, then starts.
        return not self._users.is_current() or self._users.try_lock()

    def _answer_request(self) -> None:
        request = read_request(self._places)
        if request is None or request.id == self._answered:
            return
        for name in request.names:
            self._bring_up(name)
        self._answered = request.id
        self._tell()

    def _bring_up(self, name: str) -> None:
        charge = self._charges.get(name)
        if charge is None or charge.failure is not None:
            charge = self._charges[name] = Charge(KINDS[name](self._places.directory))
        self._try_start(charge)

    def _try_start(self, charge: Charge) -> None:
        try:
            charge.server.start()
        except Exception as error:
            traceback.print_exc()
            charge.failure = str(error)
        charge.next_start = None

    def _look_after(self, charge: Charge, now: float) -> None:
        if charge.failure is not None or charge.server.running:
            return
        if charge.next_start is None:
            self._note_death(charge, now)
        if charge.next_start is not None and charge.next_start <= now:
            self._try_start(charge)
            self._tell()

    def _note_death(self, charge: Charge, now: float) -> None:
        print(f"the {charge.server.name} server has died", flush=True)
        charge.next_start = charge.budget.next_start(now)
        if charge.next_start is None:
            charge.failure = str(charge.server.failed("has died too often"))
        self._tell()

    def _tell(self) -> None:
        if not self._users.is_current():
            return  # the directory has been removed: do not bring it back
        running = {
            name: Running(charge.server.url, charge.server.pid)
            for name, charge in self._charges.items()
            if charge.server.pid is not None
        }
        failures = {name: charge.failure for name, charge in self._charges.items() if charge.failure is not None}
        write_board(self._places, Board(os.getpid(), self._answered, running, failures))

    def _stop_all(self) -> None:
        self._places.board.unlink(missing_ok=True)
        for charge in self._charges.values():
            charge.server.stop()


def main(directory: str) -> int:
    places = Places(Path(directory).absolute())
    lock = FileLock(places.supervisor_lock)
    if not lock.lock(timeout=1.0):  # somebody who asks whether it is taken holds it for an instant
        print("another supervisor looks after this directory", file=sys.stderr)
        return 1
    # The lock goes with the child, so that a supervisor never is there without holding it; and the starter has
    # no child to wait for.
    if os.fork():
        return 0
    supervise(places)
    return 0


def supervise(places: Places) -> None:
    supervisor = Supervisor(places)
    signal.signal(signal.SIGTERM, supervisor.stop_soon)
    signal.signal(signal.SIGINT, supervisor.stop_soon)
    supervisor.run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
