"""Commits what a flow does, under the token of its step, and publishes messages afterwards. Raises Moved when the
attempt is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, NoReturn, TypeVar

from rival_client.broker.doorbell import Doorbell
from rival_client.errors import DatabaseError, DatabaseRefused
from rival_client.model import statuses
from rival_client.model.payload import Json, dump, load, serialise
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.timers import is_near
from rival_workers.engine.replay import Checkpoint, CheckpointRef, CheckpointWrite
from rival_workers.runtime.attempt import inline_ends
from rival_workers.runtime.attempt.outage import OutageRetry
from rival_workers.runtime.attempt.position import Position
from rival_workers.runtime.attempt.time_limits import TimeLimits
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.flow.pending_operations import ChildOperation, EventOperation, Operation, SleepOperation
from rival_workers.runtime.flow.step_threads import FlowStepLimit
from rival_workers.runtime.flow.stop_signals import Again, Continued, Moved, OutOfReach, Suspend
from rival_workers.runtime.logs.failure_log import FailureLog, FlowFailures
from rival_workers.settings import WorkerSettings
from rival_workers.store.flow_records import (
    ChildRun,
    ChildStart,
    ChildWait,
    EventWait,
    FlowCommit,
    FlowPaused,
    FlowProgress,
    SpawnedChild,
    StoredFlow,
)
from rival_workers.store.interface import Store

T = TypeVar("T")


class FlowCommits:
    def __init__(
        self,
        position: Position,
        store: Store,
        doorbell: Doorbell,
        outage: OutageRetry,
        limits: TimeLimits,
        settings: WorkerSettings,
        failures: FailureLog,
        checkpointed: Callable[[CheckpointWrite, StepConfig], None] | None = None,
        continued: Continued | None = None,
        stored: StoredFlow | None = None,
        alone: set[tuple[str, str, str]] | None = None,
    ) -> None:
        """`checkpointed`: called after the commit of the end of a step. `continued`: the attempt follows a continue_as
        directly, so its flow has no checkpoints. `stored`: what the claim has read of earlier attempts. `alone`: steps
        whose ends are committed alone, see `InlineEnds`."""
        self._position, self._store, self._doorbell = position, store, doorbell
        self._outage, self._limits, self._settings = outage, limits, settings
        self.max_payload, self.clock, self.wall_clock = settings.max_payload, limits.clock, limits.wall_clock
        self.run_id = position.claim.run_id
        self._continued, self._stored = continued, stored
        #: An earlier attempt may have stored checkpoints.
        self.was_claimed_before = position.claim.token > 1
        self.failures = FlowFailures(failures, position.workflow, self.run_id, outage.keep)
        self.state = FlowState(dict, "the state", self.max_payload)
        self.checkpointed = checkpointed
        self.held = HeldEnds(position, self.clock, set() if alone is None else alone)

    def checkpoints(self, state: Callable[[], Mapping[str, Any]]) -> list[Checkpoint]:
        """Those of earlier attempts. `state` returns the flow's state, which each commit stores if it has changed."""
        claim = self._position.claim
        stored = StoredFlow(state=None if self._continued is None else load(self._continued.state))
        if self._stored is not None:
            stored = self._stored
        elif self.was_claimed_before and self._continued is None:
            stored = self._kept(lambda: self._store.read_checkpoints(claim.run_id, claim.path))
        what = f"the state of step {claim.path!r} of run {claim.run_id!r}"
        self.state = FlowState(state, what, self.max_payload, stored.state)
        return stored.checkpoints

    def began_at(self) -> float:
        return self._kept(lambda: self._store.flow_began_at(self._position.claim))

    def record(self, write: CheckpointWrite) -> float:
        """Returns when it ended, by the database's clock."""
        if self.held.writes:
            return self._record_held(write)
        state = self.state.unstored()
        ended_at = self._kept(lambda: self._store.record_checkpoint(self._position.claim, write, state))
        return self._recorded(ended_at, state)

    def can_hold(self, ref: CheckpointRef, config: StepConfig) -> bool:
        """True if the end of this step can be committed with later ones. If not, those before it are committed now."""
        can_hold = self.checkpointed is None and self.held.takes(ref, config)
        if not can_hold or self.held.is_old:
            self.commit_held()
        return can_hold

    def hold(self, write: CheckpointWrite, began: float) -> None:
        """The end of an inline step that began then: it is committed with the next ones."""
        self.held.add(write, began)
        if self.held.is_full:
            self.commit_held()

    def commit_held(self) -> None:
        """Called before everything that must not precede the commit of what the flow has received."""
        if self.held.writes:
            self._record_held()

    def _record_held(self, *last: CheckpointWrite) -> float:
        state, writes = self.state.unstored(), (*self.held.writes, *last)
        try:
            ended_at = self._kept(lambda: self._store.record_checkpoints(self._position.claim, writes, state))
        except OutOfReach as lost:
            if isinstance(lost.__cause__, DatabaseRefused):
                self.held.refuse()
            raise
        self.held.writes.clear()
        return self._recorded(ended_at, state)

    def _recorded(self, ended_at: float | None, state: Json | None) -> float:
        if ended_at is None:
            raise Moved
        self.state.is_stored(state)
        failpoint("after_checkpoint_commit")
        return ended_at

    def suspend(self, write: CheckpointWrite | None, seconds: float | None, state: Json | None) -> None:
        """Suspend the flow for `seconds`, or without a time, and store one checkpoint. `state`: that of the flow, if it
        has changed."""
        self.commit_held()
        began, token = self._timed(lambda: self._store.suspend_step(self._position.claim, write, seconds, state))
        self._suspended(token, seconds, began)

    def commit(
        self,
        next_order: int,
        writes: Sequence[CheckpointWrite],
        waiting: Sequence[Operation],
        given_up: Sequence[Operation],
        *,
        suspend: bool,
        retry_in: float | None,
        may_stop: bool = False,
    ) -> FlowProgress:
        """Store what the lanes have done; returns what has ended for them."""
        self.commit_held()
        commit = FlowCommit(
            next_order,
            writes,
            given_up=[one.ref for one in given_up],
            open_paths=[one.ref.path for one in waiting if one.is_stored],
            suspend=suspend,
            retry_in=retry_in,
            may_stop=may_stop,
            state=self.state.unstored(),
            **_begun([one for one in waiting if not one.is_stored]),
        )
        progress = self._kept(lambda: self._store.commit_flow(self._position.claim, commit))
        if progress is None:
            raise Moved
        if not progress.is_empty:
            self.state.is_stored(commit.state)
        failpoint("after_checkpoint_commit")
        for child in progress.children:
            failpoint("after_child_commit")
            self._publish_run(child)
        if progress.token is not None:
            # From the end of the commit: a claim may be a little early (`timers.EARLY`), and a sleep must not be.
            self._suspended(progress.token, progress.seconds, self.clock())
        return progress

    def spawn(self, ref: CheckpointRef, child: ChildRun) -> SpawnedChild:
        self.commit_held()
        state = self.state.unstored()
        spawned = self._kept(lambda: self._store.spawn_child(self._position.claim, ref, child, state))
        if spawned is None:
            raise Moved
        self.state.is_stored(state)
        if spawned.run_id is not None:
            failpoint("after_child_commit")
            self._publish_run(spawned.run_id)
        return spawned

    def continue_as(self, its_input: Json) -> NoReturn:
        """Committed after the flow's `finally` blocks, together with the claim of its next attempt. It deletes the ends
        that are held like those that are stored."""
        state = self.state.unstored()
        raise Again(Continued(its_input, state or self.state.stored, state is not None))

    def limited(self, config: StepConfig, when_over: Callable[[FlowStepLimit], None]) -> AbstractContextManager[None]:
        """Call `when_over` if the block exceeds the time limits of the step."""
        return nullcontext() if config.limit is None else self._limited(config, when_over)

    @contextmanager
    def _limited(self, config: StepConfig, when_over: Callable[[FlowStepLimit], None]) -> Iterator[None]:
        limit = FlowStepLimit(config, self._limits.clock)

        def over() -> bool:
            try:
                when_over(limit)
            except Moved:
                return False  # the step ended at the same time
            return True

        with self._limits.kept(config, over) as limit.timer, limit.is_current():
            yield

    # -- committing and publishing ------------------------------------------------------------------------

    def _kept(self, operation: Callable[[], T]) -> T:
        """The token guards each operation, so that it can be repeated after an outage of the database. An outage that
        is too long is not a failure of the flow."""
        try:
            return self._outage.keep(operation)
        except DatabaseError as away:
            raise OutOfReach from away
        except FlowPaused:
            raise Suspend from None

    def _timed(self, operation: Callable[[], T]) -> tuple[float, T]:
        """When the try that has succeeded began, and its result."""

        def timed() -> tuple[float, T]:
            began = self.clock()
            return began, operation()

        return self._kept(timed)

    def _suspended(self, token: int | None, seconds: float | None, began: float) -> None:
        """`seconds`: until the row is due, from the beginning of the transaction, which was not before `began`. The
        claim of a message that comes early returns how many are left."""
        if token is None:
            raise Moved
        failpoint("after_suspend_commit")
        if seconds is not None:
            seconds = max(0.0, began + seconds - self.clock())
        if is_near(seconds, self._settings.near):
            self._doorbell.publish([self._position.message(token, countdown=seconds or 0.0)])

    def _publish_run(self, run_id: str) -> None:
        message = self._kept(lambda: self._store.started_run(run_id))
        if message is not None and is_near(message.countdown, self._settings.near):
            self._doorbell.publish([message])


