"""`StepView`: what a step reads of another one. `Results`: the types of a workflow's results in one class.
`type_results` gives the places of a plan their types: by `Results`, by annotation, or by their last step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Generic, get_args, get_origin, get_type_hints

from typing_extensions import TypeVar

from rival_client.model import statuses
from rival_client.model.statuses import StepStatus
from rival_workers.definition.returns import Returns
from rival_workers.engine.nodes import LoopNode, WorkflowNode, bodies
from rival_workers.engine.plan import Place, Plan

T_co = TypeVar("T_co", covariant=True, default=Any)


class StepView(Generic[T_co]):
    """An earlier step: `.result`, `.state`, `.status`. The first step's `last_step` is an empty one."""

    def __init__(
        self,
        step_name: str | None = None,
        status: StepStatus = statuses.PENDING,
        result: Any = None,
        state: dict[str, Any] | None = None,
        restore: Callable[[Any], Any] | None = None,
    ) -> None:
        self.step_name = step_name
        self.status: StepStatus = status
        self.state: dict[str, Any] = {} if state is None else state
        self._stored, self._restore = result, restore

    @cached_property
    def result(self) -> T_co:
        """As the declared type. Restored when it is read, so that reading the status alone costs nothing."""
        # A step that was skipped or has failed has no result, whatever its type.
        if self._restore is None or self._stored is None:
            return self._stored  # type: ignore[no-any-return]
        return self._restore(self._stored)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"StepView({self.step_name!r}, {self.status!r}, {self._stored!r}, {self.state!r})"


StepOf = StepView


class Results:
    """The results of a workflow's steps, for a type checker and for the worker:

        class TreeResults(Results):
            find_tree: StepOf[Tree]
            chop_tree: StepOf[Pieces]

    As the annotation of a step's parameter `steps` it gives a type checker the type of `steps.find_tree.result`. As
    `results` of the workflow, results are checked when a step ends and restored when they are read.
    """

    def __getitem__(self, name: str) -> StepView[Any]:
        raise NotImplementedError("a step is given this run's steps instead")

    def __contains__(self, name: object) -> bool:
        raise NotImplementedError("a step is given this run's steps instead")

    def __iter__(self) -> Iterator[str]:
        raise NotImplementedError("a step is given this run's steps instead")


def declared(results: Any) -> dict[str, Any]:
    """Step name -> the type of its result; ValueError, with what to write, for an invalid declaration."""
    if not (isinstance(results, type) and issubclass(results, Results)):
        raise ValueError(f"give a subclass of Results, not {results!r}")
    try:
        hints = get_type_hints(results, include_extras=True)
    except Exception as error:
        raise ValueError(f"a type of {results.__name__} cannot be found: {error}") from error
    return {name: _type_of(name, hint) for name, hint in hints.items()}


def _type_of(name: str, hint: Any) -> Any:
    if hint is StepView:
        return Any
    if get_origin(hint) is not StepView:
        shown = getattr(hint, "__name__", str(hint))
        raise ValueError(f"{name} is a {shown}, not a step: write {name}: StepOf[{shown}]")
    return get_args(hint)[0]


def type_results(plan: Plan, returns: dict[str, Returns], results: Any) -> list[str]:
    """Adds to `returns`, which has the types of annotations. Returns the problems of `results`."""
    problems: list[str] = []
    if results is not None:
        problems += _by_declaration(plan, returns, results)
    for place in reversed(plan.places.values()):
        last = _last_step(place)
        if last in returns:
            returns.setdefault(place.path, returns[last])
    return problems


def _by_declaration(plan: Plan, returns: dict[str, Returns], results: Any) -> Iterator[str]:
    try:
        types = declared(results)
    except ValueError as error:
        yield f"results: {error}"
        return
    named = _own_steps(plan)
    for name, type_ in types.items():
        if name not in named:
            yield f"results: {results.__name__} has {name!r}, which is not a step{_hint(name, list(named))}"
        elif type_ is not Any:
            yield from _give(name, type_, named[name], returns)


def _give(name: str, type_: Any, places: list[str], returns: dict[str, Returns]) -> Iterator[str]:
    try:
        its_returns = Returns(type_)
    except Exception as error:
        # pydantic raises many kinds for what it can't describe.
        yield f"results: {name} cannot be checked: {type(error).__name__}: {str(error).splitlines()[0]}"
        return
    returns.update(dict.fromkeys(places, its_returns))


def _own_steps(plan: Plan) -> dict[str, list[str]]:
    """The places of each name in this workflow; nested workflows declare their own results."""
    found: dict[str, list[str]] = {}
    for place in plan.places.values():
        if not any(isinstance(around.node, WorkflowNode) for around in place.lineage()):
            found.setdefault(place.node.name, []).append(place.path)
    return found


def _last_step(place: Place) -> str | None:
    """The step whose result is the composite's, if that is always the same step."""
    if not isinstance(place.node, WorkflowNode | LoopNode):
        return None
    [body] = bodies(place.node)
    return place.scope + body[-1].name if body else None


def _hint(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f": did you mean {close[0]!r}?" if close else f"; its steps are {', '.join(known)}"
