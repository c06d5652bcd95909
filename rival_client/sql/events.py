"""Events that producers send to runs. An event is a row; a worker delivers it to the steps that wait, or keeps it.
The statements are in `event_inserts` and `event_reads`.
"""

from __future__ import annotations

import datetime as dt
import secrets
import threading
import time
from dataclasses import dataclass
from typing import Any, Literal, get_args

from pydantic import BaseModel

from rival_client.errors import InvalidArgument
from rival_client.model.checks import amounts, arguments
from rival_client.model.payload import Json, dump
from rival_client.model.topics import topic_of
from rival_client.settings import Settings

Delivery = Literal["one", "all"]


@dataclass(frozen=True)
class Event:
    """One event as it is sent."""

    id: str
    topic: str
    payload: Json
    key: str | None
    run_id: str | None
    delivery: Delivery
    expires: float
    #: How many the topic may keep; 0: any number.
    bound: int

    def parameters(self, grace: float) -> dict[str, Any]:
        return {
            "id": self.id,
            "topic": self.topic,
            "key": self.key,
            "run_id": self.run_id,
            "payload": str(self.payload),
            "delivery": self.delivery,
            "expires": self.expires,
            "grace": grace,
            "bound": self.bound,
        }


@dataclass(frozen=True)
class Sent:
    """What `send_event` gives back at once. "duplicate": an event with this id had been sent before."""

    event_id: str
    status: Literal["sent", "duplicate"]


def made_event(
    topic: str | BaseModel,
    payload: Any,
    key: str | None,
    run_id: str | None,
    delivery: Delivery,
    expires: float | dt.timedelta | None,
    event_id: str | None,
    settings: Settings,
) -> Event:
    """An event as it was asked for; InvalidArgument when it makes no sense."""
    if isinstance(topic, BaseModel):
        if payload is not None:
            raise InvalidArgument("payload", "a typed event is its own payload: give no other.")
        topic, payload = topic_of(type(topic)), topic
    topic = arguments.name("topic", topic)
    return Event(
        id=_new_id() if event_id is None else arguments.new_id("event_id", event_id),
        topic=topic,
        payload=dump(payload, what=f"the payload of event {topic!r}", limit=settings.max_payload),
        key=None if key is None else arguments.key(key),
        run_id=None if run_id is None else arguments.run_id(run_id),
        delivery=arguments.choice("delivery", delivery, get_args(Delivery)),
        expires=settings.event_retention if expires is None else amounts.seconds("expires", expires),
        bound=settings.max_events_per_topic,
    )


_id_lock = threading.Lock()
_last_id = 0


def _new_id() -> str:
    """Unique, and greater than the one before in this process: it decides between events of the same microsecond."""
    global _last_id
    with _id_lock:
        _last_id = max(_last_id + 1, time.time_ns() // 1000)
        return f"{_last_id:013x}{secrets.token_hex(10)}"
