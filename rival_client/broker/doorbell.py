"""The doorbell: publishes Celery messages that say "look at run R, step P, token T", bounded in time.

A message is a hint. The publisher has committed before; a publish that fails is not an error, since the keeper looks at
rows that no worker has claimed. This module does not know what a message causes.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Protocol

import kombu
import redis

from rival_client.broker.message import AnyMessage, celery_body, celery_headers, redis_envelope
from rival_client.broker.outages import Cooldown, Missed
from rival_client.broker.redis_connection import REDIS_BOUNDS, Sender, is_redis
from rival_client.errors import ConfigurationError
from rival_client.forks import call_after_fork, leave_open
from rival_client.model.masking import masked, without_secrets
from rival_client.model.queues import USUAL_ROUTE, Route, broker_queue

log = logging.getLogger("rival.doorbell")

CHANGED_CHANNEL = "rival:changed:"
#: A marker per queue that only a broker that has kept its data still has.
EPOCH_KEY = "rival:epoch:"
#: The lists of a queue in Redis by level of priority, as kombu numbers and names them: the lowest number first. Normal
#: messages are in the list that has the name of the queue. A Celery app without settings of its own reads list 3.
LIST_NUMBERS = {-1: -1, 0: 0, 1: 3}
_SEPARATOR = "\x06\x16"


class Doorbell(Protocol):
    #: Whether messages of different levels are in lists of their own.
    has_priorities: bool

    def publish(self, messages: Sequence[AnyMessage], changed: Sequence[str] = ()) -> bool:
        """Publish messages, and notify clients that wait for the `changed` runs; False: the broker is unreachable."""

    def backlog(self, queue: str | None = None) -> int | None:
        """Messages of a queue that no worker has taken yet; None when the broker does not report it."""

    def oldest(self, route: Route = USUAL_ROUTE) -> float:
        """Seconds since the oldest message with this route was published; 0 when there is none or the broker is
        unreachable, infinite when the broker does not report it."""

    def check_epoch(self) -> bool:
        """Returns True once after the broker lost its data. Otherwise republishes messages that failed earlier."""

    def close(self) -> None: ...


class RedisDoorbell:
    """One pipeline for any number of messages: the publish of kombu costs several times as much per message. A few
    messages are sent without waiting for the reply, which the next publish reads.
    """

    BATCH = 1000
    #: As many messages and notifications are a few.
    FEW = 8

    def __init__(self, url: str, queue: str, key_prefix: str = "", priorities: bool = True) -> None:
        self._url, self._queue, self._prefix, self.has_priorities = url, queue, key_prefix, priorities
        # A broker that is shared may let each of its users only at what begins with a prefix.
        self._epoch, self._channel = key_prefix + EPOCH_KEY + queue, key_prefix + CHANGED_CHANNEL
        self._redis = redis.Redis.from_url(url, **REDIS_BOUNDS)
        # Whether a reply has come cannot be seen from outside of an encrypted connection.
        self._sender = None if url.startswith("rediss") else Sender[AnyMessage](self._redis)
        self._cooldown = Cooldown()
        self._missed = Missed()

    def publish(self, messages: Sequence[AnyMessage], changed: Sequence[str] = ()) -> bool:
        if not self._cooldown.allows():
            self._missed.keep(messages)
            return False
        messages = [*self._missed.take(), *messages]
        if self._sender is not None and len(messages) + len(changed) <= self.FEW:
            if self._was_sent(self._sender, messages, changed):
                return True
            messages = self._sender.take_lost()  # these, and earlier ones
        try:
            for start in range(0, max(len(messages), 1), self.BATCH):
                self._send(messages[start : start + self.BATCH], changed if start == 0 else ())
        except redis.RedisError as error:
            self._cooldown.failed()
            self._missed.keep(messages, self._url, error)
            return False
        return True

    def _was_sent(self, sender: Sender[AnyMessage], messages: Sequence[AnyMessage], changed: Sequence[str]) -> bool:
        pushes = [(("LPUSH", self._list(one.route), self._envelope(one)), (one,)) for one in messages]
        notifications = [(("PUBLISH", self._channel + run_id, ""), ()) for run_id in changed]
        try:
            sender.send([*pushes, *notifications])
        except redis.RedisError:
            return False
        return True

    def _send(self, messages: Sequence[AnyMessage], changed: Sequence[str]) -> None:
        lists = defaultdict(list)
        for message in messages:
            lists[message.route].append(self._envelope(message))
        pipe = self._redis.pipeline(transaction=False)
        for route, envelopes in lists.items():
            pipe.lpush(self._list(route), *envelopes)
        for run_id in changed:
            pipe.publish(self._channel + run_id, "")
        pipe.execute()

    def _envelope(self, message: AnyMessage) -> str:
        return redis_envelope(message, broker_queue(message.route.queue, self._queue))

    def _list(self, route: Route) -> str:
        name = self._prefix + broker_queue(route.queue, self._queue)
        number = LIST_NUMBERS[route.level] if self.has_priorities else 0
        return f"{name}{_SEPARATOR}{number}" if number else name

    def backlog(self, queue: str | None = None) -> int | None:
        if not self._cooldown.allows():
            return None
        pipe = self._redis.pipeline(transaction=False)
        for level in LIST_NUMBERS if self.has_priorities else (0,):
            pipe.llen(self._list(Route(queue, level)))
        try:
            return sum(map(int, pipe.execute()))
        except redis.RedisError:
            self._cooldown.failed()
            return None

    def oldest(self, route: Route = USUAL_ROUTE) -> float:
        if not self._cooldown.allows():
            return 0.0
        try:
            envelope = self._redis.lindex(self._list(route), -1)
        except redis.RedisError:
            self._cooldown.failed()
            return 0.0
        return 0.0 if envelope is None else _age(envelope)

    def check_epoch(self) -> bool:
        if not self._cooldown.allows():
            return False
        try:
            marker_was_gone = self._redis.set(self._epoch, uuid.uuid4().hex, nx=True)
        except redis.RedisError:
            self._cooldown.failed()
            return False
        return _catch_up(self, self._missed, bool(marker_was_gone))

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()
        self._redis.close()


class KombuDoorbell:
    """Any other broker that Celery can use, through kombu. It has one list per queue: priorities have no effect."""

    has_priorities = False

    def __init__(self, url: str, queue: str, transport_options: dict[str, Any] | None = None) -> None:
        self._url, self._queue = url, queue
        self._connection = kombu.Connection(url, connect_timeout=2, transport_options=transport_options or {})
        self._lock = threading.Lock()
        self._cooldown = Cooldown()
        self._missed = Missed()
        call_after_fork(self._drop_connections)

    def _drop_connections(self) -> None:
        self._lock = threading.Lock()
        leave_open([self._connection])
        self._connection = self._connection.clone()

    def publish(self, messages: Sequence[AnyMessage], changed: Sequence[str] = ()) -> bool:
        if not messages:
            return True
        if not self._cooldown.allows():
            self._missed.keep(messages)
            return False
        messages = [*self._missed.take(), *messages]
        try:
            with self._lock:
                self._publish(messages)
        except Exception as error:
            # The transports of kombu raise their own errors. After any of them the keeper looks at the row.
            self._cooldown.failed()
            self._missed.keep(messages, self._url, error)
            return False
        return True

    def _publish(self, messages: Sequence[AnyMessage]) -> None:
        with self._connection.Producer(serializer="json") as producer:
            for message in messages:
                producer.publish(
                    celery_body(message),
                    routing_key=broker_queue(message.route.queue, self._queue),
                    headers=celery_headers(message),
                    correlation_id=message.task_id,
                    delivery_mode=2,
                    retry=False,
                )

    def backlog(self, queue: str | None = None) -> int | None:
        name = broker_queue(queue, self._queue)
        try:
            with self._lock, self._connection.channel() as channel:
                return int(kombu.Queue(name, channel=channel).queue_declare(passive=True).message_count)
        except Exception:
            return None

    def oldest(self, route: Route = USUAL_ROUTE) -> float:
        return math.inf if self.backlog(route.queue) else 0.0

    def check_epoch(self) -> bool:
        """Only what this process knows: these brokers keep no marker."""
        return self._cooldown.allows() and _catch_up(self, self._missed, False)

    def close(self) -> None:
        self._connection.release()


class SilentDoorbell:
    """No broker is given: every run waits for the keeper's look."""

    has_priorities = False

    def publish(self, messages: Sequence[AnyMessage], changed: Sequence[str] = ()) -> bool:
        return False

    def backlog(self, queue: str | None = None) -> int | None:
        return None

    def oldest(self, route: Route = USUAL_ROUTE) -> float:
        return 0.0

    def check_epoch(self) -> bool:
        return False

    def close(self) -> None:
        pass


