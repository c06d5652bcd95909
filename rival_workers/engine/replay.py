"""Replays a flow: what it did in earlier attempts, and which checkpoint it reaches now. Pure: no I/O.

A lane is one task of an async flow; a sync flow has one lane, the root. A checkpoint is identified by its lane, its
name and how often the name occurred in that lane: `send`, `send~2`, `#2.1:send`. It also has a number in its lane, so
that a flow whose code has changed is detected. `end_order` is the order in which the flow received the ends: a replay
delivers them in the same order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import Any

from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import CHILD, CHILD_RESULT, FLOW_WAIT, VALUE
from rival_client.model.payload import Json, load
from rival_client.model.record import record
from rival_workers.errors import FlowChanged

_HISTORY_NAMES = {statuses.WAITING_RETRY: entries.RETRIED, statuses.CANCELLED: entries.GIVEN_UP}
#: Kinds whose own names users do not know, in errors.
_NOUNS = {FLOW_WAIT: "wait for an event", CHILD: "child run", CHILD_RESULT: "result of the child run"}


@record(frozen=True)
class Checkpoint:
    """A stored checkpoint."""

    path: str
    kind: str
    status: str
    number: int
    attempts: int
    result: Any = None
    error: dict[str, Any] | None = None
    #: Seconds until it is due.
    due_in: float | None = None
    #: The position of its end among all ends that the flow has received; None: not received yet.
    end_order: int | None = None
    #: When it ended, by the database's clock.
    ended_at: float | None = None
    #: The run id of the child that it waits for.
    child: str | None = None
    #: How many ends the flow had received when it reached the checkpoint.
    begun_after: int | None = None

    @property
    def is_over(self) -> bool:
        return self.status in (statuses.COMPLETED, statuses.SKIPPED, statuses.FAILED, statuses.CANCELLED)

    @property
    def ends_at_once(self) -> bool:
        """A value or a spawn: the flow continues without waiting."""
        return self.kind == VALUE or (self.kind == CHILD and self.is_over and self.end_order is None)


@record(frozen=True)
class CheckpointRef:
    """A checkpoint that a flow has reached. `found`: the stored one, if an earlier attempt has reached it."""

    path: str
    kind: str
    number: int
    found: Checkpoint | None = None
    #: How many ends the flow had received when it reached this checkpoint.
    begun_after: int | None = None


@record(frozen=True)
class CheckpointWrite:
    """The new status of a checkpoint, to be stored."""

    ref: CheckpointRef
    status: str
    result: Json | None = None
    error: dict[str, Any] | None = None
    attempts: int = 1
    #: Seconds until it is due.
    delay: float | None = None
    end_order: int | None = None
    #: Seconds since it ended: its position among events and ends of children follows from that time.
    ago: float = 0.0

    def stored(self, ended_at: float | None = None) -> Checkpoint:
        """The checkpoint after this write."""
        ref, what = self.ref, (load(self.result), self.error, None, self.end_order, ended_at)
        return Checkpoint(ref.path, ref.kind, self.status, ref.number, self.attempts, *what)

    def received_as(self, order: int) -> CheckpointWrite:
        """The same, with the position of its end."""
        # Each checkpoint needs it, and `replace` costs several times as much.
        given = (self.ref, self.status, self.result, self.error, self.attempts, self.delay)
        return CheckpointWrite(*given, order, self.ago)

    @property
    def what(self) -> str:
        """Its name in the history."""
        return _HISTORY_NAMES.get(self.status, self.status)

    @property
    def detail(self) -> dict[str, Any]:
        """Its detail in the history."""
        return {
            "kind": self.ref.kind,
            "attempts": self.attempts,
            "result": self.result,
            "error": self.error,
            "delay": self.delay,
            "end_order": self.end_order,
            "begun_after": self.ref.begun_after,
        }


class Replay:
    def __init__(self, flow: str, run_id: str, found: Iterable[Checkpoint]) -> None:
        self.flow, self.run_id = flow, run_id
        self._found = {one.path: one for one in found}
        numbered = (one for one in self._found.values() if one.kind != CHILD_RESULT)
        self._numbers = {(self._lane_of(one.path), one.number): one for one in numbered}
        self._names: Counter[tuple[str, str]] = Counter()
        self._next: Counter[str] = Counter()
        #: Earlier attempts have run all that the flow does between receiving this many ends and the next one.
        self._last_phase = _last_phase(self._found.values())
        self._not_reached = {one.path for one in self._found.values() if (one.begun_after or 0) > self._last_phase}

    def has_been_here(self, received: int) -> bool:
        """An earlier attempt has run what the flow's code does now, after it has received `received` ends. An end is
        only delivered, and a wait only stored, when all lanes of the flow wait."""
        return received <= self._last_phase or bool(self._not_reached)

    @property
    def received(self) -> list[Checkpoint]:
        """The checkpoints whose ends the flow has received, in that order."""
        received = [one for one in self._found.values() if one.end_order is not None]
        return sorted(received, key=lambda one: one.end_order or 0)

    def come_to(self, name: str, kind: str, lane: str = "", begun_after: int | None = None) -> CheckpointRef:
        """The next checkpoint of a lane. FlowChanged: the lane reached another one here in an earlier attempt."""
        if name.startswith("#"):
            raise ValueError(f"{name!r}: the name of a checkpoint cannot begin with #, the sign of lanes")
        path = self._path(name, lane)
        number = self._next[lane]
        self._next[lane] += 1
        found = self._found.get(path)
        self._not_reached.discard(path)
        before = self._numbers.get((lane, number)) or found
        if before is not None and (before.path, before.kind) != (path, kind):
            where = f"checkpoint {number + 1}" + (f" of lane {lane}" if lane else "")
            now, then = _named(kind, path), _named(before.kind, before.path)
            raise self.changed(f"{where}: the flow reaches {now}, but has reached {then} before.")
        return CheckpointRef(path, kind, number, found, begun_after)

    def result_of(self, spawn: CheckpointRef, begun_after: int | None = None) -> CheckpointRef:
        """A wait for a spawned child. Its place is below the spawn, whichever lane waits."""
        self._names[spawn.path, CHILD_RESULT] += 1
        path = f"{spawn.path}/result" + _times(self._names[spawn.path, CHILD_RESULT])
        return CheckpointRef(path, CHILD_RESULT, spawn.number, self._found.get(path), begun_after)

    def changed(self, how: str) -> FlowChanged:
        return FlowChanged(
            f"run {self.run_id!r}, {how} Its code has changed under the run. "
            "Bring the old code back for it (another version= for the new), or rewind the run."
        )

    def _path(self, name: str, lane: str) -> str:
        self._names[lane, name] += 1
        leaf = name + _times(self._names[lane, name])
        return f"{self.flow}/#{lane}:{leaf}" if lane else f"{self.flow}/{leaf}"

    def _lane_of(self, path: str) -> str:
        rest = path[len(self.flow) + 1 :]
        return rest[1:].partition(":")[0] if rest.startswith("#") else ""


def _named(kind: str, path: str) -> str:
    """A checkpoint as users know it, for errors."""
    return f"the {_NOUNS.get(kind, kind)} {path!r}"


def _last_phase(found: Collection[Checkpoint]) -> int:
    """While something is open, a flow that has nothing else to do is suspended without storing more: so what follows
    from the last end has been run, too, unless the attempt died in the middle of it."""
    last = max(map(_phase, found), default=-1)
    is_open = any(one.end_order is None and one.status != statuses.CANCELLED and not one.ends_at_once for one in found)
    received = max((one.end_order + 1 for one in found if one.end_order is not None), default=0)
    return max(last, received) if is_open else last


def _phase(one: Checkpoint) -> int:
    if one.end_order is not None:
        return one.end_order
    begun_after = one.begun_after or 0
    # It is stored in the middle of what the flow does there.
    return begun_after - 1 if one.ends_at_once else begun_after


def _times(count: int) -> str:
    return f"~{count}" if count > 1 else ""
