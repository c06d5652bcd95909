"""Calls a user's function, sync or async, and turns whatever happens into an outcome. Knows no store."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from rival_client.errors import InvalidPayload
from rival_client.payload import Json, dump
from rival_workers.definition.inject import Injection
from rival_workers.definition.returns import Returns
from rival_workers.engine.decisions import Failure, Success
from rival_workers.errors import StepError
from rival_workers.runtime.context import Context
from rival_workers.runtime.suspending import Moved, Suspend
from rival_workers.runtime.tracebacks import location, traceback_text

#: The way into a user's function: (injection, context, most bytes of a result, kind of the row, type of the result).
Calling = Callable[[Injection, Context, int, str, Returns | None], Success | Failure]

MAX_MESSAGE = 4000


class AsyncLoop:
    """One event loop per process for all async steps, so that they can share clients and pools."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, awaitable: Awaitable[Any]) -> Any:
        coroutine = awaitable if inspect.iscoroutine(awaitable) else _waiting_for(awaitable)
        return asyncio.run_coroutine_threadsafe(coroutine, self._running()).result()

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="rival-async-steps", daemon=True).start()
            return self._loop


async def _waiting_for(awaitable: Awaitable[Any]) -> Any:
    return await awaitable


async_steps = AsyncLoop()


def call(
    injection: Injection, context: Context, max_payload: int, kind: str = "step", returns: Returns | None = None
) -> Success | Failure:
    """Run the attempt. Every exception but the process's own end is the step's failure."""
    where = f"step {context.run.step!r} of run {context.run.run_id!r}"
    try:
        value = context.call_function(injection)
        if inspect.isawaitable(value):
            value = async_steps.run(value)
        skipped = bool(context.state.get("skipped"))
        if kind == "external":
            # What it is declared to return is what somebody outside will bring.
            value = None
        elif returns is not None and not (skipped and value is None):
            value = returns.stored(value, where)
        result, items = _answer(value, kind, where, max_payload)
        state = _state(context, where, max_payload)
        return Success(result, state, skipped=skipped, items=items)
    except (KeyboardInterrupt, Suspend, Moved):
        raise
    except BaseException as error:
        # SystemExit and CancelledError too: a step that calls sys.exit() has failed, the worker has not.
        state = _state_if_storable(context, max_payload)
        return failure(error, context.run.attempt, state, injection.function)


def _answer(value: Any, kind: str, where: str, max_payload: int) -> tuple[Json, tuple[Json, ...]]:
    """A condition's answer is yes or no; that of a for_each's question is its items, each a payload of its own."""
    if kind == "condition":
        value = bool(value)
    if kind != "items":
        return dump(value, what=f"the result of {where}", limit=max_payload), ()
    items = tuple(
        dump(item, what=f"item {index} of {where}", limit=max_payload) for index, item in enumerate(_listed(value))
    )
    return dump(len(items), what="their number"), items


def _listed(value: Any) -> Iterable[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"items must give a list (or anything else to go through), not {type(value).__name__}")
    return value


def _state(context: Context, where: str, max_payload: int) -> Json | None:
    return dump(dict(context.state), what=f"the state of {where}", limit=max_payload) if context.state else None


def _state_if_storable(context: Context, max_payload: int) -> Json | None:
    try:
        return _state(context, "", max_payload)
    except InvalidPayload:
        return None


def failure(error: BaseException, attempt: int, state: Json | None = None, function: Any = None) -> Failure:
    """`function`: the user's function that was called, for an error that none of its frames are in."""
    record = error_record(error, attempt, function)
    if isinstance(error, StepError):
        return Failure(record, error.behavior, error.max_attempts, error.backoff, state)
    return Failure(record, state=state)


def error_record(error: BaseException, attempt: int, function: Any = None) -> dict[str, Any]:
    """What is kept of an error: no locals, no arguments, bounded."""
    record = {"type": _clean(type(error).__qualname__), "message": _clean(_text(error))[:MAX_MESSAGE]}
    try:
        record["traceback"] = _clean(traceback_text(error))
        record["location"] = _clean(location(error, function) or "")
    except Exception as broken:
        # Formatting calls the exception's own methods.
        record["traceback"] = f"(it cannot be shown: {type(broken).__name__})"
    return {**{name: text for name, text in record.items() if text or name != "location"}, "attempt": attempt}


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:
        return f"(its __str__ raised {type(broken).__name__})"


def _clean(text: str) -> str:
    return text.replace("\x00", "\\0").encode("utf-8", "replace").decode()
