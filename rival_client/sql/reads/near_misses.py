"""Finds kept events that nearly match a wait, and the differences."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from rival_client.db.event_tables import events
from rival_client.db.types import now
from rival_client.model.json_match import is_contained
from rival_client.sql.reads.event_reads import EventRecord, event_of
from rival_client.sql.reads.waits import WaitRecord, waits_of

#: Waits for which kept events are compared.
_WAITS = 5
#: Kept events of a topic that are compared with a wait.
_COMPARED = 50


@dataclass(frozen=True)
class NearMiss:
    """A kept event that a wait does not take, and why: `key`, `run`, or `filter:/path` of a field."""

    event_id: str
    differs: tuple[str, ...]
    key: str | None = None


def kept_events(connection: Connection, topic: str) -> list[EventRecord]:
    """The newest events of a topic that no step has received."""
    kept = (events.c.topic == topic, events.c.status != "consumed", events.c.expires_at > now())
    newest = select(events).where(*kept).order_by(events.c.created_at.desc()).limit(_COMPARED)
    return [event_of(row) for row in connection.execute(newest)]


def nearest(wait: WaitRecord, kept: Sequence[EventRecord]) -> NearMiss | None:
    """The kept event with the fewest differences; None without one."""
    misses = [NearMiss(one.event_id, tuple(_differences(wait, one)), one.key) for one in kept]
    return min(misses, key=lambda miss: len(miss.differs), default=None)


def _differences(wait: WaitRecord, event: EventRecord) -> list[str]:
    found = []
    if wait.key is not None and wait.key != event.key:
        found.append("key")
    if event.run_id is not None and event.run_id != wait.run_id:
        found.append("run")
    return found + [f"filter:{one}" for one in _missing(wait.filter, event.payload)]


def _missing(wanted: Any, payload: Any, path: str = "") -> list[str]:
    """Where the payload does not contain what the filter asks for."""
    if wanted is None or is_contained(wanted, payload):
        return []
    if not isinstance(wanted, Mapping) or not isinstance(payload, Mapping):
        return [path]
    return [
        one
        for name, its in wanted.items()
        for one in (_missing(its, payload[name], f"{path}/{name}") if name in payload else [f"{path}/{name}"])
    ]


def facts_of_waits(connection: Connection, run_id: str, paths: Collection[str]) -> dict[str, dict[str, Any]]:
    """Path -> the fields that its filter asks for, and the kept event that nearly fits."""
    waiting = {path: wait for path, wait in waits_of(connection, run_id).items() if path in paths}
    more: dict[str, dict[str, Any]] = {path: {"asks": _asked(wait.filter)} for path, wait in waiting.items()}
    for path, wait in list(waiting.items())[:_WAITS]:
        miss = nearest(wait, kept_events(connection, wait.topic))
        if miss is not None and miss.differs:
            more[path] |= {"near_event": miss.event_id, "near_differs": miss.differs}
    return more


def _asked(wanted: Any, path: str = "") -> tuple[str, ...]:
    """JSON pointers of the fields of a filter."""
    if not isinstance(wanted, Mapping):
        return (path,) if path else ()
    return tuple(one for name, its in wanted.items() for one in _asked(its, f"{path}/{name}"))
