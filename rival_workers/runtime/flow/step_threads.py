"""Calls the steps of a flow, within their limits: a single one in the flow's own thread, several in threads of their
own. A step that times out, or that the flow gives up, continues in its thread, and its result is dropped; the coroutine
of an async step is cancelled.
"""

from __future__ import annotations

import datetime as dt
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from rival_client.model.payload import Json
from rival_client.model.policies.step_config import StepConfig, shortest
from rival_workers.engine.heartbeat_limits import HeartbeatState, timeout_error
from rival_workers.engine.replay import CheckpointWrite
from rival_workers.runtime.attempt.calls_over import UserCall
from rival_workers.runtime.attempt.timers import Timer
from rival_workers.runtime.flow.stop_signals import Moved

if TYPE_CHECKING:
    # A workflow's file is imported without the store.
    from rival_workers.runtime.flow.commits import FlowCommits
    from rival_workers.runtime.flow.pending_operations import StepOperation

#: Seconds that the alarm of a step that has timed out waits for the commit of that.
COMMIT_WAIT = 10.0

_current: ContextVar[FlowStepLimit | None] = ContextVar("rival_flow_step_limit", default=None)


class FlowStepLimit:
    """A flow's step has no row while it runs, so its heartbeats are kept here."""

    def __init__(self, config: StepConfig, clock: Callable[[], float]) -> None:
        self.config, self._clock = config, clock
        self._began = self._last = clock()
        self.timer: Timer | None = None

    @contextmanager
    def is_current(self) -> Iterator[None]:
        """Heartbeats within the block are those of this step."""
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)

    def beat(self) -> None:
        self._last = self._clock()
        if self.timer is not None and self.config.heartbeat is not None:
            self.timer.put_off(self._limit() - self._last)

    def error(self, attempt: int) -> dict[str, Any]:
        """The error of the step when its time is up."""
        return timeout_error(self.config, attempt, self._heartbeat_state())

    def _limit(self) -> float:
        config = self.config
        ends = (
            None if config.timeout is None else self._began + config.timeout,
            None if config.heartbeat is None else self._last + config.heartbeat,
        )
        return shortest(*ends) or self._began

    def _heartbeat_state(self) -> HeartbeatState:
        now, here = dt.datetime.now(dt.UTC), self._clock()
        last, limit = (now + dt.timedelta(seconds=at - here) for at in (self._last, self._limit()))
        return HeartbeatState(last, limit, now, beaten=self._last > self._began)


def beat() -> None:
    """A heartbeat of the step that runs in this context, if there is one."""
    limit = _current.get()
    if limit is not None:
        limit.beat()


def call_here(commits: FlowCommits, operation: StepOperation, end_order: int, state: Json | None) -> CheckpointWrite:
    """In the flow's own thread. If the step times out, the flow continues without this attempt. `state`: that of the
    flow, if it has changed."""
    step = operation.step

    def over_time(limit: FlowStepLimit) -> None:
        write = step.over_time(limit)
        order = end_order if write.delay is None else None
        commits.suspend(replace(write, end_order=order), write.delay or 0.0, state)

    def call() -> CheckpointWrite:
        its_call = UserCall(commits.run_id, step.ref.path)
        with commits.limited(step.config, ending(its_call, over_time)), its_call:
            return step.call()

    return operation.context.copy().run(call)


def ending(call: UserCall, over_time: Callable[[FlowStepLimit], None]) -> Callable[[FlowStepLimit], None]:
    def over(limit: FlowStepLimit) -> None:
        over_time(limit)
        call.end()

    return over


@dataclass(eq=False)
class Running:
    """One call of a step. Its first end counts: its function's, or its timeout."""

    operation: StepOperation
    call: UserCall
    lock: threading.Lock = field(default_factory=threading.Lock)
    settled: bool = False
    ended_at: float = 0.0
    end: CheckpointWrite | BaseException | None = None
    committed: threading.Event = field(default_factory=threading.Event)

    def settle(self) -> bool:
        with self.lock:
            first, self.settled = not self.settled, True
            return first


class StepThreads:
    def __init__(self, commits: FlowCommits) -> None:
        self._commits = commits
        self._running: dict[StepOperation, Running] = {}
        self._ended: queue.SimpleQueue[Running] = queue.SimpleQueue()
        self._taken: list[Running] = []
        self._uncommitted: list[Running] = []

    def __len__(self) -> int:
        return len(self._running)

    def start(self, operation: StepOperation) -> None:
        running = self._running[operation] = Running(operation, UserCall(self._commits.run_id, operation.ref.path))
        context = operation.context.copy()
        name = f"rival-step-{operation.ref.path}"
        threading.Thread(target=context.run, args=(self._run, running), name=name, daemon=True).start()

    def drop(self, operation: StepOperation) -> None:
        """The flow has given it up."""
        running = self._running.pop(operation, None)
        if running is not None:
            running.settle()
            running.call.end()

    def wait(self, seconds: float | None) -> bool:
        """Wait until a step has ended. False: none has in that time."""
        try:
            self._taken.append(self._ended.get(timeout=None if seconds is None else max(0.001, seconds)))
        except queue.Empty:
            return False
        return True

    def writes(self) -> list[tuple[StepOperation, CheckpointWrite]]:
        """The ends of steps since the last call. Raises what a step raised instead of an outcome."""
        found: list[tuple[StepOperation, CheckpointWrite]] = []
        while self._taken or not self._ended.empty():
            running = self._taken.pop(0) if self._taken else self._ended.get_nowait()
            if self._running.get(running.operation) is not running:
                continue
            del self._running[running.operation]
            if isinstance(running.end, BaseException):
                raise running.end
            assert running.end is not None
            self._uncommitted.append(running)
            ago = max(0.0, self._commits.clock() - running.ended_at)
            found.append((running.operation, replace(running.end, ago=ago)))
        return found

    def committed(self) -> None:
        """What `writes` returned is in the database."""
        for running in self._uncommitted:
            running.committed.set()
        self._uncommitted.clear()

    def _run(self, running: Running) -> None:
        step = running.operation.step

        def over_time(limit: FlowStepLimit) -> None:
            if not self._end(running, lambda: step.over_time(limit)):
                raise Moved
            running.call.end()
            running.committed.wait(COMMIT_WAIT)

        try:
            with self._commits.limited(step.config, over_time), running.call:
                write: CheckpointWrite | BaseException = step.call()
        except BaseException as error:
            write = error
        self._end(running, lambda: write)

    def _end(self, running: Running, how: Callable[[], CheckpointWrite | BaseException]) -> bool:
        """False: it ended before."""
        if not running.settle():
            return False
        running.ended_at, running.end = self._commits.clock(), how()
        self._ended.put(running)
        return True
