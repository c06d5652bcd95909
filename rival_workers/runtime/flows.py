"""`ctx` in a flow: each call is a checkpoint. What earlier attempts did is read, what is new is done and committed, and
what must be waited for suspends the flow: its attempt ends at once, and another one replays it up to here.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
import uuid
import warnings
import zlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from rival_client.payload import dump
from rival_workers.definition.inject import Injection
from rival_workers.definition.policies import Rule
from rival_workers.engine.replay import Ending, Replay
from rival_workers.errors import ChildFailed
from rival_workers.runtime import flow_limits
from rival_workers.runtime.context import Context
from rival_workers.runtime.flow_calls import Duration, FindWorkflow, FlowCalls, Topic, workflow_name
from rival_workers.runtime.flow_calls import Received as Received
from rival_workers.runtime.flow_handles import ChildHandle, First, Handle, Start
from rival_workers.runtime.flow_loop import FlowLoop
from rival_workers.runtime.flow_operations import Operation, State, StepOperation
from rival_workers.runtime.flow_scheduler import FlowScheduler

if TYPE_CHECKING:
    # A workflow's file is imported without the store.
    from rival_workers.runtime.flow_port import AttemptPort


@dataclass
class BaseFlowContext(Context):
    """What sync and async flows share."""

    port: AttemptPort = field(kw_only=True)
    #: The policies of the workflow, which hold for the flow's steps, too.
    rules: Sequence[Rule] = ()
    find_workflow: FindWorkflow = lambda name: None
    #: The thread that runs the flow's function.
    _thread: int = field(default=0, init=False)

    @cached_property
    def scheduler(self) -> FlowScheduler:
        replay = Replay(self.run.step, self.run.run_id, self.port.checkpoints(lambda: self.state))
        made = FlowScheduler(self.port, replay, zlib.crc32(self.run.run_id.encode()) << 20, self._thread)
        self.log.is_muted = lambda: made.is_interrupted
        return made

    @cached_property
    def calls(self) -> FlowCalls:
        return FlowCalls(
            self.scheduler, self.run.step, self.run.run_id, self.rules, self.port.max_payload, self.port.failures,
            self.find_workflow,
        )  # fmt: skip

    def call_function(self, injection: Injection) -> Any:
        """A flow that was suspended has no result, whatever its `finally` or `except` blocks made."""
        self._thread = threading.get_ident()
        try:
            value = self._run(injection)
        except BaseException:
            if self._has_begun:
                self.scheduler.raise_interruption()
            raise
        finally:
            if self._has_begun:
                self.scheduler.end()
        for one in self.scheduler.never_started if self._has_begun else ():
            warnings.warn(f"{one.mark.path} was never awaited, so it was not done", RuntimeWarning, stacklevel=2)
        # A handle can be awaited; as a result it is the run's id.
        return str(value) if isinstance(value, ChildHandle) else value

    def _run(self, injection: Injection) -> Any:
        raise NotImplementedError

    @property
    def _has_begun(self) -> bool:
        """The flow has used ctx: before that, its checkpoints are not even read."""
        return "scheduler" in self.__dict__

    @property
    def random(self) -> Random:
        """Chance that is the same in every replay."""
        # In a step it would be used the first time only, and give other values from then on.
        self.scheduler.check()
        return self._random

    @cached_property
    def _random(self) -> Random:
        return Random(f"{self.run.run_id}:{self.run.step}")

    @property
    def start(self) -> Start:
        """`ctx.start.call("billing", …)` begins, and gives a handle: `handle.result()` waits for it."""
        return Start(self.calls)

    def heartbeat(self, progress: Any = None) -> None:
        """The flow is alive, and so is the step of it that calls this; the progress is the flow's. StepMovedOn when the
        run has gone on without this attempt."""
        self.scheduler.check_not_stopped()
        super().heartbeat(progress)
        flow_limits.beat()

    # -- values -------------------------------------------------------------------------------------------

    def _now(self) -> dt.datetime:
        return dt.datetime.fromisoformat(self._once("now", lambda: dt.datetime.now(dt.UTC).isoformat()))

    def _uuid(self) -> uuid.UUID:
        return uuid.UUID(self._once("uuid", lambda: str(uuid.uuid4())))

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        mark = self.scheduler.come_to(name, "value")
        if mark.found is not None:
            return mark.found.result
        value = make()
        self.scheduler.guarded(lambda: self.port.record(Ending(mark, "completed", dump(value, what=name))))
        return value

    def _spawn(self, workflow: Any, input: Any) -> ChildHandle:
        from rival_workers.store.flow_records import ChildRun

        calls, name = self.calls, workflow_name(workflow)
        payload = calls.payload(input)
        mark = self.scheduler.come_to(f"spawn:{name}", "child")
        if mark.found is not None:
            run_id, error = mark.found.result, mark.found.error
        else:
            child = ChildRun(calls.child_id(mark), name, payload)
            spawned = self.scheduler.guarded(lambda: self.port.spawn(mark, child))
            run_id, error = spawned.run_id, spawned.error
        if error is not None:
            raise ChildFailed(mark.path, error)
        return ChildHandle(calls, mark, run_id, calls.returns_of(workflow))

    def _continue_as(self, input: Any) -> NoReturn:
        self.scheduler.check()
        payload = dump(input, what="the input to continue with", limit=self.port.max_payload)
        self.scheduler.guarded(lambda: self.port.continue_as(payload))
        raise AssertionError("continue_as does not return")

    # -- several at once ----------------------------------------------------------------------------------

    def _begin_all(self, calls: Sequence[Any], options: Mapping[str, Any]) -> list[Operation]:
        operations = self._operations(calls, options)
        for operation in operations:
            self.scheduler.start(operation)
        return operations

    def _operations(self, calls: Sequence[Any], options: Mapping[str, Any]) -> list[Operation]:
        operations = [self._operation(one, options) for one in calls]
        if options and not any(isinstance(one, StepOperation) for one in operations):
            raise ValueError(
                f"{', '.join(options)}: options of ctx.gather and ctx.first are for steps, and none is here"
            )
        return operations

    def _operation(self, call: Any, options: Mapping[str, Any]) -> Operation:
        if isinstance(call, Handle):
            return call.operation
        if isinstance(call, ChildHandle):
            return call.wait_for_it()
        return self.calls.one_of(call, self, options)

    def _first_of(self, operations: Sequence[Operation], *, cancel_others: bool) -> First:
        over = [(one.end.end_order or 0, index) for index, one in enumerate(operations) if one.end is not None]
        if not over:
            raise ValueError("ctx.first: all of its operations were cancelled")
        _, index = min(over)
        others = tuple(Handle(one) for at, one in enumerate(operations) if at != index)
        if cancel_others:
            for other in others:
                other.cancel()
        return First(index, Handle(operations[index]), others)


class FlowContext(BaseFlowContext):
    """What a flow may ask for, and what it can do."""

    def _run(self, injection: Injection) -> Any:
        value = injection.call(self)
        if self._has_begun or self.run.attempt > 1 or self.port.was_claimed_before:
            # A function that returns although it was interrupted has no result.
            self.scheduler.check_not_stopped()
            self.scheduler.finish()
        return value

    def step(
        self, function: Callable[..., Any], *args: Any, name: str | None = None,
        options: Mapping[str, Any] | None = None, **keywords: Any,
    ) -> Any:  # fmt: skip
        """Call the function once, however often the flow is replayed; its result is what it returned then. Keywords are
        the function's parameters, or options of a step: max_attempts, backoff, timeout, … With `options` they are the
        function's alone."""
        return self.scheduler.wait_here(self.calls.step(function, *args, name=name, options=options, **keywords))

    def gather(self, *calls: Any, **options: Any) -> list[Any]:
        """Several at once: each a function, a tuple of a function (or `ctx.call`, `ctx.sleep`, `ctx.await_event`) and
        its arguments, or a handle. All end before it does; then the first failure is raised. Options are for the
        functions."""
        operations = self._begin_all(calls, options)
        self.scheduler.advance_while(lambda: any(one.is_open for one in operations))
        return [Handle(one).result() for one in operations]

    def first(self, *calls: Any, cancel_others: bool = False, **options: Any) -> First:
        """The same, until one of them has ended. The others go on, unless they are cancelled."""
        if not calls:
            raise ValueError("ctx.first needs something to wait for")
        operations = self._begin_all(calls, options)
        self.scheduler.advance_while(lambda: not _is_decided(operations))
        return self._first_of(operations, cancel_others=cancel_others)

    def sleep(self, duration: Duration = 0.0, **units: float) -> None:
        """Stop for a while, from milliseconds to years: `ctx.sleep(days=3)`."""
        self.scheduler.wait_here(self.calls.sleep(duration, **units))

    def sleep_until(self, when: dt.datetime) -> None:
        """Stop until that moment, which needs a time zone."""
        self.scheduler.wait_here(self.calls.sleep_until(when))

    def await_event(
        self, topic: Topic | Sequence[Topic], *, key: str | None = None, where: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> Any:  # fmt: skip
        """Stop until an event comes; its payload, as the model if the topic is one. None only when the time is up: an
        event without a payload is a `Received`, and so is the first that comes of several topics."""
        return self.scheduler.wait_here(self.calls.await_event(topic, key=key, where=where, timeout=timeout))

    def call(self, workflow: Any, input: Any = None) -> Any:
        """Start a child run and stop until it has ended; its result. ChildFailed when it failed or was cancelled."""
        return self.scheduler.wait_here(self.calls.call(workflow, input))

    def spawn(self, workflow: Any, input: Any = None) -> ChildHandle:
        """Start a child run that goes its own way. Its run id, which is also a handle: `result()` waits for it."""
        return self._spawn(workflow, input)

    def now(self) -> dt.datetime:
        """The time, as it was when the flow first came here."""
        return self._now()

    def uuid(self) -> uuid.UUID:
        """A new one, the same in every replay."""
        return self._uuid()

    def continue_as(self, input: Any = None) -> NoReturn:
        """Begin again with another input, under the same run id: earlier checkpoints are forgotten, so loops may be
        endless."""
        self._continue_as(input)


class AsyncFlowContext(BaseFlowContext):
    """The same for an async flow: each of the methods that are checkpoints is awaited. A call has its place in the flow
    when it is made; it begins when it is awaited, or given to a task."""

    def _run(self, injection: Injection) -> Any:
        loop = FlowLoop(self.scheduler)  # type: ignore[abstract]
        return loop.run(injection.call(self))

    def step(
        self, function: Callable[..., Any], *args: Any, name: str | None = None,
        options: Mapping[str, Any] | None = None, **keywords: Any,
    ) -> Operation:  # fmt: skip
        return self.calls.step(function, *args, name=name, options=options, **keywords)

    def gather(self, *calls: Any, **options: Any) -> Coroutine[Any, Any, list[Any]]:
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

    def first(self, *calls: Any, cancel_others: bool = False, **options: Any) -> Coroutine[Any, Any, First]:
        if not calls:
            raise ValueError("ctx.first needs something to wait for")
        return self._first(self._operations(calls, options), cancel_others)

    async def _first(self, operations: Sequence[Operation], cancel_others: bool) -> First:
        await self._until(operations, lambda: _is_decided(operations))
        return self._first_of(operations, cancel_others=cancel_others)

    def sleep(self, duration: Duration = 0.0, **units: float) -> Operation:
        return self.calls.sleep(duration, **units)

    def sleep_until(self, when: dt.datetime) -> Operation:
        return self.calls.sleep_until(when)

    def await_event(
        self, topic: Topic | Sequence[Topic], *, key: str | None = None, where: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> Operation:  # fmt: skip
        return self.calls.await_event(topic, key=key, where=where, timeout=timeout)

    def call(self, workflow: Any, input: Any = None) -> Operation:
        return self.calls.call(workflow, input)

    async def spawn(self, workflow: Any, input: Any = None) -> ChildHandle:
        return self._spawn(workflow, input)

    async def now(self) -> dt.datetime:
        return self._now()

    async def uuid(self) -> uuid.UUID:
        return self._uuid()

    async def continue_as(self, input: Any = None) -> NoReturn:
        self._continue_as(input)


def _is_decided(operations: Sequence[Operation]) -> bool:
    """One has ended, or none of them can end any more."""
    return any(one.state is State.OVER for one in operations) or not any(one.is_open for one in operations)


def flow_context(
    context: Context, port: AttemptPort, rules: Sequence[Rule] = (), find_workflow: FindWorkflow = lambda name: None,
    *, is_async: bool,
) -> Context:  # fmt: skip
    """A step's context with a flow's abilities; `rules`: the workflow's policies."""
    fields = {name: getattr(context, name) for name in Context.__dataclass_fields__}
    return (AsyncFlowContext if is_async else FlowContext)(
        **fields, port=port, rules=rules, find_workflow=find_workflow
    )
