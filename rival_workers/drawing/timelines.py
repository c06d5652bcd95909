"""A run's history as a picture: for each step, when it waited and when it ran. Pure, from the history alone."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rival_client.model.rebuild import status_changes
from rival_client.model.records import HistoryEntry

WIDTH = 60
#: What a step was during a stretch of its bar.
SIGNS = {"pending": "░", "running": "█", "waiting": "·", "waiting_retry": "╌"}


@dataclass
class Stretch:
    """A time during which a step was one thing; without an end it still is."""

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
    if status in SIGNS:
        track.stretches.append(Stretch(status, at))


def span(history: Sequence[HistoryEntry], now: dt.datetime) -> tuple[dt.datetime, dt.datetime]:
    """From the first entry to the last, or to now while something is open."""
    if not history:
        return now, now
    still_open = any(track.status in SIGNS for track in tracks(history))
    return history[0].at, now if still_open else history[-1].at


def bar(track: Track, began: dt.datetime, ended: dt.datetime, width: int = WIDTH) -> str:
    """Each stretch is at least one sign wide; what runs is drawn over what waits."""
    whole = max((ended - began).total_seconds(), 1e-6)
    signs = [" "] * width
    for stretch in sorted(track.stretches, key=lambda one: one.status == "running"):
        first = _place((stretch.began - began).total_seconds() / whole, width)
        last = _place(((stretch.ended or ended) - began).total_seconds() / whole, width)
        signs[first : last + 1] = SIGNS[stretch.status] * (last + 1 - first)
    return "".join(signs).rstrip()


def _place(share: float, width: int) -> int:
    return min(max(int(share * width), 0), width - 1)
