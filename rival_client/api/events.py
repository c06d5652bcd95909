"""Events: the part of both clients that sends and lists them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

from pydantic import BaseModel

from rival_client.api.async_base import AsyncClientBase, awaitable
from rival_client.api.base import ClientBase
from rival_client.broker.message import EventMessage
from rival_client.db import async_caller_tx, caller_tx
from rival_client.model.checks import amounts, arguments
from rival_client.sql.event_inserts import INSERT_EVENT, insert_event, sent_unless_full
from rival_client.sql.events import Delivery, Event, Sent, made_event
from rival_client.sql.reads.event_reads import EventRecord, TopicCount, count_by_topic, list_events
from rival_client.sql.reads.waits import DeliveryRecord, WaitRecord, list_deliveries, list_waits


class EventOperations(ClientBase):
    def send_event(
        self,
        topic: str | BaseModel,
        payload: Any = None,
        *,
        key: str | None = None,
        run_id: str | None = None,
        delivery: Delivery = "one",
        expires: float | dt.timedelta | None = None,
        event_id: str | None = None,
        connection: Any = None,
    ) -> Sent:
        """Send an event to the runs that wait for this topic (and key, if they asked for one): to the run that waited
        longest, or to "all". If no run waits, it is kept for `expires` seconds. The same `event_id` twice is one event;
        EventConflict if that one has another topic, key or run.

        A pydantic model as the topic is a typed event: its fields are the payload. TopicFull when the topic keeps as
        many events as it may, and no run waits for this one.
        """
        event = made_event(topic, payload, key, run_id, delivery, expires, event_id, self.settings)
        message = self.event_publisher(event)
        if connection is not None:
            sent = caller_tx.send_in(connection, event, self.settings.ring_grace, message)
            return Sent(event.id, "sent" if sent else "duplicate")
        sent = self._insert_event(event)
        if sent:
            message()
        return Sent(event.id, "sent" if sent else "duplicate")

    def _insert_event(self, event: Event) -> bool:
        if self._prepared is not None:
            row = self._prepared.fetch(INSERT_EVENT, event.parameters(self.settings.ring_grace))
            return sent_unless_full(event, str(row and row[0]))
        return self.database.transact(lambda own: insert_event(own, event, self.settings.ring_grace))

    def event_publisher(self, event: Event) -> Callable[[], None]:
        """Publishes the message of a committed event."""

        def publish() -> None:
            self._doorbell.publish([EventMessage(event.id, event.topic)])

        return publish

    def events(self, topic: str | None = None, limit: int = 50) -> list[EventRecord]:
        """The newest events first."""
        topic, limit = arguments.optional(arguments.name, "topic", topic), amounts.limit(limit)
        with self.database.autocommit() as connection:
            return list_events(connection, topic, limit)

    def waits(self, topic: str, limit: int = 50) -> list[WaitRecord]:
        """The steps that wait for an event of this topic."""
        topic, limit = arguments.name("topic", topic), amounts.limit(limit)
        with self.database.autocommit() as connection:
            return list_waits(connection, topic, limit)

    def deliveries(self, event_id: str, limit: int = 50) -> list[DeliveryRecord]:
        """The steps that have received an event."""
        event_id, limit = arguments.text("event_id", event_id), amounts.limit(limit)
        with self.database.autocommit() as connection:
            return list_deliveries(connection, event_id, limit)

    def topics(self, topic: str | None = None) -> list[TopicCount]:
        """The number of undelivered events per topic, the fullest topic first."""
        topic = arguments.optional(arguments.name, "topic", topic)
        with self.database.autocommit() as connection:
            return count_by_topic(connection, self.settings.max_events_per_topic, topic)


class AsyncEventOperations(AsyncClientBase):
    events = awaitable(EventOperations.events)
    waits = awaitable(EventOperations.waits)
    deliveries = awaitable(EventOperations.deliveries)
    topics = awaitable(EventOperations.topics)

    async def send_event(
        self,
        topic: str | BaseModel,
        payload: Any = None,
        *,
        key: str | None = None,
        run_id: str | None = None,
        delivery: Delivery = "one",
        expires: float | dt.timedelta | None = None,
        event_id: str | None = None,
        connection: Any = None,
    ) -> Sent:
        if connection is None:
            return await self._call(
                self._rival.send_event,
                topic,
                payload,
                key=key,
                run_id=run_id,
                delivery=delivery,
                expires=expires,
                event_id=event_id,
            )
        event = made_event(topic, payload, key, run_id, delivery, expires, event_id, self.settings)
        message = self._rival.event_publisher(event)
        sent = await async_caller_tx.send_in_async(connection, event, self.settings.ring_grace, message)
        return Sent(event.id, "sent" if sent else "duplicate")
