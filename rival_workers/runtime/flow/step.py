"""A step of a flow: its stored checkpoint, and the call of its function."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import field
from typing import Any

from rival_client.model import statuses
from rival_client.model.payload import dump
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.record import record
from rival_client.model.timers import is_due
from rival_workers.definition.given_steps import name_of
from rival_workers.definition.returns import Returns
from rival_workers.engine.decisions import Decision, Failure, FallBack, Retry, Success, decide, timed_out
from rival_workers.engine.replay import Checkpoint, CheckpointRef, CheckpointWrite
from rival_workers.errors import StepFailed
from rival_workers.runtime.attempt.async_loop import async_steps
from rival_workers.runtime.attempt.fallback_values import checked
from rival_workers.runtime.attempt.invoke import ends_attempt, failure
from rival_workers.runtime.flow.step_threads import FlowStepLimit
from rival_workers.runtime.logs.failure_log import FlowFailures
from rival_workers.runtime.logs.step_log import lowest_level

#: Calls the function of a flow's step: (path, function, arguments, keywords).
CallFunction = Callable[[str, Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]


def call_function(path: str, function: Callable[..., Any], args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
    return function(*args, **keywords)


@record(frozen=True)
class FlowStep:
    ref: CheckpointRef
    function: Callable[..., Any]
    args: Sequence[Any]
    config: StepConfig
    max_payload: int
    failures: FlowFailures
    keywords: Mapping[str, Any] = field(default_factory=dict)
    calling: CallFunction = call_function
    #: The type of its result.
    returns: Returns | None = None

    @property
    def is_over(self) -> bool:
        return self.ref.found is not None and self.ref.found.is_over

    @property
    def waiting(self) -> CheckpointWrite | None:
        """It waits for a retry that is not due yet."""
        found = self.ref.found
        if found is None or is_due(found.due_in):
            return None
        return CheckpointWrite(self.ref, found.status, error=found.error, attempts=found.attempts, delay=found.due_in)

    @property
    def attempt(self) -> int:
        return 1 if self.ref.found is None else self.ref.found.attempts + 1

    def call(self) -> CheckpointWrite:
        level = self.config.log_level
        with nullcontext() if level is None else lowest_level(level):
            return self._write(self._called())

    def over_time(self, limit: FlowStepLimit) -> CheckpointWrite:
        """Its checkpoint after a timeout now."""
        return self._write(timed_out(self.config, limit.error(self.attempt)))

    def result_of(self, end: Checkpoint) -> Any:
        """Its result; StepFailed if it has finally failed."""
        if end.status != statuses.FAILED or end.error is None:
            return self._restored(end.result)
        if end.error.get("soft"):
            return None
        raise StepFailed(end.path, end.error)

    def _restored(self, result: Any) -> Any:
        """As in a plan, a step that was skipped has no result, whatever its type."""
        if result is None or self.returns is None:
            return result
        return self.returns.restored(result, self._where)

    @property
    def _where(self) -> str:
        return f"step {self.ref.path!r}"

    def _called(self) -> Success | Failure:
        try:
            value = self.calling(self.ref.path, self.function, self.args, self.keywords)
            if inspect.isawaitable(value):
                value = async_steps.run(value)
            value = value if self.returns is None else self.returns.stored(value, self._where)
            return Success(dump(value, what=f"the result of {name_of(self.function)}", limit=self.max_payload))
        except BaseException as error:
            if ends_attempt(error):
                raise
            return self.failures.redacted(failure(error, self.attempt, function=self.function))

    def _decision(self, outcome: Success | Failure) -> Decision:
        decision = decide(self.config, self.attempt, outcome, random.random())
        return checked(decision, self.returns, self.config, self._where, self.attempt)

    def _write(self, outcome: Success | Failure) -> CheckpointWrite:
        decision = self._decision(outcome)
        if isinstance(outcome, Failure):
            self.failures.report(self.ref.path, self.attempt, self.config, outcome, decision)
        if isinstance(decision, Retry):
            return CheckpointWrite(
                self.ref, statuses.WAITING_RETRY, error=decision.error, attempts=self.attempt, delay=decision.delay
            )
        assert not isinstance(decision, FallBack), "a flow's step has no fallback function"
        if decision.status == statuses.SKIPPED:
            # As in a plan, the flow continues without a result.
            return CheckpointWrite(
                self.ref, statuses.FAILED, None, {**(decision.error or {}), "soft": True}, self.attempt
            )
        error = None if decision.error is None else {**decision.error, "soft": not decision.hard}
        return CheckpointWrite(self.ref, decision.status, decision.result, error, self.attempt)
