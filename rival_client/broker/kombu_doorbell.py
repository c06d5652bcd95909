"""The doorbell on any transport of kombu."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Any

import kombu

from rival_client.broker.celery_format import celery_body, celery_headers
from rival_client.broker.message import AnyMessage
from rival_client.broker.outages import Cooldown, Missed, catch_up
from rival_client.forks import call_after_fork, leave_open
from rival_client.model.starts.queues import USUAL_ROUTE, Route, broker_queue


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

    def answers(self) -> bool:
        try:
            with self._lock, self._connection.channel():
                return True
        except Exception:
            # The transports of kombu raise their own errors.
            return False

    def check_epoch(self) -> bool:
        """Only what this process knows: these brokers keep no marker."""
        return self._cooldown.allows() and catch_up(self.publish, self._missed, False)

    def close(self) -> None:
        self._connection.release()
