"""The options of runs whose steps this process decides about without running them: a keeper's timeouts and takeovers,
a revoke. It may not have the code of their workflows.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from rival_client.model.run_policies import NO_RULES, Rulebook
from rival_workers.definition.registry import Registry
from rival_workers.engine.policies import Policies, load_policies
from rival_workers.store.interface import Store

log = logging.getLogger("rival.transitions")

#: Seconds after which the options of a version are read again whose code this worker does not have.
REREAD_AFTER = 10.0


class RunOptions:
    def __init__(self, store: Store, registry: Registry) -> None:
        self._store, self._registry = store, registry
        #: The rules of the fleet, as this process knows them.
        self.book: Callable[[], Rulebook] = lambda: NO_RULES
        #: Of versions whose code this worker does not have: when they were read, and what.
        self._read: dict[tuple[str, str], tuple[float, Policies]] = {}

    def of(self, workflow: str, version: str, run_id: str) -> Policies | None:
        """With the rules of the run and of the fleet: a decision that no attempt makes is made with those of now."""
        base = self._of_workflow(workflow, version)
        if base is None:
            return None
        rules, labels = self._store.read_run_rules(run_id)
        return base.over(rules, self.book(), labels)

    def _of_workflow(self, workflow: str, version: str) -> Policies | None:
        """Read again now and then: another worker may have registered other options for the same version."""
        definition = self._registry.find(workflow, version)
        if definition is not None:
            return definition.policies
        key = (workflow, version)
        read_at, found = self._read.get(key, (0.0, None))
        if found is not None and time.monotonic() < read_at + REREAD_AFTER:
            return found
        info = self._store.load_workflow(workflow, version)
        if info is None:
            log.error("workflow %s version %s is not in the database: its runs cannot continue", *key)
            return None
        found = load_policies(info.name, info.plan, info.policies)
        self._read[key] = (time.monotonic(), found)
        return found
