"""The workflows of a lab: its own, and those that it has taken from the default registry."""

from __future__ import annotations

from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition


class LabRegistry(Registry):
    """One that a test registers replaces one of the same name from the default registry."""

    def __init__(self) -> None:
        super().__init__()
        self._from_default: set[str] = set()

    def add_default(self, workflow: WorkflowDefinition) -> bool:
        """False: there is one of its name."""
        if workflow.name in self:
            return False
        self._from_default.add(workflow.name)
        self.renew(workflow)
        return True

    def add(
        self, workflow: WorkflowDefinition, *, within_another: bool = False, replace: bool = False
    ) -> WorkflowDefinition:
        if workflow.name in self._from_default:
            self._from_default.discard(workflow.name)
            # Its versions stay: it may have runs.
            del self._newest[workflow.name]
        return super().add(workflow, within_another=within_another, replace=replace)

    @property
    def own(self) -> list[WorkflowDefinition]:
        """Those that the test has registered."""
        return [workflow for workflow in self if workflow.name not in self._from_default]
