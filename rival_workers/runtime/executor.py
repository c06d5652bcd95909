"""The executor row of this process: its lease, its heartbeat, and the attempts that it runs.

Each start takes a new id. The lease covers the whole process, not single attempts. An executor whose lease expired
during an outage takes a new id and adopts the attempts that no other executor has taken over. Tokens alone decide which
result counts. Every few heartbeats the executor compares its rows in the table with the attempts that it runs, and
releases the difference. This module does not run attempts and does not publish messages.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from rival_client.errors import DatabaseError
from rival_workers.runtime.attempt.calls_over import UserCall, count_over
from rival_workers.runtime.host import host_name
from rival_workers.store.claim_records import Claim
from rival_workers.store.interface import Store
from rival_workers.store.sweep_records import RunningAttempt

log = logging.getLogger("rival.executor")

HandBack = Callable[[RunningAttempt], None]

#: Heartbeats between two comparisons with the table. After a claim whose answer was lost, each of the next
#: COMPARE_EVERY heartbeats compares.
COMPARE_EVERY = 3
#: The pause after a comparison, as a multiple of its duration: with very many running attempts it becomes rarer.
_REST = 50


class RunningAttempts:
    """The attempts that this process runs, and the strays: rows that are `running` in the table but not here.

    One read of the table is enough because of the order of events. A claim is in flight before its row can be
    `running`, and its attempt is added here before the claim stops being in flight. A row that was read as `running`
    is a stray if its attempt is not here and no claim is left that was in flight when the row was first seen.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._local = threading.local()
        #: The attempts of each message that is being handled.
        self._messages: set[_Message] = set()
        self._claims_in_flight: set[object] = set()
        #: Called when a message was taken but not handled because the database was unavailable.
        self.when_dropped: Callable[[], None] = lambda: None
        #: Rows that do not run here, each with the claims in flight that may be theirs.
        self._suspects: dict[Claim, set[object]] = {}
        #: The calls of functions that run now.
        self.calls: dict[Claim, UserCall] = {}

    def message(self) -> AbstractContextManager[None]:
        """Handle one message. The end of the block removes all attempts that were added within it."""
        return _Message(self)

    def leave(self) -> Any:
        """This thread leaves the message for now; another may continue with `enter`."""
        message, self._local.message = self._local.message, self._local.message.before
        return message

    def enter(self, message: Any) -> None:
        message.before, self._local.message = getattr(self._local, "message", None), message

    def add(self, claim: Claim) -> None:
        """Within a message: the attempt runs here until its outcome is committed or it is released."""
        with self._lock:
            self._local.message.claims.add(claim)

    def remove(self, claim: Claim) -> None:
        with self._lock:
            self._local.message.claims.discard(claim)

    @property
    def messages(self) -> int:
        """How many messages are being handled."""
        return len(self._messages)

    @property
    def claims_in_flight(self) -> int:
        return len(self._claims_in_flight)

    @property
    def all(self) -> set[Claim]:
        with self._lock:
            return set().union(*(message.claims for message in self._messages))

    def strays(self, rows: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        """Returns those of the rows just read that this process does not run."""
        with self._lock:
            here = set().union(*(message.claims for message in self._messages))
            unknown = {row.claim: row for row in rows if row.claim not in here}
            in_flight = set(self._claims_in_flight)
            self._suspects = {claim: self._suspects.get(claim, in_flight) & in_flight for claim in unknown}
            return [row for claim, row in unknown.items() if not self._suspects[claim]]

    def end_calls(self, before: Mapping[Claim, UserCall], rows: Sequence[RunningAttempt]) -> None:
        """`before`: the calls that ran before the rows were read. The table does not need those without a row."""
        current = {row.claim for row in rows}
        for claim, call in before.items():
            if claim not in current:
                call.end()


class _Message:
    __slots__ = ("_running", "before", "claims")

    def __init__(self, running: RunningAttempts) -> None:
        self._running = running
        self.before: _Message | None = None
        self.claims: set[Claim] = set()

    def __enter__(self) -> None:
        with self._running._lock:
            self._running._messages.add(self)
        self._running.enter(self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._running.leave()
        with self._running._lock:
            self._running._messages.discard(self)
        if kind is not None and issubclass(kind, DatabaseError):
            self._running.when_dropped()


class _ClaimInFlight:
    __slots__ = ("_executor",)

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def __enter__(self) -> None:
        running = self._executor.running
        with running._lock:
            running._claims_in_flight.add(self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        running = self._executor.running
        with running._lock:
            running._claims_in_flight.discard(self)
        if kind is not None and issubclass(kind, DatabaseError):
            self._executor.compare_soon()


class Executor:
    def __init__(self, store: Store, lease: float, worker: str, queues: Sequence[str] | None = None) -> None:
        """`queues`: the queues that this process serves."""
        self._store, self._lease, self._worker, self._queues = store, lease, worker, queues
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.running = RunningAttempts()
        self._beats = self._comparisons_due = 0
        self._compare_from = 0.0
        #: The id before the current one. A claim in flight may still commit under it.
        self._former: str | None = None
        #: Releases an attempt that this process does not run; set by the coordinator, which can publish.
        self.hand_back: HandBack = lambda attempt: None
        #: Returns what is wrong with this process, or None. Stored with the heartbeat, for `rival doctor`.
        self.find_problem: Callable[[], str | None] = lambda: None
        #: Returns the workflows of this process, with their versions. Stored with the heartbeat.
        self.known_workflows: Callable[[], dict[str, list[str]] | None] = lambda: None
        #: How many attempts this process can run at once. Stored with the heartbeat.
        self.slots: int | None = None
        self.id = _new_id()

    def start(self) -> None:
        try:
            self.register()
        except DatabaseError as error:
            log.warning("executor %s is not registered yet; its next heartbeat tries again: %s", self.id, error)
        self._thread = threading.Thread(target=self._beat_until_stopped, name="rival-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)
        try:
            self._store.delete_executors([self.id])
        except DatabaseError as error:
            log.warning("executor %s could not be removed; its lease will expire: %s", self.id, error)

    def claiming(self) -> AbstractContextManager[None]:
        """Wraps a statement that may claim a step for this executor. Add the claimed attempt to `running` within the
        block. A claim whose answer was lost may have committed: the next heartbeats compare.
        """
        return _ClaimInFlight(self)

    def compare_soon(self) -> None:
        """A row may be `running` in the table only: compare at each of the next heartbeats."""
        self._comparisons_due = COMPARE_EVERY

    # -- the heartbeat ------------------------------------------------------------------------------------

    def beat_once(self) -> None:
        about = {"busy": len(self.running.all), "slots": self.slots, "workflows": self.known_workflows()}
        if not self._store.beat(self.id, self._lease, self.find_problem(), **about):
            log.warning("executor %s was declared dead, since no heartbeat came; it continues under a new id", self.id)
            self._former = self.id
            self.register()
            self._store.adopt_attempts(self._former, self.id)
        if self._is_time_to_compare():
            self.hand_back_strays()

    def register(self) -> None:
        """Take a new id. Attempts under the former id are lost, unless they are adopted."""
        new = _new_id()
        self._store.add_executor(new, host_name(), os.getpid(), self._worker, self._lease, self._queues)
        self.id = new

    def _is_time_to_compare(self) -> bool:
        self._beats += 1
        if self._comparisons_due:
            self._comparisons_due -= 1
            return True
        if any(call.is_awaiting for call in list(self.running.calls.values())):
            return True  # its coroutine is cancelled soon after its run
        return self._beats % COMPARE_EVERY == 0 and time.monotonic() >= self._compare_from

    def hand_back_strays(self) -> None:
        """Hand back rows that run in the table but not here: the answer of a claim, or an outcome, was lost. End calls
        that run here but not in the table: the run was cancelled, or the step has moved on."""
        began, calls = time.monotonic(), dict(self.running.calls)
        if self._former is not None:
            self._store.adopt_attempts(self._former, self.id)
            self._former = self._former if self.running.claims_in_flight else None
        rows = self._store.running_on(self.id)
        self.running.end_calls(calls, rows)
        for stray in self.running.strays(rows):
            claim = stray.claim
            log.warning("run %s step %s runs in the table but not here: released", claim.run_id, claim.path)
            self.hand_back(stray)
        self._compare_from = time.monotonic() + _REST * (time.monotonic() - began)

    def count_over(self) -> int:
        """Looks in the table; how many attempts are over and still run here. For a process that stops."""
        try:
            calls = dict(self.running.calls)
            # Rows under a former id are adopted by the next heartbeat.
            if calls and self._former is None:
                self.running.end_calls(calls, self._store.running_on(self.id))
        except DatabaseError as error:
            log.warning("cannot find the attempts that are over: %s", error)
        return count_over(self.running.calls)

    def _beat_until_stopped(self) -> None:
        # A third of the lease tolerates two lost beats. The jitter keeps the processes of a fleet out of step.
        while not self._stop.wait(self._lease / 3 * random.uniform(0.8, 1.0)):
            try:
                self.beat_once()
            except DatabaseError as error:
                log.warning("heartbeat: %s", error)
            except Exception:
                log.exception("heartbeat failed; the next one follows")


def _new_id() -> str:
    return f"{host_name()}:{os.getpid()}:{uuid.uuid4().hex[:12]}"
