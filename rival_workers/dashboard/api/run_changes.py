"""The route of all status changes of a run, as columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rival_client.model.history_entries import FANNED_OUT, REOPENINGS
from rival_client.model.kinds import ITEM, STEP
from rival_client.model.run_entries import HistoryEntry
from rival_client.sql.reads.history_changes import read_changes
from rival_client.sql.reads.run_reads import read_run_head
from rival_workers.dashboard.route import Call, Route
from rival_workers.dashboard.status_changes import MOST, changed_statuses
from rival_workers.dashboard.values import milliseconds

#: Entries of steps that a timeline marks.
_MARKED = (*REOPENINGS, "taken_over", "handed_back", "skip", "set_result", "timed_out", "revoked", "lost")


def changes(call: Call) -> dict[str, Any]:
    run_id = call.names["run_id"]
    with call.board.database.snapshot() as connection:
        run = read_run_head(connection, run_id)
        entries = read_changes(connection, run_id, MOST + 1)
    return as_columns(entries[:MOST], milliseconds(run.created_at)) | {"more": len(entries) > MOST}


def as_columns(entries: Sequence[HistoryEntry], start: int) -> dict[str, Any]:
    """Paths and statuses by number: a change is four small numbers."""
    paths: dict[str, int] = {}
    statuses: dict[str, int] = {}
    kinds: dict[int, str] = {}
    rows, marks = [], []
    for entry in entries:
        after = milliseconds(entry.at) - start
        changed = changed_statuses(entry)
        for path, status in changed:
            where = paths.setdefault(path, len(paths))
            rows.append([entry.id, after, where, statuses.setdefault(status, len(statuses))])
            kinds.setdefault(where, _kind(entry))
        if entry.path is None or not changed or entry.what in _MARKED:
            where = -1 if entry.path is None else paths.setdefault(entry.path, len(paths))
            marks.append([entry.id, after, entry.what, where, entry.by])
    return {
        "start": start,
        "paths": list(paths),
        "kinds": [kinds.get(number, STEP) for number in range(len(paths))],
        "statuses": list(statuses),
        "rows": rows,
        "marks": marks,
        "end": max((after for _, after, *_ in rows), default=0),
        "at": entries[-1].id if entries else 0,
    }


def _kind(entry: HistoryEntry) -> str:
    return ITEM if entry.what == FANNED_OUT else str(entry.detail.get("kind", STEP))


ROUTES = (Route("GET", "/runs/{run_id}/changes", "viewer", changes, "Read all changes of statuses, in columns"),)
