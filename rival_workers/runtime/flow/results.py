"""What a flow's function may return: values. A call that was not awaited, a handle and ctx itself are refused with what
to write instead.
"""

from __future__ import annotations

import inspect
from collections.abc import Coroutine
from typing import Any

from rival_workers.errors import NotInFlows
from rival_workers.runtime.attempt.context import Context
from rival_workers.runtime.flow.handles import ChildHandle, First, Handle
from rival_workers.runtime.flow.operations import Operation

#: Coroutines of ctx whose names are not those of its methods.
_METHODS = {"_gathered": "gather", "_first": "first"}
_CALLS = {"step": "step", "sleep": "sleep", "flow_wait": "await_event", "child": "call"}


def returned(value: Any, flow: str, *, is_async: bool) -> Any:
    """The flow's result. NotInFlows: it cannot be one."""
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
