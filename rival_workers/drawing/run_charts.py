"""Charts of a run: the timeline of its steps from the history, and the order and depth of its rows from the plan."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rival_client.model import statuses
from rival_client.model.rebuild import status_changes
from rival_client.model.run_entries import HistoryEntry
from rival_workers.engine import paths
from rival_workers.engine.nodes import ForEachNode
from rival_workers.engine.plan import Plan

WIDTH = 60
#: Status -> symbol in the bar of a step.
SYMBOLS = {statuses.PENDING: "░", statuses.RUNNING: "█", statuses.WAITING: "·", statuses.WAITING_RETRY: "╌"}


@dataclass
class Stretch:
    """A time in which a step had one status; without an end it still has it."""

    status: str
    began: dt.datetime
    ended: dt.datetime | None = None

    def seconds(self, now: dt.datetime) -> float:
        return ((self.ended or now) - self.began).total_seconds()


@dataclass
class Track:
    """One step from its first entry to its last."""

    path: str
    status: str
    stretches: list[Stretch] = field(default_factory=list)

    def seconds(self, status: str, now: dt.datetime) -> float:
        return sum(one.seconds(now) for one in self.stretches if one.status == status)


def tracks(history: Iterable[HistoryEntry]) -> list[Track]:
    """In the order in which the steps were reached."""
    found: dict[str, Track] = {}
    for entry in history:
        for path, status in status_changes(entry):
            _move(found.setdefault(path, Track(path, status)), status, entry.at)
    return list(found.values())


def _move(track: Track, status: str, at: dt.datetime) -> None:
    if track.stretches and track.stretches[-1].ended is None:
        track.stretches[-1].ended = at
    track.status = status
    if status in SYMBOLS:
        track.stretches.append(Stretch(status, at))


def span(history: Sequence[HistoryEntry], now: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    """From the first entry to the last, or to now while a step is open."""
    if not history:
        return now, now
    still_open = any(track.status in SYMBOLS for track in tracks(history))
    return history[0].at, now if still_open else history[-1].at


def bar(track: Track, began: dt.datetime, ended: dt.datetime, width: int = WIDTH) -> str:
    """Each stretch is at least one symbol wide; `running` is drawn over the others."""
    whole = max((ended - began).total_seconds(), 1e-6)
    symbols = [" "] * width
    for one in sorted(track.stretches, key=lambda one: one.status == statuses.RUNNING):
        first = _column((one.began - began).total_seconds() / whole, width)
        last = _column(((one.ended or ended) - began).total_seconds() / whole, width)
        symbols[first : last + 1] = SYMBOLS[one.status] * (last + 1 - first)
    return "".join(symbols).rstrip()


def _column(share: float, width: int) -> int:
    return min(max(int(share * width), 0), width - 1)


Key = tuple[tuple[float, float], ...]

_BEFORE, _AFTER = -1.0, float("inf")
#: After all iterations of a composite: its compensation, then its handler.
_REACTIONS = {"compensate": 1e300, "on_error": _AFTER}
#: Conditions that are checked after the steps of an iteration; all others are checked before.
_CHECKED_AFTER = ("until",)


class RunTree:
    """The rows of a run in the order of its plan, each with its nesting depth."""

    def __init__(self, plan: Plan) -> None:
        self._positions = {path: n for n, path in enumerate(plan.places)}
        self._has_item_rows = {path for path, place in plan.places.items() if isinstance(place.node, ForEachNode)}

    def key(self, path: str) -> Key:
        """Sort key: a composite, its condition, its iterations and steps in plan order, compensation, handler."""
        base, role = paths.role_of(path)
        if not base:
            return ((_AFTER, _REACTIONS.get(role, _AFTER)),)
        key = tuple(
            (self._position(place), _BEFORE if iteration is None else iteration) for place, iteration in _levels(base)
        )
        if role in _REACTIONS:
            return (*key[:-1], (key[-1][0], _REACTIONS[role]))
        return (*key, (_AFTER if role in _CHECKED_AFTER else _BEFORE, 0)) if role else key

    def depth(self, path: str) -> int:
        base, role = paths.role_of(path)
        if not base:
            return 0
        levels = list(_levels(base))
        iterations = sum(iteration is not None and place in self._has_item_rows for place, iteration in levels)
        return len(levels) - 1 + iterations + bool(role)

    def _position(self, place: str) -> float:
        return self._positions.get(place, _AFTER)


def _levels(base: str) -> Iterator[tuple[str, int | None]]:
    """`lines[3]/pack` → (`lines`, 3), (`lines[]/pack`, None)."""
    parts = base.split("/")
    for n in range(1, len(parts) + 1):
        up, iteration = paths.iteration_of("/".join(parts[:n]))
        yield paths.place_of(up), iteration
