"""Writes the history of a run: every transition, in order, with its actor. Append-only; the transaction of a transition
writes its entry. `rival_client.model.rebuild` computes the state of the run from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, insert

from rival_client.db.log_tables import history
from rival_client.db.types import now
from rival_client.model.history_entries import REQUESTED
from rival_client.model.payload import Json, serialise

#: Characters of a result above which it is written once.
NAMED_ABOVE = 2000


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


def record_requests(connection: Connection, run_ids: Iterable[str], by: str) -> None:
    """Say who has asked for runs that this transaction inserts."""
    entries = [{"run_id": one, "what": REQUESTED, "detail": as_json({}), "actor": by} for one in run_ids]
    if entries:
        connection.execute(insert(history).values(at=now()), entries)


def as_json(detail: Mapping[str, Any]) -> Json:
    """Leaves out None; payloads in it are JSON text already. The names are those of keyword arguments."""
    pairs = (f'"{name}":{serialise(value)}' for name, value in detail.items() if value is not None)
    return Json("{" + ",".join(pairs) + "}")


def result_details(path: str, token: int, result: Json | None, state: Json | None) -> tuple[Json, Json]:
    """The details of the entry of a step that ends with a result, and of that of the item or run that ends with it.

    A large result is written once: the entries name the row of the step by its path and by the token that it has now.
    On Postgres, triggers put the result into them before that row changes or goes (migration 0026).
    """
    if result is None or len(result) <= NAMED_ABOVE:
        return as_json({"result": result, "state": state}), as_json({"result": result})
    return as_json({"result_token": token, "state": state}), as_json({"result_of": path, "result_token": token})
