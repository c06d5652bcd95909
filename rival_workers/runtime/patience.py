"""Getting an outcome into the database although the database may be away for a while.

The attempt's work is done and its result is only in this process; waiting costs less than doing it again, and a token
guards against landing twice. This is the one place in the runtime that may pause, and it pauses for nothing else.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from typing import Literal, TypeVar

from rival_client.errors import DatabaseUnavailable
from rival_workers.runtime.executor import Executor
from rival_workers.store.base import Held, RunningAttempt, Store

log = logging.getLogger("rival.patience")

T = TypeVar("T")

#: How an outcome got into the database. "later": nothing that its commit claimed may be relied on.
Landed = Literal["at once", "later", "late"]


class Patience:
    def __init__(
        self, seconds: float, store: Store, executor: Executor, release: Callable[[RunningAttempt], None]
    ) -> None:
        self._seconds, self._store, self._executor, self._release = seconds, store, executor, release

    def keep(self, operation: Callable[[], T]) -> T:
        """Try until the database is back. Only for what is safe to repeat: reads, and what a token guards."""
        until = time.monotonic() + self._seconds
        while True:
            try:
                return operation()
            except DatabaseUnavailable as error:
                self._pause(until, error)

    def land(self, held: Held, status: str, commit: Callable[[bool], bool]) -> Landed:
        """Commit an outcome. After a commit whose answer was lost, look before believing that it came too late: it
        may have landed. `commit` is told whether it is tried again.
        """
        until, again = time.monotonic() + self._seconds, False
        while True:
            try:
                with self._executor.claiming():
                    landed = commit(again)
                if landed:
                    return "later" if again else "at once"
                return "later" if again and self._had_landed(held, status) else "late"
            except DatabaseUnavailable as error:
                again = True
                self._pause(until, error)

    def _pause(self, until: float, error: DatabaseUnavailable) -> None:
        if time.monotonic() > until:
            raise error
        log.warning("database away, the outcome is kept and tried again: %s", error)
        time.sleep(0.2 + random.random() * 0.3)

    def _had_landed(self, held: Held, status: str) -> bool:
        seen = self._store.token_of(held.run_id, held.path)
        if seen is None or seen[:2] != (status, held.token + 1):
            return False
        # That commit may have claimed the next step for us, and nobody is running it.
        for other in self._store.running_on(self._executor.id):
            if other.held.run_id == held.run_id and other.held not in self._executor.holding:
                self._release(other)
        return True
