"""The workflows that this process knows, by name: the newest version of each, and older ones that runs still need."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.errors import DefinitionError


class Registry:
    def __init__(self) -> None:
        self._newest: dict[str, WorkflowDefinition] = {}
        self._versions: dict[tuple[str, str], WorkflowDefinition] = {}
        #: Whoever follows the files looks whether something has come that is not known here yet.
        self.look_again: Callable[[], object] = lambda: None

    def add(
        self, workflow: WorkflowDefinition, *, within_another: bool = False, replace: bool = False
    ) -> WorkflowDefinition:
        """`within_another`: it is also a step of a workflow, which may have what this one has not. `replace`: it takes
        the place of one of the same name that is not from a file, as when a notebook cell is executed again.
        """
        known = self._newest.get(workflow.name)
        replaces = replace and known is not None and known.source is None
        if known is not None and not replaces and _differ(known, workflow):
            raise DefinitionError([_taken(known, workflow)])
        if workflow.unseen and not within_another:
            raise DefinitionError(workflow.unseen)
        return self.renew(workflow)

    def renew(self, workflow: WorkflowDefinition) -> WorkflowDefinition:
        """From now on this is the newest version; the one before is kept for the runs that are on it."""
        self._versions[workflow.name, workflow.version] = workflow
        self._newest[workflow.name] = workflow
        return workflow

    def find(self, name: str, version: str) -> WorkflowDefinition | None:
        """Only the very version: a run stays on the one it started with."""
        return self._versions.get((name, version))

    @property
    def versions(self) -> Collection[tuple[str, str]]:
        """Name and version of all that `find` finds."""
        return tuple(self._versions)

    def newest(self, name: str) -> WorkflowDefinition | None:
        return self._newest.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._newest

    def __iter__(self) -> Iterator[WorkflowDefinition]:
        """The newest version of each."""
        return iter(list(self._newest.values()))

    def __len__(self) -> int:
        return len(self._newest)


def _differ(known: WorkflowDefinition, new: WorkflowDefinition) -> bool:
    """Two definitions of one name. A definition that is registered again is not another one, nor is one whose file was
    loaded again."""
    if _file(known) != _file(new):
        return True
    if known.place is None or new.place is None:
        return known.version != new.version
    if known.place.is_reloaded_by(new.place):
        return False
    return known.version != new.version or not known.place.is_same(new.place)


def _taken(known: WorkflowDefinition, new: WorkflowDefinition) -> str:
    here = new.source or new.place
    there = known.source or known.place
    where = f"from {there}" if there else "with other steps"
    said = f"workflow {new.name!r} is registered already, {where}: give one of them another name"
    return f"{here}: {said}" if here else said


def _file(workflow: WorkflowDefinition) -> Path | None:
    return None if workflow.source is None else Path(workflow.source).resolve()


#: Where `.register()` and the file loaders put workflows unless told otherwise.
default_registry = Registry()

_instead = threading.local()


def registry_for(given: Registry | None) -> Registry:
    """The registry that a workflow goes to: the one given, or the default one."""
    if given is not None:
        return given
    instead: Registry = getattr(_instead, "registry", default_registry)
    return instead


@contextmanager
def registering_in(registry: Registry) -> Iterator[None]:
    """In this thread it takes the place of the default registry: for files that register their workflows themselves."""
    before = getattr(_instead, "registry", default_registry)
    _instead.registry = registry
    try:
        yield
    finally:
        _instead.registry = before
