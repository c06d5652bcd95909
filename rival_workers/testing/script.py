"""Controls of the steps in a lab: `replace`, `fail`, `crash`, `delay`, `time_out`, and how they apply to attempts."""

from __future__ import annotations

import datetime as dt
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from rival_client.model.checks import amounts
from rival_workers.definition.default_registry import default_registry
from rival_workers.definition.inject import COMPENSATION_NAMES, IN_ITEM, Injection, injection
from rival_workers.definition.returns import Returns
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine.decisions import Failure, Success
from rival_workers.errors import StepError
from rival_workers.runtime.attempt.async_loop import async_steps
from rival_workers.runtime.attempt.context import Context
from rival_workers.runtime.attempt.invoke import call
from rival_workers.runtime.flow.context import BaseFlowContext
from rival_workers.runtime.flow.stop_signals import Killed
from rival_workers.testing.clock import MOMENT
from rival_workers.testing.errors import LabError
from rival_workers.testing.step_pattern import StepPattern, flows_of

if TYPE_CHECKING:
    from rival_workers.testing.world import World

#: A replacement may have the parameters of any step.
ANY_NAMES = tuple(dict.fromkeys((*COMPENSATION_NAMES, *IN_ITEM)))

Duration = float | dt.timedelta
#: Calls the step's function.
CallStep = Callable[[], Any]


class Crash(Killed):
    """The worker dies here: like the end of a process, it has no outcome, and nothing is committed."""


@dataclass(frozen=True)
class Attempted:
    """One attempt of a step. `args`, `keywords`: those of a step that a flow calls; None: it is a step of a plan."""

    context: Context
    path: str
    args: Sequence[Any] | None = None
    keywords: Mapping[str, Any] = field(default_factory=dict)

    def matches(self, pattern: StepPattern) -> bool:
        workflow = self.context.run.workflow
        found = pattern.matches if self.args is None else pattern.matches_in_flow
        return found(workflow, self.path)


