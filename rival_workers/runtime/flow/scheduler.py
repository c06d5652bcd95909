"""Runs the open operations of a flow, and decides which end the flow receives next. The same for sync and async flows.

`advance` delivers exactly one end to the flow: first those that earlier attempts delivered, in the same order; then new
ones, each of which is committed with its `end_order` before the flow receives it. When the attempt has nothing else to
do, the commit that finds no new end suspends the flow.
"""

from __future__ import annotations

import datetime as dt
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rival_client.model import statuses
from rival_client.model.timers import EARLY
from rival_workers.engine.replay import Checkpoint, CheckpointRef, CheckpointWrite, Replay
from rival_workers.errors import FlowStuck, NotInFlows
from rival_workers.runtime.failpoints import asks_to_stop
from rival_workers.runtime.flow.pending_operations import Operation, SleepOperation, State, StepOperation, refuse_await
from rival_workers.runtime.flow.step_threads import StepThreads, call_here
from rival_workers.runtime.flow.stop_signals import FlowGuard, Suspend

if TYPE_CHECKING:
    # A workflow's file is imported without the store.
    from rival_workers.runtime.flow.commits import FlowCommits
    from rival_workers.runtime.flow.tasks import OperationFuture

#: The number of steps of one flow that run at a time.
AT_ONCE = 8
#: Seconds between two reads of events and children while a step runs: the first, and the longest.
FIRST_LOOK, LONGEST_LOOK = 0.05, 0.5


