"""How to call the functions of a workflow, by their places in its plan, and what an outer workflow needs of an inner
one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from rival_workers.definition.inject import Injection
from rival_workers.definition.returns import Returns
from rival_workers.definition.rules import Predicate
from rival_workers.engine.nodes import Body
from rival_workers.engine.policies import PolicyDocument

ReadInput = Callable[[Any], Any]


@dataclass(frozen=True)
class Call:
    """How to call the function at one place of the plan."""

    injection: Injection
    #: Reads the input of the nested workflow that has the function; None: the input of the outer workflow.
    read_input: ReadInput | None = None
    #: Of a flow: the predicates of the workflow's policies, for the flow's steps.
    predicates: Mapping[str, Predicate] = field(default_factory=dict)


class Assembled(Protocol):
    """A workflow that can be a step of another."""

    name: str
    on_error: Injection | None

    @property
    def input_schema(self) -> dict[str, Any] | None: ...
    @property
    def body(self) -> Body: ...
    @property
    def calls(self) -> Mapping[str, Call]: ...
    @property
    def document(self) -> PolicyDocument: ...
    @property
    def returns(self) -> Mapping[str, Returns]: ...
    @property
    def rule_hooks(self) -> Mapping[str, Mapping[str, Any]]: ...


#: Finds a workflow by file, by name or as itself. ValueError: why it cannot be found.
Resolve = Callable[[Any], Assembled]
