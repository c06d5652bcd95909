"""A workflow: a name, a list of steps, an input model and a handler, checked as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from pydantic import TypeAdapter, ValidationError

from rival_client.model.limits.limits import Limit
from rival_workers.definition.call_places import Place
from rival_workers.definition.function_calls import Call
from rival_workers.definition.inject import Injection, injection
from rival_workers.definition.returns import Returns, problems_of
from rival_workers.definition.whole_run import WholeRun
from rival_workers.engine.nodes import Body
from rival_workers.engine.paths import CANCEL, HANDLER, place_of, role_of
from rival_workers.engine.plan import Plan
from rival_workers.engine.policies import Policies, PolicyDocument
from rival_workers.engine.step_limits import limits_of


def _end_cancelled() -> None:
    """The function of the row that ends a cancelled run: what follows from its end is in the plan."""


_END_CANCELLED = Call(injection(_end_cancelled, ()))


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
        whole: WholeRun | None = None,
        place: Place | None = None,
        document: PolicyDocument | None = None,
        rule_hooks: Mapping[str, Mapping[str, Any]] | None = None,
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
        self.whole = whole or WholeRun()
        self.schedule, self.retention, self.hooks = self.whole.schedule, self.whole.retention, self.whole.hooks
        #: The hooks of the rules of its policies, by place. Nested workflows have theirs.
        self.rule_hooks = rule_hooks or {}
        self.limits = tuple(limit.named(name, "") for limit in self.whole.limits)
        #: The options of its steps. Not part of the plan either.
        self.document = document or PolicyDocument()
        self._own_calls = calls

    @cached_property
    def plan(self) -> Plan:
        return Plan(nodes=self.body, on_error=self.on_error is not None)

    @cached_property
    def policies(self) -> Policies:
        return Policies(self.name, self.plan, self.document)

    @cached_property
    def named_limits(self) -> dict[str, Limit]:
        """The limits of its steps and of its runs."""
        return {limit.gate_name: limit for limit in (*limits_of(self.policies), *self.limits)}

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
        """The stored input as the type that the steps expect; InputMismatch with every problem otherwise."""
        try:
            return value if self._input is None else validated(self._input, value)
        except ValueError as error:
            raise InputMismatch(self.name, str(error)) from error

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
        if path == CANCEL:
            return _END_CANCELLED
        return self.calls.get(path if "[" not in path else place_of(path))

    def hooks_at(self, path: str) -> Mapping[str, Any]:
        """The hooks for attempts of this step: hooks of a rule replace the workflow's hooks of the same name."""
        if not self.rule_hooks:
            return self.hooks
        its_own = self.rule_hooks.get(role_of(place_of(path))[0].removesuffix("[]"))
        return self.hooks if its_own is None else {**self.hooks, **its_own}

    @property
    def its_returns(self) -> Returns | None:
        """The type of the result of a whole run: that of its last step. None: it is plain JSON."""
        return self.returns.get(self.plan.nodes[-1].name) if self.plan.nodes else None

    def returns_at(self, path: str) -> Returns | None:
        """The type of the result at this path; None: it is plain JSON."""
        return self.returns.get(place_of(path)) if self.returns else None


class InputMismatch(ValueError):
    """An input does not fit the model of a workflow."""

    def __init__(self, workflow: str, problems: str) -> None:
        super().__init__(problems)
        self.workflow = workflow


def validated(kind: TypeAdapter[Any], value: Any) -> Any:
    try:
        return kind.validate_python(value)
    except ValidationError as error:
        raise ValueError(problems_of(error)) from error
