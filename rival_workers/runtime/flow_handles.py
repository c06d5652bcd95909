"""What a flow holds of something that it has begun: a handle of `ctx.start`, a spawned child, the winner of
`ctx.first`.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from rival_workers.definition.returns import Returns
from rival_workers.engine.replay import Mark
from rival_workers.errors import NotInFlows
from rival_workers.runtime.flow_calls import FlowCalls
from rival_workers.runtime.flow_operations import Operation, State


class Handle:
    """Something that a flow has begun. `handle.result()` waits for it; in an async flow, `await handle`."""

    def __init__(self, operation: Operation) -> None:
        self.operation = operation

    @property
    def done(self) -> bool:
        """The flow has received its end, or has cancelled it."""
        return self.operation.state in (State.OVER, State.GIVEN_UP)

    def result(self) -> Any:
        """What it gave. A sync flow stops until it has ended. StepFailed or ChildFailed if it has failed."""
        if self.operation.state is State.GIVEN_UP:
            raise NotInFlows(f"{self.operation.mark.path} was cancelled, so it has no result")
        if self.operation.state is State.OVER:
            return self.operation.value()
        return self.operation.scheduler.wait_here(self.operation)

    def cancel(self) -> bool:
        """Do not wait for it any more; a child of `ctx.start.call` is cancelled. False: it has ended before."""
        return self.operation.cancel()

    def __await__(self) -> Generator[Any, None, Any]:
        return self.operation.__await__()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and other.operation is self.operation

    def __hash__(self) -> int:
        return hash(self.operation)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.operation.mark.path} {self.operation.state.value}>"


class ChildHandle(str):
    """The run id of a spawned child, as a string. `handle.result()` waits for the child; in an async flow, `await
    handle`. The child goes its own way all the same: it is not cancelled with its parent's wait."""

    _calls: FlowCalls
    _spawn: Mark
    _last: Operation | None
    _returns: Returns | None

    def __new__(cls, calls: FlowCalls, spawn: Mark, run_id: str, returns: Returns | None = None) -> ChildHandle:
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

    def result(self) -> Any:
        """The child's result. ChildFailed when it failed or was cancelled."""
        operation = self.wait_for_it()
        return operation.value() if operation.state is State.OVER else self._calls.scheduler.wait_here(operation)

    def wait_for_it(self) -> Operation:
        """The checkpoint that waits for it: the one whose end the flow has received, or a new one."""
        if self._last is None or self._last.state is not State.OVER:
            self._last = self._calls.result_of(self._spawn, self.run_id, self._returns)
        return self._last

    def __await__(self) -> Generator[Any, None, Any]:
        return self.wait_for_it().__await__()


@dataclass(frozen=True)
class First:
    """What `ctx.first` gives: the one whose end the flow received first."""

    #: Its position among the arguments.
    index: int
    handle: Handle
    #: The handles of the others, in the order of the arguments.
    others: tuple[Handle, ...]

    def result(self) -> Any:
        return self.handle.result()


class Start:
    """`ctx.start`: begins something without waiting for it."""

    def __init__(self, calls: FlowCalls) -> None:
        self._calls = calls

    def step(self, function: Any, *args: Any, name: str | None = None, options: Any = None, **keywords: Any) -> Handle:
        return self._begun(self._calls.step(function, *args, name=name, options=options, **keywords))

    def call(self, workflow: Any, input: Any = None) -> Handle:
        return self._begun(self._calls.call(workflow, input))

    def sleep(self, duration: Any = 0.0, **units: float) -> Handle:
        return self._begun(self._calls.sleep(duration, **units))

    def sleep_until(self, when: Any) -> Handle:
        return self._begun(self._calls.sleep_until(when))

    def await_event(self, topic: Any, *, key: str | None = None, where: Any = None, timeout: Any = None) -> Handle:
        return self._begun(self._calls.await_event(topic, key=key, where=where, timeout=timeout))

    def _begun(self, operation: Operation) -> Handle:
        self._calls.scheduler.start(operation)
        return Handle(operation)
