"""What an attempt reads of its run in the middle of user code. A database error there is not the step's failure: it is
waited out, and if it lasts, the attempt ends without an outcome.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rival_client.errors import DatabaseError
from rival_client.model.records import Step
from rival_workers.runtime.attempt.outage import OutageRetry
from rival_workers.runtime.flow.signals import OutOfReach
from rival_workers.store.interface import Claim, Store

T = TypeVar("T")


class AttemptReads:
    def __init__(self, store: Store, outage: OutageRetry) -> None:
        self._store, self._outage = store, outage

    def step(self, run_id: str, path: str) -> Step | None:
        return self._kept(lambda: self._store.read_step(run_id, path))

    def item(self, run_id: str, path: str) -> Any:
        return self._kept(lambda: self._store.read_item(run_id, path))

    def failure(self, run_id: str) -> tuple[str | None, dict[str, Any] | None]:
        return self._kept(lambda: self._store.failure_of(run_id))

    def is_over(self, claim: Claim) -> bool:
        """While the database cannot be asked, the attempt goes on."""
        try:
            seen = self._store.token_of(claim.run_id, claim.path)
        except DatabaseError:
            return False
        return seen is None or seen[:2] != ("running", claim.token)

    def _kept(self, read: Callable[[], T]) -> T:
        try:
            return self._outage.keep(read)
        except DatabaseError as error:
            raise OutOfReach from error
