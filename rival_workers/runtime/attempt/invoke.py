"""Calls a user's function, sync or async, and turns its result or exception into an outcome. It has no store."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from types import NoneType
from typing import Any

from rival_client.model import kinds
from rival_client.model.checks import arguments
from rival_client.model.masking import storable_error
from rival_client.model.payload import NULL, Json, dump
from rival_client.model.policies.error_names import names_of
from rival_client.model.policies.fallback_option import RetryWith
from rival_workers.definition.inject import Injection
from rival_workers.definition.returns import Returns
from rival_workers.engine.decisions import Failure, Success
from rival_workers.errors import BACKOFFS, BEHAVIORS, StepError, StepFailed
from rival_workers.runtime.attempt.async_loop import async_steps
from rival_workers.runtime.attempt.context import Context
from rival_workers.runtime.attempt.interrupts import are_visible, is_from_signal, visible_interrupts
from rival_workers.runtime.flow.stop_signals import Killed, Moved, Suspend, failed_checkpoints
from rival_workers.runtime.logs.tracebacks import MAX_TRACEBACK, location, traceback_text

#: Calls a user's function: (injection, context, limit of a result in bytes, kind of the row, declared result type).
Calling = Callable[[Injection, Context, int, str, Returns | None], Success | Failure]

#: Most steps return nothing, and have no state.
_NOTHING = Success(NULL)
#: Common types of results that cannot be awaited, so that no other check is needed.
_PLAIN = frozenset({NoneType, dict, list, str, int, float, bool})
MAX_NAME = 200
MAX_MESSAGE = 4000


def call(
    injection: Injection, context: Context, max_payload: int, kind: str = kinds.STEP, returns: Returns | None = None
) -> Success | Failure:
    """Run the attempt. An exception of any type that user code raises fails the step. An exception that a signal
    handler raises ends the process.
    """
    if are_visible():
        return _called(injection, context, max_payload, kind, returns)
    with visible_interrupts():
        return _called(injection, context, max_payload, kind, returns)


def _called(
    injection: Injection, context: Context, max_payload: int, kind: str, returns: Returns | None
) -> Success | Failure:
    try:
        value = context.call_function(injection)
        if type(value) not in _PLAIN and inspect.isawaitable(value):
            value = async_steps.run(value)
        if value is None and kind == kinds.STEP and returns is None and not context.has_state:
            return _NOTHING
        where, skipped = context.where, context.has_state and bool(context.state.get("skipped"))
        if kind == kinds.FALLBACK and isinstance(value, RetryWith):
            return Success(dump(None, what=""), overrides=value.checked(where))
        if kind == kinds.EXTERNAL:
            # The declared result type applies to the answer of the external system.
            value = None
        elif returns is not None and not (skipped and value is None):
            value = returns.stored(value, where)
        if kind == kinds.INPUT and context.run.step.endswith("!key"):
            value = arguments.key(value)
        result, items = _answer(value, kind, where, max_payload)
        state = _state(context, where, max_payload)
        return Success(result, state, skipped=skipped, items=items)
    except BaseException as error:
        if ends_attempt(error):
            raise
        # Also SystemExit and KeyboardInterrupt: sys.exit() in a step fails the step, not the worker.
        at, state = context.read_clock(), _state_if_storable(context, max_payload)
        return replace(failure(error, context.run.attempt, state, injection.function), at=at)


def ends_attempt(error: BaseException) -> bool:
    """True if the attempt ends without an outcome of its function: a flow suspends or has moved on, or a signal."""
    return issubclass(type(error), Suspend | Moved | Killed) or is_from_signal(error)


def _answer(value: Any, kind: str, where: str, max_payload: int) -> tuple[Json, tuple[Json, ...]]:
    """Returns (result, items). A condition gives True or False; the `items` function of a for_each gives the items,
    each of which is a separate payload.
    """
    if kind == kinds.CONDITION:
        value = bool(value)
    if kind != kinds.ITEMS:
        return dump(value, what=f"the result of {where}", limit=max_payload), ()
    items = tuple(
        dump(item, what=f"item {index} of {where}", limit=max_payload) for index, item in enumerate(_listed(value))
    )
    return dump(len(items), what="their number"), items


def _listed(value: Any) -> Iterable[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable):
        raise TypeError(f"items must return a list or another iterable, not {type(value).__name__}")
    return value


def _state(context: Context, where: str, max_payload: int) -> Json | None:
    if not context.has_state:
        return None
    return dump(dict(context.state), what=f"the state of {where}", limit=max_payload)


def _state_if_storable(context: Context, max_payload: int) -> Json | None:
    try:
        return _state(context, "", max_payload)
    except BaseException as error:
        if is_from_signal(error):
            raise
        return None


def failure(error: BaseException, attempt: int, state: Json | None = None, function: Any = None) -> Failure:
    """Never raises, even if methods and attributes of the exception do. `function`: the user's function, for the
    location of an error whose traceback has no frame of it.
    """
    record = error_record(error, attempt, function)
    # type(error), since __class__ may be wrong or may raise.
    if not issubclass(type(error), StepError):
        return Failure(record, state=state, kinds=_names(error, None))
    behavior, most, backoff = (_tried(getattr, error, name) for name in ("behavior", "max_attempts", "backoff"))
    after, code = (_tried(getattr, error, name) for name in ("retry_after", "code"))
    return Failure(
        {**record, **({"code": _clean(code, MAX_NAME)} if isinstance(code, str) and code else {})},
        behavior if behavior in BEHAVIORS else "stop",
        most if type(most) is int else None,
        backoff if backoff in BACKOFFS else None,
        state,
        kinds=_names(error, code if isinstance(code, str) and code else None),
        retry_after=float(after) if type(after) in (int, float) else None,
    )


#: How many exceptions of a group its message has, and how many are counted.
_SHOWN_MEMBERS, _MOST_MEMBERS = 3, 1000


def _names(error: BaseException, code: str | None) -> tuple[str, ...]:
    found = _tried(names_of, type(error), code)
    return found if isinstance(found, tuple) else ()


def error_record(error: BaseException, attempt: int, function: Any = None) -> dict[str, Any]:
    """The stored form of an error: bounded, without locals and arguments. Each part may call user-defined methods."""
    record = {
        "type": _clean(_tried(lambda: type(error).__qualname__), MAX_NAME) or "Exception",
        "message": _clean(_tried(_message, error, broken="(its __str__ raised {})"), MAX_MESSAGE),
        "traceback": _clean(_tried(traceback_text, error, broken="(it cannot be shown: {})"), MAX_TRACEBACK + 100),
        "location": _clean(_tried(location, error, function), MAX_MESSAGE),
    }
    kept: dict[str, Any] = {name: text for name, text in record.items() if text or name != "location"}
    failed = _tried(failed_checkpoints, error)
    return {**kept, **({"checkpoints": failed} if failed else {}), "attempt": attempt}


def _message(error: BaseException) -> str:
    members = _members(error)
    shown = "; ".join(_tried(_named, one, broken="(its __str__ raised {})") for one in members[:_SHOWN_MEMBERS])
    more = f"; and {len(members) - _SHOWN_MEMBERS} more" if len(members) > _SHOWN_MEMBERS else ""
    return storable_error(f"{error}: {shown}{more}" if shown else str(error))


def _members(error: BaseException) -> list[BaseException]:
    """The exceptions in a group, and in the groups in it, in their order; none if it is not a group."""
    found: list[BaseException] = []
    left = [error] if _is_group(error) else []
    while left and len(found) < _MOST_MEMBERS:
        one = left.pop(0)
        if _is_group(one):
            left[:0] = one.exceptions  # type: ignore[attr-defined]
        else:
            found.append(one)
    return found


def _is_group(error: BaseException) -> bool:
    return issubclass(type(error), BaseExceptionGroup)


def _named(error: BaseException) -> str:
    """The text of a StepFailed has the type of the step's error already."""
    text = str(error)
    return text if issubclass(type(error), StepFailed) and text else f"{type(error).__qualname__}: {text}".rstrip(": ")


def _tried(ask: Callable[..., Any], *args: Any, broken: str = "") -> Any:
    """Returns the result of `ask`, or `broken` with the type of the exception that it raises."""
    try:
        return ask(*args)
    except BaseException as error:
        if is_from_signal(error):
            raise
        return broken.format(_clean(type.__dict__["__qualname__"].__get__(type(error)), MAX_NAME))


def _clean(text: Any, limit: int) -> str:
    """Text that both stores accept. It calls the methods of str, since a subclass may override them."""
    if not isinstance(text, str):
        return ""
    short = str.__getitem__(text, slice(limit))
    return str.encode(short, "utf-8", "replace").decode().replace("\x00", "\\0")
