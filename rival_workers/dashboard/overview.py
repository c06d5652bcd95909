"""Summaries that several routes and the live updates share: the fleet, and the counts of runs."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from typing import Any

from rival_client.model.starts.queues import DEFAULT_QUEUE, broker_queue
from rival_client.model.why.why_facts import QueueFacts
from rival_client.sql.reads import fleet_reads, queue_reads
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
        found = queue_reads.queue_facts(connection, [one for one in executors if one.is_alive])
        late = fleet_reads.overdue(connection)
        parked = fleet_reads.parked_runs(connection)
        taken_over = fleet_reads.takeovers(connection, clock - dt.timedelta(hours=1))
    queues = {DEFAULT_QUEUE: QueueFacts()} | found
    return {
        "executors": [_executor(one, running.get(one.executor_id, [])) for one in executors],
        "queues": [_queue(board, name, queues[name], clock) for name in sorted(queues, key=_default_first)],
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


def _default_first(queue: str) -> tuple[bool, str]:
    return queue != DEFAULT_QUEUE, queue


def _queue(board: Board, name: str, facts: QueueFacts, clock: dt.datetime) -> dict[str, Any]:
    return {
        "name": broker_queue(name, board.rival.settings.queue),
        "waiting": {"count": facts.waiting, "more": facts.more},
        "oldest": None if facts.oldest is None else max(0.0, (clock - facts.oldest).total_seconds()),
        **fields(facts, "workers slots busy"),
    }


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
