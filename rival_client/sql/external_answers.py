"""The answer of an external system as the row of a step stores it: completed, failed, or failed and to be retried."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rival_client.model import amounts, argument_errors, arguments
from rival_client.model.payload import Json, dump

_MAX_MESSAGE = 4000

#: Keys of the item of an external step. A worker ignores an item whose attempt is another one than its own.
ATTEMPT, COMPLETED, FAILED, RETRY, HEARTBEAT = "attempt", "completed", "failed", "retry", "heartbeat"


def completed(result: Any, max_payload: int) -> dict[str, Json]:
    """The answer of an external system that has done the step."""
    return {COMPLETED: dump(result, what="the result", limit=max_payload)}


def failed(error: str | BaseException | Mapping[str, Any], retry: bool, max_payload: int) -> dict[str, Json]:
    """The answer of an external system that has failed. With `retry` the step is retried, if it has attempts left."""
    stored = {**_as_stored(error), "traceback": ""}
    retry = arguments.flag("retry", retry)
    return {FAILED: dump(stored, what="the error", limit=max_payload), RETRY: Json("true" if retry else "false")}


def _as_stored(error: str | BaseException | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(error, BaseException):
        return {"type": _storable(type(error).__qualname__), "message": _message(error)}
    if isinstance(error, Mapping):
        known = {"type": "ExternalFailure", "message": "", **error}
        arguments.name("error['type']", known["type"])
        arguments.text("error['message']", known["message"], amounts.MAX_BIGINT, may_be_blank=True)
        return {**known, "message": known["message"][:_MAX_MESSAGE]}
    if not isinstance(error, str):
        raise argument_errors.invalid(
            "error", error, "an error: give its message, an exception, or a mapping with `message`"
        )
    return {"type": "ExternalFailure", "message": _storable(error)[:_MAX_MESSAGE]}


def _message(error: BaseException) -> str:
    try:
        return _storable(str(error))[:_MAX_MESSAGE]
    except Exception as broken:
        return f"(its __str__ raised {type(broken).__name__})"


def _storable(message: str) -> str:
    """Replace what no store can keep: the text of an error comes from elsewhere, so it is not refused."""
    return message.replace("\x00", "\\0").encode("utf-8", "replace").decode()
