"""The facts that `rival_client.model.why.explain` judges, read in one snapshot. Each read is bounded."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select

from rival_client.db.failure_tables import breakers
from rival_client.db.run_tables import attempts, runs
from rival_client.db.types import now
from rival_client.model.history_entries import CANCELLED, PAUSED, POSTPONED
from rival_client.model.kinds import CHILD, CHILD_RESULT
from rival_client.model.records import Run
from rival_client.model.statuses import RUN_ACTIVE, WAITING_RETRY
from rival_client.model.why.explain import explain
from rival_client.model.why.why_facts import BreakerFacts, OpenStepFacts, RunFacts
from rival_client.sql.reads.executors import ExecutorRecord, list_executors
from rival_client.sql.reads.history_reads import read_newest
from rival_client.sql.reads.idempotency_reads import waited_for
from rival_client.sql.reads.limit_reads import limits_of
from rival_client.sql.reads.near_misses import facts_of_waits
from rival_client.sql.reads.open_step_rows import OPEN_STEPS, OpenStep, open_steps_closely
from rival_client.sql.reads.queue_reads import queue_facts, queues_of
from rival_client.sql.reads.run_reads import read_run_head
from rival_client.sql.reads.workflow_reads import facts_of_attempts, not_reached

#: Waits for which kept events are compared.
_WAITS = 5
_OF_RUN = ("run_id", "workflow", "version", "status", "created_at", "completed_at", "paused_at", "parked")
#: Names of nodes that a run has not reached.
_NAMED = 5
#: Child runs, one in another, that are explained.
_CHILDREN = 3
#: The newest entries of a history, among which the one of a pause is.
_ENTRIES = 50
_COLUMNS = tuple(runs.c[name] for name in ("due_at", "ring_at", "queue", "deadline_at", "gathered"))
#: Facts of a step that are columns of its row.
_SAME = (
    *("path", "kind", "status", "attempts", "created_at", "started_at", "due_at", "timeout_at", "heartbeat_at"),
    *("ring_at", "parked", "total", "opened", "remaining", "topic", "key", "queue", "start_by", "deadline_at"),
)


def read_facts(connection: Connection, run_id: str, children: int = _CHILDREN) -> RunFacts:
    run = read_run_head(connection, run_id)
    clock = connection.scalar(select(now())) or dt.datetime.now(dt.UTC)
    common = {name: getattr(run, name) for name in _OF_RUN} | {"now": clock}
    return _ended(connection, run, common) if run.is_terminal else _open(connection, run, common, children)


def _ended(connection: Connection, run: Run, common: dict[str, Any]) -> RunFacts:
    return RunFacts(
        **common,
        **({} if run.failed_step is None else _failure(connection, run, run.failed_step)),
        error=_text(run.error),
        # Workers may have ended it after an operator's cancel: then its error has the operator.
        ended_by=(run.error or {}).get("by") or _ended_by(connection, run.run_id),
    )


def _open(connection: Connection, run: Run, common: dict[str, Any], children: int) -> RunFacts:
    run_id = run.run_id
    found = open_steps_closely(connection, run_id)
    executors = {one.executor_id: one for one in list_executors(connection)}
    limits, keys = limits_of(connection, run_id), waited_for(connection, run_id, OPEN_STEPS)
    more = _more_facts(connection, run, found, children)
    own = connection.execute(select(*_COLUMNS).where(runs.c.id == run_id)).one()
    return RunFacts(
        **common,
        **own._mapping,
        **_fleet(connection, [one for one in executors.values() if one.is_alive], run),
        paused_by=None if run.paused_at is None else _paused_by(connection, run_id),
        limit=limits.get(""),
        steps=[
            replace(
                _facts(one, executors),
                limit=limits.get(one.path),
                idempotency_key=keys.get(one.path),
                **more.get(one.path, {}),
            )
            for one in found
        ],
        more=len(found) >= OPEN_STEPS,
    )


def _fleet(connection: Connection, alive: Sequence[ExecutorRecord], run: Run) -> dict[str, Any]:
    """What waits, and what live executors serve, have and run."""
    served = {one.executor_id: queues_of(one) for one in alive}
    has_it = [served[one.executor_id] for one in alive if run.version in (one.workflows or {}).get(run.workflow, ())]
    is_reported = all(one.workflows is not None for one in alive)
    versions: dict[str, set[str]] = {}
    for one in alive:
        for version in (one.workflows or {}).get(run.workflow, ()):
            versions.setdefault(version, set()).add(one.worker)
    return {
        "live_executors": len(alive),
        "served": frozenset[str]().union(*served.values()),
        "able": frozenset[str]().union(*has_it) if is_reported else None,
        "versions": {version: sorted(versions[version]) for version in sorted(versions)},
        "queues": queue_facts(connection, alive),
    }


def _more_facts(connection: Connection, run: Run, found: list[OpenStep], children: int) -> dict[str, dict[str, Any]]:
    """Path -> facts that are not in the row of the step."""
    more: dict[str, dict[str, Any]] = {one.path: {} for one in found}
    for facts in (facts_of_waits(connection, run.run_id, [*more]), facts_of_attempts(connection, run, found)):
        for path, its in facts.items():
            more[path] |= its
    for one in [one for one in found if one.status == WAITING_RETRY][:_WAITS]:
        more[one.path] |= _before_retry(connection, run.run_id, one.path)
    children_of = {one.path: child for one in found if (child := _child(one)) is not None}
    statuses = _statuses(connection, [*children_of.values()])
    for path, child in children_of.items():
        more[path] |= {"child": child, "child_status": statuses.get(child)}
    for path, child in [*children_of.items()][:1] if children else []:
        if statuses.get(child) in RUN_ACTIVE:
            more[path] |= {"child_why": explain(read_facts(connection, child, children - 1)).sentence}
    return more


def _before_retry(connection: Connection, run_id: str, path: str) -> dict[str, Any]:
    """When its last attempt failed, or the circuit breaker because of which there was none."""
    last = next(iter(read_newest(connection, run_id, limit=1, path=path)), None)
    if last is None or last.what != POSTPONED:
        return {} if last is None else {"failed_at": last.at}
    name = str(last.detail.get("breaker"))
    columns = (breakers.c.state, breakers.c.until, breakers.c.changed_by)
    row = connection.execute(select(*columns).where(breakers.c.name == name)).first()
    return {"breaker": BreakerFacts(name, last.at, *(tuple(row) if row is not None else ()))}


def _paused_by(connection: Connection, run_id: str) -> str | None:
    newest = read_newest(connection, run_id, limit=_ENTRIES)
    return next((entry.by for entry in newest if entry.what == PAUSED), None)


def _failure(connection: Connection, run: Run, path: str) -> dict[str, Any]:
    its = select(attempts.c.attempt, attempts.c.error).where(attempts.c.run_id == run.run_id, attempts.c.path == path)
    last = connection.execute(its.order_by(attempts.c.token.desc()).limit(1)).first()
    number = 0 if last is None else int(last.attempt)
    first = connection.execute(its.order_by(attempts.c.token).limit(1)).first() if number > 1 else None
    behind = not_reached(connection, run, path)
    return {
        "failed_step": path,
        "attempts": number,
        "first_error": None if first is None else _text(first.error),
        "not_reached": behind[:_NAMED],
        "not_reached_count": len(behind),
    }


def _ended_by(connection: Connection, run_id: str) -> str | None:
    last = read_newest(connection, run_id, limit=1)
    return last[0].by if last and last[0].what == CANCELLED else None


def _statuses(connection: Connection, run_ids: list[str]) -> dict[str, str]:
    if not run_ids:
        return {}
    found = connection.execute(select(runs.c.id, runs.c.status).where(runs.c.id.in_(run_ids)))
    return {row.id: row.status for row in found}


def _facts(one: OpenStep, executors: Mapping[str, ExecutorRecord]) -> OpenStepFacts:
    executor = executors.get(one.executor_id or "")
    return OpenStepFacts(
        **{name: getattr(one, name) for name in _SAME},
        error=_text(_loaded(one.error)),
        executor=one.executor_id,
        executor_alive=None if one.executor_id is None else executor is not None and executor.is_alive,
        worker=None if executor is None else executor.worker,
        lease_until=None if executor is None else executor.expires_at,
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
