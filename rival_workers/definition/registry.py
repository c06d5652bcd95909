"""Workflows by name: the newest version of each, and older versions for runs in flight."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine.step_limits import contradiction
from rival_workers.errors import DefinitionError


class Registry:
    def __init__(self) -> None:
        self._newest: dict[str, WorkflowDefinition] = {}
        self._versions: dict[tuple[str, str], WorkflowDefinition] = {}
        #: The number of definitions that were added or renewed.
        self.changes = 0
        #: Loads changed workflow files, if this process follows them; called for a version that is not known.
        self.look_again: Callable[[], object] = lambda: None

    def add(
        self, workflow: WorkflowDefinition, *, within_another: bool = False, replace: bool = False
    ) -> WorkflowDefinition:
        """`within_another`: it is also a step of a workflow, which may have the steps that this one reads. `replace`:
        it replaces one of the same name that is not from a file, as when a notebook cell is executed again.
        """
        known = self._newest.get(workflow.name)
        replaces = replace and known is not None and known.source is None
        if known is not None and not replaces and _differ(known, workflow):
            raise DefinitionError([_refusal(known, workflow)])
        if workflow.unseen and not within_another:
            raise DefinitionError(workflow.unseen)
        if clashes := self._clashing_limits(workflow):
            raise DefinitionError(clashes)
        return self.renew(workflow)

    def _clashing_limits(self, workflow: WorkflowDefinition) -> list[str]:
        """All workflows share the limits of one name."""
        found = []
        for other in self._newest.values() if workflow.named_limits else ():
            shared = workflow.named_limits.keys() & other.named_limits.keys() if other.name != workflow.name else ()
            for name in sorted(shared):
                of_both = (f"workflow {other.name!r}", f"workflow {workflow.name!r}")
                limits = (other.named_limits[name], workflow.named_limits[name])
                found += contradiction(limits[0], of_both[0], limits[1], of_both[1])
        return found

    def renew(self, workflow: WorkflowDefinition) -> WorkflowDefinition:
        """Makes this the newest version; the version before is kept for its runs."""
        self._versions[workflow.name, workflow.version] = workflow
        self._newest[workflow.name] = workflow
        self.changes += 1
        return workflow

    def keep_only(self, names: Collection[str]) -> None:
        """Removes the others, which a file has registered before an error in it."""
        self._newest = {name: one for name, one in self._newest.items() if name in names}
        self._versions = {key: one for key, one in self._versions.items() if key[0] in names}

    def find(self, name: str, version: str) -> WorkflowDefinition | None:
        """Exactly this version: a run keeps the version that it started with."""
        return self._versions.get((name, version))

    @property
    def versions(self) -> Collection[tuple[str, str]]:
        """Name and version of each definition that `find` returns."""
        return tuple(self._versions)

    def by_name(self) -> dict[str, list[str]]:
        """The versions of each workflow."""
        found: dict[str, list[str]] = {}
        for name, version in self._versions:
            found.setdefault(name, []).append(version)
        return found

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
    """Whether these are two definitions of one name. The same definition can be registered again, and its file can be
    loaded again."""
    if _file(known) != _file(new):
        return True
    if known.place is None or new.place is None:
        return known.version != new.version
    if known.place.is_reloaded_by(new.place):
        return False
    return known.version != new.version or not known.place.is_same(new.place)


def _refusal(known: WorkflowDefinition, new: WorkflowDefinition) -> str:
    here = new.source or new.place
    there = known.source or known.place
    where = f"from {there}" if there else "with other steps"
    advice = "give one of them another name"
    if known.source is None and known.place is not None and Path(known.place.file).resolve() == _file(new):
        advice = f"remove `steps`, since the file registers this workflow already, or {advice}"
    message = f"workflow {new.name!r} is registered already, {where}: {advice}"
    return f"{here}: {message}" if here else message


def _file(workflow: WorkflowDefinition) -> Path | None:
    return None if workflow.source is None else Path(workflow.source).resolve()
