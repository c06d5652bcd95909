"""`ctx` of an async flow: the methods that are checkpoints are awaited.

Their results are declared as coroutines, although they can be awaited more than once: so a type checker reports a
missing `await`, and accepts them where asyncio needs a coroutine, as `create_task` does.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NoReturn, ParamSpec, TypeVar, TypeVarTuple, Unpack, cast, overload

from pydantic import BaseModel

from rival_client.model.starts.run_options import RunOptions
from rival_workers.definition.flows import Flow
from rival_workers.definition.inject import Injection
from rival_workers.definition.options import Duration, EventFilter, FlowStepOptions, SleepUnits
from rival_workers.definition.steps import StepSpec
from rival_workers.runtime.flow.calls import Callee, Named, Received, Topic
from rival_workers.runtime.flow.context import BaseFlowContext, check_first, is_decided
from rival_workers.runtime.flow.handles import ChildHandle, First, Handle
from rival_workers.runtime.flow.loop import FlowLoop
from rival_workers.runtime.flow.pending_operations import Operation

P = ParamSpec("P")
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
M = TypeVar("M", bound=BaseModel)
Ts = TypeVarTuple("Ts")

Call = Coroutine[Any, Any, T]


class AsyncFlowContext(BaseFlowContext):
    """The same as `FlowContext` for an async flow: each of the methods that are checkpoints is awaited. A call has its
    place in the flow when it is made; it begins when it is awaited, or given to a task."""

    _is_async = True

    def _run(self, injection: Injection) -> Any:
        loop = FlowLoop(self.scheduler)  # type: ignore[abstract]
        return loop.run(injection.call(self))

    @overload
    def step(self, function: StepSpec[P, T], /, *args: P.args, **keywords: P.kwargs) -> Call[T]: ...
    @overload
    def step(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **keywords: P.kwargs) -> Call[T]: ...
    @overload
    def step(self, function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> Call[T]: ...
    @overload
    def step(
        self, function: Callable[[Unpack[Ts]], Awaitable[T]], /, *args: *Ts, **options: Unpack[FlowStepOptions]
    ) -> Call[T]: ...
    @overload
    def step(
        self, function: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[FlowStepOptions]
    ) -> Call[T]: ...
    def step(  # type: ignore[misc]
        self,
        function: Any,
        *args: Any,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Any:
        return self.calls.step(function, *args, name=name, options=options, **keywords)

    @overload
    def gather(self, one: Awaitable[T1], two: Awaitable[T2], /) -> Call[tuple[T1, T2]]: ...  # type: ignore[overload-overlap]
    @overload
    def gather(  # type: ignore[overload-overlap]
        self, one: Awaitable[T1], two: Awaitable[T2], three: Awaitable[T3], /
    ) -> Call[tuple[T1, T2, T3]]: ...
    @overload
    def gather(  # type: ignore[overload-overlap]
        self, one: Awaitable[T1], two: Awaitable[T2], three: Awaitable[T3], four: Awaitable[T4], /
    ) -> Call[tuple[T1, T2, T3, T4]]: ...
    @overload
    def gather(self, *calls: Awaitable[T]) -> Call[list[T]]: ...
    @overload
    def gather(self, *calls: Awaitable[Any] | Callee, **options: Unpack[FlowStepOptions]) -> Call[list[Any]]: ...
    def gather(self, *calls: Any, **options: Any) -> Any:
        return self._gathered(self._operations(calls, options))

    async def _gathered(self, operations: Sequence[Operation]) -> list[Any]:
        try:
            await self._until(operations, lambda: not any(one.is_open for one in operations))
        except asyncio.CancelledError:
            for operation in operations:
                operation.cancel()
            raise
        return [Handle(one).result() for one in operations]

    async def _until(self, operations: Sequence[Operation], enough: Callable[[], bool]) -> None:
        for operation in operations:
            self.scheduler.start(operation)
        if enough():
            return
        future = asyncio.get_running_loop().create_future()

        def look() -> None:
            if not future.done() and enough():
                future.set_result(None)

        for operation in operations:
            operation.when_over.append(look)
        await future

    @overload
    def first(
        self, one: Awaitable[T1], two: Awaitable[T2], /, *, cancel_others: bool = False
    ) -> Call[First[T1 | T2]]: ...
    @overload
    def first(self, *calls: Awaitable[T], cancel_others: bool = False) -> Call[First[T]]: ...
    @overload
    def first(
        self, *calls: Awaitable[Any] | Callee, cancel_others: bool = False, **options: Unpack[FlowStepOptions]
    ) -> Call[First[Any]]: ...
    def first(self, *calls: Any, cancel_others: bool = False, **options: Any) -> Call[First[Any]]:
        cancels = check_first(calls, cancel_others)
        return self._first(self._operations(calls, options), cancels)

    async def _first(self, operations: Sequence[Operation], cancel_others: bool) -> First[Any]:
        await self._until(operations, lambda: is_decided(operations))
        return self._first_of(operations, cancel_others=cancel_others)

    def sleep(self, duration: Duration = 0.0, **units: Unpack[SleepUnits]) -> Call[None]:
        return cast("Call[None]", self.calls.sleep(duration, **units))

    def sleep_until(self, when: dt.datetime) -> Call[None]:
        return cast("Call[None]", self.calls.sleep_until(when))

    @overload
    def await_event(self, topic: type[M], *, timeout: None = None, **which: Unpack[EventFilter]) -> Call[M]: ...
    @overload
    def await_event(
        self, topic: type[M], *, timeout: Duration | None, **which: Unpack[EventFilter]
    ) -> Call[M | None]: ...
    @overload
    def await_event(
        self, topic: str, *, timeout: Duration | None = None, **which: Unpack[EventFilter]
    ) -> Call[Any]: ...
    @overload
    def await_event(
        self, topic: Sequence[Topic], *, timeout: None = None, **which: Unpack[EventFilter]
    ) -> Call[Received]: ...
    @overload
    def await_event(
        self, topic: Sequence[Topic], *, timeout: Duration | None, **which: Unpack[EventFilter]
    ) -> Call[Received | None]: ...
    def await_event(
        self,
        topic: Topic | Sequence[Topic],
        *,
        key: str | None = None,
        where: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        return self.calls.await_event(topic, key=key, where=where, timeout=timeout)

    @overload
    def call(self, workflow: Flow[..., Awaitable[T]], input: Any = None, **options: Unpack[RunOptions]) -> Call[T]: ...
    @overload
    def call(self, workflow: Flow[..., T], input: Any = None, **options: Unpack[RunOptions]) -> Call[T]: ...
    @overload
    def call(self, workflow: str | Named, input: Any = None, **options: Unpack[RunOptions]) -> Call[Any]: ...
    def call(self, workflow: Any, input: Any = None, **options: Unpack[RunOptions]) -> Any:
        return self.calls.call(workflow, input, **options)

    @overload
    async def spawn(
        self, workflow: Flow[..., Awaitable[T]], input: Any = None, **options: Unpack[RunOptions]
    ) -> ChildHandle[T]: ...
    @overload
    async def spawn(
        self, workflow: Flow[..., T], input: Any = None, **options: Unpack[RunOptions]
    ) -> ChildHandle[T]: ...
    @overload
    async def spawn(
        self, workflow: str | Named, input: Any = None, **options: Unpack[RunOptions]
    ) -> ChildHandle[Any]: ...
    async def spawn(self, workflow: Any, input: Any = None, **options: Unpack[RunOptions]) -> ChildHandle[Any]:
        return self._spawn(workflow, input, options)

    async def now(self) -> dt.datetime:
        return self._now()

    async def uuid(self) -> uuid.UUID:
        return self._uuid()

    async def continue_as(self, input: Any = None) -> NoReturn:
        self._continue_as(input)
