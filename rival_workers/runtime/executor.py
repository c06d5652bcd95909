"""An executor: this process as the fleet sees it. One row, one heartbeat, a new id at every start.

Liveness is leased per process. An executor whose lease ran out while it was away takes a new id, and with it what
nobody has taken over in the meantime; whose result counts is decided by tokens alone. Every few heartbeats it compares
what the table says it runs with what it does run, and releases the difference.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rival_client.errors import DatabaseError
from rival_workers.runtime.attempt.running_attempts import RunningAttempts
from rival_workers.runtime.host import host_name
from rival_workers.store.interface import RunningAttempt, Store

log = logging.getLogger("rival.executor")

HandBack = Callable[[RunningAttempt], None]

#: The table is compared at every so many heartbeats; after a claim whose answer was lost, at each of the next few.
COMPARE_EVERY = 3
#: How many times longer than a comparison takes no other follows: with very many running runs they get rarer.
_REST = 50


class Executor:
    def __init__(self, store: Store, lease: float, worker: str) -> None:
        self._store, self._lease, self._worker = store, lease, worker
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: What this process runs.
        self.claim = RunningAttempts()
        self._beats = self._doubts = 0
        self._compare_from = 0.0
        #: The id before the last one, under which a claim in flight may still arrive.
        self._former: str | None = None
        #: Releases an attempt that this process does not run; set by the coordinator, which can publish.
        self.hand_back: HandBack = lambda attempt: None
        #: What is wrong with this process, in words, or None. Stored with the heartbeat, for `rival doctor`.
        self.find_problem: Callable[[], str | None] = lambda: None
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
        try:
            self._store.forget_executors([self.id])
        except DatabaseError as error:
            log.warning("executor %s could not be removed, its lease will run out: %s", self.id, error)

    @contextmanager
    def claiming(self) -> Iterator[None]:
        """Around a statement that may claim something for this executor; what it has claimed is held before the block
        ends. A claim whose answer is lost may have landed all the same: the next heartbeats compare.
        """
        try:
            with self.claim.claim_in_flight():
                yield
        except DatabaseError:
            self.doubt()
            raise

    def doubt(self) -> None:
        """Something may run in the table only: compare at each of the next heartbeats."""
        self._doubts = COMPARE_EVERY

    # -- the heartbeat ------------------------------------------------------------------------------------

    def beat_once(self) -> None:
        if not self._store.beat(self.id, self._lease, self.find_problem()):
            log.warning("executor %s was declared dead while it was away; it goes on under a new id", self.id)
            self._former = self.id
            self.register()
            self._store.adopt_attempts(self._former, self.id)
        if self._is_time_to_compare():
            self.release_strays()

    def register(self) -> None:
        """From now on under a new id. What ran under the one before is given up, unless it is adopted."""
        new = _new_id()
        self._store.add_executor(new, host_name(), os.getpid(), self._worker, self._lease)
        self.id = new

    def _is_time_to_compare(self) -> bool:
        self._beats += 1
        if self._doubts:
            self._doubts -= 1
            return True
        return self._beats % COMPARE_EVERY == 0 and time.monotonic() >= self._compare_from

    def release_strays(self) -> None:
        """Release what runs in the table and not here: an attempt whose claim was lost, or whose outcome was."""
        began = time.monotonic()
        if self._former is not None:
            self._store.adopt_attempts(self._former, self.id)
            self._former = self._former if self.claim.claims else None
        for stray in self.claim.strays(self._store.running_on(self.id)):
            where = stray.claim
            log.warning("run %s step %s runs in the table but not here: released", where.run_id, where.path)
            self.hand_back(stray)
        self._compare_from = time.monotonic() + _REST * (time.monotonic() - began)

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
