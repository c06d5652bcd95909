"""Messages that name another workflow or version than the run's row: a no-op that is logged once for each run.

Claims compare the names in their WHERE, so nothing here protects anything; it tells the operator that somebody forges
messages, or that two fleets share a queue but not a database.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress

from rival_workers.runtime.attempt.telemetry import counters
from rival_workers.store.interface import WorkflowVersion

log = logging.getLogger("rival.coordinator")

#: As many runs are remembered as reported before.
LIMIT = 1000


class Mismatches:
    def __init__(self) -> None:
        self._reported: OrderedDict[tuple[str, WorkflowVersion], None] = OrderedDict()

    def report(self, run_id: str, path: str | None, named: WorkflowVersion, found: WorkflowVersion | None) -> None:
        """Called when a message had no effect. `found`: the run's workflow, if the message names another."""
        if found is None or not self._is_new(run_id, named):
            return
        counters["mismatched"] += 1
        log.warning(
            "run %s step %s: a message names workflow %r version %r, but the run is one of %r version %r; "
            "the message is ignored (%d so far). Check who else writes to this queue.",
            run_id, path or "(start)", named.workflow[:200], named.version[:200], found.workflow, found.version,
            counters["mismatched"],
        )  # fmt: skip

    def _is_new(self, run_id: str, named: WorkflowVersion) -> bool:
        key = (run_id, named)
        if key in self._reported:
            return False
        self._reported[key] = None
        if len(self._reported) > LIMIT:
            with suppress(KeyError):  # another thread was quicker
                self._reported.popitem(last=False)
        return True
