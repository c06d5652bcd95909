"""The list of runs as a file: CSV for spreadsheets, or a JSON object per line. Read page by page while it is sent."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import AsyncIterator
from typing import Any, Literal

from pydantic import Field
from starlette.concurrency import run_in_threadpool

from rival_client.sql.reads import run_rows
from rival_client.sql.reads.run_counts import count_chosen
from rival_client.sql.reads.run_cursor import Cursor
from rival_client.sql.reads.run_filter import RunFilter
from rival_workers.dashboard.api.filters import RunQuery
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Answer, Call, Route
from rival_workers.dashboard.row_views import views_of

#: Runs of a file, and of one read.
MOST, _PAGE = 10_000, 200
COLUMNS = (
    *("run", "workflow", "version", "status", "created_at", "started_at", "completed_at", "seconds"),
    *("failed_step", "error_type", "error", "parent_run", "paused_at", "parked"),
)
#: A spreadsheet takes a cell that begins with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n")


class ExportQuery(RunQuery):
    format: Literal["csv", "jsonl"] = "csv"
    #: The start of a run id, instead of a filter: at most `_PAGE` runs.
    q: str | None = Field(default=None, max_length=2000)
    limit: int = Field(default=MOST, ge=1, le=MOST)


def export(call: Call) -> Answer:
    """Says in a header whether there are more runs than the file has: a file that ends is not one that is complete."""
    query: ExportQuery = call.query
    if query.reads_values:
        raise Refused(422, "InvalidArgument", "An export cannot search inputs and results: leave them out.")
    chosen = query.chosen()
    with call.board.database.snapshot() as connection:
        has_more = query.q is None and count_chosen(connection, chosen, query.limit).more
    name = f"runs-{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}.{query.format}"
    headers = {
        "content-disposition": f'attachment; filename="{name}"',
        "x-rival-more": "true" if has_more else "false",
    }
    media_type = "text/csv; charset=utf-8; header=present" if query.format == "csv" else "application/x-ndjson"
    return Answer(_parts(call, chosen, query), headers=headers, media_type=media_type)


async def _parts(call: Call, chosen: RunFilter, query: ExportQuery) -> AsyncIterator[bytes]:
    text = _csv if query.format == "csv" else _json_lines
    if query.format == "csv":
        yield _lines([COLUMNS])
    left, behind = query.limit, None
    while left > 0 and await run_in_threadpool(call.is_still_allowed):
        views, following = await run_in_threadpool(_page, call.board, chosen, query.q, behind, min(left, _PAGE))
        if views:
            yield text(views)
        if following is None:
            return
        left, behind = left - len(views), Cursor.read(following)


def _page(
    board: Board, chosen: RunFilter, start: str | None, behind: Cursor | None, limit: int
) -> tuple[list[dict[str, Any]], str | None]:
    with board.database.snapshot() as connection:
        if start is not None:
            return views_of(board, connection, run_rows.rows_beginning(connection, start.strip(), limit)), None
        found, following = run_rows.list_rows(connection, chosen, behind=behind, limit=limit)
        return views_of(board, connection, found), following


# -- formats ----------------------------------------------------------------------------------------------


def _json_lines(views: list[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(view, separators=(",", ":")) + "\n" for view in views).encode()


def _csv(views: list[dict[str, Any]]) -> bytes:
    return _lines([_cells(view) for view in views])


def _cells(view: dict[str, Any]) -> tuple[Any, ...]:
    error, parent = view["error"] or {}, view["parent"] or {}
    times = (view["created_at"], view["started_at"], view["completed_at"])
    return (
        *(view["id"], view["workflow"], view["version"], view["status"], *times, _seconds(*times[1:])),
        *(view["failed_step"], error.get("type"), error.get("message"), parent.get("run")),
        *(view["paused_at"], view["parked"]),
    )


def _seconds(start: str | None, end: str | None) -> str | None:
    if start is None or end is None:
        return None
    return f"{(dt.datetime.fromisoformat(end) - dt.datetime.fromisoformat(start)).total_seconds():.3f}"


def _lines(rows: list[tuple[Any, ...]]) -> bytes:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows([[harmless(cell) for cell in row] for row in rows])
    return out.getvalue().encode("utf-8", "backslashreplace")


def harmless(cell: Any) -> str:
    """Escapes text that a spreadsheet would compute as a formula, and replaces NUL, which is invalid in CSV."""
    text = ("" if cell is None else str(cell)).replace("\x00", "\ufffd")
    return f"'{text}" if text.lstrip(" ").startswith(_FORMULA) else text


ROUTES = (Route("GET", "/runs/export", "viewer", export, "Download the list of runs", query=ExportQuery, answers=None),)
