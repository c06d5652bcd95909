"""The base of `ctx` of sync and async flows, and the check of what a flow returns. Each call is a checkpoint: results
of earlier attempts are read, new work is done and committed, and a wait suspends the flow: its attempt ends at once,
and another one replays the flow up to here.
"""

from __future__ import annotations

import datetime as dt
import inspect
import logging
import threading
import uuid
import warnings
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from operator import attrgetter
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from rival_client.errors import InvalidArgument
from rival_client.model import statuses
from rival_client.model.checks import arguments
from rival_client.model.kinds import CHILD, VALUE
from rival_client.model.lazy import lazy
from rival_client.model.payload import dump
from rival_client.model.starts.run_options import RunOptions
from rival_workers.definition.inject import Injection
from rival_workers.engine.replay import CheckpointWrite, Replay
from rival_workers.errors import ChildFailed, NotInFlows
from rival_workers.runtime.attempt.context import Context
from rival_workers.runtime.flow import step_threads
from rival_workers.runtime.flow.calls import FindWorkflow, FlowCalls, child_run, workflow_name
from rival_workers.runtime.flow.handles import ChildHandle, First, Handle, Start
from rival_workers.runtime.flow.pending_operations import Operation, State, StepOperation
from rival_workers.runtime.flow.scheduler import FlowScheduler
from rival_workers.runtime.flow.step import CallFunction, call_function
from rival_workers.runtime.flow.step_options import NO_FLOW_POLICIES, FlowPolicies
from rival_workers.runtime.logs.step_log import StepLog

log = logging.getLogger("rival.flows")

if TYPE_CHECKING:
    # A workflow's file is imported without the store.
    from rival_workers.runtime.flow.commits import FlowCommits


class BaseFlowContext(Context, ABC):
    """The base of `FlowContext` and `AsyncFlowContext`."""

    _is_async: ClassVar[bool] = False
    #: The thread that runs the flow's function.
    _thread = 0

    def __init__(
        self,
        context: Context,
        commits: FlowCommits,
        policies: FlowPolicies = NO_FLOW_POLICIES,
        find_workflow: FindWorkflow = lambda name: None,
    ) -> None:
        """A flow's context is that of a step, whose parts are made when they are read. `policies`: those of the
        workflow, which apply to the flow's steps, too."""
        self._context, self.commits, self.policies, self.find_workflow = context, commits, policies, find_workflow
        #: Calls the functions of the flow's steps; the testing kit has its own.
        self._calling: CallFunction = call_function

    @lazy
    def log(self) -> StepLog:
        log = self._context.log
        log.is_muted = self._has_logged
        return log

    def is_over(self) -> bool:
        return self._context.is_over()

    def _has_logged(self) -> bool:
        """An earlier attempt has logged what the flow's code logs now; or the flow is stopping, and its `finally`
        blocks would log at each stop."""
        if not self._has_begun and not self._may_replay:
            return False
        return self.scheduler.is_interrupted or self.scheduler.is_replaying

    @property
    def _may_replay(self) -> bool:
        return self.run.attempt > 1 or self.commits.was_claimed_before

    @cached_property
    def scheduler(self) -> FlowScheduler:
        # Not `self.state`: the commits would hold the context, which holds them.
        context = self._context
        replay = Replay(self.run.step, self.run.run_id, self.commits.checkpoints(lambda: context.state))
        return FlowScheduler(self.commits, replay, zlib.crc32(self.run.run_id.encode()) << 20, self._thread)

    @cached_property
    def calls(self) -> FlowCalls:
        return FlowCalls(
            self.scheduler,
            self.run.step,
            self.run.run_id,
            self.policies,
            self.commits.max_payload,
            self.commits.failures,
            self.find_workflow,
            self.run.labels,
            self.run.deadline_at,
            self._calling,
        )

    @property
    def remaining(self) -> float | None:
        """Refused: a replay would get another value than the first execution."""
        raise NotInFlows(
            f"flow {self.run.step!r}: ctx.remaining changes with each replay; compare ctx.run.deadline_at and ctx.now()"
        )

    def call_function(self, injection: Injection) -> Any:
        """A flow that was suspended has no result, also if its `finally` or `except` blocks return one."""
        self._thread = threading.get_ident()
        try:
            value = self._run(injection)
        except BaseException:
            if self._has_begun:
                self.scheduler.raise_interruption()
                self.scheduler.guarded(self.commits.commit_held)
            raise
        finally:
            if self._has_begun:
                self.scheduler.end()
        result = returned(value, self.run.step, is_async=self._is_async)
        for one in self.scheduler.never_started if self._has_begun else ():
            problem = f"{one.ref.path} was never awaited, so it was not done"
            log.warning("run %s of %s: %s. Write await ctx.…(…)", self.run.run_id, self.run.workflow, problem)
            # For tests: Python shows it only once for each process.
            warnings.warn(problem, RuntimeWarning, stacklevel=2)
        return result

    @abstractmethod
    def _run(self, injection: Injection) -> Any: ...

    @property
    def _has_begun(self) -> bool:
        """The flow has used ctx: before that, its checkpoints are not even read."""
        return "scheduler" in self.__dict__

    @property
    def random(self) -> Random:
        """A random generator that has the same sequence in every replay."""
        # A step is called once: a replay would continue with other values.
        self.scheduler.check()
        return self._random

    @cached_property
    def _random(self) -> Random:
        return Random(f"{self.run.run_id}:{self.run.step}")

    @property
    def start(self) -> Start:
        """`ctx.start.call("billing", …)` begins a child and returns a handle: `handle.result()` waits for it."""
        return Start(self.calls)

    def heartbeat(self, progress: Any = None) -> None:
        """A heartbeat of the flow, and of the step of it that calls this; the progress is the flow's. StepMovedOn: the
        run has continued without this attempt."""
        self.scheduler.check_not_stopped()
        super().heartbeat(progress)
        step_threads.beat()

    # -- values -------------------------------------------------------------------------------------------

    def _now(self) -> dt.datetime:
        return dt.datetime.fromisoformat(self._once("now", lambda: self.scheduler.now().isoformat()))

    def _uuid(self) -> uuid.UUID:
        return uuid.UUID(self._once("uuid", lambda: str(uuid.uuid4())))

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        ref = self.scheduler.come_to(name, VALUE)
        if ref.found is not None:
            return ref.found.result
        value = make()
        self.scheduler.guarded(
            lambda: self.commits.record(CheckpointWrite(ref, statuses.COMPLETED, dump(value, what=name)))
        )
        return value

    def _spawn(self, workflow: Any, input: Any, options: RunOptions) -> ChildHandle:
        calls, name = self.calls, workflow_name(workflow)
        payload, how = calls.payload(input), calls.child_options(options)
        ref = self.scheduler.come_to(f"spawn:{name}", CHILD)
        if ref.found is not None:
            run_id, error = ref.found.result, ref.found.error
        else:
            child = child_run(calls.child_id(ref), name, payload, how)
            spawned = self.scheduler.guarded(lambda: self.commits.spawn(ref, child))
            run_id, error = spawned.run_id, spawned.error
        if error is not None:
            raise ChildFailed(ref.path, error)
        return ChildHandle(calls, ref, run_id, calls.returns_of(workflow))

    def _continue_as(self, input: Any) -> NoReturn:
        self.scheduler.check()
        payload = dump(input, what="the input to continue with", limit=self.commits.max_payload, is_input=True)
        self.scheduler.guarded(lambda: self.commits.continue_as(payload))
        raise AssertionError("continue_as does not return")

    # -- several at once ----------------------------------------------------------------------------------

    def _begin_all(self, calls: Sequence[Any], options: Mapping[str, Any]) -> list[Operation]:
        operations = self._operations(calls, options)
        for operation in operations:
            self.scheduler.start(operation)
        return operations

    def _operations(self, calls: Sequence[Any], options: Mapping[str, Any]) -> list[Operation]:
        operations = [self._operation(one, options, f"calls[{index}]") for index, one in enumerate(calls)]
        if options and not any(isinstance(one, StepOperation) for one in operations):
            raise InvalidArgument(
                ", ".join(options), "options of ctx.gather and ctx.first apply to steps, but no call is a step."
            )
        return operations

    def _operation(self, call: Any, options: Mapping[str, Any], argument: str) -> Operation:
        if isinstance(call, Handle):
            return call.operation
        if isinstance(call, ChildHandle):
            return call.wait_for_it()
        return self.calls.one_of(call, self, options, argument)

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


