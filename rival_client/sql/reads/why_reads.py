"""The facts that `rival_client.model.why.explain` judges, read in one snapshot. Each read is bounded."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from rival_client.db.run_tables import attempts, runs
from rival_client.db.types import now
from rival_client.model.history_entries import CANCELLED, POSTPONED
from rival_client.model.kinds import CHILD, CHILD_RESULT
from rival_client.model.records import Run
from rival_client.model.starts.queues import DEFAULT_QUEUE
from rival_client.model.statuses import WAITING_RETRY
from rival_client.model.why.why_facts import OpenStepFacts, RunFacts
from rival_client.sql.reads.executors import ExecutorRecord, list_executors
from rival_client.sql.reads.history_reads import read_newest
from rival_client.sql.reads.idempotency_reads import waited_for
from rival_client.sql.reads.limit_reads import limits_of
from rival_client.sql.reads.near_misses import NearMiss, kept_events, nearest
from rival_client.sql.reads.open_step_rows import OPEN_STEPS, OpenStep, open_steps
from rival_client.sql.reads.queue_reads import waiting_for_worker
from rival_client.sql.reads.run_reads import read_run_head
from rival_client.sql.reads.waits import waits_of

#: Waits for which kept events are compared.
_WAITS = 5
_OF_RUN = ("run_id", "workflow", "version", "status", "created_at", "completed_at")
#: Facts of a step that are columns of its row.
_SAME = (
    *("path", "kind", "status", "attempts", "created_at", "started_at", "due_at", "timeout_at", "heartbeat_at"),
    *("ring_at", "parked", "total", "opened", "remaining", "topic", "key", "queue"),
)


def read_facts(connection: Connection, run_id: str) -> RunFacts:
    run = read_run_head(connection, run_id)
    clock = connection.scalar(select(now())) or dt.datetime.now(dt.UTC)
    common = {name: getattr(run, name) for name in _OF_RUN} | {"now": clock}
    return _ended(connection, run, common) if run.is_terminal else _open(connection, run, common)


def _ended(connection: Connection, run: Run, common: dict[str, Any]) -> RunFacts:
    return RunFacts(
        **common,
        failed_step=run.failed_step,
        error=_text(run.error),
        attempts=0 if run.failed_step is None else _attempts(connection, run.run_id, run.failed_step),
        # Workers may have ended it after an operator's cancel: then its error has the operator.
        ended_by=(run.error or {}).get("by") or _ended_by(connection, run.run_id),
    )


def _open(connection: Connection, run: Run, common: dict[str, Any]) -> RunFacts:
    run_id = run.run_id
    found = open_steps(connection, [run_id]).get(run_id, [])
    executors = {one.executor_id: one for one in list_executors(connection)}
    near, limits = _near(connection, run_id, found), limits_of(connection, run_id)
    breakers, keys = _breakers(connection, run_id, found), waited_for(connection, run_id, OPEN_STEPS)
    children = _statuses(connection, [child for one in found if (child := _child(one)) is not None])
    own = connection.execute(select(runs.c.due_at, runs.c.ring_at, runs.c.queue).where(runs.c.id == run_id)).one()
    alive = [one for one in executors.values() if one.is_alive]
    return RunFacts(
        **common,
        **own._mapping,
        paused_at=run.paused_at,
        parked=run.parked,
        limit=limits.get(""),
        live_executors=len(alive),
        # One that has not said what it serves serves the fleet's own.
        served=frozenset(queue for one in alive for queue in one.queues or (DEFAULT_QUEUE,)),
        waiting=waiting_for_worker(connection)[0].count,
        steps=[
            replace(
                _facts(one, executors, near, children),
                limit=limits.get(one.path),
                breaker=breakers.get(one.path),
                idempotency_key=keys.get(one.path),
            )
            for one in found
        ],
        more=len(found) >= OPEN_STEPS,
    )


def _attempts(connection: Connection, run_id: str, path: str) -> int:
    wanted = (attempts.c.run_id == run_id, attempts.c.path == path)
    found = connection.scalar(select(attempts.c.attempt).where(*wanted).order_by(attempts.c.token.desc()).limit(1))
    return int(found or 0)


def _ended_by(connection: Connection, run_id: str) -> str | None:
    last = read_newest(connection, run_id, limit=1)
    return last[0].by if last and last[0].what == CANCELLED else None


def _near(connection: Connection, run_id: str, found: list[OpenStep]) -> dict[str, NearMiss]:
    waiting = {path: wait for path, wait in waits_of(connection, run_id).items() if any(o.path == path for o in found)}
    near: dict[str, NearMiss] = {}
    for path, wait in list(waiting.items())[:_WAITS]:
        miss = nearest(wait, kept_events(connection, wait.topic))
        if miss is not None and miss.differs:
            near[path] = miss
    return near


def _breakers(connection: Connection, run_id: str, found: list[OpenStep]) -> dict[str, str]:
    """Path -> the circuit breaker because of which a step was not called, as its last entry says."""
    postponed: dict[str, str] = {}
    for one in [one for one in found if one.status == WAITING_RETRY][:_WAITS]:
        last = read_newest(connection, run_id, limit=1, path=one.path)
        if last and last[0].what == POSTPONED:
            postponed[one.path] = str(last[0].detail.get("breaker"))
    return postponed


def _statuses(connection: Connection, run_ids: list[str]) -> dict[str, str]:
    if not run_ids:
        return {}
    found = connection.execute(select(runs.c.id, runs.c.status).where(runs.c.id.in_(run_ids)))
    return {row.id: row.status for row in found}


def _facts(
    one: OpenStep,
    executors: Mapping[str, ExecutorRecord],
    near: Mapping[str, NearMiss],
    children: Mapping[str, str],
) -> OpenStepFacts:
    executor, child, miss = executors.get(one.executor_id or ""), _child(one), near.get(one.path)
    is_alive = None if one.executor_id is None else executor is not None and executor.is_alive
    return OpenStepFacts(
        **{name: getattr(one, name) for name in _SAME},
        error=_text(_loaded(one.error)),
        executor=one.executor_id,
        executor_alive=is_alive,
        near_event=miss.event_id if miss else None,
        near_differs=miss.differs if miss else (),
        child=child,
        child_status=children.get(child or ""),
    )


def _child(one: OpenStep) -> str | None:
    found = _loaded(one.child) if one.kind in (CHILD, CHILD_RESULT) else None
    return found if isinstance(found, str) else None


def _loaded(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except ValueError:
        return None


def _text(error: Any) -> str | None:
    if not isinstance(error, Mapping):
        return None
    return f"{error.get('type', 'Error')}: {error.get('message', '')}"[:500]
