"""The content and format of messages: message protocol 2 of Celery, and the form in which kombu stores it in Redis.

A message carries ids and a token, nothing else; everything that matters is read from the database.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import os
import socket
import time
import uuid
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

from rival_client.model.queues import USUAL_ROUTE, Route
from rival_client.model.record import record

RUN_TASK = "rival.run"
ATTEMPT_TASK = "rival.attempt"
EVENT_TASK = "rival.event"
_ORIGIN = f"rival@{socket.gethostname()}:{os.getpid()}"


@record(frozen=True)
class StepMessage:
    """The content of a message. `path` None: start the run."""

    run_id: str
    path: str | None
    token: int
    workflow: str
    version: str
    attempt: int = 1
    lost: int = 0
    countdown: float = 0.0
    route: Route = USUAL_ROUTE

    @property
    def task(self) -> str:
        return RUN_TASK if self.path is None else ATTEMPT_TASK

    @property
    def task_id(self) -> str:
        return self.run_id if self.path is None else attempt_id(self.run_id, self.path, self.attempt, self.lost)

    @property
    def args(self) -> list[Any]:
        """With its route, unless it is the usual one: a message may have to be published again."""
        more = [self.route.queue, self.route.level] if self.route else []
        return [self.run_id, self.path, self.token, self.workflow, self.version, *more]

    @property
    def label(self) -> str:
        return self.workflow if self.path is None else step_label(self.workflow, self.path)

    @property
    def described(self) -> str:
        return f"(run={self.run_id!r}, step={self.path!r}, attempt={self.attempt})"


@dataclass(frozen=True)
class EventMessage:
    """A worker looks for the steps that wait for this event."""

    event_id: str
    topic: str
    countdown: float = 0.0
    run_id: str | None = None
    path: str | None = None
    attempt: int = 1

    task = EVENT_TASK
    #: Events are delivered from the fleet's own queue.
    route = USUAL_ROUTE

    @property
    def task_id(self) -> str:
        return f"event:{self.event_id}"

    @property
    def args(self) -> list[Any]:
        return [self.event_id]

    @property
    def label(self) -> str:
        return f"event.{self.topic}"

    @property
    def described(self) -> str:
        return f"(event={self.event_id!r})"


AnyMessage = StepMessage | EventMessage


def attempt_id(run_id: str, path: str, attempt: int, lost: int = 0) -> str:
    """One Celery task id per attempt: a try that was lost and is started again is another one."""
    return f"{run_id}:{path}:{attempt}" + (f"+{lost}" if lost else "")


def step_label(workflow: str, path: str) -> str:
    """What Flower calls the step: without indexes, since each name becomes a metric label there."""
    return f"{workflow}.{path.rsplit('/', 1)[-1]}"


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
