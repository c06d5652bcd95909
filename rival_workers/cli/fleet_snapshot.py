"""The fleet and its runs at one moment: everything that `rival top` shows, read at once."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Any

from rival_client.db.read_only import Cost, ReadOnlyDatabase, counted
from rival_client.model.breakers import BreakerRecord
from rival_client.sql.breakers import list_breakers
from rival_client.sql.reads import fleet_reads, queue_reads
from rival_client.sql.reads.capped_counts import Count
from rival_client.sql.reads.executors import ExecutorRecord, list_executors
from rival_client.sql.reads.fleet_reads import Parked
from rival_client.sql.reads.queue_reads import LimitQueue, QueueBacklog
from rival_client.sql.reads.run_counts import count_open

#: Running steps that are shown.
_SLOWEST = 20


@dataclass(frozen=True)
class Overview:
    """The fleet at one moment."""

    at: dt.datetime
    runs: dict[str, Count]
    executors: list[ExecutorRecord]
    queues: list[QueueBacklog]
    slowest: list[dict[str, Any]]
    limits: list[LimitQueue]
    breakers: list[BreakerRecord]
    parked: list[Parked]
    overdue: Count
    cost: Cost


def read_overview(database: ReadOnlyDatabase) -> Overview:
    with counted() as cost, database.snapshot() as connection:
        executors = list_executors(connection)
        workers = {one.executor_id: one.worker for one in executors}
        running = fleet_reads.running_attempts(connection, of_oldest=True)[:_SLOWEST]
        return Overview(
            at=dt.datetime.now(dt.UTC),
            runs=count_open(connection),
            executors=executors,
            queues=queue_reads.waiting_by_queue(connection),
            slowest=[{**one, "worker": workers.get(one["executor_id"])} for one in running],
            limits=queue_reads.waiting_at_limits(connection),
            breakers=[one for one in list_breakers(connection) if one.state != "closed"],
            parked=fleet_reads.parked_runs(connection),
            overdue=fleet_reads.overdue(connection),
            cost=cost,
        )


def age_of(found: Overview, attempt: dict[str, Any]) -> float:
    started: dt.datetime = attempt["started_at"]
    return max(0.0, (found.at - started).total_seconds())
