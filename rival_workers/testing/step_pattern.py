"""Matches the steps to which a control of a lab applies."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from rival_workers.definition.flows import Flow
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine.nodes import FlowNode
from rival_workers.engine.paths import place_of

#: The lane of a flow's step, and how often its lane has called a step of this name: `#2.1:send~3`.
_LANE, _COUNT = re.compile(r"^#[\d.]+:"), re.compile(r"~\d+$")


@dataclass(frozen=True)
class StepPattern:
    """Matches steps: by a name (`pack`), by the end of a path (`payment/charge`), in one iteration (`lines[3]/pack`) or
    in all (`lines[]/pack`). A name also matches each call of a flow's step: `send`, `send~2`, `#2.1:send`.
    """

    step: str
    workflow: str | None = None

    def matches(self, workflow: str, path: str) -> bool:
        its = self.workflow in (None, workflow)
        return its and (ends_with(path, self.step) or ends_with(place_of(path), self.step))

    def matches_in_flow(self, workflow: str, path: str) -> bool:
        """The step that a flow has called at this path."""
        is_named = self.workflow in (None, workflow) and _name(path) == self.step
        return is_named or self.matches(workflow, path)

    def is_in(self, workflow: WorkflowDefinition) -> bool:
        its = self.workflow in (None, workflow.name)
        return its and any(ends_with(place, place_of(self.step)) for place in workflow.calls)

    def is_in_plan(self, workflow: WorkflowDefinition) -> bool:
        """Also a step without a function, such as a wait or a for_each."""
        place = place_of(self.step).removesuffix("[]")
        return self.is_known_in(workflow) or any(ends_with(one, place) for one in workflow.plan.places)

    def is_known_in(self, workflow: WorkflowDefinition) -> bool:
        """Whether the workflow has a step at a matching place, or a flow that may call a matching step."""
        return self.is_in(workflow) or self.may_be_in_flow(workflow)

    def may_be_in_flow(self, workflow: WorkflowDefinition) -> bool:
        """The code of a flow of this workflow has the name."""
        its = self.workflow in (None, workflow.name)
        return its and any(_name(self.step) in _words(function) for function in flows_of(workflow))


def ends_with(path: str, end: str) -> bool:
    return path == end or path.endswith(f"/{end}")


def flows_of(workflow: WorkflowDefinition) -> list[Callable[..., Any]]:
    """The functions of its flows."""
    places = (path for path, place in workflow.plan.places.items() if isinstance(place.node, FlowNode))
    return [workflow.calls[path].injection.function for path in places]


def _name(path: str) -> str:
    return _COUNT.sub("", _LANE.sub("", path.rpartition("/")[2]))


def _words(function: Any, seen: set[int] | None = None) -> set[str]:
    """The names and texts in the code of a function and of the functions that it uses: the names of a flow's steps are
    known only when it runs."""
    function = inspect.unwrap(function.function if isinstance(function, Flow) else function)
    code, seen = getattr(function, "__code__", None), set() if seen is None else seen
    if code is None or id(code) in seen:
        return set()
    seen.add(id(code))
    found = set(_words_of(code))
    for name in found & function.__globals__.keys():
        used = function.__globals__[name]
        if callable(used):
            found |= {getattr(used, "__name__", name)} | _words(used, seen)
    return found


def _words_of(code: CodeType) -> Iterator[str]:
    yield from (*code.co_names, *code.co_varnames, *code.co_freevars)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _words_of(constant)
        else:
            yield from (
                one for one in (constant if isinstance(constant, tuple) else (constant,)) if isinstance(one, str)
            )
