"""Routes of the list of runs: search, pages, counts."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import replace
from typing import Any

from rival_client.model.checks import arguments
from rival_client.sql.reads import run_rows
from rival_client.sql.reads.run_counts import count_newer
from rival_client.sql.reads.run_cursor import Cursor
from rival_client.sql.reads.run_filter import RunFilter
from rival_client.sql.reads.run_rows import RunRow
from rival_client.sql.reads.run_search import WINDOW, window_start
from rival_workers.dashboard.api.filters import RunListQuery
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.overview import read_counts
from rival_workers.dashboard.route import Call, NoQuery, Route
from rival_workers.dashboard.row_views import views_of
from rival_workers.dashboard.values import moment
from rival_workers.dashboard.views import count_view

#: Seconds of one request for a search that has no index.
SEARCH_SECONDS = 2.0
#: A cursor with it begins behind every run of its moment.
_LOWEST = "\x01"


def list_runs(call: Call) -> dict[str, Any]:
    query: RunListQuery = call.query
    chosen = query.chosen()
    query.refuse_hidden(call.board, call.who)
    behind = Cursor.read(query.after) if query.after else None
    newer = None
    with call.board.database.snapshot() as connection:
        if query.q:
            return _search(call.board, connection, query.q.strip(), query.limit)
        first = run_rows.rows_by_id(connection, [query.first]) if query.first else []
        for run in first:
            behind = Cursor(run.created_at, run.id + _LOWEST)
            newer = count_view(count_newer(connection, chosen, run.created_at, run.id))
        found, following, searched_to = _searched(connection, chosen, behind, query.limit)
        items = views_of(call.board, connection, found)
    return _page(items, following, searched_to=moment(searched_to), newer=newer)


def _page(items: list[dict[str, Any]], following: str | None, **more: Any) -> dict[str, Any]:
    return {"items": items, "next": following, "searched_to": None, "newer": None, "open": None, **more}


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


def _searched(
    connection: Any, chosen: RunFilter, behind: Cursor | None, limit: int
) -> tuple[list[RunRow], str | None, dt.datetime | None]:
    """No index has it all: back in time window by window, until there are enough or the time is up."""
    began, found = time.monotonic(), list[RunRow]()
    while True:
        start = window_start(connection, chosen, behind, WINDOW)
        part = chosen if start is None else replace(chosen, since=start)
        rows, following = run_rows.list_rows(connection, part, behind=behind, limit=limit - len(found))
        found += rows
        if following is not None or start is None:
            return found, following, None
        behind = Cursor(start, _LOWEST)
        if len(found) >= limit:
            return found, str(behind), None
        if time.monotonic() - began > SEARCH_SECONDS:
            return found, str(behind), start


# -- counts -----------------------------------------------------------------------------------------------


def counts(call: Call) -> dict[str, Any]:
    return call.board.counts.get(lambda: read_counts(call.board))


ROUTES = (
    Route("GET", "/runs", "viewer", list_runs, "List runs, the newest first", query=RunListQuery, does="ls"),
    Route("GET", "/runs/counts", "viewer", counts, "Count open and failed runs", query=NoQuery),
)
