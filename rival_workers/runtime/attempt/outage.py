"""Commits outcomes and reads rows although the database may be unavailable, or refuse work, for a while.

When an attempt's function has returned, its result is only in this process. Waiting costs less than running the step
again, and the token prevents a second commit. No other part of the runtime sleeps.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Collection
from typing import Any, Literal, TypeVar

from rival_client.errors import DatabaseError, DatabaseRefused
from rival_client.model import statuses
from rival_client.model.step_records import Step
from rival_workers.runtime.attempt.runs_in_hand import Commits
from rival_workers.runtime.executor import Executor
from rival_workers.runtime.flow.stop_signals import OutOfReach
from rival_workers.store.claim_records import Claim
from rival_workers.store.interface import Store

log = logging.getLogger("rival.outage")

T = TypeVar("T")

#: The first and the longest pause, in seconds, before an operation is repeated.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 2.0

#: When an outcome was committed. "later": after a repetition, so a claim made by the commit may be lost. "late": the
#: step has moved on, and the outcome was not committed.
Landed = Literal["at once", "later", "late"]


class OutageRetry:
    def __init__(self, seconds: float, store: Store, executor: Executor) -> None:
        self._seconds, self._store, self._executor = seconds, store, executor

    def keep(self, operation: Callable[[], T]) -> T:
        """Repeat the operation until the database is back. Only for reads, and for writes that a token guards."""
        pauses = _Pauses(time.monotonic() + self._seconds)
        while True:
            try:
                return operation()
            except DatabaseError as error:
                pauses.wait(error)

    def land(self, claim: Claim, statuses: Collection[str], commit: Callable[[bool], Commits[bool]]) -> Commits[Landed]:
        """Commit an outcome, after which the step has one of the statuses. If the answer of a commit was lost and the
        next one is stale, read the row: the first commit may have succeeded. `commit` receives whether it is a
        repetition.
        """
        pauses: _Pauses | None = None
        began = time.monotonic()
        while True:
            again = pauses is not None
            try:
                with self._executor.claiming():
                    landed = yield from commit(again)
                if landed:
                    return "later" if again else "at once"
                return "later" if again and self._had_landed(claim, statuses) else "late"
            except DatabaseError as error:
                pauses = pauses or _Pauses(began + self._seconds)
                pauses.wait(error)

    def _had_landed(self, claim: Claim, statuses: Collection[str]) -> bool:
        seen = self._store.token_of(claim.run_id, claim.path)
        if seen is None or seen[0] not in statuses or seen[1] != claim.token + 1:
            return False
        # The first commit may have claimed what follows for this executor, which does not run it.
        self._executor.hand_back_strays()
        self._executor.compare_soon()
        return True


class AttemptReads:
    """Reads of a run in the middle of user code. A database error is not the step's failure: it is retried, and if the
    outage lasts, OutOfReach ends the attempt without an outcome.
    """

    def __init__(self, store: Store, outage: OutageRetry) -> None:
        self._store, self._outage = store, outage

    def step(self, run_id: str, path: str) -> Step | None:
        return self._kept(lambda: self._store.read_step(run_id, path))

    def item(self, run_id: str, path: str) -> Any:
        return self._kept(lambda: self._store.read_item(run_id, path))

    def failure(self, run_id: str) -> tuple[str | None, dict[str, Any] | None]:
        return self._kept(lambda: self._store.failure_of(run_id))

    def is_over(self, claim: Claim) -> bool:
        """During an outage the attempt continues."""
        try:
            seen = self._store.token_of(claim.run_id, claim.path)
        except DatabaseError:
            return False
        return seen is None or seen[:2] != (statuses.RUNNING, claim.token)

    def _kept(self, read: Callable[[], T]) -> T:
        try:
            return self._outage.keep(read)
        except DatabaseError as error:
            raise OutOfReach from error


class _Pauses:
    """The growing pauses between the repetitions of one operation, up to a moment."""

    def __init__(self, until: float) -> None:
        self._until, self._next = until, FIRST_PAUSE

    def wait(self, error: DatabaseError) -> None:
        """Raises the error when the time is over, and at once when the database refuses the values themselves."""
        if time.monotonic() > self._until or (isinstance(error, DatabaseRefused) and error.about_values):
            raise error
        log.warning("database unavailable; the operation is kept and retried: %s", error)
        time.sleep(self._next * random.uniform(0.7, 1.3))
        self._next = min(self._next * 1.5, LONGEST_PAUSE)
