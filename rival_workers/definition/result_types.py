"""Gives the places of a plan the types of their results: by `Results`, by annotation, or by their last step."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from rival_workers.definition.results import declared
from rival_workers.definition.returns import Returns
from rival_workers.engine.plan import LoopNode, Place, Plan, WorkflowNode, bodies


def type_results(plan: Plan, returns: dict[str, Returns], results: Any) -> list[str]:
    """Adds to `returns`, which has what the annotations say; the problems of `results`, if it has any."""
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
            yield f"results: {results.__name__} has {name!r}, but there is no such step{_hint(name, list(named))}"
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
    """The places that have a name in this workflow; a nested one declares its own."""
    found: dict[str, list[str]] = {}
    for place in plan.places.values():
        if not any(isinstance(around.node, WorkflowNode) for around in place.lineage()):
            found.setdefault(place.node.name, []).append(place.path)
    return found


def _last_step(place: Place) -> str | None:
    """Whose result the composite's is, when that is the same one every time."""
    if not isinstance(place.node, WorkflowNode | LoopNode):
        return None
    [body] = bodies(place.node)
    return place.scope + body[-1].name if body else None


def _hint(name: str, known: list[str]) -> str:
    close = get_close_matches(name, known, 1)
    return f": did you mean {close[0]!r}?" if close else f"; its steps are {', '.join(known)}"
