"""Validates messages from an untrusted queue. It reads only the parts that Rival writes, in the form in which Rival
writes them, and builds the message again from these parts. Everything else in a message has no effect.
"""

from __future__ import annotations

import base64
import datetime as dt
import itertools
import json
import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rival_client.broker.celery_format import celery_body, celery_headers
from rival_client.broker.message import ATTEMPT_TASK, EVENT_TASK, RUN_TASK, AnyMessage, EventMessage, StepMessage
from rival_client.model.starts.priorities import LEVELS
from rival_client.model.starts.queues import Route, is_queue
from rival_workers.runtime.attempt.telemetry import counters

log = logging.getLogger("rival.celery")

#: Bytes of a body. Rival's bodies have ids and a token; the limit leaves room for long ids.
MAX_BODY = 65_536
#: The longest countdown in seconds. Rival's messages wait for `near` (30 s) at most; later steps wait in the table.
MAX_COUNTDOWN = 3600.0
MAX_TOKEN = 2**31 - 1
_ATTEMPT = re.compile(r"(\d{1,9})(?:\+(\d{1,9}))?", re.ASCII)
_tags = itertools.count(1)
_EVENT_LABEL = re.compile(r"event\.[^\x00-\x1f]{1,200}")


class Garbage(ValueError):
    """A message that Rival has not written. The text names the problem, without the contents of the message."""


def report_garbage(why: object) -> None:
    """Count and log a message that is discarded."""
    counters["garbage"] += 1
    log.error("garbage in the queue, discarded (%d so far): %s", counters["garbage"], str(why)[:500])


def reason(error: BaseException) -> str:
    return str(error) if isinstance(error, Garbage) else f"{type(error).__name__}: {str(error)[:200]}"


# -- the envelope, as the broker stores it --------------------------------------------------------------------


def clean_envelope(raw: Any, queue: str) -> dict[str, Any]:
    """A kombu envelope without values that make kombu or Celery fail."""
    if not isinstance(raw, dict):
        raise Garbage(f"an envelope that is {_kind(raw)}")
    body, headers = raw.get("body"), _mapping(raw, "headers")
    properties = _mapping(raw, "properties")
    if not isinstance(body, str | bytes):
        raise Garbage(f"a body that is {_kind(body)}")
    encoding = _text(properties.get("body_encoding"))
    if encoding == "base64":
        _check_base64(body)
    elif encoding not in (None, "utf-8"):
        raise Garbage("a body in an unknown encoding")
    if "compression" in headers:
        raise Garbage("a compressed body")
    clock = headers.get("clock")
    if clock is not None and not (type(clock) is int and 0 <= clock < 2**53):
        headers = {**headers, "clock": 0}
    return {
        "body": body,
        "content-type": _text(raw.get("content-type")),
        "content-encoding": _text(raw.get("content-encoding")),
        "headers": headers,
        "properties": {
            "body_encoding": encoding,
            "correlation_id": _text(properties.get("correlation_id")),
            # A new tag: the sender's tag is not unique in this channel. Not random: to read the system's random
            # numbers, the thread would let go of the interpreter, and wait for it while steps run.
            "delivery_tag": f"{next(_tags)}",
            "delivery_info": {"exchange": "", "routing_key": queue, "redelivered": _redelivered(properties)},
            "delivery_mode": 2,
            "priority": 0,
            "reply_to": _text(properties.get("reply_to")),
        },
    }


def _check_base64(body: str | bytes) -> None:
    try:
        base64.b64decode(body, validate=True)
    except ValueError:
        raise Garbage("a body that is not base64") from None


def _redelivered(properties: dict[str, Any]) -> bool:
    info = properties.get("delivery_info")
    return isinstance(info, dict) and info.get("redelivered") is True


def _mapping(raw: dict[str, Any], key: str) -> dict[str, Any]:
    found = raw.get(key)
    if not isinstance(found, dict):
        raise Garbage(f"{key} that are {_kind(found)}")
    return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and len(value) <= 1000 else None


def _kind(value: Any) -> str:
    return "missing" if value is None else f"a {type(value).__name__}"


# -- the message itself ---------------------------------------------------------------------------------------


