"""Which steps a control of a lab applies to."""

from __future__ import annotations

from dataclasses import dataclass

from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine.paths import place_of


@dataclass(frozen=True)
class StepPattern:
    """Matches steps: by a name (`pack`), by the end of a path (`payment/charge`), in one iteration (`lines[3]/pack`) or
    in all (`lines[]/pack`).
    """

    step: str
    workflow: str | None = None

    def matches(self, workflow: str, path: str) -> bool:
        its = self.workflow in (None, workflow)
        return its and (ends_with(path, self.step) or ends_with(place_of(path), self.step))

    def is_in(self, workflow: WorkflowDefinition) -> bool:
        its = self.workflow in (None, workflow.name)
        return its and any(ends_with(place, place_of(self.step)) for place in workflow.calls)


def ends_with(path: str, end: str) -> bool:
    return path == end or path.endswith(f"/{end}")
