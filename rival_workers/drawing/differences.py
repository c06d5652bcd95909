"""The differences between two plans: nodes added, removed, moved, and options changed. Empty if and only if the plans
are equal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rival_workers.drawing.plan_outline import NO_OPTIONS, Options, options_of, value_text
from rival_workers.engine.nodes import BranchNode, ParallelNode
from rival_workers.engine.paths import scope_of
from rival_workers.engine.plan import Place, Plan


@dataclass(frozen=True)
class Moved:
    path: str
    #: Where it was.
    before: str
    #: How its place changed, if its path is the same.
    how: str = ""


@dataclass(frozen=True)
class Changed:
    path: str
    #: Option -> (old, new); None where it was the default.
    options: dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Differences:
    """Paths are those of the plan: `lines[]/pack`."""

    added: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    moved: list[Moved] = field(default_factory=list)
    changed: list[Changed] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.moved or self.changed)


def differences(
    old: Plan, new: Plan, old_options: Options = NO_OPTIONS, new_options: Options = NO_OPTIONS
) -> Differences:
    """Also of the options of the nodes, by place."""
    before, after = old.places, new.places
    elsewhere = _elsewhere(before, after)
    common = {path: path for path in after if path in before} | {path: was for was, path in elsewhere.items()}
    return Differences(
        added=[path for path in after if path not in common],
        removed=[path for path in before if path not in after and path not in elsewhere],
        moved=_moved(old, new, {path: common[path] for path in after if path in common}),
        changed=_changed(old, new, {path: common[path] for path in after if path in common}, old_options, new_options),
    )


def _elsewhere(before: Mapping[str, Place], after: Mapping[str, Place]) -> dict[str, str]:
    """Old path -> new path of nodes that moved into or out of a composite: removed here, added there with the same name
    and kind, and only one of each."""
    gone = _by_identity([place for path, place in before.items() if path not in after])
    come = _by_identity([place for path, place in after.items() if path not in before])
    return {
        places[0].path: come[identity][0].path
        for identity, places in gone.items()
        if len(places) == 1 and len(come.get(identity, ())) == 1
    }


def _by_identity(places: Sequence[Place]) -> dict[tuple[str, str], list[Place]]:
    found: dict[tuple[str, str], list[Place]] = {}
    for place in places:
        found.setdefault((place.node.type, place.node.name), []).append(place)
    return found


# -- moved ------------------------------------------------------------------------------------------------


def _moved(old: Plan, new: Plan, common: Mapping[str, str]) -> list[Moved]:
    """`common`: new place -> old place."""
    others = _out_of_order(old, new)
    found: list[Moved] = []
    for path, was in common.items():
        sequences = _sequence(old.places[was]), _sequence(new.places[path])
        if path != was:
            if not _carried_along(path, was, new, common):
                found.append(Moved(path, was))
        elif sequences[0] != sequences[1]:
            before, after = (name or "the sequence" for name in sequences)
            found.append(Moved(path, was, f"from {before} to {after}"))
        elif path in others:
            found.append(Moved(path, was, f"now after {_previous(new.places[path])}"))
    return found


def _carried_along(path: str, was: str, new: Plan, common: Mapping[str, str]) -> bool:
    """It moved only because its composite moved."""
    parent = new.places[path].parent
    if parent is None:
        return False
    came_from = common.get(parent.path)
    return came_from not in (None, parent.path) and scope_of(was).rstrip("/").removesuffix("[]") == came_from


def _sequence(place: Place) -> str:
    """The name of the sequence of a composite that contains the node. A lane is named by its last step, as in the
    result."""
    match place.parent.node if place.parent else None:
        case BranchNode() as branch:
            return "then" if place.body is branch.then else "otherwise"
        case ParallelNode():
            return f"the lane of {place.body[-1].name}"
        case _:
            return ""


def _previous(place: Place) -> str:
    return place.before.name if place.before else "nothing"


def _out_of_order(old: Plan, new: Plan) -> set[str]:
    """The smallest set of nodes that must have moved within their scopes."""
    found: set[str] = set()
    for scope, after in new.scopes.items():
        positions = {name: n for n, name in enumerate(old.scopes.get(scope, {}))}
        names = [name for name in after if name in positions]
        stayed = _longest_rise([positions[name] for name in names])
        found |= {scope + name for name in names if positions[name] not in stayed}
    return found


def _longest_rise(numbers: Sequence[int]) -> set[int]:
    """The members of a longest increasing subsequence of distinct numbers."""
    ends: list[int] = []
    previous: dict[int, int | None] = {}
    for number in numbers:
        at = bisect_left(ends, number)
        previous[number] = ends[at - 1] if at else None
        ends[at : at + 1] = [number]
    chosen: set[int] = set()
    number_or_none = ends[-1] if ends else None
    while number_or_none is not None:
        chosen.add(number_or_none)
        number_or_none = previous[number_or_none]
    return chosen


# -- changed ----------------------------------------------------------------------------------------------


def _changed(
    old: Plan, new: Plan, common: Mapping[str, str], old_options: Options, new_options: Options
) -> list[Changed]:
    pairs = [
        (path, _facts(old.places[was], old_options), _facts(new.places[path], new_options))
        for path, was in common.items()
    ]
    whole = ("", {"on_error": old.on_error or None}, {"on_error": new.on_error or None})
    compared = ((path, _compare(before, after)) for path, before, after in [whole, *pairs])
    return [Changed(path, options) for path, options in compared if options]


def _facts(place: Place, options: Options) -> dict[str, Any]:
    return {"kind": place.node.type, **options_of(place.node, options.get(place.path, {}))}


def _compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    names = dict.fromkeys([*before, *after])
    return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}


# -- as text ----------------------------------------------------------------------------------------------


def lines(found: Differences) -> list[str]:
    return [
        *(f"+ {path}" for path in found.added),
        *(f"- {path}" for path in found.removed),
        *(f"> {one.path}  {one.how or f'was {one.before}'}" for one in found.moved),
        *(f"~ {one.path or '(the workflow)'}  {_options(one)}" for one in found.changed),
    ]


def _options(one: Changed) -> str:
    return ", ".join(f"{name}: {_value(old)} → {_value(new)}" for name, (old, new) in one.options.items())


def _value(value: Any) -> str:
    return "default" if value is None else value_text(value)
