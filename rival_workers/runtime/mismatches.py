"""Messages that name another workflow or version than the run's row: a no-op that is logged once for each run.

Claims compare the names in their WHERE, so nothing here protects anything; it tells the operator that somebody forges
messages, or that two fleets share a queue but not a database.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

from rival_client.errors import DatabaseUnavailable
from rival_workers.runtime.telemetry import counters
from rival_workers.store.base import Store, WorkflowVersion

log = logging.getLogger("rival.coordinator")

#: As many runs are remembered as logged before.
LIMIT = 1000


class Mismatches:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._logged: OrderedDict[tuple[str, WorkflowVersion], None] = OrderedDict()

    def check(self, run_id: str, path: str | None, named: WorkflowVersion) -> bool:
        """Called when a message had no effect. True: since it names another workflow or version than the row."""
        try:
            row = self._store.workflow_of(run_id)
        except DatabaseUnavailable:
            return False
        if row is None or row == named:
            return False
        counters["mismatched"] += 1
        if self._is_new(run_id, named):
            log.warning(
                "run %s step %s: a message names workflow %r version %r, but the run is one of %r version %r; "
                "the message is ignored (%d so far). Check who else writes to this queue.",
                run_id, path or "(start)", named.workflow[:200], named.version[:200], row.workflow, row.version,
                counters["mismatched"],
            )  # fmt: skip
        return True

    def _is_new(self, run_id: str, named: WorkflowVersion) -> bool:
        key = (run_id, named)
        if key in self._logged:
            return False
        self._logged[key] = None
        if len(self._logged) > LIMIT:
            self._logged.popitem(last=False)
        return True
