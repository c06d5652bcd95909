"""`--reload`: loads workflow files again when they change. New runs take the new version; open runs keep theirs.

For development only: a fleet in production gets new code by starting new processes."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType

from rival_workers.definition.default_registry import registering_in
from rival_workers.definition.files import Refused, each_once, register_each
from rival_workers.definition.modules import python_files
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition

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
        self._refused: Refused = {}
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
        removed = self._loaded.keys() - now.keys()
        changed = {file for file, seen in now.items() if self._loaded.get(file) != seen}
        # A file that cannot be loaded is loaded again only when a file changes again.
        self._loaded = now
        fresh, refused = load_again(self._paths, changed)
        # The import may have added or removed modules. Changes since `now` are left to the next round.
        self._loaded = {file: now.get(file, seen) for file, seen in snapshot(self._paths).items()}
        self._report(removed, changed, refused)
        self._refused = refused
        for workflow in fresh:
            self._take(workflow)

    def _report(self, removed: Set[Path], changed: Set[Path], refused: Refused) -> None:
        if removed:
            log.info("%s removed: what was loaded from it stays until the next start", _names(removed))
        if changed - refused.keys():
            log.info("%s changed: loaded again", _names(changed - refused.keys()))
        # Report a file when it changes, not when another file does.
        new = {file: all_ for file, all_ in refused.items() if file in changed or self._refused.get(file) != all_}
        if new:
            problems = "\n".join(each_once(new.values()))
            log.error("%s cannot be loaded; the previous version stays:\n%s", _names(new), problems)

    def _take(self, workflow: WorkflowDefinition) -> None:
        before = self._registry.newest(workflow.name)
        self._registry.renew(workflow)
        if before is None or _as_announced(before) != _as_announced(workflow):
            self._unannounced[workflow.name] = workflow

    def _announce_version(self, workflow: WorkflowDefinition) -> None:
        if self._announce is not None:
            self._announce(workflow)
            log.info("new runs of workflow %s take version %s; open runs keep theirs", workflow.name, workflow.version)


def _names(files: Iterable[Path]) -> str:
    return ", ".join(sorted(file.name for file in files))


def _as_announced(workflow: WorkflowDefinition) -> tuple[object, ...]:
    """The stored parts of a workflow. Functions are not stored, and are new objects after each reload."""
    whole = replace(workflow.whole, hooks={})
    return workflow.version, workflow.input_schema, workflow.description, workflow.document, whole


#: Modification time and size of each file.
Snapshot = dict[Path, tuple[int, int]]

_INSTALLED = ("site-packages", "dist-packages")
_OURS = ("rival_workers", "rival_client", "rival_workers.testing.pytest_plugin", "__main__")


def snapshot(paths: Iterable[str]) -> Snapshot:
    """The workflow files below the paths, and the imported modules of these files."""
    roots = [Path(path) for path in paths]
    files = {file.resolve() for root in roots if root.exists() for file in python_files(root)}
    files |= {Path(module.__file__ or "").resolve() for module in modules_below(roots).values()}
    return {file: seen for file in sorted(files) if (seen := _seen(file)) is not None}


def _seen(file: Path) -> tuple[int, int] | None:
    with contextlib.suppress(OSError):
        found = file.stat()
        return found.st_mtime_ns, found.st_size
    return None


def modules_below(paths: Iterable[Path]) -> dict[str, ModuleType]:
    """The imported modules of files below the paths. For a file, those of its directory, which it can import."""
    roots = [str((path if path.is_dir() else path.parent).resolve()) + os.sep for path in paths]
    return {name: module for name, module in list(sys.modules.items()) if _is_below(name, module, roots)}


def _is_below(name: str, module: ModuleType, roots: list[str]) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or name.partition(".")[0] in _OURS:
        return False
    path = _real(file)
    return any(_own(path.removeprefix(root)) for root in roots if path.startswith(root))


@cache
def _real(file: str) -> str:
    """Cached, since each check resolves all modules of the process."""
    return os.path.realpath(file)


def _own(path: str) -> bool:
    """False for installed packages below the path, for example in a .venv."""
    return not any(part.startswith(".") or part in _INSTALLED for part in path.split(os.sep))


def load_again(paths: list[str], changed: Iterable[Path]) -> tuple[Registry, Refused]:
    """Load the workflows from the files. The modules of files that cannot be loaded stay as they were."""
    for file in changed:
        _delete_bytecode(file)
    importlib.invalidate_caches()
    fresh = Registry()
    with _without_modules([Path(path) for path in paths]) as before, registering_in(fresh):
        _, refused = register_each(paths, fresh)
        if refused:
            _keep_modules(before, paths, refused)
    return fresh, refused


def _keep_modules(before: dict[str, ModuleType], paths: list[str], refused: Refused) -> None:
    """Restore the modules of files that cannot be loaded, and the modules that only they import."""
    for name, module in modules_below(map(Path, paths)).items():
        if Path(_real(module.__file__ or "")) in refused:
            del sys.modules[name]
    for name, module in before.items():
        sys.modules.setdefault(name, module)


@contextlib.contextmanager
def _without_modules(paths: list[Path]) -> Iterator[dict[str, ModuleType]]:
    before = modules_below(paths)
    for name in before:
        sys.modules.pop(name, None)
    try:
        yield before
    except BaseException:
        for name in modules_below(paths):
            sys.modules.pop(name, None)
        sys.modules.update(before)
        raise


def _delete_bytecode(file: Path) -> None:
    """Delete the bytecode: its timestamp has whole seconds, so a second change within one second would be missed."""
    with contextlib.suppress(OSError, NotImplementedError):
        Path(importlib.util.cache_from_source(str(file))).unlink()
