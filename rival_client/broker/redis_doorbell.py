"""The doorbell on Redis: one round trip per publish, a list per level of priority, and a marker whose absence shows a
loss of data.
"""

from __future__ import annotations

import json
import math
import time
import uuid
from collections import defaultdict
from collections.abc import Sequence

import redis

from rival_client.broker.celery_format import redis_envelope
from rival_client.broker.message import AnyMessage
from rival_client.broker.outages import Cooldown, Missed, catch_up
from rival_client.broker.redis_connection import REDIS_BOUNDS, Sender
from rival_client.model.starts.queues import USUAL_ROUTE, Route, broker_queue

CHANGED_CHANNEL = "rival:changed:"
#: A marker per queue. It is missing when the broker has lost its data.
EPOCH_KEY = "rival:epoch:"
#: The lists of a queue in Redis by level of priority, as kombu numbers and names them: the lowest number first. Normal
#: messages are in the list that has the name of the queue. A Celery app without settings of its own reads list 3.
LIST_NUMBERS = {-1: -1, 0: 0, 1: 3}
_SEPARATOR = "\x06\x16"


class RedisDoorbell:
    """One pipeline for any number of messages: the publish of kombu costs several times as much per message. A few
    messages are sent without waiting for the reply, which the next publish reads.
    """

    BATCH = 1000
    #: Up to this many messages and notifications are sent without waiting for the reply.
    FEW = 8

    def __init__(self, url: str, queue: str, key_prefix: str = "", priorities: bool = True) -> None:
        self._url, self._queue, self._prefix, self.has_priorities = url, queue, key_prefix, priorities
        # A shared broker may restrict each user to keys and channels that begin with a prefix.
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

    def answers(self) -> bool:
        if not self._cooldown.allows():
            return False
        try:
            return bool(self._redis.ping())
        except redis.RedisError:
            self._cooldown.failed()
            return False

    def check_epoch(self) -> bool:
        if not self._cooldown.allows():
            return False
        try:
            marker_was_gone = self._redis.set(self._epoch, uuid.uuid4().hex, nx=True)
        except redis.RedisError:
            self._cooldown.failed()
            return False
        return catch_up(self.publish, self._missed, bool(marker_was_gone))

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()
        self._redis.close()


def _age(envelope: str | bytes) -> float:
    try:
        return max(0.0, time.time() - float(json.loads(envelope)["headers"]["rung_at"]))
    except Exception:
        # The queue can contain foreign messages: not JSON, deeply nested, or with a number beyond the range of floats.
        return math.inf
