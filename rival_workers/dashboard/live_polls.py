"""The polls of the hub: each keeps its last position and returns what is new since then. They do not know viewers."""

from __future__ import annotations

import datetime as dt
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from urllib.parse import parse_qsl

from pydantic import ValidationError

from rival_client.errors import RivalError
from rival_client.model.run_entries import HistoryEntry
from rival_client.sql.reads import history_changes, logs, run_search, step_pages
from rival_client.sql.reads.run_rows import rows_by_id, versions_of
from rival_workers.dashboard.api.filters import RunQuery
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.entry_views import log_view
from rival_workers.dashboard.overview import read_counts, read_fleet
from rival_workers.dashboard.row_views import views_of
from rival_workers.dashboard.status_changes import change_rows
from rival_workers.dashboard.values import moment
from rival_workers.dashboard.veil import Veil

Topics = set[tuple[str, str]]
Found = Iterator[tuple[str, str, dict[str, Any]]]

#: Seconds within which a history entry can become visible after a younger one.
LATE = dt.timedelta(seconds=10)
#: Seconds between two rounds of the slower polls.
_EVERY = {"late": 2.0, "progress": 2.0, "counts": 5.0, "fleet": 2.0, "list": 1.0}
#: Rows and log lines of a round, steps with progress of a run, runs of a list.
_ROWS, _LOGS, _PROGRESS, _NEWEST = 1000, 1000, 200, 51


