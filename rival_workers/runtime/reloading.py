"""`--reload`: loads workflow files again when they change. New runs take the new version; open runs keep theirs.

For development only: a fleet in production gets new code by starting new processes.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from rival_workers.definition.file_reload import Snapshot, load_again, snapshot
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.errors import DefinitionError

log = logging.getLogger("rival.reload")

INTERVAL = 0.5

Announce = Callable[[WorkflowDefinition], None]


class Reloader:
    """`announce` writes a workflow's version to the database, so that new runs take it; None: another process does."""

    def __init__(
        self, paths: list[str], registry: Registry, announce: Announce | None, loaded: Snapshot | None = None
    ) -> None:
        self._paths, self._registry, self._announce = paths, registry, announce
        self._loaded = snapshot(paths) if loaded is None else loaded
        self._unannounced: dict[str, WorkflowDefinition] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def in_child(self) -> Reloader:
        """A reloader for a forked process, which loads files itself and leaves announcements to its parent."""
        return Reloader(self._paths, self._registry, None, self._loaded)

    def start(self) -> None:
        # Another process may have announced a version that this process has not loaded yet.
        self._registry.look_again = self._try_once
        threading.Thread(target=self._run_until_stopped, name="rival-reload", daemon=True).start()

    def stop(self) -> None:
        self._stop.set()

    def _run_until_stopped(self) -> None:
        while not self._stop.wait(INTERVAL):
            self._try_once()

    def _try_once(self) -> None:
        try:
            self.run_once()
        except Exception:
            # For example an outage of the database: the next round announces what is left.
            log.exception("workflow files could not be reloaded; trying again")

    def run_once(self) -> None:
        """Load the files that have changed since the last round."""
        with self._lock:
            now = snapshot(self._paths)
            if now != self._loaded:
                self._load(now)
            for name, workflow in list(self._unannounced.items()):
                self._announce_version(workflow)
                del self._unannounced[name]

    def _load(self, now: Snapshot) -> None:
        changed = [file for file in now.keys() | self._loaded.keys() if now.get(file) != self._loaded.get(file)]
        names = ", ".join(sorted(file.name for file in changed))
        # A file that cannot be loaded is loaded again only when it changes again.
        self._loaded = now
        try:
            fresh = load_again(self._paths, changed)
        except DefinitionError as error:
            log.error("%s changed, but cannot be used; the version before stays:\n%s", names, error)
            return
        # The import may have added or removed modules. Changes since `now` are left to the next round.
        self._loaded = {file: now.get(file, seen) for file, seen in snapshot(self._paths).items()}
        log.info("%s changed: loaded again", names)
        for workflow in fresh:
            self._take(workflow)

    def _take(self, workflow: WorkflowDefinition) -> None:
        before = self._registry.newest(workflow.name)
        self._registry.renew(workflow)
        if before is None or _as_announced(before) != _as_announced(workflow):
            self._unannounced[workflow.name] = workflow

    def _announce_version(self, workflow: WorkflowDefinition) -> None:
        if self._announce is not None:
            self._announce(workflow)
            log.info("new runs of workflow %s take version %s; open runs keep theirs", workflow.name, workflow.version)


def _as_announced(workflow: WorkflowDefinition) -> tuple[object, ...]:
    return workflow.version, workflow.input_schema, workflow.description, workflow.schedule, workflow.retention
