"""The values that a flow's attempt passes to the store in one commit, and the result of the commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rival_client.model.payload import Json
from rival_client.model.record import record
from rival_client.model.starts.start_options import NO_OPTIONS, StartOptions
from rival_workers.engine.effects import WaitFor
from rival_workers.engine.replay import Checkpoint, CheckpointRef, CheckpointWrite


class FlowPaused(Exception):
    """The run is paused: what the flow did is committed, and the flow continues when the run is resumed."""


@record(frozen=True)
class StoredFlow:
    """The data that earlier attempts of a flow have stored."""

    checkpoints: list[Checkpoint] = field(default_factory=list)
    #: The flow's `state`.
    state: dict[str, Any] | None = None


@dataclass(frozen=True)
class ChildRun:
    run_id: str
    workflow: str
    input: Json
    #: Includes the labels of its parent.
    options: StartOptions = NO_OPTIONS


@dataclass(frozen=True)
class EventWait:
    """A checkpoint that begins to wait for an event."""

    ref: CheckpointRef
    waits_for: Sequence[WaitFor]
    timeout: float | None


@dataclass(frozen=True)
class ChildStart:
    """A checkpoint that starts a child run and waits for it."""

    ref: CheckpointRef
    child: ChildRun


@dataclass(frozen=True)
class ChildWait:
    """A checkpoint that waits for a child that was spawned earlier."""

    ref: CheckpointRef
    run_id: str


@dataclass(frozen=True)
class FlowCommit:
    """Everything that the lanes of a flow did since the last commit."""

    #: The `end_order` of the first end that the flow receives from this commit.
    next_order: int
    #: Steps that have ended or will be retried.
    writes: Sequence[CheckpointWrite] = ()
    #: New sleeps.
    sleeps: Sequence[CheckpointWrite] = ()
    waits: Sequence[EventWait] = ()
    children: Sequence[ChildStart] = ()
    child_waits: Sequence[ChildWait] = ()
    #: Checkpoints that no lane waits for any more.
    given_up: Sequence[CheckpointRef] = ()
    #: Paths of the checkpoints that have been waiting since earlier commits.
    open_paths: Sequence[str] = ()
    #: Suspend the flow if nothing has ended.
    suspend: bool = False
    #: Seconds until the next retry of a step.
    retry_in: float | None = None
    #: True if no step of the flow runs, so that the flow stops with this commit if its run is paused.
    may_stop: bool = False
    #: The flow's state; None if it has not changed.
    state: Json | None = None

    @property
    def only_open_path(self) -> str | None:
        """The path of the checkpoint that the flow waits for, if it is the only one, existed before, and nothing else
        has happened."""
        others = (self.writes, self.sleeps, self.waits, self.children, self.child_waits, self.given_up)
        return self.open_paths[0] if len(self.open_paths) == 1 and not any(others) else None

    @property
    def only_sleep(self) -> CheckpointWrite | None:
        """The new sleep, if the flow is suspended for it and nothing else has happened or is open."""
        others = (self.writes, self.waits, self.children, self.child_waits, self.given_up, self.open_paths)
        is_alone = self.suspend and len(self.sleeps) == 1 and not any(others) and self.retry_in is None
        return self.sleeps[0] if is_alone else None

    @property
    def only_ends_steps(self) -> bool:
        """True if steps have ended at their first attempt, and nothing else has happened or could have."""
        others = (self.sleeps, self.waits, self.children, self.child_waits, self.given_up, self.open_paths)
        if self.suspend or not self.writes or any(others):
            return False
        return all(one.ref.found is None and one.delay is None for one in self.writes)


@dataclass(frozen=True)
class FlowProgress:
    """The result of a commit."""

    #: The ends that the flow receives, in order.
    ended: tuple[Checkpoint, ...] = ()
    #: The token under which the flow waits; None: it is not suspended.
    token: int | None = None
    #: Seconds until the suspended flow must be resumed.
    seconds: float | None = None
    #: The child runs that were started.
    children: tuple[str, ...] = ()
    #: Seconds until the earliest timer of an open checkpoint.
    due_in: float | None = None
    #: The run is paused: no step may start.
    is_paused: bool = False
    #: Nothing had happened, so nothing was written, not even the flow's state.
    is_empty: bool = False


@record(frozen=True)
class FlowClaim:
    """The executor that continues a flow which starts over, its time limit, and the options that fleet rules
    changed."""

    executor: str
    timeout: float | None = None
    policy: str | None = None


@record(frozen=True)
class ContinuedFlow:
    """A flow that has started over."""

    token: int
    #: The token of the attempt that was claimed with it; None: the flow is pending.
    timeout_token: int | None = None


@dataclass(frozen=True)
class SpawnedChild:
    """A child run that was started without waiting for it, or the reason why it could not be started."""

    run_id: str | None
    error: dict[str, Any] | None = None
