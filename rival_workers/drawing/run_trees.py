"""The rows of a run in the order of its plan, each as deep as it stands in it."""

from __future__ import annotations

from collections.abc import Iterator

from rival_workers.engine import paths
from rival_workers.engine.plan import ForEachNode, Plan

Key = tuple[tuple[float, float], ...]

_BEFORE, _AFTER = -1.0, float("inf")
#: After all turns of a composite: what has undone it, then its handler.
_REACTIONS = {"compensate": 1e300, "on_error": _AFTER}
#: Questions that are asked when the steps they belong to have ended; all others come before them.
_ASKED_AFTER = ("until",)


class RunTree:
    def __init__(self, plan: Plan) -> None:
        self._positions = {path: n for n, path in enumerate(plan.places)}
        self._has_rows_per_turn = {path for path, place in plan.places.items() if isinstance(place.node, ForEachNode)}

    def key(self, path: str) -> Key:
        """Sorts rows: a composite, its question, its turns and steps in the plan's order, its undoing, its handler."""
        base, role = paths.role_of(path)
        if not base:
            return ((_AFTER, _REACTIONS.get(role, _AFTER)),)
        key = tuple((self._position(place), _BEFORE if turn is None else turn) for place, turn in _levels(base))
        if role in _REACTIONS:
            return (*key[:-1], (key[-1][0], _REACTIONS[role]))
        return (*key, (_AFTER if role in _ASKED_AFTER else _BEFORE, 0)) if role else key

    def depth(self, path: str) -> int:
        base, role = paths.role_of(path)
        if not base:
            return 0
        levels = list(_levels(base))
        turns = sum(turn is not None and place in self._has_rows_per_turn for place, turn in levels)
        return len(levels) - 1 + turns + bool(role)

    def _position(self, place: str) -> float:
        return self._positions.get(place, _AFTER)


def _levels(base: str) -> Iterator[tuple[str, int | None]]:
    """`lines[3]/pack` → (`lines`, 3), (`lines[]/pack`, None)."""
    parts = base.split("/")
    for n in range(1, len(parts) + 1):
        up, turn = paths.iteration_of("/".join(parts[:n]))
        yield paths.place_of(up), turn
