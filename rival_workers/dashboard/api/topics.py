"""Routes of topics: their counts, the steps that wait for them, and why a kept event does not fit."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.sql.reads.capped_counts import Count
from rival_client.sql.reads.event_reads import TopicCount, count_by_topic
from rival_client.sql.reads.near_misses import NearMiss, kept_events, nearest
from rival_client.sql.reads.waits import WaitRecord, count_waits, list_waits
from rival_workers.dashboard.route import Call, Form, Route
from rival_workers.dashboard.values import fields, moment
from rival_workers.dashboard.veil import Veil
from rival_workers.dashboard.views import count_view


def topics(call: Call) -> dict[str, Any]:
    bound = call.board.rival.settings.max_events_per_topic
    with call.board.database.snapshot() as connection:
        counted = {one.topic: one for one in count_by_topic(connection, bound)}
        waiting = count_waits(connection)
    none = TopicCount("", 0, 0, bound)
    names = sorted({*counted, *waiting})
    return {"items": [_topic(name, counted.get(name, none), waiting.get(name, Count(0))) for name in names]}


def _topic(name: str, one: TopicCount, waiting: Count) -> dict[str, Any]:
    about = {"topic": name, "nearly_full": one.is_nearly_full, "waiting": count_view(waiting)}
    return about | fields(one, "sent kept bound")


class WaitsQuery(Form):
    limit: int = Field(default=50, ge=1, le=200)


def waits(call: Call) -> dict[str, Any]:
    """Each wait with the kept event that comes nearest."""
    topic = call.names["topic"]
    with call.board.database.snapshot() as connection:
        found = list_waits(connection, topic, call.query.limit)
        kept = kept_events(connection, topic)
    veil = call.board.wide_veil()
    return {"items": [wait_view(one, nearest(one, kept), veil) for one in found]}


def wait_view(wait: WaitRecord, near: NearMiss | None, veil: Veil) -> dict[str, Any]:
    return {
        "run": wait.run_id,
        "step": wait.path,
        "topic": wait.topic,
        "key": wait.key,
        "filter": veil.hidden(wait.filter),
        "since": moment(wait.created_at),
        "nearest": None if near is None else {"event": near.event_id, "key": near.key, "differs": list(near.differs)},
    }


ROUTES = (
    Route("GET", "/topics", "viewer", topics, "Count events and waiting steps by topic"),
    Route("GET", "/topics/{topic}/waits", "viewer", waits, "List the steps that wait for a topic", query=WaitsQuery),
)
