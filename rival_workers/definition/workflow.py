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
from rival_workers.definition.assembly import Assembly
from rival_workers.definition.calls import Call, Resolve
from rival_workers.definition.check_references import Reading, check_reading
from rival_workers.definition.inject import HANDLER_NAMES, Injection
from rival_workers.definition.policies import read_rules
from rival_workers.definition.problems import Scope
from rival_workers.definition.result_types import type_results
from rival_workers.definition.results import Results
from rival_workers.definition.returns import Returns, problems_of
from rival_workers.definition.schedules import planned_schedule
from rival_workers.definition.source_lines import Place, with_line
from rival_workers.definition.steps import checked_injection, seconds
from rival_workers.engine.paths import HANDLER, place_of
from rival_workers.engine.plan import Body, Plan
from rival_workers.errors import DefinitionError


class WorkflowDefinition:
    """Everything a worker needs to run a workflow at one version."""

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
        #: Where it was written, if it is not a file.
        self.place = place
        #: The file it was read from, if it was.
        self.source = source
        #: The types of results, by place, where there are any.
        self.returns = {} if returns is None else returns
        #: Problems, unless it is only used within a workflow that has the steps which this one reads.
        self.unseen = list(unseen)
        self.name, self.body, self.input_type, self.description = name, body, input_type, description
        self.on_error = on_error
        #: When it is started by itself. No part of the plan: another time is no other version.
        self.schedule = schedule
        #: Seconds for which its ended runs are kept; 0: for ever; None: as the workers say.
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
        """The stored input as the type the steps expect; ValueError, naming every problem, otherwise."""
        return value if self._input is None else _validated(self._input, value)

    @cached_property
    def calls(self) -> Mapping[str, Call]:
        """How to call what stands at each place; what has no reader of its input yet gets this workflow's."""
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
    """How the input of a schedule is checked; None: it cannot be."""
    if input is None or not _is_type(input):
        return None
    return partial(_validated, TypeAdapter(input))


def only_itself(reference: Any) -> WorkflowDefinition:
    """A nested workflow given as itself; files and names need somebody who can look them up."""
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
    """Check all of it; DefinitionError with every problem, each naming the workflow (and file), step and cure.

    `source` is the file that it is; `place` says where else it was written.
    """
    assembly = _ruled_by(policies, resolve)
    body = _body(assembly, steps)
    problems = assembly.problems
    handler = None if on_error is None else checked_injection(on_error, HANDLER_NAMES, "on_error", problems)
    kept = seconds(retention)
    problems += _what_is_wrong(name, input, kept)
    planned = planned_schedule(schedule, name, _reader_of(input), problems)
    reading = _look_through(assembly, body, results)

    def told(problem: str) -> str:
        where = with_line(source, problem) if source else place
        return f"{where}: workflow {name!r}: {problem}" if where else f"workflow {name!r}: {problem}"

    if problems or assembly.problems_elsewhere:
        raise DefinitionError([*assembly.problems_elsewhere, *map(told, [*problems, *reading.unseen])])
    return WorkflowDefinition(
        name, body, assembly.calls, input_type=input, description=description, on_error=handler, source=source,
        returns=assembly.returns, unseen=[told(problem) for problem in reading.unseen],
        schedule=planned, retention=kept, place=place,
    )  # fmt: skip


def _ruled_by(policies: Any, resolve: Resolve) -> Assembly:
    assembly = Assembly(resolve=resolve)
    try:
        assembly.rules = read_rules(policies)
    except ValueError as error:
        assembly.problems.append(str(error))
    return assembly


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


def _look_through(assembly: Assembly, body: Body, results: Any) -> Reading:
    """What only the whole plan can tell: whether steps read what there is, and what the results are."""
    if assembly.incomplete:
        return Reading()
    plan = Plan(nodes=body)
    assembly.problems += type_results(plan, assembly.returns, results)
    reading = check_reading(plan, assembly.calls)
    assembly.problems += reading.out_of_order
    return reading


def _is_duration(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < math.inf


def _body(assembly: Assembly, steps: Any) -> Body:
    if not isinstance(steps, Sequence) or isinstance(steps, str) or not steps:
        assembly.incomplete = True
        assembly.problems.append("a workflow needs at least one step: steps = [first, second, …]")
        return ()
    return assembly.body(steps, Scope(), "steps")


def _is_type(value: Any) -> bool:
    if isinstance(value, type) and issubclass(value, BaseModel):
        return True
    try:
        TypeAdapter(value).json_schema()
    except Exception:
        # pydantic raises many kinds for what it can't describe; any of them means the same here.
        return False
    return True
