"""Getting an outcome into the database although the database may be away, or refuse work, for a while.

The attempt's work is done and its result is only in this process; waiting costs less than doing it again, and a token
guards against landing twice. This is the one place in the runtime that may pause, and it pauses for nothing else.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Literal, TypeVar

from rival_client.errors import DatabaseError, DatabaseRefused
from rival_workers.runtime.executor import Executor
from rival_workers.store.interface import Claim, Store

log = logging.getLogger("rival.outage")

T = TypeVar("T")

#: Seconds before the first repetition, and before each later one at the most.
FIRST_PAUSE, LONGEST_PAUSE = 0.2, 2.0

#: How an outcome got into the database. "later": nothing that its commit claimed may be relied on.
Landed = Literal["at once", "later", "late"]


class OutageRetry:
    def __init__(self, seconds: float, store: Store, executor: Executor) -> None:
        self._seconds, self._store, self._executor = seconds, store, executor

    def keep(self, operation: Callable[[], T]) -> T:
        """Try until the database is back. Only for what is safe to repeat: reads, and what a token guards."""
        pauses = _Pauses(self._seconds)
        while True:
            try:
                return operation()
            except DatabaseError as error:
                pauses.wait(error)

    def land(self, claim: Claim, status: str, commit: Callable[[bool], bool]) -> Landed:
        """Commit an outcome. After a commit whose answer was lost, look before believing that it came too late: it
        may have landed. `commit` is told whether it is tried again.
        """
        pauses, again = _Pauses(self._seconds), False
        while True:
            try:
                with self._executor.claiming():
                    landed = commit(again)
                if landed:
                    return "later" if again else "at once"
                return "later" if again and self._had_landed(claim, status) else "late"
            except DatabaseError as error:
                again = True
                pauses.wait(error)

    def _had_landed(self, claim: Claim, status: str) -> bool:
        seen = self._store.token_of(claim.run_id, claim.path)
        if seen is None or seen[:2] != (status, claim.token + 1):
            return False
        # That commit may have claimed the next step for this executor, and nothing runs it.
        self._executor.release_strays()
        self._executor.doubt()
        return True


class _Pauses:
    """The pauses between the tries of one operation: longer each time, until the time is up."""

    def __init__(self, seconds: float) -> None:
        self._until, self._next = time.monotonic() + seconds, FIRST_PAUSE

    def wait(self, error: DatabaseError) -> None:
        """Raises the error when its time is up, and at once when the values themselves are its reason."""
        if time.monotonic() > self._until or (isinstance(error, DatabaseRefused) and error.about_values):
            raise error
        log.warning("the database could not be used; what was to be stored or read is kept and tried again: %s", error)
        time.sleep(self._next * random.uniform(0.7, 1.3))
        self._next = min(self._next * 1.5, LONGEST_PAUSE)
