"""The columns of history entries, with or without values of users, and the conversion of a row to an entry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Text, case, func, literal

from rival_client.db.log_tables import history
from rival_client.model.history_entries import RUN_ENTRIES, STEP_ENTRIES
from rival_client.model.run_entries import HistoryEntry

ENTRY = (history.c.id, history.c.at, history.c.what, history.c.path, history.c.actor)
#: What users have given or returned; everything else in a detail is Rival's own.
VALUES = ("result", "state", "input", "item", "items")
#: The name under which a slim detail has the number of the items that it leaves out.
ITEM_COUNT = "item_count"
_OWN = sorted({name for entry in (*RUN_ENTRIES, *STEP_ENTRIES) for name in entry.fields} - {*VALUES, "error"})
#: How an entry names the row that has its result.
_NAMES = frozenset({"result_token", "result_of"})
#: Bytes of a detail above which the database takes it apart.
_LARGE = 2000


def as_entry(row: Row[Any]) -> HistoryEntry:
    detail = row.detail or {}
    if _NAMES.isdisjoint(detail):
        return HistoryEntry(row.at, row.what, row.path, detail, row.actor, row.id)
    if "result" not in detail and "named_result" in row._fields:
        detail = {"result": row.named_result, **detail}
    own = {name: value for name, value in detail.items() if name not in _NAMES}
    return HistoryEntry(row.at, row.what, row.path, own, row.actor, row.id)


def without_values(detail: dict[str, Any]) -> dict[str, Any]:
    """A detail without values of users; of an error, type and message."""
    kept = {name: value for name, value in detail.items() if name not in VALUES}
    if isinstance(detail.get("items"), list):
        kept[ITEM_COUNT] = len(detail["items"])
    if isinstance(kept.get("error"), dict):
        kept["error"] = {name: kept["error"].get(name) for name in ("type", "message")}
    return kept


def entry_columns(connection: Connection) -> tuple[ColumnElement[Any], ...]:
    """The columns that `as_entry` needs, with a small detail."""
    return (*ENTRY, slim_detail(connection))


def slim_detail(connection: Connection) -> ColumnElement[Any]:
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
