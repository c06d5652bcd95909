"""`ctx` of a sync flow: each call waits.

The overloads are for type checkers: they keep a function's parameters and result. A call with keywords of the function
and options of the step cannot be described: such options are given by `ctx.step(step(function, …), …)`.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NoReturn, ParamSpec, TypeVar, TypeVarTuple, Unpack, overload

from pydantic import BaseModel

from rival_client.model.starts.run_options import RunOptions
from rival_workers.definition.flows import Flow
from rival_workers.definition.inject import Injection
from rival_workers.definition.options import Duration, EventFilter, FlowStepOptions, SleepUnits
from rival_workers.definition.steps import StepSpec
from rival_workers.runtime.flow.calls import Callee, Named, Received, Topic
from rival_workers.runtime.flow.context import BaseFlowContext, check_first, is_decided
from rival_workers.runtime.flow.handles import ChildHandle, First, Handle

P = ParamSpec("P")
T = TypeVar("T")
T1 = TypeVar("T1")
T2 = TypeVar("T2")
T3 = TypeVar("T3")
T4 = TypeVar("T4")
M = TypeVar("M", bound=BaseModel)
Ts = TypeVarTuple("Ts")

#: Handles, with the type of the result.
AnyHandle = Handle[T] | ChildHandle[T]


class FlowContext(BaseFlowContext):
    """`ctx` of a flow: the values of a step, and the calls that are checkpoints."""

    def _run(self, injection: Injection) -> Any:
        value = injection.call(self)
        if self._has_begun or self._may_replay:
            # A function that returns although it was interrupted has no result.
            self.scheduler.check_not_stopped()
            self.scheduler.finish()
        return value

    @overload
    def step(self, function: StepSpec[P, T], /, *args: P.args, **keywords: P.kwargs) -> T: ...
    @overload
    def step(self, function: Callable[P, Awaitable[T]], /, *args: P.args, **keywords: P.kwargs) -> T: ...
    @overload
    def step(self, function: Callable[P, T], /, *args: P.args, **keywords: P.kwargs) -> T: ...
    @overload
    def step(
        self, function: Callable[[Unpack[Ts]], Awaitable[T]], /, *args: *Ts, **options: Unpack[FlowStepOptions]
    ) -> T: ...
    @overload
    def step(self, function: Callable[[Unpack[Ts]], T], /, *args: *Ts, **options: Unpack[FlowStepOptions]) -> T: ...
    def step(  # type: ignore[misc]
        self,
        function: Any,
        *args: Any,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Any:
        """Call the function once, however often the flow is replayed; its result is what it returned then. Keywords are
        the function's parameters, or options of a step: max_attempts, backoff, timeout, … With `options` they are the
        function's alone."""
        return self.scheduler.wait_here(self.calls.step(function, *args, name=name, options=options, **keywords))

    @overload
    def gather(self, one: AnyHandle[T1], two: AnyHandle[T2], /) -> tuple[T1, T2]: ...  # type: ignore[overload-overlap]
    @overload
    def gather(  # type: ignore[overload-overlap]
        self, one: AnyHandle[T1], two: AnyHandle[T2], three: AnyHandle[T3], /
    ) -> tuple[T1, T2, T3]: ...
    @overload
    def gather(  # type: ignore[overload-overlap]
        self, one: AnyHandle[T1], two: AnyHandle[T2], three: AnyHandle[T3], four: AnyHandle[T4], /
    ) -> tuple[T1, T2, T3, T4]: ...
    @overload
    def gather(self, *calls: AnyHandle[T]) -> list[T]: ...
    @overload
    def gather(self, *calls: AnyHandle[Any] | Callee, **options: Unpack[FlowStepOptions]) -> list[Any]: ...
    def gather(self, *calls: Any, **options: Any) -> Any:
        """Several at once: each a function, a tuple of a function (or `ctx.call`, `ctx.sleep`, `ctx.await_event`) and
        its arguments, or a handle. All end before it does; then the first failure is raised. Options are for the
        functions. The result is a list; a type checker sees a tuple where it knows the type of each part."""
        operations = self._begin_all(calls, options)
        self.scheduler.advance_while(lambda: any(one.is_open for one in operations))
        return [Handle(one).result() for one in operations]

    @overload
    def first(self, one: AnyHandle[T1], two: AnyHandle[T2], /, *, cancel_others: bool = False) -> First[T1 | T2]: ...
    @overload
    def first(self, *calls: AnyHandle[T], cancel_others: bool = False) -> First[T]: ...
    @overload
    def first(
        self, *calls: AnyHandle[Any] | Callee, cancel_others: bool = False, **options: Unpack[FlowStepOptions]
    ) -> First[Any]: ...
    def first(self, *calls: Any, cancel_others: bool = False, **options: Any) -> First[Any]:
        """As `gather`, but only until one of them has ended. The others continue, unless they are cancelled."""
        cancels = check_first(calls, cancel_others)
        operations = self._begin_all(calls, options)
        self.scheduler.advance_while(lambda: not is_decided(operations))
        return self._first_of(operations, cancel_others=cancels)

    def sleep(self, duration: Duration = 0.0, **units: Unpack[SleepUnits]) -> None:
        """Wait for some time, from milliseconds to years: `ctx.sleep(days=3)`."""
        self.scheduler.wait_here(self.calls.sleep(duration, **units))

    def sleep_until(self, when: dt.datetime) -> None:
        """Wait until that time, which needs a time zone."""
        self.scheduler.wait_here(self.calls.sleep_until(when))

    @overload
    def await_event(self, topic: type[M], *, timeout: None = None, **which: Unpack[EventFilter]) -> M: ...
    @overload
    def await_event(self, topic: type[M], *, timeout: Duration | None, **which: Unpack[EventFilter]) -> M | None: ...
    @overload
    def await_event(self, topic: str, *, timeout: Duration | None = None, **which: Unpack[EventFilter]) -> Any: ...
    @overload
    def await_event(
        self, topic: Sequence[Topic], *, timeout: None = None, **which: Unpack[EventFilter]
    ) -> Received: ...
    @overload
    def await_event(
        self, topic: Sequence[Topic], *, timeout: Duration | None, **which: Unpack[EventFilter]
    ) -> Received | None: ...
    def await_event(
        self,
        topic: Topic | Sequence[Topic],
        *,
        key: str | None = None,
        where: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> Any:
        """Wait for an event; returns its payload, as the model if the topic is one. None only when the time is up: an
        event without a payload is a `Received`, and so is the first event of several topics."""
        return self.scheduler.wait_here(self.calls.await_event(topic, key=key, where=where, timeout=timeout))

    @overload
    def call(self, workflow: Flow[..., Awaitable[T]], input: Any = None, **options: Unpack[RunOptions]) -> T: ...
    @overload
    def call(self, workflow: Flow[..., T], input: Any = None, **options: Unpack[RunOptions]) -> T: ...
    @overload
    def call(self, workflow: str | Named, input: Any = None, **options: Unpack[RunOptions]) -> Any: ...
    def call(self, workflow: Any, input: Any = None, **options: Unpack[RunOptions]) -> Any:
        """Start a child run and wait for it; returns its result. ChildFailed when it failed or was cancelled."""
        return self.scheduler.wait_here(self.calls.call(workflow, input, **options))

    @overload
    def spawn(
        self, workflow: Flow[..., Awaitable[T]], input: Any = None, **options: Unpack[RunOptions]
    ) -> ChildHandle[T]: ...
    @overload
    def spawn(self, workflow: Flow[..., T], input: Any = None, **options: Unpack[RunOptions]) -> ChildHandle[T]: ...
    @overload
    def spawn(self, workflow: str | Named, input: Any = None, **options: Unpack[RunOptions]) -> ChildHandle[Any]: ...
    def spawn(self, workflow: Any, input: Any = None, **options: Unpack[RunOptions]) -> ChildHandle[Any]:
        """Start a child run without waiting for it. Returns its run id, which is also a handle: `result()` waits for
        it."""
        return self._spawn(workflow, input, options)

    def now(self) -> dt.datetime:
        """The time at which the flow first reached this call."""
        return self._now()

    def uuid(self) -> uuid.UUID:
        """A new UUID, the same in every replay."""
        return self._uuid()

    def continue_as(self, input: Any = None) -> NoReturn:
        """Start over with another input, under the same run id: earlier checkpoints are deleted, so a loop can be
        endless."""
        self._continue_as(input)
