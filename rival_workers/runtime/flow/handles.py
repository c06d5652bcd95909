"""What a flow holds of something that it has begun: a handle of `ctx.start`, a spawned child, the winner of
`ctx.first`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, Self

from typing_extensions import TypeVar

from rival_workers.definition.returns import Returns
from rival_workers.engine.replay import CheckpointRef
from rival_workers.errors import NotInFlows
from rival_workers.runtime.flow.calls import FlowCalls
from rival_workers.runtime.flow.operations import Operation, State

T_co = TypeVar("T_co", covariant=True, default=Any)


class Handle(Generic[T_co]):
    """Something that a flow has begun. `handle.result()` waits for it; in an async flow, `await handle`."""

    _why_not_json = "it holds a handle: take its result, handle.result() or await handle"

    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    @property
    def done(self) -> bool:
        """The flow has received its end, or has cancelled it."""
        return self.operation.state in (State.OVER, State.GIVEN_UP)

    def result(self) -> T_co:
        """What it gave. A sync flow stops until it has ended. StepFailed or ChildFailed if it has failed."""
        if self.operation.state is State.GIVEN_UP:
            raise NotInFlows(f"{self.operation.ref.path} was cancelled, so it has no result")
        if self.operation.state is State.OVER:
            return self.operation.value()  # type: ignore[no-any-return]
        return self.operation.scheduler.wait_here(self.operation)  # type: ignore[no-any-return]

    def cancel(self) -> bool:
        """Do not wait for it any more; a child of `ctx.start.call` is cancelled. False: it has ended before."""
        return self.operation.cancel()

    def __await__(self) -> Generator[Any, None, T_co]:
        return self.operation.__await__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.operation is self.operation

    def __hash__(self) -> int:
        return hash(self.operation)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.operation.ref.path} {self.operation.state.value}>"


class ChildHandle(str, Generic[T_co]):
    """The run id of a spawned child, as a string. `handle.result()` waits for the child; in an async flow, `await
    handle`. The child goes its own way all the same: it is not cancelled with its parent's wait."""

    _calls: FlowCalls
    _spawn: CheckpointRef
    _last: Operation | None
    _returns: Returns | None

    def __new__(cls, calls: FlowCalls, spawn: CheckpointRef, run_id: str, returns: Returns | None = None) -> Self:
        made = super().__new__(cls, run_id)
        made._calls, made._spawn, made._last, made._returns = calls, spawn, None, returns
        return made

    @property
    def run_id(self) -> str:
        return str(self)

    @property
    def done(self) -> bool:
        """The flow has waited for it, and received its end."""
        return self._last is not None and self._last.state is State.OVER

    def result(self) -> T_co:
        """The child's result. ChildFailed when it failed or was cancelled."""
        operation, wait = self.wait_for_it(), self._calls.scheduler.wait_here
        return operation.value() if operation.state is State.OVER else wait(operation)  # type: ignore[no-any-return]

    def wait_for_it(self) -> Operation:
        """The checkpoint that waits for it: the one whose end the flow has received, or a new one."""
        if self._last is None or self._last.state is not State.OVER:
            self._last = self._calls.result_of(self._spawn, self.run_id, self._returns)
        return self._last

    def __await__(self) -> Generator[Any, None, T_co]:
        return self.wait_for_it().__await__()


@dataclass(frozen=True)
class First(Generic[T_co]):
    """What `ctx.first` gives: the one whose end the flow received first."""

    _why_not_json: ClassVar[str] = "it holds what ctx.first gives: take its result()"

    #: Its position among the arguments.
    index: int
    handle: Handle[T_co]
    #: The handles of the others, in the order of the arguments.
    others: tuple[Handle[T_co], ...]

    def result(self) -> T_co:
        return self.handle.result()
