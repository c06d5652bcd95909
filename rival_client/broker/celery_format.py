"""Encodes messages: message protocol 2 of Celery, and the form in which kombu stores it in Redis."""

from __future__ import annotations

import base64
import datetime as dt
import os
import socket
import time
from typing import Any

from rival_client.broker.message import AnyMessage
from rival_client.model.payload import json_encoder

_ORIGIN = f"rival@{socket.gethostname()}:{os.getpid()}"


def celery_headers(message: AnyMessage) -> dict[str, Any]:
    """The headers of Celery's message protocol 2."""
    return {**_SAME, **_changing(message)}


#: The headers that all messages have in common.
_SAME: dict[str, Any] = {
    "lang": "py",
    "expires": None,
    "group": None,
    "group_index": None,
    "timelimit": [None, None],
    "kwargsrepr": "{}",
    "origin": _ORIGIN,
    "ignore_result": True,
    "replaced_task_nesting": 0,
    "stamped_headers": None,
    "stamps": {},
}


def _changing(message: AnyMessage) -> dict[str, Any]:
    eta = None
    if message.countdown > 0:
        eta = (dt.datetime.now(dt.UTC) + dt.timedelta(seconds=message.countdown)).isoformat()
    return {
        "task": message.task,
        "id": message.task_id,
        "shadow": message.label,
        "eta": eta,
        "retries": message.attempt - 1,
        "root_id": message.run_id,
        "parent_id": None if message.path is None else message.run_id,
        "argsrepr": message.described,
        "rung_at": time.time(),
    }


def celery_body(message: AnyMessage) -> list[Any]:
    return [message.args, {}, {"callbacks": None, "errbacks": None, "chain": None, "chord": None}]


def redis_envelope(message: AnyMessage, queue: str) -> str:
    """The message as kombu's Redis transport keeps it in the list that is the queue: `_ENVELOPE`, filled in. Most of it
    is the same for all messages, and encoding it each time would cost more than sending it."""
    return _ENVELOPE % (
        base64.b64encode(_encode(celery_body(message)).encode()).decode(),
        _encode(_changing(message))[1:-1],
        _encode(message.task_id),
        _encode(queue),
        os.urandom(16).hex(),
    )


_encode = json_encoder(ensure_ascii=True)
_ENVELOPE = (
    '{"body":"%s","content-encoding":"utf-8","content-type":"application/json","headers":{%s,'
    + _encode(_SAME)[1:-1].replace("%", "%%")
    + '},"properties":{"correlation_id":%s,"reply_to":"","delivery_mode":2,"priority":0,'
    + '"delivery_info":{"exchange":"","routing_key":%s},"body_encoding":"base64","delivery_tag":"%s"}}'
)