def _begun(new: Sequence[Operation]) -> dict[str, list[Any]]:
    """The parts of a commit that begin waits."""
    children = [one for one in new if isinstance(one, ChildOperation)]
    return {
        "sleeps": [
            CheckpointWrite(one.ref, statuses.WAITING, delay=one.seconds)
            for one in new
            if isinstance(one, SleepOperation)
        ],
        "waits": [EventWait(one.ref, one.waits_for, one.timeout) for one in new if isinstance(one, EventOperation)],
        "children": [ChildStart(one.ref, one.child) for one in children if one.child is not None],
        "child_waits": [ChildWait(one.ref, one.run_id) for one in children if one.child is None],
    }


class HeldEnds:
    """Ends of inline steps that the flow has received and that are not committed: if the process dies, these steps run
    again. The same limits as for the inline steps of a plan, see `inline_ends`."""

    def __init__(self, position: Position, clock: Callable[[], float], alone: set[tuple[str, str, str]]) -> None:
        self._workflow, self._clock, self._alone = (position.workflow, position.version), clock, alone
        self.writes: list[CheckpointWrite] = []
        self._since = 0.0

    def takes(self, ref: CheckpointRef, config: StepConfig) -> bool:
        """True if the end of this inline step can wait: nothing can end the step but its function."""
        is_quick = self._place(ref) not in self._alone
        return config.is_inline and config.limit is None and ref.found is None and is_quick

    @property
    def is_old(self) -> bool:
        return self._clock() > self._since + inline_ends.WITHIN

    @property
    def is_full(self) -> bool:
        return len(self.writes) >= inline_ends.MOST or self._place(self.writes[-1].ref) in self._alone

    def add(self, write: CheckpointWrite, began: float) -> None:
        now = self._clock()
        self._since = self._since if self.writes else now
        self.writes.append(write)
        if now > began + inline_ends.WITHIN:
            self._alone.add(self._place(write.ref))

    def refuse(self) -> None:
        """The database has refused the value of one of them: they run again, and each end is committed alone."""
        self._alone.update(self._place(one.ref) for one in self.writes)

    def _place(self, ref: CheckpointRef) -> tuple[str, str, str]:
        return (*self._workflow, ref.path.partition("~")[0])


_EMPTY = Json("{}")


class FlowState:
    def __init__(
        self, read: Callable[[], Mapping[str, Any]], what: str, limit: int, stored: Mapping[str, Any] | None = None
    ) -> None:
        """`read` returns the flow's current state. `what`: its name in errors. `stored`: by earlier attempts."""
        self._read, self._what, self._limit = read, what, limit
        self.stored = Json(serialise(stored)) if stored else _EMPTY

    def unstored(self) -> Json | None:
        """Returns the state as JSON; None if it has not changed. Raises InvalidPayload if it cannot be JSON."""
        state = self._read()
        text = dump(dict(state), what=self._what, limit=self._limit) if state else _EMPTY
        return None if text == self.stored else text

    def is_stored(self, state: Json | None) -> None:
        """The state that `unstored` returned is committed."""
        self.stored = state or self.stored
