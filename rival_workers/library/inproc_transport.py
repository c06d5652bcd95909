"""A kombu transport, `rival-inproc://name/`: its queues are in this process and its consumers wake at once.

It carries only Rival's messages: nothing survives the process, and it depends neither on Celery nor on runs or steps.
"""

from __future__ import annotations

from copy import copy
from queue import Empty
from time import monotonic
from typing import Any

from kombu.transport import TRANSPORT_ALIASES, virtual

from rival_workers.library.inproc_broker import RawMessage, broker_named
from rival_workers.runtime.celery.untrusted_messages import Garbage, clean_envelope, report_garbage

SCHEME = "rival-inproc"


class QoS(virtual.QoS):  # type: ignore[misc]
    """kombu's prefetch limit, with an ack that wakes a consumer that the limit has stopped."""

    def __init__(self, channel: Channel, prefetch_count: int = 0) -> None:
        super().__init__(channel, prefetch_count)
        # kombu would restore messages at exit, into memory that is freed, and log it.
        self._on_collect.cancel()

    def ack(self, delivery_tag: str) -> None:
        was_full = not self.can_consume()
        super().ack(delivery_tag)
        if was_full:
            self.channel.broker.wake()


class Channel(virtual.Channel):  # type: ignore[misc]
    """A virtual channel on a `Broker`; methods that change routes take the broker's lock, since kombu takes none."""

    QoS = QoS
    supports_fanout = True
    # Bodies stay text: base64 would only cost time, since no body leaves this process.
    body_encoding = "utf-8"

    def __init__(self, connection: Transport, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        # Kept here because an ack may follow a close, when `connection` is None.
        self.broker = connection.broker
        self._auto_delete: set[str] = set()

    def _has_queue(self, queue: str, **kwargs: Any) -> bool:
        return self.broker.has(queue)

    def _new_queue(self, queue: str, auto_delete: bool = False, **kwargs: Any) -> None:
        self.broker.declare(queue)
        if auto_delete:
            self._auto_delete.add(queue)

    def _size(self, queue: str) -> int:
        return self.broker.size(queue)

    def _get(self, queue: str, timeout: float | None = None) -> RawMessage:
        return self.broker.get(queue)

    def _put(self, queue: str, message: RawMessage, **kwargs: Any) -> None:
        self.broker.put(queue, _own_copy(message))

    def _put_fanout(self, exchange: str, message: RawMessage, routing_key: str, **kwargs: Any) -> None:
        for queue in self._lookup(exchange, routing_key):
            self._put(queue, message)

    def _queue_bind(self, *route: Any) -> None:
        """Nothing to do: all connections share the routing table of the exchange."""

    def _purge(self, queue: str) -> int:
        return self.broker.purge(queue)

    def _restore(self, message: Any) -> None:
        """Puts an unacked message back at the head: kombu restores the latest message first."""
        raw = _own_copy(message._raw)
        delivery = raw["properties"]["delivery_info"]
        delivery["redelivered"] = True
        for queue in self._lookup(delivery["exchange"], delivery["routing_key"]):
            self.broker.put_back(queue, raw)

    def exchange_declare(self, *args: Any, **kwargs: Any) -> None:
        with self.broker.changed:
            super().exchange_declare(*args, **kwargs)

    def exchange_delete(self, exchange: str, if_unused: bool = False, nowait: bool = False) -> None:
        """Deletes the exchange and its routes; kombu's own method would also delete the queues."""
        with self.broker.changed:
            self.state.exchanges.pop(exchange, None)
            for route in [route for route in self.state.bindings if route.exchange == exchange]:
                self.state.binding_delete(*route)

    def queue_bind(self, *args: Any, **kwargs: Any) -> None:
        with self.broker.changed:
            super().queue_bind(*args, **kwargs)

    def queue_unbind(self, *args: Any, **kwargs: Any) -> None:
        with self.broker.changed:
            super().queue_unbind(*args, **kwargs)

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **kwargs: Any) -> None:
        with self.broker.changed:
            if not (if_empty and self.broker.size(queue)):
                self.state.queue_bindings_delete(queue)
                self.broker.delete(queue)

    def basic_cancel(self, consumer_tag: str) -> None:
        queue = self._tag_to_queue.get(consumer_tag)
        super().basic_cancel(consumer_tag)
        if queue in self._auto_delete:
            # Otherwise the control queue of a stopped worker would fill up, and the next worker would execute it.
            self.queue_delete(queue)


class Transport(virtual.Transport):  # type: ignore[misc]
    """One connection to a namespace: `rival-inproc://name/`, or `rival-inproc://name/part`."""

    Channel = Channel
    driver_type = SCHEME
    driver_name = SCHEME
    implements = virtual.Transport.implements.extend(exchange_type=frozenset({"direct", "topic", "fanout"}))

    def __init__(self, client: Any, **kwargs: Any) -> None:
        super().__init__(client, **kwargs)
        self.broker = broker_named(_namespace(client))
        self.state = self.broker.state
        self._interrupted = False

    def _deliver(self, message: RawMessage, queue: str) -> None:
        try:
            clean = clean_envelope(message, queue)
        except Garbage as error:
            report_garbage(error)
        else:
            super()._deliver(clean, queue)

    def interrupt(self) -> None:
        """Makes the running `drain_events` (or else the next one) return, as if its timeout had passed."""
        self._interrupted = True
        self.broker.wake()

    def drain_events(self, connection: Any, timeout: float | None = None, **kwargs: Any) -> None:
        deadline = None if timeout is None else monotonic() + timeout
        while True:
            seen = self.broker.version
            try:
                self.cycle.get(self._deliver)
                return
            except Empty:
                self._await_change(seen, deadline)

    def _await_change(self, seen: int, deadline: float | None) -> None:
        remaining = None if deadline is None else deadline - monotonic()
        if self._interrupted or (remaining is not None and remaining <= 0):
            self._interrupted = False
            raise TimeoutError
        self.broker.wait(seen, remaining)


def register() -> None:
    """Registers the scheme with kombu; idempotent."""
    TRANSPORT_ALIASES.setdefault(SCHEME, f"{__name__}:Transport")


def _namespace(client: Any) -> str:
    part = (client.virtual_host or "").strip("/")
    return "/".join(filter(None, (client.hostname, part)))


def _own_copy(message: RawMessage) -> RawMessage:
    """Copies what sender and receivers may change later, so that they share nothing."""
    properties = dict(message["properties"])
    properties["delivery_info"] = dict(properties.get("delivery_info") or {})
    return {**message, "headers": copy(message.get("headers")), "properties": properties}
