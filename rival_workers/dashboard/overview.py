"""What several routes and the live updates show of everything: the fleet, and how many runs there are."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from typing import Any

from rival_client.sql.reads import fleet_reads, queue_reads
from rival_client.sql.reads.capped_counts import Count
from rival_client.sql.reads.executors import ExecutorRecord, list_executors
from rival_client.sql.reads.run_counts import count_runs
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.values import fields, moment, moments
from rival_workers.dashboard.views import count_view

#: Attempts of an executor that an answer names.
_SHOWN = 20


def read_fleet(board: Board) -> dict[str, Any]:
    began, clock = time.perf_counter(), dt.datetime.now(dt.UTC)
    with board.database.snapshot() as connection:
        executors = list_executors(connection)
        latency = time.perf_counter() - began
        running = _by_executor(fleet_reads.running_attempts(connection))
        waiting, oldest = queue_reads.waiting_for_worker(connection)
        late = fleet_reads.overdue(connection)
        parked = fleet_reads.parked_runs(connection)
        taken_over = fleet_reads.takeovers(connection, clock - dt.timedelta(hours=1))
    return {
        "executors": [_executor(one, running.get(one.executor_id, [])) for one in executors],
        "queues": [_queue(board, waiting, oldest, clock) | {"workers": sum(one.is_alive for one in executors)}],
        "overdue": count_view(late),
        "parked": [fields(one, "workflow version why") | {"runs": count_view(one.runs)} for one in parked],
        "database": {"ms": round(latency * 1000, 1), "kind": "postgresql" if board.database.is_postgres else "sqlite"},
        "takeovers_1h": count_view(taken_over),
        "now": moment(clock),
    }


def _by_executor(running: Sequence[Any]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in running:
        about = {"run": one["run_id"], "workflow": one["workflow"], "step": one["path"]}
        found.setdefault(one["executor_id"], []).append({**about, "since": moment(one["started_at"])})
    return found


def _queue(board: Board, waiting: Count, oldest: dt.datetime | None, clock: dt.datetime) -> dict[str, Any]:
    age = None if oldest is None else max(0.0, (clock - oldest).total_seconds())
    return {"name": board.rival.settings.queue, "waiting": count_view(waiting), "oldest": age, "messages": None}


def _executor(one: ExecutorRecord, running: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "id": one.executor_id,
        **fields(one, "worker host pid problem queues slots workflows"),
        **moments(one, "started_at beat_at expires_at"),
        "state": "alive" if one.is_alive else "dead",
        "busy": len(running) if one.busy is None else one.busy,
        "running": running[:_SHOWN],
        "running_more": len(running) > _SHOWN,
    }


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
