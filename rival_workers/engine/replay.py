"""What a flow has done before, and where it is now. Pure: a replay reads, and only what is new is done.

A checkpoint is found by its name and how often that name has come (`send`, `send~2`), and it has a number. A flow that
comes to another checkpoint than it did the last time has changed under its run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rival_client.payload import Json
from rival_workers.errors import FlowChanged


@dataclass(frozen=True)
class Checkpoint:
    """One as it is stored."""

    path: str
    kind: str
    status: str
    number: int
    attempts: int
    result: Any = None
    error: dict[str, Any] | None = None
    #: Seconds until its time has come.
    due_in: float | None = None

    @property
    def is_over(self) -> bool:
        return self.status in ("completed", "skipped", "failed", "cancelled")


@dataclass(frozen=True)
class Mark:
    """The checkpoint that a flow has come to; `found` if it has been here before."""

    path: str
    kind: str
    number: int
    found: Checkpoint | None = None
    #: The number of the last of those that were gathered with it.
    gathered: int | None = None


@dataclass(frozen=True)
class Ending:
    """How a checkpoint stands after what a flow has just done."""

    mark: Mark
    status: str
    result: Json | None = None
    error: dict[str, Any] | None = None
    attempts: int = 1
    #: Seconds until it is looked at again.
    delay: float | None = None

    @property
    def what(self) -> str:
        """What the history calls it."""
        return "retried" if self.status == "waiting_retry" else self.status

    @property
    def told(self) -> dict[str, Any]:
        return {
            "kind": self.mark.kind, "attempts": self.attempts, "result": self.result, "error": self.error,
            "delay": self.delay,
        }  # fmt: skip


class Replay:
    def __init__(self, flow: str, run_id: str, found: Iterable[Checkpoint]) -> None:
        self._flow, self._run_id = flow, run_id
        self._found = {one.path: one for one in found}
        self._numbers = {one.number: one for one in self._found.values()}
        self._names: Counter[str] = Counter()
        self._next = 0

    def come_to(self, name: str, kind: str) -> Mark:
        self._names[name] += 1
        times = self._names[name]
        path = f"{self._flow}/{name}" + (f"~{times}" if times > 1 else "")
        number, self._next = self._next, self._next + 1
        before = self._numbers.get(number)
        if before is not None and (before.path, before.kind) != (path, kind):
            raise FlowChanged(
                f"run {self._run_id!r}, checkpoint {number + 1}: the flow comes to {kind} {path!r}, "
                f"but has come to {before.kind} {before.path!r} before. Its code has changed under the run. "
                "Bring the old code back for it (another version= for the new), or rewind the run."
            )
        return Mark(path, kind, number, self._found.get(path))
