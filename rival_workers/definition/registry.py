"""The workflows that this process knows, by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.errors import DefinitionError


class Registry:
    def __init__(self) -> None:
        self._workflows: dict[str, WorkflowDefinition] = {}

    def add(self, workflow: WorkflowDefinition) -> WorkflowDefinition:
        known = self._workflows.get(workflow.name)
        if known is not None and (known.version != workflow.version or _file(known) != _file(workflow)):
            where = f"from {known.source}" if known.source else "with other steps"
            raise DefinitionError(
                [f"workflow {workflow.name!r} is registered already, {where}: give one of them another name"]
            )
        self._workflows[workflow.name] = workflow
        return workflow

    def find(self, name: str, version: str) -> WorkflowDefinition | None:
        """Only the very version: a run stays on the one it started with."""
        workflow = self._workflows.get(name)
        return workflow if workflow is not None and workflow.version == version else None

    def __contains__(self, name: object) -> bool:
        return name in self._workflows

    def __iter__(self) -> Iterator[WorkflowDefinition]:
        return iter(self._workflows.values())

    def __len__(self) -> int:
        return len(self._workflows)


def _file(workflow: WorkflowDefinition) -> Path | None:
    return None if workflow.source is None else Path(workflow.source).resolve()


#: Where `.register()` and the file loaders put workflows unless told otherwise.
default_registry = Registry()
