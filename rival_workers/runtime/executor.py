"""An executor: this process as the fleet sees it. One row, one heartbeat, a new id at every start.

Liveness is leased per process. An executor whose lease ran out while it was away takes a new id, and with it what
nobody has taken over in the meantime; whose result counts is decided by tokens alone.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rival_client.errors import DatabaseError
from rival_workers.runtime.host import host_name
from rival_workers.store.base import Held, RunningAttempt, Store

log = logging.getLogger("rival.executor")

HandBack = Callable[[RunningAttempt], None]


class Executor:
    def __init__(self, store: Store, lease: float, worker: str) -> None:
        self._store, self._lease, self._worker = store, lease, worker
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._holding: set[Held] = set()
        self._unknown: set[Held] = set()
        self._doubts = 0
        #: Gives an attempt back that nobody here is running; set by whoever can ring.
        self.hand_back: HandBack = lambda attempt: None
        self.id = _new_id()

    def start(self) -> None:
        try:
            self.register()
        except DatabaseError as error:
            log.warning("executor %s is not registered yet, its heartbeat will try again: %s", self.id, error)
        self._thread = threading.Thread(target=self._beat_for_ever, name="rival-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        self._store.forget_executors([self.id])

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """A claim whose answer is lost may have landed all the same: the next few beats look for it."""
        try:
            yield
        except DatabaseError:
            self._doubts = 3
            raise

    # -- what this process is running ---------------------------------------------------------------------

    @contextmanager
    def holds(self, held: Held) -> Iterator[None]:
        with self._lock:
            self._holding.add(held)
        try:
            yield
        finally:
            with self._lock:
                self._holding.discard(held)

    @property
    def holding(self) -> set[Held]:
        with self._lock:
            return set(self._holding)

    # -- the heartbeat ------------------------------------------------------------------------------------

    def beat_once(self) -> None:
        if not self._store.beat(self.id, self._lease):
            log.warning("executor %s was declared dead while it was away; it goes on under a new id", self.id)
            before = self.id
            self.register()
            self._store.adopt_attempts(before, self.id)
        if self._doubts:
            self._give_back_what_nobody_runs()

    def register(self) -> None:
        """From now on under a new id. What ran under the one before is given up, unless somebody adopts it."""
        new = _new_id()
        self._store.add_executor(new, host_name(), os.getpid(), self._worker, self._lease)
        self.id = new

    def _give_back_what_nobody_runs(self) -> None:
        """A claim whose answer was lost is running in the table and nowhere else. Seen twice in a row, it goes back."""
        self._doubts -= 1
        holding = self.holding
        strays = {attempt.held: attempt for attempt in self._store.running_on(self.id) if attempt.held not in holding}
        for held in strays.keys() & self._unknown:
            log.warning("run %s step %s is claimed here but not running: handed back", held.run_id, held.path)
            self.hand_back(strays[held])
        self._unknown = set(strays)

    def _beat_for_ever(self) -> None:
        # A third of the lease leaves room for two lost beats; the jitter keeps a fleet from beating in step.
        while not self._stop.wait(self._lease / 3 * random.uniform(0.8, 1.0)):
            try:
                self.beat_once()
            except DatabaseError as error:
                log.warning("heartbeat: %s", error)
            except Exception:
                log.exception("heartbeat failed; it goes on")


def _new_id() -> str:
    return f"{host_name()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
