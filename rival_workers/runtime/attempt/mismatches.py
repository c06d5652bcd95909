"""Messages that name another workflow or version than the run's row: a no-op that is logged once for each run.

Claims compare the names in their WHERE, so nothing here protects anything; it tells the operator that somebody forges
messages, or that two fleets share a queue but not a database.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress

from rival_client.errors import DatabaseError
from rival_workers.runtime.attempt.telemetry import counters
from rival_workers.store.interface import Store, WorkflowVersion

log = logging.getLogger("rival.coordinator")

#: As many runs are remembered as looked at before.
LIMIT = 1000


class Mismatches:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._checked: OrderedDict[tuple[str, WorkflowVersion], None] = OrderedDict()

    def check(self, run_id: str, path: str | None, named: WorkflowVersion) -> None:
        """Called when a message had no effect. Most of them are stale, so a run is read once, not for each message."""
        if not self._is_new(run_id, named):
            return
        try:
            row = self._store.workflow_of(run_id)
        except DatabaseError:
            return
        if row is None or row == named:
            return
        counters["mismatched"] += 1
        log.warning(
            "run %s step %s: a message names workflow %r version %r, but the run is one of %r version %r; "
            "the message is ignored (%d so far). Check who else writes to this queue.",
            run_id, path or "(start)", named.workflow[:200], named.version[:200], row.workflow, row.version,
            counters["mismatched"],
        )  # fmt: skip

    def _is_new(self, run_id: str, named: WorkflowVersion) -> bool:
        key = (run_id, named)
        if key in self._checked:
            return False
        self._checked[key] = None
        if len(self._checked) > LIMIT:
            with suppress(KeyError):  # another thread was quicker
                self._checked.popitem(last=False)
        return True
