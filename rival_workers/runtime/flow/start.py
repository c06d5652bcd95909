"""`ctx.start`: begins a step, a child, a sleep or a wait without waiting for it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from pydantic import BaseModel

from rival_workers.definition.flows import Flow
from rival_workers.definition.options import Duration, EventFilter, FlowStepOptions, SleepUnits
from rival_workers.definition.steps import StepSpec
from rival_workers.runtime.flow.calls import FlowCalls, Named, Received, Topic
from rival_workers.runtime.flow.handles import Handle
from rival_workers.runtime.flow.operations import Operation

P = ParamSpec("P")
T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Ts = TypeVarTuple("Ts")


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
    def call(self, workflow: Flow[..., Awaitable[T]], input: Any = None) -> Handle[T]: ...
    @overload
    def call(self, workflow: Flow[..., T], input: Any = None) -> Handle[T]: ...
    @overload
    def call(self, workflow: str | Named, input: Any = None) -> Handle: ...
    def call(self, workflow: Any, input: Any = None) -> Handle:
        return self._begun(self._calls.call(workflow, input))

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
