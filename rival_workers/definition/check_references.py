"""Whether the steps that a function reads exist, and come before it: asked of the plan when it is registered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING

from rival_workers.definition.step_references import Mention, mentions_of
from rival_workers.engine import paths
from rival_workers.engine.names import NameScope
from rival_workers.engine.plan import BranchNode, LoopNode, Place, Plan

if TYPE_CHECKING:
    from rival_workers.definition.calls import Call


@dataclass
class Reading:
    """What is wrong with what functions read of other steps."""

    #: Of steps that exist, but do not come before.
    out_of_order: list[str] = field(default_factory=list)
    #: Of steps that there are not; a workflow around this one may have them.
    unseen: list[str] = field(default_factory=list)


def check_reading(plan: Plan, calls: Mapping[str, Call]) -> Reading:
    reading = Reading()
    for place, call in calls.items():
        # A handler is called at any time: it may ask for anything, and its answer is what there is.
        if not paths.is_reaction(place):
            for mention in mentions_of(call.injection):
                _check(plan, place, mention, reading)
    return reading


def _check(plan: Plan, place: str, mention: Mention, reading: Reading) -> None:
    scope = NameScope(plan, place)
    if paths.place_of(mention.name) in plan.places and set("/[") & set(mention.name):
        # A whole path: which of many turns it means, only the run knows.
        return
    found = scope.scope_of(mention.name)
    at = f"({mention.file}:{mention.line})"
    if found is None:
        reading.unseen.append(f"step {place!r} reads {_as_written(mention)}, {_not_there(mention.name, scope)} {at}")
        return
    why = _not_before(plan, place, *found)
    if why:
        reading.out_of_order.append(f"step {place!r} reads {_as_written(mention)}, {why} {at}")


def _as_written(mention: Mention) -> str:
    return f"steps.{mention.name}" if mention.name.isidentifier() else f"steps[{mention.name!r}]"


def _not_there(name: str, scope: NameScope) -> str:
    known = list(scope)
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"its steps are {', '.join(known)}."
    return (
        f"but there is no step {name!r}: {hint} If a workflow around this one has it, register that one, or ask "
        f'`"{name}" in steps` first.'
    )


def _not_before(plan: Plan, place: str, scope: str, below: str) -> str | None:
    """Why what a name means does not come before a place; None: it does."""
    if scope and isinstance(plan.place(scope[:-1]).node, LoopNode):
        # Of this turn, or of the one before.
        return None
    here, there = plan.place(place), plan.places[scope + below]
    if here is there:
        # An attempt may look at what an earlier one of the same step has left.
        return None
    return _why(*_neighbours(here, there), there.node.name)


def _neighbours(here: Place, there: Place) -> tuple[Place, Place]:
    """The two as seen from the composite that they are both in, or from the top."""
    for one in (here, *here.lineage()):
        for other in (there, *there.lineage()):
            if one.parent is other.parent:
                return one, other
    raise AssertionError(f"{here.path} and {there.path} are not of one plan")


def _why(one: Place, other: Place, name: str) -> str | None:
    if one is other:
        return f"but {name!r} has not ended by then: one of the two is within the other"
    if one.body is not other.body:
        parent = one.parent
        assert parent is not None, "there is one body at the top"
        if isinstance(parent.node, BranchNode):
            return f"but {name!r} is on the other way of {parent.node.name!r}: only one of them is taken"
        return f"but {name!r} runs at the same time: read it after {parent.node.name!r}"
    if other.position > one.position:
        return f"but {name!r} comes later: move it before this one"
    return None