@dataclass(frozen=True)
class Replacement:
    """A function in place of a step's own. `problem`: why a step of a plan cannot have it."""

    pattern: StepPattern
    function: Callable[..., Any]
    injection: Injection | None
    problem: str | None = None

    def call(self, attempted: Attempted) -> Any:
        if attempted.args is not None:
            return self._call_with(attempted.args, attempted.keywords)
        if self.injection is None:
            raise LabError(f"The replacement of step {self.pattern.step!r}: {self.problem}")
        return self.injection.call(attempted.context)

    def _call_with(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """With the arguments of `ctx.step`, unless it has no parameters."""
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return self.function(*args, **keywords)
        if not signature.parameters:
            return self.function()
        try:
            signature.bind(*args, **keywords)
        except TypeError as error:
            raise LabError(f"The replacement of step {self.pattern.step!r}, which a flow calls: {error}.") from None
        return self.function(*args, **keywords)


@dataclass
class Intervention:
    """Changes the first `times` attempts of each matching step in each run, or all of them."""

    pattern: StepPattern
    #: Runs instead of the step's function, with a callable that calls the function.
    what: Callable[[CallStep], Any]
    times: int | None
    _seen: Counter[tuple[str, str]] = field(default_factory=Counter)

    def applies_to(self, attempted: Attempted) -> bool:
        if not attempted.matches(self.pattern):
            return False
        its = attempted.context.run.run_id, attempted.path
        self._seen[its] += 1
        return self.times is None or self._seen[its] <= self.times


class Script:
    def __init__(self) -> None:
        self._functions: list[Replacement] = []
        #: At most one of each list applies to an attempt, so a slow attempt may also fail.
        self._slow: list[Intervention] = []
        self._ends: list[Intervention] = []
        #: Of steps that flows have called.
        self._called: set[StepPattern] = set()

    # -- writing ------------------------------------------------------------------------------------------

    def replace(self, pattern: StepPattern, function: Callable[..., Any], known: Iterable[WorkflowDefinition]) -> None:
        try:
            self._functions.append(Replacement(pattern, function, injection(function, ANY_NAMES)))
        except ValueError as error:
            # A flow's step can have any parameters.
            if not callable(function) or not any(pattern.may_be_in_flow(workflow) for workflow in known):
                raise LabError(f"The replacement of step {pattern.step!r}: {error}") from error
            self._functions.append(Replacement(pattern, function, None, str(error)))

    def takes_time(self, pattern: StepPattern, what: Callable[[CallStep], Any], times: int | None) -> None:
        self._slow.append(Intervention(pattern, what, _checked(times, pattern)))

    def ends(self, pattern: StepPattern, what: Callable[[CallStep], Any], times: int | None) -> None:
        self._ends.append(Intervention(pattern, what, _checked(times, pattern)))

    # -- checking -----------------------------------------------------------------------------------------

    @property
    def _patterns(self) -> list[StepPattern]:
        return [one.pattern for one in self._functions] + [one.pattern for one in (*self._slow, *self._ends)]

    def check(self, workflows: Sequence[WorkflowDefinition], own: Sequence[WorkflowDefinition]) -> None:
        """Raises LabError for a name that no step has. What the steps of a flow are is known when it has run. `own`:
        the workflows of the test."""
        if not any(flows_of(workflow) for workflow in own):
            self.check_called(workflows, own)

    def check_called(self, workflows: Sequence[WorkflowDefinition], own: Sequence[WorkflowDefinition]) -> None:
        """A flow has ended: a name that no step has, and that no flow has called or mentions in its code."""
        for pattern in self._patterns:
            known = pattern in self._called or any(pattern.is_known_in(workflow) for workflow in workflows)
            if not known:
                raise LabError(_unknown(pattern, own))

    # -- applying -----------------------------------------------------------------------------------------

    def apply(self, attempted: Attempted, call_own: CallStep) -> Any:
        """One attempt: time passes; then it fails, or crashes, or the function is called."""
        if attempted.args is not None:
            self._called.update(pattern for pattern in self._patterns if attempted.matches(pattern))
        # The last replacement of a step wins.
        own = next((one for one in reversed(self._functions) if attempted.matches(one.pattern)), None)
        chosen = call_own if own is None else lambda: own.call(attempted)
        call_step = _with_intervention(self._ends, attempted, chosen)
        return _with_intervention(self._slow, attempted, call_step)()


def _with_intervention(interventions: list[Intervention], attempted: Attempted, call_step: CallStep) -> CallStep:
    intervention = next((one for one in interventions if one.applies_to(attempted)), None)
    return call_step if intervention is None else lambda: intervention.what(call_step)


def _checked(times: int | None, pattern: StepPattern) -> int | None:
    if times is not None and (not isinstance(times, int) or times < 1):
        raise LabError(f"Step {pattern.step!r}: times={times!r} never applies. Give 1 or more, or None for always.")
    return times


def _unknown(pattern: StepPattern, known: Sequence[WorkflowDefinition]) -> str:
    of = f" of workflow {pattern.workflow!r}" if pattern.workflow else ""
    steps = ", ".join(f"{workflow.name}: {', '.join(workflow.calls)}" for workflow in known) or "none is registered"
    no_flow = " No flow has called it either." if any(flows_of(workflow) for workflow in known) else ""
    return f"Unknown step {pattern.step!r}{of} in this lab. Its steps are: {steps}.{no_flow}"


class StepControls:
    """`step` is a name, a path or the end of a path; `times` counts for each step of each run separately, None: always.
    `workflow` restricts it to the runs of that workflow.
    """

    _world: World

    def __init__(self) -> None:
        self._script = Script()
        #: An invalid use of the lab inside an attempt: an error of the test, not an outcome of the step.
        self._mistake: LabError | None = None

    def replace(self, step: str, function: Callable[..., Any], *, workflow: str | None = None) -> None:
        """From now on call this function instead of the step's own. It may have the same parameters. For a step that a
        flow calls it gets the arguments of `ctx.step`, unless it has no parameters."""
        known = [*self._world.registry, *default_registry]
        self._script.replace(StepPattern(step, workflow), function, known)

    def fail(
        self, step: str, *, times: int | None = 1, error: BaseException | None = None, workflow: str | None = None
    ) -> None:
        """The step's next `times` attempts raise the error, without calling its function."""
        if error is not None and not isinstance(error, BaseException):
            raise LabError(f"Step {step!r}: error={error!r} is not an exception: give one, such as ValueError('no').")
        raised = error or StepError(f"{step} was made to fail", behavior="retry")

        def fail(call_step: CallStep) -> Any:
            raise raised.with_traceback(None)

        self._script.ends(StepPattern(step, workflow), fail, times)

    def crash(self, step: str, *, times: int | None = 1, after: bool = False, workflow: str | None = None) -> None:
        """The worker dies in the middle of the attempt: before the function is called, or `after` it has returned and
        before its result is committed. The attempt is taken over when the lease has expired.
        """

        def crash(call_step: CallStep) -> Any:
            made = call_step() if after else None
            if inspect.iscoroutine(made):
                async_steps.run(made)
            raise Crash

        self._script.ends(StepPattern(step, workflow), crash, times)

    def delay(self, step: str, seconds: Duration, *, times: int | None = None, workflow: str | None = None) -> None:
        """Each attempt takes this long. If that is longer than its timeout, it times out, and its result is refused."""

        duration = amounts.seconds("seconds", seconds)

        def take_time(call_step: CallStep) -> Any:
            self._world.pass_time(duration)
            return call_step()

        self._script.takes_time(StepPattern(step, workflow), take_time, times)

    def time_out(self, step: str, *, times: int | None = 1, workflow: str | None = None) -> None:
        """The step's next `times` attempts take longer than their timeout."""

        def exceed_timeout(call_step: CallStep) -> Any:
            self._world.pass_time(None)
            return call_step()

        self._script.takes_time(StepPattern(step, workflow), exceed_timeout, times)

    # -- calling ------------------------------------------------------------------------------------------

    def _call(
        self, real: Injection, context: Context, max_payload: int, kind: str, returns: Returns | None
    ) -> Success | Failure:
        # Each attempt takes a microsecond, so that the order of events is defined by their times.
        self._world.clock.advance(MOMENT)
        if isinstance(context, BaseFlowContext):
            context._calling = partial(self._call_in_flow, context)
        attempted = Attempted(context, context.run.step)

        def apply() -> Any:
            return self._apply(attempted, lambda: real.call(context))

        return call(Injection(apply, (), ()), context, max_payload, kind, returns)

    def _call_in_flow(
        self,
        context: Context,
        path: str,
        function: Callable[..., Any],
        args: Sequence[Any],
        keywords: Mapping[str, Any],
    ) -> Any:
        return self._apply(Attempted(context, path, args, keywords), lambda: function(*args, **keywords))

    def _apply(self, attempted: Attempted, call_own: CallStep) -> Any:
        try:
            return self._script.apply(attempted, call_own)
        except LabError as mistake:
            self._mistake = mistake
            raise

    def _raise_mistake(self) -> None:
        """Raises the test's error, if there was one."""
        mistake, self._mistake = self._mistake, None
        if mistake is not None:
            raise mistake
