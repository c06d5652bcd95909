"""A workflow: a name, a list of steps, an input model and a handler, checked as a whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from rival_workers.definition.inject import HANDLER_NAMES, Injection, injection
from rival_workers.definition.steps import StepDefinition, define_step
from rival_workers.engine.interpreter import HANDLER
from rival_workers.engine.plan import Plan
from rival_workers.errors import DefinitionError


class WorkflowDefinition:
    """Everything a worker needs to run a workflow at one version."""

    def __init__(
        self,
        name: str,
        steps: Sequence[StepDefinition],
        *,
        input_type: Any = None,
        description: str | None = None,
        on_error: Injection | None = None,
        source: str | None = None,
    ) -> None:
        #: The file it was read from, if it was.
        self.source = source
        self.name, self.steps, self.input_type, self.description = name, tuple(steps), input_type, description
        self.on_error = on_error

    @cached_property
    def plan(self) -> Plan:
        return Plan(nodes=tuple(s.node for s in self.steps), on_error=self.on_error is not None)

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
        if self._input is None:
            return value
        try:
            return self._input.validate_python(value)
        except ValidationError as error:
            raise ValueError("; ".join(_problem(e) for e in error.errors(include_url=False))) from error

    @cached_property
    def _injections(self) -> dict[str, Injection]:
        found = {s.name: s.injection for s in self.steps}
        found |= {s.name + HANDLER: s.handler for s in self.steps if s.handler is not None}
        return found | ({HANDLER: self.on_error} if self.on_error is not None else {})

    def injection(self, path: str) -> Injection | None:
        """How to call the step at this path; None when this definition has no such step."""
        return self._injections.get(path)


def _problem(error: Any) -> str:
    where = ".".join(str(part) for part in error["loc"])
    return f"{where}: {error['msg']}" if where else str(error["msg"])


def define_workflow(
    name: str,
    steps: Sequence[Any],
    *,
    input: Any = None,
    description: str | None = None,
    on_error: Callable[..., Any] | None = None,
    source: str | None = None,
) -> WorkflowDefinition:
    """Check all of it; DefinitionError with every problem, each naming the workflow (and file), step and cure."""
    problems: list[str] = []
    defined = _define_steps(steps, problems)
    handler = None
    if on_error is not None:
        try:
            handler = injection(on_error, HANDLER_NAMES)
        except (TypeError, ValueError) as error:
            problems.append(f"on_error: {error}")
    if not isinstance(name, str) or not name:
        problems.append(f"the name must be a non-empty string, not {name!r}")
    if input is not None and not _is_type(input):
        problems.append(f"the input must be a type (a pydantic model, a dataclass, dict, …), not {input!r}")
    if problems:
        where = f"{source}: workflow {name!r}" if source else f"workflow {name!r}"
        raise DefinitionError([f"{where}: {problem}" for problem in problems])
    return WorkflowDefinition(name, defined, input_type=input, description=description, on_error=handler, source=source)


def _is_type(value: Any) -> bool:
    if isinstance(value, type) and issubclass(value, BaseModel):
        return True
    try:
        TypeAdapter(value).json_schema()
    except Exception:
        # pydantic raises many kinds for what it can't describe; any of them means the same here.
        return False
    return True


def _define_steps(steps: Any, problems: list[str]) -> list[StepDefinition]:
    if not isinstance(steps, Sequence) or isinstance(steps, str) or not steps:
        problems.append("a workflow needs at least one step: steps = [first, second, …]")
        return []
    defined: list[StepDefinition] = []
    for index, thing in enumerate(steps):
        try:
            defined.append(define_step(thing))
        except (TypeError, ValueError) as error:
            problems += [f"steps[{index}]: {line}" for line in str(error).splitlines()]
    seen: set[str] = set()
    for one in defined:
        if one.name in seen:
            problems.append(f"step {one.name!r} appears twice: give one of them another name, step(…, name=…)")
        seen.add(one.name)
    return defined