class FlowScheduler(FlowGuard):
    def __init__(self, commits: FlowCommits, replay: Replay, salt: int, thread: int) -> None:
        super().__init__(thread, replay.flow, replay.run_id)
        self._commits, self.replay = commits, replay
        #: The first hash of this run's operations and tasks.
        self.salt = salt
        #: Ends that are committed, but not delivered.
        self._received = deque(replay.received)
        #: How many ends the flow has received: the order of the next one.
        self.next_order = 0
        self._made: list[Operation] = []
        self._started: dict[str, Operation] = {}
        self.open: dict[str, Operation] = {}
        self._to_run: deque[StepOperation] = deque()
        self._threads = StepThreads(commits)
        self._given_up: list[Operation] = []
        self._next_due: float | None = None
        self._look = FIRST_LOOK
        self._clock: float | None = None
        self._is_paused = False
        #: The running lane, and how to await an operation: set by the loop of an async flow.
        self.current_lane: Callable[[], str] = lambda: ""
        self.future_of: Callable[[Operation], OperationFuture] = refuse_await
        self.is_async = False

    # -- calls of the flow --------------------------------------------------------------------------------

    def come_to(self, name: str, kind: str) -> CheckpointRef:
        """The next checkpoint of the running lane."""
        self.check()
        return self.guarded(lambda: self.replay.come_to(name, kind, self.current_lane(), self.next_order), ValueError)

    def add(self, operation: Operation) -> int:
        self.check()
        self._made.append(operation)
        return len(self._made)

    def time(self) -> float:
        """The flow's clock: the time of the end that it received last."""
        if self._clock is None:
            self._clock = self.guarded(self._commits.began_at)
        return self._clock

    def now(self) -> dt.datetime:
        """The time of this moment, and never before `time`: the database's clock, which has set that, may be ahead."""
        at = max(self._commits.wall_clock(), self._clock or 0.0)
        return dt.datetime.fromtimestamp(at, dt.UTC)

    @property
    def is_replaying(self) -> bool:
        """The flow's code repeats what an earlier attempt has done."""
        return self.is_own_code and self.replay.has_been_here(self.next_order)

    def start(self, operation: Operation) -> None:
        if operation.state is not State.NEW:
            return
        self.check()
        operation.state = State.OPEN
        self._started[operation.ref.path] = self.open[operation.ref.path] = operation
        if isinstance(operation, StepOperation) and not operation.step.is_over:
            waiting = operation.step.waiting
            if waiting is None:
                self._to_run.append(operation)
            else:
                operation.due = self._commits.clock() + (waiting.delay or 0.0)

    def wait_here(self, operation: Operation) -> Any:
        """Suspend a sync flow until the operation has ended; returns its value."""
        if self.is_async:
            raise NotInFlows(f"{operation.ref.path} has not ended: an async flow awaits it")
        self.start(operation)
        self.advance_while(lambda: operation.is_open)
        return operation.value()

    def advance_while(self, condition: Callable[[], bool]) -> None:
        while condition():
            self.advance()

    def give_up(self, operation: Operation) -> bool:
        """Stop waiting for it. That follows from the ends that the flow has received, so it has no order."""
        if self.stopped is not None or operation.state in (State.OVER, State.GIVEN_UP):
            return False
        was, operation.state = operation.state, State.GIVEN_UP
        if was is State.NEW:
            return True
        del self.open[operation.ref.path]
        if isinstance(operation, StepOperation):
            self._threads.drop(operation)
            if operation in self._to_run:
                self._to_run.remove(operation)
        if operation.is_stored and not operation.was_given_up:
            self._given_up.append(operation)
        for call in operation.when_over:
            call()
        return True

    def finish(self) -> None:
        """The flow has returned: gives up its open operations."""
        self.check()
        if self._received and self._received[0].path not in self._started:
            raise self._not_reached(self._received[0], "has ended without it")
        for operation in list(self.open.values()):
            self.give_up(operation)
        if self._given_up:
            self.guarded(lambda: self._commit([], suspend=False))
        self.guarded(self._commits.commit_held)

    @property
    def never_started(self) -> list[Operation]:
        return [one for one in self._made if one.state is State.NEW]

    def drop_operations(self) -> None:
        """The attempt is over. Operations hold their scheduler: only a garbage collection frees what holds both."""
        self._made, self._started, self.open = [], {}, {}

    # -- delivering ends ----------------------------------------------------------------------------------

    def advance(self) -> None:
        """Deliver one end to the flow, or suspend it."""
        self.check()
        self.guarded(self._advance)

    def _advance(self) -> None:
        while not self._deliver_next():
            self._make_progress()

    def _deliver_next(self) -> bool:
        while self._received:
            end = self._received.popleft()
            assert end.end_order is not None
            self.next_order = max(self.next_order, end.end_order + 1)
            operation = self._started.get(end.path)
            if operation is None:
                raise self._not_reached(end, "has not come to it now")
            if operation.is_open:
                self._deliver(operation, end)
                return True
        return False

    def _deliver(self, operation: Operation, end: Checkpoint) -> None:
        if end.ended_at is not None:
            self._clock = max(end.ended_at, self._clock or 0.0)
        operation.end, operation.state = end, State.OVER
        del self.open[end.path]
        for call in operation.when_over:
            call()

    def _not_reached(self, end: Checkpoint, what: str) -> Exception:
        return self.replay.changed(f"the flow received the end of {end.kind} {end.path!r} before, and {what}.")

    def _make_progress(self) -> None:
        """Run steps and commit, until something has ended or the flow is suspended."""
        self._stop_if_asked("flow_before_commit")
        self._queue_retries()
        if self._is_alone():
            return self._call_here(self._to_run.popleft())
        self._commits.commit_held()
        if (nap := self._only_nap()) is not None:
            return self._end_here(CheckpointWrite(nap.ref, statuses.COMPLETED))
        writes = self._ended_steps()
        idle = not (self._to_run or self._threads or writes)
        if idle and not self.open:
            raise FlowStuck(
                "the flow awaits something that no checkpoint can bring: a future, lock, queue or event of its own "
                "that none of its tasks will ever set"
            )
        news = idle or writes or self._given_up or self._has_news() or (self._is_paused and not self._threads)
        if news and self._commit(writes, suspend=idle):
            return None
        while self._to_run and not self._is_paused and len(self._threads) < AT_ONCE:
            self._threads.start(self._to_run.popleft())
        if self._threads:
            self._stop_if_asked("flow_while_a_step_runs")
            self._wait_for_a_step()
        return None

    def _queue_retries(self) -> None:
        now = self._commits.clock()
        for operation in self._open_steps():
            if operation.due is not None and operation.due <= now + EARLY:
                operation.due = None
                self._to_run.append(operation)

    def _open_steps(self) -> list[StepOperation]:
        return [one for one in self.open.values() if isinstance(one, StepOperation)]

    def _waiting(self) -> list[Operation]:
        return [one for one in self.open.values() if one.ends_in_table]

    def _is_alone(self) -> bool:
        """One step, and no other operation: it needs no thread."""
        return len(self._to_run) == 1 and len(self.open) == 1 and not self._threads and not self._given_up

    def _only_nap(self) -> SleepOperation | None:
        """A new sleep that ends at once, and no other operation."""
        one = next(iter(self.open.values())) if len(self.open) == 1 and not self._given_up else None
        is_nap = isinstance(one, SleepOperation) and not one.is_stored and one.seconds <= 0
        return one if is_nap else None  # type: ignore[return-value]

    def _has_news(self) -> bool:
        """An operation that has no row yet, or that has ended without the flow having received it."""
        if self._next_due is not None and self._next_due <= self._commits.clock():
            return True
        return any(not one.is_stored or one.has_ended_unseen for one in self._waiting())

    def _commit(self, writes: list[CheckpointWrite], *, suspend: bool) -> bool:
        """Whether there is an end to deliver. Raises Suspend when the flow is suspended."""
        now = self._commits.clock()
        retries = [one.due - now for one in self._open_steps() if one.due is not None]
        waiting = self._waiting()
        if suspend and not retries and all(one.was_given_up for one in waiting):
            raise FlowStuck(
                "the flow waits for checkpoints that it gave up in an earlier attempt: has its code changed?"
            )
        progress = self._commits.commit(
            self.next_order,
            writes,
            waiting,
            self._given_up,
            suspend=suspend,
            retry_in=min(retries) if retries else None,
            may_stop=not self._threads,
        )
        self._is_paused = progress.is_paused
        self._given_up = []
        self._threads.committed()
        for operation in (*waiting, *(self._started[write.ref.path] for write in writes)):
            operation.is_stored = True
        self._report(writes)
        if progress.token is not None:
            raise Suspend
        self._stop_if_asked("flow_after_commit")
        self._next_due = None if progress.due_in is None else self._commits.clock() + progress.due_in
        self._received.extend(progress.ended)
        return bool(progress.ended)

    # -- steps --------------------------------------------------------------------------------------------

    def _call_here(self, operation: StepOperation) -> None:
        """In the flow's own thread, with one statement for its end: the most frequent case."""
        # Before the call: a state that is not JSON fails the flow here, not in the thread of the timeout.
        state, began = self._commits.state.unstored(), self._commits.clock()
        is_held = not self.is_async and self._commits.can_hold(operation.step.ref, operation.step.config)
        with self.in_step():
            write = call_here(self._commits, operation, self.next_order, state)
        self._stop_if_asked("flow_after_call")
        if write.delay is not None:
            self._commits.suspend(write, write.delay, state)
            raise Suspend
        if is_held and write.status == statuses.COMPLETED:
            numbered = write.received_as(self.next_order)
            self._commits.hold(numbered, began)
            self._received.append(numbered.stored())
            return
        self._end_here(write)
        self._report([write])

    def _report(self, writes: Sequence[CheckpointWrite]) -> None:
        """Steps whose ends are committed."""
        if self._commits.checkpointed is None:
            return
        for write in writes:
            operation = self._started[write.ref.path]
            if write.delay is None and isinstance(operation, StepOperation):
                self._commits.checkpointed(write, operation.step.config)

    def _end_here(self, write: CheckpointWrite) -> None:
        numbered = write.received_as(self.next_order)
        ended_at = self._commits.record(numbered)
        self._received.append(numbered.stored(ended_at))

    def _ended_steps(self) -> list[CheckpointWrite]:
        writes = []
        for operation, write in self._threads.writes():
            if write.delay is not None:
                operation.tried(write.stored(), self._commits.clock() + write.delay)
            writes.append(write)
        return writes

    def _wait_for_a_step(self) -> None:
        """Wait until a step has ended, or another operation is due. Events and ends of children are polled: this
        process is not notified of them."""
        ends = [one.due for one in self._open_steps() if one.due is not None]
        if self._next_due is not None:
            ends.append(self._next_due)
        seconds = min(ends) - self._commits.clock() if ends else None
        looks = bool(self._waiting())
        if looks:
            seconds = self._look if seconds is None else min(seconds, self._look)
        if self._threads.wait(seconds):
            self._look = FIRST_LOOK
        elif looks:
            self._next_due, self._look = self._commits.clock(), min(self._look * 2, LONGEST_LOOK)

    def _stop_if_asked(self, where: str) -> None:
        """Used by tests: the attempt ends here, as if the flow had been suspended and resumed at once."""
        if asks_to_stop(where, self._commits.run_id):
            self._commits.suspend(None, 0.0, self._commits.state.unstored())
            raise Suspend
