"""`ctx.start` and the handles of what a flow has begun: an operation, a spawned child, the winner of `ctx.first`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, ParamSpec, Self, TypeVarTuple, Unpack, overload

from pydantic import BaseModel
from typing_extensions import TypeVar

from rival_client.model.starts.run_options import RunOptions
from rival_workers.definition.flows import Flow
from rival_workers.definition.options import Duration, EventFilter, FlowStepOptions, SleepUnits
from rival_workers.definition.returns import Returns
from rival_workers.definition.steps import StepSpec
from rival_workers.engine.replay import CheckpointRef
from rival_workers.runtime.flow.calls import FlowCalls, Named, Received, Topic
from rival_workers.runtime.flow.pending_operations import Operation, State

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Ts = TypeVarTuple("Ts")
T_co = TypeVar("T_co", covariant=True, default=Any)


class Handle(Generic[T_co]):
    """An operation that a flow has begun. `handle.result()` waits for it; in an async flow, `await handle`."""

    _why_not_json = "it holds a handle: take its result, handle.result() or await handle"

    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    @property
    def done(self) -> bool:
        """The flow has received its end, or has cancelled it."""
        return self.operation.state in (State.OVER, State.GIVEN_UP)

    def result(self) -> T_co:
        """Its result. A sync flow waits until it has ended. StepFailed or ChildFailed if it has failed."""
        if self.operation.state is State.GIVEN_UP:
            raise self.operation.cancelled()
        if self.operation.state is State.OVER:
            return self.operation.value()  # type: ignore[no-any-return]
        return self.operation.scheduler.wait_here(self.operation)  # type: ignore[no-any-return]

    def cancel(self) -> bool:
        """Stop waiting for it; a child of `ctx.start.call` is cancelled. False: it ended before."""
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
    handle`. The child is independent of that wait: cancelling the wait does not cancel the child."""

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
        """The operation that waits for it: the one whose end the flow has received, or a new one."""
        if self._last is None or self._last.state is not State.OVER:
            self._last = self._calls.result_of(self._spawn, self.run_id, self._returns)
        return self._last

    def __await__(self) -> Generator[Any, None, T_co]:
        return self.wait_for_it().__await__()


@dataclass(frozen=True)
class First(Generic[T_co]):
    """The result of `ctx.first`: the operation whose end the flow received first."""

    _why_not_json: ClassVar[str] = "it holds what ctx.first gives: take its result()"

    #: Its position among the arguments.
    index: int
    handle: Handle[T_co]
    #: The handles of the others, in the order of the arguments.
    others: tuple[Handle[T_co], ...]

    def result(self) -> T_co:
        return self.handle.result()


class Start:
    def __init__(self, calls: FlowCalls) -> None:
        self._calls = calls

    @overload
    def step(self, function: StepSpec[P, T], /, *args: P.args, **keywords: P.kwargs) -> Handle[T]: ...
    @overload
    def step(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **keywords: P.kwargs) -> Handle[T]: ...
    @overload
    def step(self, function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> Handle[T]: ...
    @overload
    def step(
        self, function: Callable[[Unpack[Ts]], Awaitable[T]], /, *args: *Ts, **options: Unpack[FlowStepOptions]
    ) -> Handle[T]: ...
    @overload
    def step(
        self, function: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[FlowStepOptions]
    ) -> Handle[T]: ...
    def step(  # type: ignore[misc]
        self,
        function: Any,
        *args: Any,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Any:
        return self._begun(self._calls.step(function, *args, name=name, options=options, **keywords))

    @overload
    def call(
        self, workflow: Flow[..., Awaitable[T]], input: Any = None, **options: Unpack[RunOptions]
    ) -> Handle[T]: ...
    @overload
    def call(self, workflow: Flow[..., T], input: Any = None, **options: Unpack[RunOptions]) -> Handle[T]: ...
    @overload
    def call(self, workflow: str | Named, input: Any = None, **options: Unpack[RunOptions]) -> Handle: ...
    def call(self, workflow: Any, input: Any = None, **options: Unpack[RunOptions]) -> Handle:
        return self._begun(self._calls.call(workflow, input, **options))

    def sleep(self, duration: Duration = 0.0, **units: Unpack[SleepUnits]) -> Handle[None]:
        return self._begun(self._calls.sleep(duration, **units))

    def sleep_until(self, when: dt.datetime) -> Handle[None]:
        return self._begun(self._calls.sleep_until(when))

    @overload
    def await_event(self, topic: type[M], *, timeout: None = None, **which: Unpack[EventFilter]) -> Handle[M]: ...
    @overload
    def await_event(
        self, topic: type[M], *, timeout: Duration | None, **which: Unpack[EventFilter]
    ) -> Handle[M | None]: ...
    @overload
    def await_event(
        self, topic: str, *, timeout: Duration | None = None, **which: Unpack[EventFilter]
    ) -> Handle[Any]: ...
    @overload
    def await_event(
        self, topic: Sequence[Topic], *, timeout: None = None, **which: Unpack[EventFilter]
    ) -> Handle[Received]: ...
    @overload
    def await_event(
        self, topic: Sequence[Topic], *, timeout: Duration | None, **which: Unpack[EventFilter]
    ) -> Handle[Received | None]: ...
    def await_event(
        self,
        topic: Topic | Sequence[Topic],
        *,
        key: str | None = None,
        where: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> Handle:
        return self._begun(self._calls.await_event(topic, key=key, where=where, timeout=timeout))

    def _begun(self, operation: Operation) -> Handle:
        self._calls.scheduler.start(operation)
        return Handle(operation)