class Polls:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._due: dict[str, float] = {}
        self._floor = 0
        #: Run -> its history entries above the floor that viewers know.
        self._seen: dict[str, set[int]] = {}
        self._rows: dict[str, dict[str, Any]] = {}
        #: The last run whose row was read.
        self._last_row = ""
        self._logs: dict[str, int] = {}
        self._progress: dict[str, dict[str, Any]] = {}
        self._lists: dict[str, list[str]] = {}
        self._once: dict[str, Any] = {}
        #: Run -> its workflow and version, which say what of it is hidden.
        self._versions: dict[str, tuple[str, str]] = {}

    def round(self, topics: Topics) -> Found:
        named: Callable[[str], set[str]] = lambda kind: {one for its, one in topics if its == kind}  # noqa: E731
        with self._board.database.snapshot() as connection:
            self._read_versions(connection, named("run") | named("log"))
            yield from self._history(connection, named("run"))
            yield from self._changed_rows(connection, named("run") | named("row"))
            yield from self._new_logs(connection, named("log"))
            yield from self._new_progress(connection, named("run"))
            yield from self._new_lists(connection, named("list"))
        if ("counts", "") in topics and self._is_due("counts"):
            yield from self._if_new("counts", read_counts(self._board))
        if ("fleet", "") in topics and self._is_due("fleet"):
            yield from self._if_new("fleet", read_fleet(self._board))
        for bulk_id in named("bulk"):
            yield from self._new_bulk(bulk_id)

    def _is_due(self, what: str) -> bool:
        now = time.monotonic()
        if now < self._due.get(what, 0.0):
            return False
        self._due[what] = now + _EVERY[what]
        return True

    def _if_new(self, what: str, data: dict[str, Any]) -> Found:
        if self._once.get(what) != data:
            self._once[what] = data
            yield what, "", data

    def _read_versions(self, connection: Any, run_ids: set[str]) -> None:
        self._versions = {one: its for one, its in self._versions.items() if one in run_ids}
        fresh = run_ids - self._versions.keys()
        if fresh:
            self._versions |= versions_of(connection, sorted(fresh))

    def _veil(self, run_id: str) -> Veil:
        its = self._versions.get(run_id)
        return self._board.wide_veil() if its is None else self._board.veil_of(*its)

    # -- history ------------------------------------------------------------------------------------------

    def _history(self, connection: Any, run_ids: set[str]) -> Found:
        self._seen = {run_id: ids for run_id, ids in self._seen.items() if run_id in run_ids}
        if not run_ids:
            return
        looks_back = self._is_due("late") or not run_ids <= self._seen.keys()
        if looks_back:
            self._floor = history_changes.history_floor(connection, dt.datetime.now(dt.UTC) - LATE)
        since = {run_id: self._floor if looks_back else self._top(run_id) for run_id in run_ids}
        found: dict[str, list[HistoryEntry]] = {run_id: [] for run_id in run_ids}
        for run_id, entry in history_changes.entries_since(connection, since):
            found[run_id].append(entry)
        for run_id, entries in found.items():
            yield from self._fresh(run_id, entries, looks_back)

    def _top(self, run_id: str) -> int:
        return max(self._seen[run_id], default=self._floor)

    def _fresh(self, run_id: str, entries: list[HistoryEntry], looks_back: bool) -> Found:
        known = self._seen.get(run_id)
        ids = {entry.id for entry in entries}
        kept = {one for one in known or () if one > self._floor} if looks_back else known or set()
        self._seen[run_id] = kept | ids
        if known is None:
            # The first viewer of a run reads earlier entries with the run itself.
            return
        fresh = [entry for entry in entries if entry.id not in known]
        if len(entries) >= history_changes.OF_RUN:
            yield "reset", run_id, {"run": run_id, "why": "very much has changed"}
        elif fresh:
            changes = self._changes(fresh, self._veil(run_id))
            yield "steps", run_id, {"run": run_id, "changes": changes, "at": entries[-1].id}

    @staticmethod
    def _changes(entries: Sequence[HistoryEntry], veil: Veil) -> list[list[Any]]:
        return [row for entry in entries for row in change_rows(entry, veil.hidden)]

    # -- rows, logs, progress, lists ----------------------------------------------------------------------

    def _changed_rows(self, connection: Any, run_ids: set[str]) -> Found:
        self._rows = {run_id: view for run_id, view in self._rows.items() if run_id in run_ids}
        part = self._next_rows(sorted(run_ids))
        if not part:
            return
        views = {view["id"]: view for view in views_of(self._board, connection, rows_by_id(connection, part))}
        for run_id, view in views.items():
            if run_id in self._rows and self._rows[run_id] != view:
                yield "run", run_id, {"run": view}
        self._rows |= views

    def _next_rows(self, run_ids: list[str]) -> list[str]:
        """Of very many, each round reads those that follow the ones of the round before."""
        start = bisect_right(run_ids, self._last_row) if len(run_ids) > _ROWS else 0
        part = [*run_ids[start:], *run_ids[:start]][:_ROWS]
        self._last_row = part[-1] if part else ""
        return part

    def _new_logs(self, connection: Any, run_ids: set[str]) -> Found:
        fresh = [one for one in run_ids if one not in self._logs]
        self._logs = {run_id: last for run_id, last in self._logs.items() if run_id in run_ids}
        if fresh:
            self._logs |= logs.last_log_ids(connection, fresh)
        lines: dict[str, list[dict[str, Any]]] = {}
        for run_id, line in logs.logs_since(connection, self._logs, _LOGS):
            self._logs[run_id] = line.id
            lines.setdefault(run_id, []).append(log_view(line, self._veil(run_id)))
        for run_id, items in lines.items():
            yield "logs", run_id, {"run": run_id, "items": items}

    def _new_progress(self, connection: Any, run_ids: set[str]) -> Found:
        if not run_ids or not self._is_due("progress"):
            return
        found: dict[str, dict[str, Any]] = {run_id: {} for run_id in run_ids}
        for row in step_pages.progress_of(connection, sorted(run_ids), _PROGRESS):
            names = ("total", "opened", "remaining")
            found[row["run_id"]][row["path"]] = {
                **{name: row[name] for name in names},
                "progress": self._veil(row["run_id"]).hidden(row["progress"]),
                "heartbeat_at": moment(row["heartbeat_at"]),
            }
        for run_id, steps in found.items():
            if steps and self._progress.get(run_id) != steps:
                yield "progress", run_id, {"run": run_id, "steps": steps}
        self._progress = found

    def _new_lists(self, connection: Any, filters: set[str]) -> Found:
        if not filters or not self._is_due("list"):
            return
        for text in sorted(filters):
            try:
                chosen = RunQuery.model_validate(dict(parse_qsl(text))).chosen()
            except (ValidationError, RivalError):
                continue
            newest = run_search.newest_ids(connection, chosen, _NEWEST)
            if text in self._lists and self._lists[text] != newest:
                yield "list", text, {"list": text, "newest": newest}
            self._lists[text] = newest
        self._lists = {text: newest for text, newest in self._lists.items() if text in filters}

    def _new_bulk(self, bulk_id: str) -> Found:
        found = self._board.bulks.progress(bulk_id)
        if found is not None:
            yield from ((kind, bulk_id, data) for kind, _, data in self._if_new(f"bulk {bulk_id}", found))
