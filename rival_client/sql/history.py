"""The history of a run: every transition, in order, with its actor. Append-only; the transaction of a transition writes
its entry. `rival_client.model.rebuild` computes the state of the run from it.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Row,
    Select,
    Text,
    and_,
    case,
    cast,
    func,
    insert,
    literal,
    select,
)

from rival_client.db.log_tables import history
from rival_client.db.run_tables import steps
from rival_client.db.types import now
from rival_client.model.history_entries import COMPLETED, REOPENINGS, REQUESTED, RUN_ENTRIES, SKIPPED, STEP_ENTRIES
from rival_client.model.payload import Json, serialise
from rival_client.model.run_entries import HistoryEntry


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
    """What is None is left out; payloads in it are JSON text already. The names are those of keyword arguments."""
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


def whole_entries(connection: Connection) -> Select[Any]:
    """All entries with their values, also with results that are in the rows of their steps."""
    if connection.dialect.name != "postgresql":
        return select(*_ENTRY, history.c.run_id, history.c.detail)
    named = func.json_extract_path_text(history.c.detail, "result_token")
    path = func.coalesce(func.json_extract_path_text(history.c.detail, "result_of"), history.c.path)
    is_named = and_(
        history.c.what.in_((COMPLETED, SKIPPED)),
        steps.c.run_id == history.c.run_id,
        steps.c.path == path,
        steps.c.execution_token == cast(named, Integer),
    )
    columns = (*_ENTRY, history.c.run_id, history.c.detail, steps.c.result.label("named_result"))
    return select(*columns).select_from(history.outerjoin(steps, is_named))


def read_history(
    connection: Connection,
    run_id: str,
    *,
    after: int | None = None,
    limit: int | None = None,
    slim: bool = False,
) -> list[HistoryEntry]:
    """In their order. With `slim`, without values of users: a page of entries is small whatever they hold."""
    entries = select(*_ENTRY, _slim_detail(connection)) if slim else whole_entries(connection)
    statement = entries.where(history.c.run_id == run_id).order_by(history.c.id).limit(limit)
    if after is not None:
        statement = statement.where(history.c.id > after)
    return _entries(connection, statement, slim)


def read_newest(
    connection: Connection, run_id: str, *, before: int | None = None, limit: int, path: str | None = None
) -> list[HistoryEntry]:
    """The newest entries first, without values of users; `path`: those of one step."""
    wanted = [history.c.run_id == run_id]
    wanted += [history.c.id < before] if before is not None else []
    wanted += [history.c.path == path] if path is not None else []
    statement = select(*_ENTRY, _slim_detail(connection)).where(*wanted).order_by(history.c.id.desc()).limit(limit)
    return _entries(connection, statement, slim=True)


#: Entries that change several steps: their detail says which.
_OF_SEVERAL = ("cancelled", "cancelling", "expired", "fanned_out", *REOPENINGS)


def read_changes(connection: Connection, run_id: str, limit: int) -> list[HistoryEntry]:
    """What changed which step, for tens of thousands of entries at once: of most details only the kind of the step."""
    several = history.c.what.in_(_OF_SEVERAL)
    detail = case((several, _slim_detail(connection))).label("detail")
    kind = case((several, None), else_=history.c.detail["kind"].as_string()).label("kind")
    statement = select(*_ENTRY, detail, kind).where(history.c.run_id == run_id).order_by(history.c.id).limit(limit)
    return [_change(*row) for row in connection.execute(statement)]


def _change(
    entry_id: int, at: dt.datetime, what: str, path: str | None, by: str | None, detail: Any, kind: str | None
) -> HistoryEntry:
    small = without_values(detail) if detail else {"kind": kind} if kind is not None else {}
    return HistoryEntry(at, what, path, small, by, entry_id)


def _entries(connection: Connection, statement: Select[Any], slim: bool) -> list[HistoryEntry]:
    entries = [as_entry(row) for row in connection.execute(statement)]
    return [replace(entry, detail=without_values(entry.detail)) for entry in entries] if slim else entries


def read_entry(connection: Connection, run_id: str, entry_id: int) -> HistoryEntry | None:
    wanted = (history.c.run_id == run_id, history.c.id == entry_id)
    found = _entries(connection, whole_entries(connection).where(*wanted), slim=False)
    return found[0] if found else None


def as_entry(row: Row[Any]) -> HistoryEntry:
    detail = row.detail or {}
    if _NAMES.isdisjoint(detail):
        return HistoryEntry(row.at, row.what, row.path, detail, row.actor, row.id)
    if "result" not in detail and "named_result" in row._fields:
        detail = {"result": row.named_result, **detail}
    own = {name: value for name, value in detail.items() if name not in _NAMES}
    return HistoryEntry(row.at, row.what, row.path, own, row.actor, row.id)


_ENTRY = (history.c.id, history.c.at, history.c.what, history.c.path, history.c.actor)
#: What users have given or returned; everything else in a detail is Rival's own.
VALUES = ("result", "state", "input", "item", "items")
#: The name under which a slim detail has the number of the items that it leaves out.
ITEM_COUNT = "item_count"
_OWN = sorted({name for entry in (*RUN_ENTRIES, *STEP_ENTRIES) for name in entry.fields} - {*VALUES, "error"})
#: How an entry names the row that has its result.
_NAMES = frozenset({"result_token", "result_of"})
#: Characters of a result above which it is written once.
NAMED_ABOVE = 2000
#: Bytes of a detail above which the database takes it apart.
_LARGE = 2000


def without_values(detail: dict[str, Any]) -> dict[str, Any]:
    """A detail without values of users; of an error, type and message."""
    kept = {name: value for name, value in detail.items() if name not in VALUES}
    if isinstance(detail.get("items"), list):
        kept[ITEM_COUNT] = len(detail["items"])
    if isinstance(kept.get("error"), dict):
        kept["error"] = {name: kept["error"].get(name) for name in ("type", "message")}
    return kept


def entry_columns(connection: Connection) -> tuple[ColumnElement[Any], ...]:
    """What `as_entry` needs, with a small detail."""
    return (*_ENTRY, _slim_detail(connection))


def _slim_detail(connection: Connection) -> ColumnElement[Any]:
    """On Postgres, large details are taken apart there: they may have megabytes."""
    detail = history.c.detail
    if connection.dialect.name != "postgresql":
        return detail
    error, items = detail["error"], detail["items"]
    short = _object({"type": error["type"], "message": error["message"]})
    count = case((func.json_typeof(items) == "array", func.json_array_length(items)))
    parts = {name: detail[name] for name in _OWN} | {"error": case((error.is_not(None), short)), ITEM_COUNT: count}
    taken_apart = func.json_strip_nulls(_object(parts), type_=detail.type)
    return case((func.pg_column_size(detail) < _LARGE, detail), else_=taken_apart).label("detail")


def _object(parts: Mapping[str, Any]) -> ColumnElement[Any]:
    return func.json_build_object(*(one for name, value in parts.items() for one in (literal(name, Text), value)))
