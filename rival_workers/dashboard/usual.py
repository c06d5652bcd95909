"""Statistics of a workflow's newest runs: how long its runs and steps usually take, and how often they fail."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rival_client.model.kinds import COMPOSITE_KINDS
from rival_client.model.statuses import COMPLETED, FAILED
from rival_client.sql.reads.workflow_reads import ended_runs, step_times
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.values import measured, moment
from rival_workers.engine.paths import place_of

RUNS = 200
#: How a flow numbers the calls of one step.
_REPEATED = re.compile(r"~\d+(?=/|$)")


def usual(board: Board, workflow: str) -> dict[str, Any]:
    """Computed once a minute for all viewers, as soon as a run has ended."""
    return board.stats.get(lambda: _computed(board, workflow), workflow, lambda found: found["runs"]["n"] > 0)


def usual_place(path: str) -> str:
    """All iterations of a composite, and all calls of a step by a flow, are one place."""
    return _REPEATED.sub("", place_of(path))


def usual_seconds(board: Board, connection: Any, workflow: str) -> float | None:
    """How long a run usually takes; None while no run has completed."""

    def compute() -> float | None:
        found: float | None = _runs(ended_runs(connection, workflow, RUNS))["p50"]
        return found

    return board.typical.get(compute, workflow)


def _computed(board: Board, workflow: str) -> dict[str, Any]:
    with board.database.snapshot() as connection:
        runs = ended_runs(connection, workflow, RUNS)
        rows = list(step_times(connection, [run["id"] for run in runs]))
    by_place: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_place.setdefault(usual_place(row["path"]), []).append(dict(row))
    about = _runs(runs) | {"since": moment(runs[-1]["created_at"]) if runs else None}
    steps = {place: _steps(found) for place, found in by_place.items()}
    return {"runs": about, "steps": steps, "computed_at": moment(dt.datetime.now(dt.UTC))}


def _runs(runs: Sequence[Any]) -> dict[str, Any]:
    times = [_seconds(run["started_at"], run["completed_at"]) for run in runs if run["status"] == COMPLETED]
    return _summary(times, runs)


def _steps(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    times = [_lasted(row) for row in rows if row["status"] == COMPLETED]
    return _summary(times, rows) | {"retried": _share(rows, lambda row: row["attempts"] > 1)}


def _lasted(row: Mapping[str, Any]) -> float | None:
    """No attempt starts a composite: its time counts from when it was opened."""
    began = row["created_at"] if row["kind"] in COMPOSITE_KINDS else row["started_at"]
    return measured(_seconds(began, row["completed_at"]))


def _summary(times: Iterable[float | None], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    known = sorted(time for time in times if time is not None)
    return {
        "n": len(rows),
        "p5": _quantile(known, 0.05),
        "p50": _quantile(known, 0.5),
        "p95": _quantile(known, 0.95),
        "failed": _share(rows, lambda row: row["status"] == FAILED),
    }


def _share(rows: Sequence[Mapping[str, Any]], is_one: Any) -> float:
    return round(sum(1 for row in rows if is_one(row)) / len(rows), 4) if rows else 0.0


def _quantile(times: Sequence[float], part: float) -> float | None:
    return round(times[min(len(times) - 1, int(part * len(times)))], 3) if times else None


def _seconds(began: dt.datetime | None, ended: dt.datetime | None) -> float | None:
    return None if began is None or ended is None else (ended - began).total_seconds()
