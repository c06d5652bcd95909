"""A run in a lab: its state, its timeline, and assertions about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rival_client.model import statuses
from rival_client.model.kinds import RESULT_KINDS
from rival_client.model.records import RunState
from rival_client.model.run_entries import LogEntry
from rival_client.model.step_records import Step
from rival_workers.testing import report
from rival_workers.testing.errors import LabError
from rival_workers.testing.report import TimelineEntry
from rival_workers.testing.step_pattern import StepPattern

if TYPE_CHECKING:
    from rival_workers.testing.lab import Lab


class LabRun:
    """Reads from the database at each access, so it is also valid in the middle of a run."""

    def __init__(self, lab: Lab, run_id: str) -> None:
        self._lab, self.run_id = lab, run_id

    def finish(self) -> LabRun:
        """Run it to its end."""
        self._lab.finish(self)
        return self

    def cancel(self) -> bool:
        return self._lab.rival.cancel(self.run_id)

    # -- state --------------------------------------------------------------------------------------------

    @property
    def state(self) -> RunState:
        return self._lab.rival.state(self.run_id)

    @property
    def status(self) -> str:
        return self.state.status

    @property
    def result(self) -> Any:
        """The last step's result."""
        return self.state.result

    @property
    def results(self) -> dict[str, Any]:
        """Step name -> its result, for steps that have ended."""
        ended = (step for step in self.state.steps if step.status in (statuses.COMPLETED, statuses.SKIPPED))
        return {step.path: step.result for step in ended if step.kind in RESULT_KINDS and "[" not in step.path}

    @property
    def error(self) -> dict[str, Any] | None:
        return self.state.error

    @property
    def failed_step(self) -> str | None:
        return self.state.failed_step

    @property
    def logs(self) -> list[LogEntry]:
        return self._lab.rival.logs(self.run_id)

    @property
    def timeline(self) -> list[TimelineEntry]:
        return report.timeline(self.state, self._lab.rival.history(self.run_id))

    @property
    def seconds(self) -> float:
        """Seconds from its start to its end, or until now, by the lab's clock."""
        state = self.state
        return round(((state.completed_at or self._lab.now) - state.created_at).total_seconds(), 3)

    def step(self, step: str) -> Step:
        """The one step of this name or path."""
        state = self.state
        pattern = StepPattern(step)
        exact = [one for one in state.steps if one.path == step]
        found = exact or [one for one in state.steps if pattern.matches(state.workflow, one.path)]
        found = found or [one for one in state.steps if pattern.matches_in_flow(state.workflow, one.path)]
        if len(found) != 1:
            paths = ", ".join(one.path for one in found or state.steps) or "none yet"
            why = "matches more than one step" if found else "unknown step; its steps are"
            raise LabError(f"{step!r} in run {self.run_id!r}: {why}: {paths}.")
        return found[0]

    def attempts_of(self, step: str) -> list[TimelineEntry]:
        """Every ended attempt of the steps of this name or path, including lost ones."""
        pattern, workflow = StepPattern(step), self.state.workflow
        self._check_known(pattern)
        return [
            entry
            for entry in self.timeline
            if entry.path
            and pattern.matches_in_flow(workflow, entry.path)
            and entry.began is not None
            and entry.attempt
        ]

    def _check_known(self, pattern: StepPattern) -> None:
        """Raises LabError for a name that no step has. Of a flow, one that its code mentions is a name of a step."""
        state = self.state
        definition = self._lab._definition_of(state.workflow, state.version)
        if definition is None or pattern.is_in_plan(definition):
            return
        if not any(pattern.matches_in_flow(state.workflow, one.path) for one in state.steps):
            names = ", ".join(dict.fromkeys((*definition.plan.places, *(one.path for one in state.steps))))
            raise LabError(f"{pattern.step!r} in run {self.run_id!r}: unknown step; its steps are: {names}.")

    def __str__(self) -> str:
        return report.describe(self.state, self.timeline, self._lab.now)

    # -- assertions ---------------------------------------------------------------------------------------

    def assert_completed(self, result: Any = ...) -> None:
        self._assert(self.status == statuses.COMPLETED, "should have completed")
        if result is not ...:
            self._assert(self.result == result, f"should have given {result!r}, not {self.result!r}")

    def assert_failed(self, step: str | None = None, error: str | None = None) -> None:
        """`error` is the type's name: "StepTimeout"."""
        self._assert(self.status == statuses.FAILED, "should have failed")
        if step is not None:
            failed, workflow = self.failed_step or "", self.state.workflow
            self._assert(
                StepPattern(step).matches_in_flow(workflow, failed), f"should have failed at {step!r}, not {failed!r}"
            )
        if error is not None:
            found = (self.error or {}).get("type")
            self._assert(found == error, f"should have failed with {error}, not {found}")

    def assert_cancelled(self) -> None:
        self._assert(self.status == statuses.CANCELLED, "should have been cancelled")

    def assert_attempts(self, step: str, attempts: int) -> None:
        """Counts like `max_attempts`: without attempts that were lost with their worker."""
        made = self.step(step).attempts
        self._assert(made == attempts, f"should have tried {step!r} {attempts} time(s), not {made}")

    def assert_never_ran(self, step: str) -> None:
        self._assert(not self.attempts_of(step), f"should not have reached {step!r}")

    def _assert(self, holds: bool, claim: str) -> None:
        if not holds:
            raise AssertionError(f"The run {claim}.\n{self}")