for _part in fields(Context):
    if _part.name not in vars(BaseFlowContext):
        _lazy = lazy(attrgetter(f"_context.{_part.name}"))
        _lazy.__set_name__(BaseFlowContext, _part.name)
        setattr(BaseFlowContext, _part.name, _lazy)


def is_decided(operations: Sequence[Operation]) -> bool:
    """One has ended, or all were cancelled."""
    return any(one.state is State.OVER for one in operations) or not any(one.is_open for one in operations)


def check_first(calls: Sequence[Any], cancel_others: object) -> bool:
    """Checks the arguments of `ctx.first`; returns whether the others are cancelled."""
    if not calls:
        raise InvalidArgument("calls", "ctx.first needs something to wait for.")
    return arguments.flag("cancel_others", cancel_others)


#: Coroutines of ctx that have another name than the method that makes them.
_METHODS = {"_gathered": "gather", "_first": "first"}
_CALLS = {"step": "step", "sleep": "sleep", "flow_wait": "await_event", "child": "call"}


def returned(value: Any, flow: str, *, is_async: bool) -> Any:
    """The flow's result. NotInFlows: the value cannot be one."""
    if isinstance(value, ChildHandle):
        return str(value)  # it can be awaited; as a result it is the run's id
    if isinstance(value, First):
        raise _refused(flow, "what ctx.first gives", "first.result()")
    if isinstance(value, Context):
        raise _refused(flow, "ctx", "values")
    if isinstance(value, Handle) and not is_async:
        raise _refused(flow, "a handle", "handle.result()")
    if isinstance(value, Operation | Handle) or (is_async and inspect.isawaitable(value)):
        what = _name(value)
        if isinstance(value, Coroutine):
            value.close()
        raise NotInFlows(f"flow {flow!r} returned {what} without awaiting it: write return await {what}")
    return value


def _refused(flow: str, what: str, instead: str) -> NotInFlows:
    return NotInFlows(f"flow {flow!r} returned {what}, which is not a value: return {instead}")


def _name(value: Any) -> str:
    if isinstance(value, Operation):
        return f"ctx.{_CALLS.get(value.ref.kind, value.ref.kind)}(…)"
    if not isinstance(value, Coroutine):
        return "handle" if isinstance(value, Handle) else f"a {type(value).__name__}"
    name = getattr(value, "__name__", "coroutine")
    is_of_ctx = str(getattr(value, "__qualname__", "")).startswith("AsyncFlowContext.")
    return f"ctx.{_METHODS.get(name, name)}(…)" if is_of_ctx else f"{name}(…)"
