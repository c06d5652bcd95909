"""Makes a workflow of its definition: builds its plan and checks it, and reports all problems at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from pydantic import BaseModel, TypeAdapter

from rival_client.errors import InvalidArgument
from rival_client.model.checks import arguments
from rival_client.model.limits.given_limits import read_run_limits
from rival_client.model.policies.policy_options import seconds, unknown_options
from rival_client.model.starts.priorities import LEVELS
from rival_client.model.starts.queues import QUEUE_EXPECTED, is_queue
from rival_workers.definition.call_places import Place
from rival_workers.definition.function_calls import Resolve
from rival_workers.definition.given_rules import read_rules
from rival_workers.definition.given_steps import OPTIONS, checked_injection
from rival_workers.definition.hooks import read_hooks
from rival_workers.definition.inject import HANDLER_NAMES
from rival_workers.definition.options import WorkflowOptions
from rival_workers.definition.plan_builder import PlanBuilder
from rival_workers.definition.problems import Scope
from rival_workers.definition.results import Results, type_results
from rival_workers.definition.schedules import planned_schedule
from rival_workers.definition.source_lines import with_line
from rival_workers.definition.step_references import Reading, check_reading
from rival_workers.definition.whole_run import WholeRun
from rival_workers.definition.workflow import WorkflowDefinition, validated
from rival_workers.engine.nodes import Body
from rival_workers.engine.plan import Plan
from rival_workers.errors import DefinitionError, InvalidResult

#: The parameters of a workflow in code beside `WorkflowOptions`.
_OWN_OPTIONS = ("input", "description", "on_error", "policies")


def _reader_of(input: Any) -> Callable[[Any], Any] | None:
    """Checks the input of a schedule; None: it has no valid type to check it with."""
    if input is None or not _is_type(input):
        return None
    return partial(validated, TypeAdapter(input))


def only_itself(reference: Any) -> WorkflowDefinition:
    """A nested workflow given as itself; for files and names another `resolve` is needed."""
    if isinstance(reference, WorkflowDefinition):
        return reference
    raise ValueError(f"workflow({reference!r}): give the workflow itself here")


def define_workflow(
    name: str,
    steps: Sequence[Any],
    *,
    input: Any = None,
    description: str | None = None,
    on_error: Callable[..., Any] | None = None,
    results: type[Results] | None = None,
    policies: Any = (),
    source: str | None = None,
    place: Place | None = None,
    resolve: Resolve = only_itself,
    **options: Unpack[WorkflowOptions],
) -> WorkflowDefinition:
    """DefinitionError with every problem. `source`: the file of the workflow; `place`: where else it is defined."""
    builder = _builder_with(policies, resolve)
    body, problems = _body(builder, steps), builder.problems
    handler = None if on_error is None else checked_injection(on_error, HANDLER_NAMES, "on_error", problems)
    problems += _what_is_wrong(name, input)
    whole = _whole_run(name, input, options, problems)
    builder.routes |= {"": whole.route} if whole.route else {}
    reading = _check_plan(builder, body, results)
    located = partial(_located, name, source, place)
    _refuse([*builder.problems_elsewhere, *map(located, problems)], map(located, reading.unseen))
    written: dict[str, Any] = {"input_type": input, "description": description, "source": source, "place": place}
    return WorkflowDefinition(
        name,
        body,
        builder.calls,
        **written,
        on_error=handler,
        whole=whole,
        returns=builder.returns,
        unseen=list(map(located, reading.unseen)),
        document=replace(builder.document, on_cancel=whole.on_cancel),
        rule_hooks=builder.hooks,
    )


def _whole_run(name: str, input: Any, given: WorkflowOptions, problems: list[str]) -> WholeRun:
    """What the definition says about whole runs, checked."""
    problems += unknown_workflow_options(given)
    retention = seconds(given.get("retention"))
    if retention is not None and not _is_duration(retention):
        problems.append(f"retention: give seconds or a timedelta (0: for ever), not {retention!r}")
    queue, priority = given.get("queue"), given.get("priority")
    if queue is not None and not is_queue(queue):
        problems.append(f"queue: give {QUEUE_EXPECTED}, not {queue!r}")
    if priority is not None and (not isinstance(priority, str) or priority not in LEVELS):
        problems.append(f"priority: give one of {', '.join(LEVELS)}, not {priority!r}")
    limits = read_run_limits(given.get("concurrency_limit"), given.get("rate_limit"), problems)
    planned = planned_schedule(given.get("schedule"), name, _reader_of(input), problems)
    undo = given.get("compensate_on_cancel") or False
    if not isinstance(undo, bool):
        problems.append(f"compensate_on_cancel: give True or False, not {undo!r}")
    return WholeRun(planned, retention, limits, read_hooks(given.get("hooks"), problems), queue, priority, undo)


def unknown_workflow_options(given: Mapping[str, Any]) -> list[str]:
    known = (*_OWN_OPTIONS, *WorkflowOptions.__annotations__)
    steps = [key for key in given if key not in known and key in OPTIONS]
    advice = [
        f"{key} is an option of steps, not of a workflow: give it to the steps; for a flow as a whole, write "
        f"@step({key}=…) below @flow(…)"
        for key in steps
    ]
    return [*advice, *unknown_options({key: given[key] for key in given if key not in steps}, known)]


def _refuse(problems: list[str], unseen: Iterable[str]) -> None:
    if problems:
        raise DefinitionError([*problems, *unseen])


def _located(name: str, source: str | None, place: Place | None, problem: str) -> str:
    where = with_line(source, problem) if source else place
    return f"{where}: workflow {name!r}: {problem}" if where else f"workflow {name!r}: {problem}"


def _builder_with(policies: Any, resolve: Resolve) -> PlanBuilder:
    builder = PlanBuilder(resolve=resolve)
    builder.policies = read_rules(policies, builder.problems)
    return builder


def _problem_of_name(name: str) -> str | None:
    try:
        arguments.name("name", name)
    except InvalidArgument as error:
        return error.problem
    return None


def _what_is_wrong(name: Any, input: Any) -> Iterator[str]:
    if not isinstance(name, str) or not name:
        yield f"name: the name must be a non-empty string, not {name!r}"
    elif problem := _problem_of_name(name):
        yield f"name: {problem}"
    if input is not None and not _is_type(input):
        yield f"input: the input must be a type (a pydantic model, a dataclass, dict, …), not {input!r}"


def _check_plan(builder: PlanBuilder, body: Body, results: Any) -> Reading:
    """Checks of the whole plan: that steps read existing steps, and the types of results."""
    if builder.incomplete:
        return Reading()
    plan = Plan(nodes=body)
    builder.problems += type_results(plan, builder.returns, results)
    builder.problems += _unfit_fallbacks(builder)
    reading = check_reading(plan, builder.calls)
    builder.problems += reading.out_of_order
    return reading


def _unfit_fallbacks(builder: PlanBuilder) -> Iterator[str]:
    """A fallback's value takes the place of the result, so it has the type of the result."""
    for place, value in builder.fallback_values.items():
        try:
            if place in builder.returns:
                builder.returns[place].stored(value, f"value(…), the fallback of step {place!r},")
        except InvalidResult as error:
            yield f"option fallback: {error}"


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _body(builder: PlanBuilder, steps: Any) -> Body:
    if not isinstance(steps, Sequence) or isinstance(steps, str) or not steps:
        builder.incomplete = True
        builder.problems.append("a workflow needs at least one step: steps = [first, second, …]")
        return ()
    return builder.body(steps, Scope(), "steps")


def _is_type(value: Any) -> bool:
    if isinstance(value, type) and issubclass(value, BaseModel):
        return True
    try:
        TypeAdapter(value).json_schema()
    except Exception:
        # pydantic raises many kinds of errors for types that it cannot describe.
        return False
    return True
