"""Reads changes of runs from the history: all changes of one run, and new entries for a program that shows runs live.

History entries do not become visible in the order of their ids, since transactions can commit in another order. So each
poll begins at a floor, the newest entry of ten seconds ago, and the program ignores entries that it has already.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from sqlalchemy import BigInteger, Connection, Text, and_, case, func, or_, select, true, values
from sqlalchemy import column as plain_column

from rival_client.db.log_tables import history
from rival_client.model.history_entries import REOPENINGS
from rival_client.model.run_entries import HistoryEntry
from rival_client.sql.reads.history_columns import ENTRY, as_entry, entry_columns, slim_detail, without_values

#: Entries that change several steps: their detail says which.
_OF_SEVERAL = ("cancelled", "cancelling", "expired", "fanned_out", *REOPENINGS)
#: Entries that are looked at for the floor, and of one run at once.
_NEWEST, OF_RUN = 2000, 2000


def read_changes(connection: Connection, run_id: str, limit: int) -> list[HistoryEntry]:
    """What changed which step, for tens of thousands of entries at once: of most details only the kind of the step."""
    several = history.c.what.in_(_OF_SEVERAL)
    detail = case((several, slim_detail(connection))).label("detail")
    kind = case((several, None), else_=history.c.detail["kind"].as_string()).label("kind")
    statement = select(*ENTRY, detail, kind).where(history.c.run_id == run_id).order_by(history.c.id).limit(limit)
    return [_change(*row) for row in connection.execute(statement)]


def _change(
    entry_id: int, at: dt.datetime, what: str, path: str | None, by: str | None, detail: Any, kind: str | None
) -> HistoryEntry:
    small = without_values(detail) if detail else {"kind": kind} if kind is not None else {}
    return HistoryEntry(at, what, path, small, by, entry_id)


def history_floor(connection: Connection, before: dt.datetime) -> int:
    """The newest entry of all histories that is older than `before`; of very many, one that is a little younger."""
    newest = select(history.c.id, history.c.at).order_by(history.c.id.desc()).limit(_NEWEST).subquery()
    old = func.max(newest.c.id).filter(newest.c.at < before)
    found, lowest = connection.execute(select(old, func.min(newest.c.id)).select_from(newest)).one()
    return int(found if found is not None else (lowest or 1) - 1)


def entries_since(connection: Connection, since: Mapping[str, int]) -> list[tuple[str, HistoryEntry]]:
    """(run, entry) of the entries of each run above its id, without values of users."""
    if not since:
        return []
    if connection.dialect.name == "postgresql":
        wanted = values(plain_column("id", Text), plain_column("since", BigInteger), name="wanted")
        wanted = wanted.data([(run_id, int(floor)) for run_id, floor in since.items()])
        of_run = and_(history.c.run_id == wanted.c.id, history.c.id > wanted.c.since)
        each = select(history.c.run_id, *entry_columns(connection)).where(of_run).correlate(wanted)
        part = each.order_by(history.c.id).limit(OF_RUN).lateral()
        statement = select(part).select_from(wanted.join(part, true())).order_by(part.c.id)
    else:
        each = select(history.c.run_id, *entry_columns(connection)).order_by(history.c.id)
        statement = each.where(or_(*(_above(run_id, floor) for run_id, floor in since.items())))
    return [(row.run_id, _slim(row)) for row in connection.execute(statement)]


def _above(run_id: str, floor: int) -> Any:
    return and_(history.c.run_id == run_id, history.c.id > floor)


def _slim(row: Any) -> HistoryEntry:
    entry = as_entry(row)
    return HistoryEntry(entry.at, entry.what, entry.path, without_values(entry.detail), entry.by, entry.id)
