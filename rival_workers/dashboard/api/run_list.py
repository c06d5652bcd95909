"""Routes of the list of runs: search, pages, counts."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from rival_client.model import arguments
from rival_client.sql import run_rows
from rival_client.sql.run_counts import count_newer, count_runs
from rival_client.sql.run_rows import RunRow
from rival_client.sql.run_search import Cursor, RunFilter
from rival_workers.dashboard.api.filters import RunListQuery
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.route import Call, NoQuery, Route
from rival_workers.dashboard.usual import usual_seconds
from rival_workers.dashboard.values import moment
from rival_workers.dashboard.views import count_view, row_view

#: Seconds for which inputs and results are searched in one request, and how far each slice goes back.
SEARCH_SECONDS = 2.0
_SLICES = (3600.0, 6 * 3600.0, 86_400.0, 7 * 86_400.0)


def list_runs(call: Call) -> dict[str, Any]:
    query: RunListQuery = call.query
    chosen = query.chosen()
    behind = Cursor.read(query.after) if query.after else None
    with call.board.database.snapshot() as connection:
        if query.q:
            return _search(call.board, connection, query.q.strip(), query.limit)
        if query.reads_values:
            found, following, searched_to = _in_slices(connection, chosen, behind, query.limit)
        else:
            (found, following), searched_to = (
                run_rows.list_rows(connection, chosen, behind=behind, limit=query.limit),
                None,
            )
        newer = _newer(connection, chosen, query.count_newer_than)
        items = views_of(call.board, connection, found)
    return _page(items, following, searched_to=moment(searched_to), newer=newer)


def _page(items: list[dict[str, Any]], following: str | None, **more: Any) -> dict[str, Any]:
    return {"items": items, "next": following, "searched_to": None, "newer": None, "open": None, **more}


def views_of(board: Board, connection: Any, found: Sequence[RunRow]) -> list[dict[str, Any]]:
    """Rows with what the open ones stand at."""
    open_steps = run_rows.open_steps(connection, [row.id for row in found if row.is_open])
    usual = {name: usual_seconds(board, connection, name) for name in {row.workflow for row in found}}
    return [
        row_view(row, board.veil_of(row.workflow, row.version), open_steps.get(row.id, ()))
        | {"usual": usual[row.workflow]}
        for row in found
    ]


def _newer(connection: Any, chosen: RunFilter, run_id: str | None) -> dict[str, Any] | None:
    first = run_rows.rows_by_id(connection, [run_id]) if run_id else []
    if not first:
        return None
    return count_view(count_newer(connection, chosen, first[0].created_at, first[0].id))


# -- search -----------------------------------------------------------------------------------------------


def _search(board: Board, connection: Any, text: str, limit: int) -> dict[str, Any]:
    """By the start of a run id; a Celery task id opens its attempt."""
    arguments.text("q", text)
    attempt = _attempt(connection, text)
    found = run_rows.rows_by_id(connection, [attempt["run"]]) if attempt else []
    found = found or run_rows.rows_beginning(connection, text, limit)
    return _page(views_of(board, connection, found), None, open=attempt)


def _attempt(connection: Any, text: str) -> dict[str, Any] | None:
    """`run:path:attempt`. Run ids may have colons, so each way to split it is tried."""
    ends = [at for at, sign in enumerate(text) if sign == ":"]
    parts = text.rpartition(":")
    number = parts[2].partition("+")[0]
    if len(ends) < 2 or not (number.isascii() and number.isdigit() and len(number) < 10):
        return None
    splits = {text[:end]: text[end + 1 : ends[-1]] for end in ends[:-1][:20]}
    known = {row.id for row in run_rows.rows_by_id(connection, list(splits))}
    return next(({"run": one, "step": splits[one], "attempt": int(number)} for one in splits if one in known), None)


def _in_slices(
    connection: Any, chosen: RunFilter, behind: Cursor | None, limit: int
) -> tuple[list[RunRow], str | None, dt.datetime | None]:
    """Inputs and results have no index: back in time slice by slice, until there are enough or the time is up."""
    began, found, size = time.monotonic(), list[RunRow](), 0
    end = behind.created_at if behind else dt.datetime.now(dt.UTC) + dt.timedelta(seconds=60)
    oldest = run_rows.oldest_created(connection)
    while oldest is not None and end > oldest:
        start = end - dt.timedelta(seconds=_SLICES[min(size, len(_SLICES) - 1)])
        part = replace(chosen, since=_latest(chosen.since, start), until=_earliest(chosen.until, end))
        rows, following = run_rows.list_rows(connection, part, behind=behind, limit=limit - len(found))
        found += rows
        if following is not None or len(found) >= limit:
            return found, following or str(Cursor(found[-1].created_at, found[-1].id)), None
        end, size = start, size + 1
        if chosen.since is not None and end <= chosen.since:
            break
        if time.monotonic() - began > SEARCH_SECONDS:
            return found, str(Cursor(end, "")), end
    return found, None, None


def _latest(given: dt.datetime | None, other: dt.datetime) -> dt.datetime:
    return other if given is None else max(given, other)


def _earliest(given: dt.datetime | None, other: dt.datetime) -> dt.datetime:
    return other if given is None else min(given, other)


# -- counts -----------------------------------------------------------------------------------------------


def counts(call: Call) -> dict[str, Any]:
    return call.board.counts.get(lambda: read_counts(call.board))


def read_counts(board: Board) -> dict[str, Any]:
    with board.database.snapshot() as connection:
        found = count_runs(connection, dt.datetime.now(dt.UTC) - dt.timedelta(days=1))
    return {
        "open": count_view(found.open),
        **{status: count_view(count) for status, count in found.by_status.items()},
        "paused": count_view(found.paused),
        "failed_24h": count_view(found.failed),
        "all": {"count": found.all.count, "estimate": found.all.more},
    }


ROUTES = (
    Route("GET", "/runs", "viewer", list_runs, "List runs, the newest first", query=RunListQuery, does="ls"),
    Route("GET", "/runs/counts", "viewer", counts, "Count open and failed runs", query=NoQuery),
)
