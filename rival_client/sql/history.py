"""The history of a run: every transition, in order, with its actor. Append-only; the transaction of a transition writes
its entry. `rival_client.model.rebuild` computes the state of the run from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, insert, select

from rival_client.db.tables import history, now
from rival_client.model.payload import Json, serialise
from rival_client.model.records import HistoryEntry


class HistoryWriter:
    """The entries of one transaction for one run: collected, then written with one statement."""

    def __init__(self, connection: Connection, run_id: str, by: str | None = None) -> None:
        self._connection, self._run_id, self._by = connection, run_id, by
        self._entries: list[dict[str, Any]] = []

    def add(self, what: str, path: str | None = None, *, by: str | None = None, **detail: Any) -> None:
        self._entries.append(
            {"run_id": self._run_id, "path": path, "what": what, "detail": as_json(detail), "actor": by or self._by}
        )

    def write(self) -> bool:
        """Whether there was any entry."""
        if not self._entries:
            return False
        self._connection.execute(insert(history).values(at=now()), self._entries)
        self._entries = []
        return True


def record(
    connection: Connection, run_id: str, path: str | None, what: str, *, by: str | None = None, **detail: Any
) -> None:
    """Write one entry."""
    writer = HistoryWriter(connection, run_id, by)
    writer.add(what, path, **detail)
    writer.write()


def as_json(detail: Mapping[str, Any]) -> Json:
    """What is None is left out; payloads in it are JSON text already. The names are those of keyword arguments."""
    pairs = (f'"{name}":{serialise(value)}' for name, value in detail.items() if value is not None)
    return Json("{" + ",".join(pairs) + "}")


def read_history(connection: Connection, run_id: str) -> list[HistoryEntry]:
    found = connection.execute(select(history).where(history.c.run_id == run_id).order_by(history.c.id))
    return [as_entry(row) for row in found]


def as_entry(row: Row[Any]) -> HistoryEntry:
    return HistoryEntry(row.at, row.what, row.path, row.detail or {}, row.actor)
