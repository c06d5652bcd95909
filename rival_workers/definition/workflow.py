"""A workflow: a name, a list of steps, an input model and a handler, checked as a whole."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from rival_client.errors import InvalidArgument
from rival_client.model import arguments
from rival_client.model.cron import Planned
from rival_workers.definition.calls import Call, Resolve
from rival_workers.definition.inject import HANDLER_NAMES, Injection
from rival_workers.definition.plan_builder import PlanBuilder
from rival_workers.definition.policies import read_rules
from rival_workers.definition.problems import Scope
from rival_workers.definition.results import Results, type_results
from rival_workers.definition.returns import Returns, problems_of
from rival_workers.definition.schedules import planned_schedule
from rival_workers.definition.source_lines import Place, with_line
from rival_workers.definition.step_references import Reading, check_reading
from rival_workers.definition.steps import checked_injection, seconds
from rival_workers.engine.paths import HANDLER, place_of
from rival_workers.engine.plan import Body, Plan
from rival_workers.errors import DefinitionError


class WorkflowDefinition:
    """All that a worker needs to run one version of a workflow."""

    def __init__(
        self,
        name: str,
        body: Body,
        calls: Mapping[str, Call],
        *,
        input_type: Any = None,
        description: str | None = None,
        on_error: Injection | None = None,
        source: str | None = None,
        returns: Mapping[str, Returns] | None = None,
        unseen: Sequence[str] = (),
        schedule: Planned | None = None,
        retention: float | None = None,
        place: Place | None = None,
    ) -> None:
        #: Where it is defined, if not by a file.
        self.place = place
        #: The file that defines it, if there is one.
        self.source = source
        #: The types of results, by place, where there are any.
        self.returns = {} if returns is None else returns
        #: Problems, unless it is only a part of a workflow that has the steps which this one reads.
        self.unseen = list(unseen)
        self.name, self.body, self.input_type, self.description = name, body, input_type, description
        self.on_error = on_error
        #: When runs start by schedule. Not part of the plan: another schedule does not change the version.
        self.schedule = schedule
        #: Seconds for which its ended runs are kept; 0: for ever; None: the setting of the workers.
        self.retention = retention
        self._own_calls = calls

    @cached_property
    def plan(self) -> Plan:
        return Plan(nodes=self.body, on_error=self.on_error is not None)

    @property
    def version(self) -> str:
        return self.plan.version

    @cached_property
    def _input(self) -> TypeAdapter[Any] | None:
        return None if self.input_type is None else TypeAdapter(self.input_type)

    @cached_property
    def input_schema(self) -> dict[str, Any] | None:
        return None if self._input is None else self._input.json_schema()

    def read_input(self, value: Any) -> Any:
        """The stored input as the type that the steps expect; ValueError with every problem otherwise."""
        return value if self._input is None else _validated(self._input, value)

    @cached_property
    def calls(self) -> Mapping[str, Call]:
        """How to call the function at each place; with this workflow's input, unless a nested workflow has its own."""
        found = dict(self._own_calls)
        if self.on_error is not None:
            found[HANDLER] = Call(self.on_error)
        if self._input is None:
            return found
        return {
            place: replace(call, read_input=self.read_input) if call.read_input is None else call
            for place, call in found.items()
        }

    def call_at(self, path: str) -> Call | None:
        """How to call the step at this path; None when this definition has no such step."""
        return self.calls.get(place_of(path))

    @property
    def its_returns(self) -> Returns | None:
        """The type of the result of a whole run: that of its last step. None: it is plain JSON."""
        return self.returns.get(self.plan.nodes[-1].name) if self.plan.nodes else None

    def returns_at(self, path: str) -> Returns | None:
        """The type of the result at this path; None: it is plain JSON."""
        return self.returns.get(place_of(path)) if self.returns else None


def _validated(kind: TypeAdapter[Any], value: Any) -> Any:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        raise ValueError(problems_of(error)) from error


def _reader_of(input: Any) -> Callable[[Any], Any] | None:
    """Checks the input of a schedule; None: there is no valid type to check it with."""
    if input is None or not _is_type(input):
        return None
    return partial(_validated, TypeAdapter(input))


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
    schedule: Any = None,
    retention: Any = None,
    source: str | None = None,
    place: Place | None = None,
    resolve: Resolve = only_itself,
) -> WorkflowDefinition:
    """Checks the definition; DefinitionError with every problem, each with workflow (and file), step and what to do.
    `source`: the file of the workflow; `place`: where else it is defined."""
    builder = _builder_with(policies, resolve)
    body, problems = _body(builder, steps), builder.problems
    handler = None if on_error is None else checked_injection(on_error, HANDLER_NAMES, "on_error", problems)
    problems += _what_is_wrong(name, input, seconds(retention))
    planned = planned_schedule(schedule, name, _reader_of(input), problems)
    reading = _check_plan(builder, body, results)
    located = partial(_located, name, source, place)
    if problems or builder.problems_elsewhere:
        raise DefinitionError([*builder.problems_elsewhere, *map(located, [*problems, *reading.unseen])])
    return WorkflowDefinition(
        name,
        body,
        builder.calls,
        input_type=input,
        description=description,
        on_error=handler,
        source=source,
        returns=builder.returns,
        unseen=list(map(located, reading.unseen)),
        schedule=planned,
        retention=seconds(retention),
        place=place,
    )


def _located(name: str, source: str | None, place: Place | None, problem: str) -> str:
    where = with_line(source, problem) if source else place
    return f"{where}: workflow {name!r}: {problem}" if where else f"workflow {name!r}: {problem}"


def _builder_with(policies: Any, resolve: Resolve) -> PlanBuilder:
    builder = PlanBuilder(resolve=resolve)
    try:
        builder.rules = read_rules(policies)
    except ValueError as error:
        builder.problems.append(str(error))
    return builder


def _problem_of_name(name: str) -> str | None:
    try:
        arguments.name("name", name)
    except InvalidArgument as error:
        return error.problem
    return None


def _what_is_wrong(name: Any, input: Any, retention: Any) -> Iterator[str]:
    if not isinstance(name, str) or not name:
        yield f"name: the name must be a non-empty string, not {name!r}"
    elif problem := _problem_of_name(name):
        yield f"name: {problem}"
    if input is not None and not _is_type(input):
        yield f"input: the input must be a type (a pydantic model, a dataclass, dict, …), not {input!r}"
    if retention is not None and not _is_duration(retention):
        yield f"retention: give seconds or a timedelta (0: for ever), not {retention!r}"


def _check_plan(builder: PlanBuilder, body: Body, results: Any) -> Reading:
    """Checks of the whole plan: that steps read existing steps, and the types of results."""
    if builder.incomplete:
        return Reading()
    plan = Plan(nodes=body)
    builder.problems += type_results(plan, builder.returns, results)
    reading = check_reading(plan, builder.calls)
    builder.problems += reading.out_of_order
    return reading


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