def rebuild(message: Any, task: str) -> AnyMessage:
    """Replace headers, body and properties by Rival's own form. Raises Garbage, or any exception of a decoder."""
    headers = message.headers if isinstance(message.headers, Mapping) else {}
    body = _decoded(message.body, message.content_type, message.content_encoding)
    step_message = read_call(task, body, headers)
    clean, built = celery_headers(step_message), celery_body(step_message)
    clean["eta"] = read_eta(headers.get("eta"))
    message.headers, message.body = clean, json.dumps(built).encode()
    message.content_type, message.content_encoding = "application/json", "utf-8"
    message.properties = {"correlation_id": step_message.task_id, "reply_to": "", "priority": 0}
    message._decoded_cache = built
    return step_message


def _decoded(body: Any, content_type: Any, encoding: Any) -> Any:
    if not isinstance(body, bytes | bytearray | memoryview | str):
        raise Garbage(f"a body that is {_kind(body)}")
    if len(body) > MAX_BODY:
        raise Garbage(f"a body of {len(body):,} bytes")
    if content_type != "application/json" or str(encoding or "utf-8").lower() not in ("utf-8", "utf8", "binary"):
        raise Garbage("a body that is not JSON in UTF-8")
    return json.loads(body if isinstance(body, str | bytes) else bytes(body))


def read_call(task: str, body: Any, headers: Mapping[str, Any]) -> AnyMessage:
    if not isinstance(body, list) or len(body) != 3 or not isinstance(body[0], list) or body[1] != {}:
        raise Garbage("a body that is not [args, {}, embed]")
    if task == EVENT_TASK:
        return _read_event(body[0], headers)
    return _read_step(task, body[0], headers)


def _read_step(task: str, args: list[Any], headers: Mapping[str, Any]) -> StepMessage:
    if len(args) not in (5, 7):
        raise Garbage(f"{len(args)} arguments instead of 5 or 7")
    run_id, path, token, workflow, version, queue, level = args if len(args) == 7 else [*args, None, 0]
    if not all(_is_name(value) for value in (run_id, workflow, version)) or type(token) is not int:
        raise Garbage("arguments of the wrong form")
    if not 0 <= token <= MAX_TOKEN or (path is not None and not _is_name(path)):
        raise Garbage("arguments of the wrong form")
    if (path is None) != (task == RUN_TASK):
        raise Garbage("an attempt without a step" if task == ATTEMPT_TASK else "the start of a step")
    step_message = StepMessage(run_id, path, token, workflow, version, route=_read_route(queue, level))
    return step_message if path is None else _numbered(step_message, headers.get("id"))


def _read_route(queue: Any, level: Any) -> Route:
    if not (queue is None or is_queue(queue)) or type(level) is not int or level not in LEVELS.values():
        raise Garbage("arguments of the wrong form")
    return Route(queue, level)


def _numbered(step_message: StepMessage, task_id: Any) -> StepMessage:
    """Reads the attempt's number from the task id. An id that is not this step's is replaced."""
    prefix = f"{step_message.run_id}:{step_message.path}:"
    if isinstance(task_id, str) and task_id.startswith(prefix):
        found = _ATTEMPT.fullmatch(task_id.removeprefix(prefix))
        if found:
            return replace(step_message, attempt=max(1, int(found[1])), lost=int(found[2] or 0))
    return step_message


def _read_event(args: list[Any], headers: Mapping[str, Any]) -> EventMessage:
    if len(args) != 1 or not _is_name(args[0]):
        raise Garbage("an event of the wrong form")
    label = headers.get("shadow")
    known = isinstance(label, str) and _EVENT_LABEL.fullmatch(label)
    return EventMessage(args[0], str(label).removeprefix("event.") if known else "")


def _is_name(value: Any) -> bool:
    """A text that every store accepts: Postgres rejects NUL, and UTF-8 cannot encode a lone surrogate."""
    if not isinstance(value, str) or not value or "\x00" in value:
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def read_eta(value: Any) -> str | None:
    """The start time, if it is soon; else None. The claim checks when the step is due."""
    if not isinstance(value, str) or len(value) > 64:
        return None
    try:
        eta = dt.datetime.fromisoformat(value)
    except ValueError:
        return None
    eta = eta.replace(tzinfo=dt.UTC) if eta.tzinfo is None else eta
    ahead = (eta - dt.datetime.now(dt.UTC)).total_seconds()
    return eta.isoformat() if 0 < ahead <= MAX_COUNTDOWN else None