def _age(envelope: str | bytes) -> float:
    try:
        return max(0.0, time.time() - float(json.loads(envelope)["headers"]["rung_at"]))
    except Exception:
        # The queue can contain foreign messages: not JSON, deeply nested, or with a number beyond the range of floats.
        return math.inf


def _catch_up(doorbell: Doorbell, missed: Missed, lost_data: bool) -> bool:
    kept = missed.take()
    if kept and not lost_data:
        doorbell.publish(kept)
    return lost_data


def open_doorbell(url: str | None, queue: str, key_prefix: str = "", priorities: bool = True) -> Doorbell:
    """`queue`: the fleet's own. `priorities`: whether its workers read a list per level of priority."""
    if not url:
        return SilentDoorbell()
    try:
        if is_redis(url):
            return RedisDoorbell(url, queue, key_prefix, priorities)
        return KombuDoorbell(url, queue, {"global_keyprefix": key_prefix} if key_prefix else None)
    except Exception as error:
        # Nothing is connected yet: redis and kombu have only read the URL, each with errors of its own.
        raise ConfigurationError(
            f"{masked(url)!r} is not a broker URL ({type(error).__name__}: {without_secrets(str(error), url)}). "
            "Give RIVAL_BROKER_URL as in redis://user:password@host:6379/0 or amqp://user:password@host:5672//."
        ) from None
