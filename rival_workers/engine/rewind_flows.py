"""Computes which checkpoints of a flow stay when its run is retried or rewound. Pure.

A checkpoint knows of an end if the flow had received that end before it reached the checkpoint, in whichever lane: the
lanes may have passed values to one another. When a checkpoint is done again, all that know of its end are done again,
so that the replay finds nothing that follows from the deleted end.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from rival_client.model import statuses
from rival_client.model.kinds import CHILD, TIMED_CHECKPOINTS, VALUE
from rival_client.model.statuses import DONE


class CheckpointRow(Protocol):
    @property
    def path(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def status(self) -> str: ...
    @property
    def number(self) -> int | None: ...
    @property
    def end_order(self) -> int | None: ...
    @property
    def begun_after(self) -> int | None: ...
    @property
    def culprits(self) -> tuple[str, ...]: ...


@dataclass(frozen=True)
class Kept:
    #: Checkpoints that stay as they are.
    paths: frozenset[str]
    #: Sleeps and waits that continue with the time that is left.
    revived: frozenset[str] = frozenset()


def kept_by_rewind(flow: str, rows: Mapping[str, CheckpointRow], target: str) -> Kept:
    """The ended checkpoints that do not know of the target's end, of other lanes too."""
    others = [row for row in _below(flow, rows) if row.path != target]
    ended = (row for row in others if row.status in (*DONE, statuses.FAILED) and _is_received(row, flow))
    return Kept(frozenset(row.path for row in ended if not _knows(row, rows[target], flow)))


def kept_by_retry(flow: str, rows: Mapping[str, CheckpointRow]) -> Kept:
    """All checkpoints but the failures that ended the flow, and those that the flow reached after them."""
    below = _below(flow, rows)
    culprits = [row for row in below if row.path in rows[flow].culprits and row.status == statuses.FAILED]
    before = [row for row in below if not any(_knows(row, one, flow) for one in culprits)]
    last = max((row.begun_after or 0 for row in before), default=0)
    stay = {row.path for row in before if row.status in DONE or _was_caught(row, last, flow)}
    timers = {row.path for row in before if row.kind in TIMED_CHECKPOINTS and row.status == statuses.CANCELLED}
    return Kept(frozenset(stay - {row.path for row in culprits}), frozenset(timers))


def _below(flow: str, rows: Mapping[str, CheckpointRow]) -> Collection[CheckpointRow]:
    return [row for row in rows.values() if row.path.startswith(f"{flow}/")]


def _is_received(row: CheckpointRow, flow: str) -> bool:
    return row.end_order is not None or _ends_at_once(row, flow)


def _ends_at_once(row: CheckpointRow, flow: str) -> bool:
    """A value or a spawn: the flow has its result at once, and receives no end later."""
    return row.kind == VALUE or (row.kind == CHILD and _lane_and_leaf(row, flow)[1].startswith("spawn:"))


def _lane_and_leaf(row: CheckpointRow, flow: str) -> tuple[str, str]:
    rest = row.path[len(flow) + 1 :]
    lane, _, leaf = rest.partition(":") if rest.startswith("#") else ("", "", rest)
    return lane, leaf


def _known_from(row: CheckpointRow, flow: str) -> float:
    """The number of received ends from which on the flow knows of the end of this one."""
    if row.end_order is not None:
        return row.end_order + 1
    return row.begun_after or 0 if _ends_at_once(row, flow) else math.inf


def _knows(row: CheckpointRow, other: CheckpointRow, flow: str) -> bool:
    begun, known_from = row.begun_after or 0, _known_from(other, flow)
    if row.path.startswith(f"{other.path}/"):  # the wait for a spawned child
        return True
    if begun != known_from or other.end_order is not None:
        return begun >= known_from
    # Between the same two ends: checkpoints that its own lane reached before do not know of it.
    same_lane = _lane_and_leaf(row, flow)[0] == _lane_and_leaf(other, flow)[0]
    return not same_lane or (row.number or 0) > (other.number or 0)


def _was_caught(row: CheckpointRow, last: int, flow: str) -> bool:
    """Its failure did not stop the flow: the flow reached other checkpoints after it."""
    return row.status == statuses.FAILED and _known_from(row, flow) <= last


def culprits_of(error: Mapping[str, object] | None) -> tuple[str, ...]:
    """The checkpoints whose failures ended a flow, as its error names them."""
    named = (error or {}).get("checkpoints")
    return tuple(one for one in named if isinstance(one, str)) if isinstance(named, Iterable) else ()
