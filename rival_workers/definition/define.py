"""Makes a workflow of its definition: builds its plan and checks it, and reports all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from pydantic import BaseModel, TypeAdapter

from rival_client.errors import InvalidArgument
from rival_client.model.checks import arguments
from rival_client.model.kinds import FLOW
from rival_client.model.policies.plan_rules import misplaced_options, unknown_steps
from rival_workers.definition.call_places import Place
from rival_workers.definition.function_calls import Resolve
from rival_workers.definition.given_rules import read_rules
from rival_workers.definition.given_steps import checked_injection
from rival_workers.definition.inject import HANDLER_NAMES
from rival_workers.definition.options import WorkflowOptions
from rival_workers.definition.plan_builder import PlanBuilder
from rival_workers.definition.problems import Scope
from rival_workers.definition.results import Results, type_results
from rival_workers.definition.source_lines import with_line
from rival_workers.definition.step_references import Reading, check_reading
from rival_workers.definition.whole_run import WholeRun, read_whole_run
from rival_workers.definition.workflow import WorkflowDefinition, validated
from rival_workers.engine.nodes import Body
from rival_workers.engine.plan import Plan
from rival_workers.engine.policies import Policies
from rival_workers.engine.step_limits import contradictions
from rival_workers.errors import DefinitionError, InvalidResult


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
    whole = read_whole_run(name, _reader_of(input), options, problems)
    builder.routes |= {"": whole.route} if whole.route else {}
    reading = _check_plan(name, builder, body, results, whole)
    located = partial(_located, name, source, place)
    unseen = [*map(located, reading.unseen)]
    _refuse([*builder.problems_elsewhere, *map(located, problems)], unseen)
    written: dict[str, Any] = {"input_type": input, "description": description, "source": source, "place": place}
    found = WorkflowDefinition(
        name,
        body,
        builder.calls,
        **written,
        on_error=handler,
        whole=whole,
        returns=builder.returns,
        unseen=unseen,
        document=replace(builder.document, on_cancel=whole.on_cancel),
        rule_hooks=builder.hooks,
    )
    _refuse([*map(located, contradictions(found.policies, found.limits))], unseen)
    return found


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


def _check_plan(name: str, builder: PlanBuilder, body: Body, results: Any, whole: WholeRun) -> Reading:
    """Checks of the whole plan: that rules and steps name existing steps, and the types of results."""
    if builder.incomplete:
        return Reading()
    plan = Plan(nodes=body)
    policies = Policies(name, plan, builder.document)
    nodes = [policies.node(place) for place in plan.places.values()]
    if builder.policies.rules:
        builder.problems += unknown_steps(builder.policies.rules, nodes, name)
        builder.problems += _rules_for_flows(name, builder, policies)
    if whole.schedule is not None and (rules := whole.schedule.options.policies) is not None:
        found = unknown_steps(rules.rules, nodes, name) + misplaced_options(rules.rules, nodes, name)
        builder.problems += [f"schedule: {problem}" for problem in found]
    builder.problems += type_results(plan, builder.returns, results)
    builder.problems += _unfit_fallbacks(builder)
    reading = check_reading(plan, builder.calls)
    builder.problems += reading.out_of_order
    return reading


def _rules_for_flows(name: str, builder: PlanBuilder, policies: Policies) -> Iterator[str]:
    """Problems of the rules that match no node of the plan: they are for the steps that its flows call. Nested
    workflows have rules of their own."""
    own = [policies.node(place) for place in policies.plan.places.values() if policies.is_own(place)]
    if any(node.kind == FLOW for node in own):
        yield from builder.policies.misplaced_in_flows(name, own)


def _unfit_fallbacks(builder: PlanBuilder) -> Iterator[str]:
    """A fallback's value takes the place of the result, so it has the type of the result."""
    for place, value in builder.fallback_values.items():
        try:
            if place in builder.returns:
                builder.returns[place].stored(value, f"value(…), the fallback of step {place!r},")
        except InvalidResult as error:
            yield f"option fallback: {error}"


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
