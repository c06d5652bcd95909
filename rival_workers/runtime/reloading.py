"""Follows workflow files while a developer changes them: new runs take the new version, runs in flight keep theirs.

Only where it is asked for (`--reload`): a fleet in production gets new code by new processes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rival_workers.definition.file_reload import Snapshot, load_anew, snapshot
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.errors import DefinitionError

log = logging.getLogger("rival.reload")

INTERVAL = 0.5

Announce = Callable[[WorkflowDefinition], None]


class Reloader:
    """`announce` tells the database of a workflow's version, so that new runs take it; None: another process does."""

    def __init__(
        self, paths: list[str], registry: Registry, announce: Announce | None, loaded: Snapshot | None = None
    ) -> None:
        self._paths, self._registry, self._announce = paths, registry, announce
        self._loaded = snapshot(paths) if loaded is None else loaded
        self._unannounced: dict[str, WorkflowDefinition] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def in_child(self) -> Reloader:
        """A forked process follows by itself; its parent is the one that announces."""
        return Reloader(self._paths, self._registry, None, self._loaded)

    def start(self) -> None:
        # Another process may have been faster, and a run of its new version be here already.
        self._registry.look_again = self._look
        threading.Thread(target=self._follow, name="rival-reload", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _follow(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._look()

    def _look(self) -> None:
        try:
            self.run_once()
        except Exception:
            # A database that is away, for example: what could not be announced will be.
            log.exception("workflow files could not be followed; trying again")

    def run_once(self) -> None:
        """One look: load what has changed since the last one."""
        with self._lock:
            now = snapshot(self._paths)
            if now != self._loaded:
                self._load(now)
            for name, workflow in list(self._unannounced.items()):
                self._tell(workflow)
                del self._unannounced[name]

    def _load(self, now: Snapshot) -> None:
        changed = [file for file in now.keys() | self._loaded.keys() if now.get(file) != self._loaded.get(file)]
        names = ", ".join(sorted(file.name for file in changed))
        # Whatever comes of it: what cannot be loaded is tried again when it has changed, not before.
        self._loaded = now
        try:
            fresh = load_anew(self._paths, changed)
        except DefinitionError as error:
            log.error("%s changed, but cannot be used; the version before stays:\n%s", names, error)
            return
        # What has been imported may be more, or less, than before; what has changed meanwhile is for the next look.
        self._loaded = {file: now.get(file, seen) for file, seen in snapshot(self._paths).items()}
        log.info("%s changed: loaded anew", names)
        for workflow in fresh:
            self._take(workflow)

    def _take(self, workflow: WorkflowDefinition) -> None:
        before = self._registry.newest(workflow.name)
        self._registry.renew(workflow)
        if before is None or _as_announced(before) != _as_announced(workflow):
            self._unannounced[workflow.name] = workflow

    def _tell(self, workflow: WorkflowDefinition) -> None:
        if self._announce is not None:
            self._announce(workflow)
            log.info("new runs of workflow %s take version %s; runs in flight keep theirs", workflow.name,
                     workflow.version)  # fmt: skip


def _as_announced(workflow: WorkflowDefinition) -> tuple[object, ...]:
    return workflow.version, workflow.input_schema, workflow.description, workflow.schedule, workflow.retention
