"""What a flow's attempt hands to the store in one commit, and what the commit gives back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rival_client.payload import Json
from rival_workers.engine.effects import WaitFor
from rival_workers.engine.replay import Checkpoint, Ending, Mark


@dataclass(frozen=True)
class ChildRun:
    run_id: str
    workflow: str
    input: Json


@dataclass(frozen=True)
class EventWait:
    """A checkpoint that begins to wait for an event."""

    mark: Mark
    waits_for: Sequence[WaitFor]
    timeout: float | None


@dataclass(frozen=True)
class ChildStart:
    """A checkpoint that starts a child run and waits for it."""

    mark: Mark
    child: ChildRun


@dataclass(frozen=True)
class ChildWait:
    """A checkpoint that waits for a child that was spawned earlier."""

    mark: Mark
    run_id: str


@dataclass(frozen=True)
class FlowCommit:
    """Everything that the lanes of a flow have done since the last commit."""

    #: The `end_order` of the first end that the flow receives by this commit.
    next_order: int
    #: Steps that have ended, or are to be tried again.
    endings: Sequence[Ending] = ()
    #: Sleeps that begin.
    sleeps: Sequence[Ending] = ()
    waits: Sequence[EventWait] = ()
    children: Sequence[ChildStart] = ()
    child_waits: Sequence[ChildWait] = ()
    #: Checkpoints that no lane waits for any more.
    given_up: Sequence[Mark] = ()
    #: Paths of the checkpoints that have been waiting since earlier commits.
    open_paths: Sequence[str] = ()
    #: Suspend the flow if nothing has ended.
    suspend: bool = False
    #: Seconds until a step is to be tried again.
    retry_in: float | None = None

    @property
    def new_paths(self) -> list[str]:
        """Of the checkpoints that begin to wait."""
        begun: list[Any] = [*self.sleeps, *self.waits, *self.children, *self.child_waits]
        return [one.mark.path for one in begun]


@dataclass(frozen=True)
class FlowProgress:
    """What a commit has brought about."""

    #: The ends that the flow receives, in their order.
    ended: tuple[Checkpoint, ...] = ()
    #: The token under which the flow waits; None: it is not suspended.
    token: int | None = None
    #: Seconds until the suspended flow must be resumed.
    seconds: float | None = None
    #: The child runs that were started.
    children: tuple[str, ...] = ()
    #: Seconds until the earliest timer of an open checkpoint.
    due_in: float | None = None


@dataclass(frozen=True)
class SpawnedChild:
    """A child run that was started without waiting for it, or the reason why it could not be started."""

    run_id: str | None
    error: dict[str, Any] | None = None
