"""The format of messages: message protocol 2 of Celery, and the form in which kombu stores it in Redis."""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import socket
import time
import uuid
from json.encoder import encode_basestring_ascii
from typing import Any

from rival_client.broker.message import AnyMessage, StepMessage

_ORIGIN = f"rival@{socket.gethostname()}:{os.getpid()}"


def celery_headers(message: AnyMessage) -> dict[str, Any]:
    """The headers of Celery's message protocol 2."""
    eta = None
    if message.countdown > 0:
        eta = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=message.countdown)).isoformat()
    return {
        "lang": "py",
        "task": message.task,
        "id": message.task_id,
        "shadow": message.label,
        "eta": eta,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": message.attempt - 1,
        "timelimit": [None, None],
        "root_id": message.run_id,
        "parent_id": None if message.path is None else message.run_id,
        "argsrepr": message.described,
        "kwargsrepr": "{}",
        "origin": _ORIGIN,
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
        "rung_at": time.time(),
    }


def celery_body(message: AnyMessage) -> list[Any]:
    return [message.args, {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]


def redis_envelope(message: AnyMessage, queue: str) -> str:
    """The message as kombu's Redis transport keeps it in the list that is the queue: `_ENVELOPE`, filled in. Most of it
    is the same for all messages, and encoding it each time would cost more than sending it."""
    headers = celery_headers(message)
    body = json.dumps(celery_body(message), separators=(",", ":")).encode()
    changing = ",".join(f'"{name}":{_quoted(headers[name])}' for name in _CHANGING)
    return _ENVELOPE % (
        base64.b64encode(body).decode(),
        changing,
        _quoted(message.task_id),
        _quoted(queue),
        uuid.uuid4(),
    )


def _quoted(value: str | float | None) -> str:
    return "null" if value is None else encode_basestring_ascii(value) if isinstance(value, str) else repr(value)


#: The headers that differ from message to message.
_CHANGING = ("task", "id", "shadow", "eta", "retries", "root_id", "parent_id", "argsrepr", "rung_at")
_SAME = {
    name: value for name, value in celery_headers(StepMessage("", None, 0, "", "")).items() if name not in _CHANGING
}
_ENVELOPE = (
    '{"body":"%s","content-encoding":"utf-8","content-type":"application/json","headers":{%s,'
    + json.dumps(_SAME, separators=(",", ":"))[1:-1].replace("%", "%%")
    + '},"properties":{"correlation_id":%s,"reply_to":"","delivery_mode":2,"priority":0,'
    + '"delivery_info":{"exchange":"","routing_key":%s},"body_encoding":"base64","delivery_tag":"%s"}}'
)
