"""The operations of a flow: a step, a sleep, an event, a child. An operation gets its checkpoint when it is made, in
the lane that made it, and starts when the flow first waits for it. These classes only have state; the scheduler
decides.
"""

from __future__ import annotations

import contextvars
import enum
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from rival_client.model import statuses
from rival_workers.engine.effects import WaitFor
from rival_workers.engine.replay import Checkpoint, CheckpointRef
from rival_workers.errors import ChildFailed, NotInFlows
from rival_workers.runtime.flow.step import FlowStep

if TYPE_CHECKING:
    from rival_workers.definition.returns import Returns
    from rival_workers.runtime.flow.scheduler import FlowScheduler
    from rival_workers.store.flow_records import ChildRun


class State(enum.Enum):
    NEW = "new"
    OPEN = "open"
    OVER = "over"
    GIVEN_UP = "given up"


class Operation:
    """A call on ctx that takes time. In an async flow it is awaited."""

    _why_not_json = "it holds a call on ctx that was not awaited"

    def __init__(self, scheduler: FlowScheduler, ref: CheckpointRef) -> None:
        self.scheduler, self.ref = scheduler, ref
        self.state = State.NEW
        #: How it ended; the flow has received this.
        self.end: Checkpoint | None = None
        #: Called when the flow receives its end, and when the flow gives it up.
        self.when_over: list[Callable[[], None]] = []
        #: Its row is in the database.
        self.is_stored = ref.found is not None
        self.number = scheduler.add(self)

    def __hash__(self) -> int:
        # Sets are iterated in the order of hashes: it must be the same in every process.
        return self.scheduler.salt + self.number

    def __await__(self) -> Generator[Any, None, Any]:
        return (yield from self.scheduler.future_of(self).__await__())

    @property
    def is_open(self) -> bool:
        return self.state is State.OPEN

    @property
    def ends_in_table(self) -> bool:
        """Its end is read from the database, not made by this attempt."""
        return True

    @property
    def has_ended_unseen(self) -> bool:
        """Its row, as this attempt has read it, has ended or is due, and the flow has not received that."""
        found = self.ref.found
        if found is None or found.end_order is not None or self.was_given_up:
            return False
        return found.is_over or (found.due_in is not None and found.due_in <= 0.0)

    @property
    def was_given_up(self) -> bool:
        """In an earlier attempt."""
        return self.ref.found is not None and self.ref.found.status == statuses.CANCELLED

    def cancelled(self) -> Exception:
        """What waiting for it raises after the flow has cancelled it."""
        return NotInFlows(f"{self.ref.path} was cancelled, so it has no result")

    def value(self) -> Any:
        """Its result for the flow. Raises if it has failed."""
        assert self.end is not None, f"{self.ref.path} has not ended"
        return self._read(self.end)

    def _read(self, end: Checkpoint) -> Any:
        return end.result

    def cancel(self) -> bool:
        """Stop waiting for it."""
        return self.scheduler.give_up(self)

    def add_done_callback(self, *_: Any, **__: Any) -> None:
        raise NotInFlows(
            f"{self.ref.path}: asyncio.wait takes tasks. Write asyncio.create_task(ctx.step(…)), or use ctx.first(…)."
        )


class StepOperation(Operation):
    def __init__(self, scheduler: FlowScheduler, step: FlowStep) -> None:
        super().__init__(scheduler, step.ref)
        self.step = step
        #: When it is tried again, by the attempt's timer.
        self.due: float | None = None
        #: The context variables of the lane that called it.
        self.context = contextvars.copy_context()

    @property
    def ends_in_table(self) -> bool:
        """An operator may have ended it."""
        return self.step.is_over

    def _read(self, end: Checkpoint) -> Any:
        return self.step.result_of(end)

    def tried(self, end: Checkpoint, due: float) -> None:
        """It has failed, and is tried again."""
        self.due, self.step = due, replace(self.step, ref=replace(self.step.ref, found=end))


class SleepOperation(Operation):
    def __init__(self, scheduler: FlowScheduler, ref: CheckpointRef, seconds: float) -> None:
        super().__init__(scheduler, ref)
        self.seconds = seconds

    def _read(self, end: Checkpoint) -> None:
        return None


class EventOperation(Operation):
    def __init__(
        self,
        scheduler: FlowScheduler,
        ref: CheckpointRef,
        waits_for: Sequence[WaitFor],
        timeout: float | None,
        read: Callable[[dict[str, Any] | None], Any],
    ) -> None:
        """`read` makes the flow's value from the event, or from None if it has not come in time."""
        super().__init__(scheduler, ref)
        # A retry keeps a wait and the time that is left: the flow waits again when it reaches it.
        self.is_stored = ref.found is not None and ref.found.status != statuses.PENDING
        self.waits_for, self.timeout, self._read_event = waits_for, timeout, read

    def _read(self, end: Checkpoint) -> Any:
        return self._read_event(end.result if end.status == statuses.COMPLETED else None)


class ChildOperation(Operation):
    """A child that is started and waited for; or, without `child`, one that was spawned earlier."""

    def __init__(
        self,
        scheduler: FlowScheduler,
        ref: CheckpointRef,
        run_id: str,
        child: ChildRun | None = None,
        returns: Returns | None = None,
    ) -> None:
        """`returns`: the type of the child's result."""
        super().__init__(scheduler, ref)
        self.run_id, self.child, self._returns = run_id, child, returns

    def cancelled(self) -> Exception:
        message = "the flow has cancelled it, so it has no result"
        return ChildFailed(self.ref.path, {"type": "ChildCancelled", "message": message, "attempt": 0})

    def _read(self, end: Checkpoint) -> Any:
        if end.error is not None:
            raise ChildFailed(end.path, end.error)
        if self._returns is None or end.result is None:
            return end.result
        return self._returns.restored(end.result, f"child run {self.run_id!r}")


def refuse_await(operation: Operation) -> NoReturn:
    raise NotInFlows(f"{operation.ref.path}: the flow is not an async function, so calls on its ctx are not awaited")
