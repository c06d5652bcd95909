"""How a step ends, in portable SQL: its columns and history entries, the end of a step that waits for its fallback
function, and another attempt of such a step.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, select, update

from rival_client.db.guards import step_can
from rival_client.db.run_tables import steps
from rival_client.db.types import now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.history_entries import EXPIRED
from rival_client.model.payload import NULL, Json, serialise
from rival_client.model.policies.fallbacks import fell_back
from rival_client.model.timers import look_at
from rival_client.sql.history import HistoryWriter
from rival_workers.engine import effects as fx
from rival_workers.engine.decisions import End, FallBack
from rival_workers.engine.effects import OpenRow
from rival_workers.store.claim_records import Claim
from rival_workers.store.sql.composite_results import Outcome, failed_with
from rival_workers.store.sql.guards import next_look
from rival_workers.store.sql.locks import change_locked


def end_values(claim: Claim, end: End | FallBack) -> tuple[str, dict[str, Any]]:
    """The verb and the columns. A step that waits for its fallback has no due time: the end of the fallback ends it."""
    common = {"state": end.state, "error": end.error, "ring_at": None}
    if isinstance(end, FallBack):
        verb = _verb(claim, end, "fall_back", "time_out_fall_back")
        return verb, {**common, "fallback": end.fallback, "due_at": None}
    fallback = {} if end.fallback is None else {"fallback": end.fallback}
    verb = _verb(claim, end, "finish_step", "time_out_finish")
    return verb, {**common, "result": end.result, "completed_at": now(), **fallback}


def _verb(claim: Claim, end: End | FallBack, of_attempt: str, of_timeout: str) -> str:
    if claim.guard == "execution_token":
        return of_attempt
    return "expire_step" if end.outcome == EXPIRED else of_timeout


def write_end(writer: HistoryWriter, path: str, end: End | FallBack) -> None:
    """A failure that does not fail the step gets its own entry, followed by an entry for what the step does instead."""
    if end.status != statuses.FAILED and end.outcome not in (entries.COMPLETED, entries.FAILED):
        error = end.error if isinstance(end, FallBack) else end.attempt_error or end.error
        writer.add(end.outcome, path, error=error)
    if isinstance(end, FallBack):
        writer.add(entries.FELL_BACK, path, fallback=end.fallback, error=end.error, state=end.state)
        return
    if end.fallback is not None:
        writer.add(entries.FELL_BACK, path, fallback=end.fallback, error=end.attempt_error, state=end.state)
    what = end.outcome if end.status == statuses.FAILED else end.status
    writer.add(what, path, result=end.result, state=end.state, error=end.error, reused_from=end.reused_from)


def end_fallback(
    connection: Connection, run_id: str, effect: fx.EndFallback, was: Outcome, writer: HistoryWriter
) -> Outcome:
    """End a step whose fallback has ended, and return the outcome. A completed step has no error: its `fallback` column
    keeps it."""
    row = _locked_row(connection, run_id, effect.path)
    error, result = (None, was.result) if was.error is None else (row.error, None)
    token = {"execution_token": steps.c.execution_token + 1}
    ended = {"status": effect.status, "result": result, "error": error, "completed_at": now(), **token}
    fallen_back = update(steps).where(_waits(run_id, effect.path, "end_fallback"))
    change_locked(connection, fallen_back.values(ended), f"run {run_id!r}: step {effect.path!r}")
    writer.add(effect.status, effect.path, result=result, error=error, state=_as_json(row.state))
    failed = effect.status == statuses.FAILED
    return failed_with(error or {}, effect.path) if failed else Outcome(result or NULL, step=effect.path)


def retry_with(
    connection: Connection, run_id: str, effect: fx.RetryWith, writer: HistoryWriter, grace: float
) -> OpenRow:
    """Make the step due at once. Returns the row for its message."""
    path = effect.row.path
    row = _locked_row(connection, run_id, path)
    kept = fell_back("retry_with", row.error, effect.overrides)
    token = connection.scalar(
        update(steps)
        .where(_waits(run_id, path, "retry_with"))
        .values(
            status=statuses.WAITING_RETRY,
            fallback=kept,
            due_at=now(),
            execution_token=steps.c.execution_token + 1,
            **next_look(look_at(0.0, True, grace)),
        )
        .returning(steps.c.execution_token)
    )
    assert token is not None, f"run {run_id!r}: the fallback of {path!r} has ended, but the step does not wait for it"
    writer.add(entries.FELL_BACK, path, fallback=kept, error=row.error, state=_as_json(row.state))
    writer.add(entries.RETRIED, path, attempt=row.attempts, delay=0.0, error=row.error, state=_as_json(row.state))
    return OpenRow(path, effect.row.kind, token=token)


def _locked_row(connection: Connection, run_id: str, path: str) -> Any:
    wanted = select(steps.c.error, steps.c.state, steps.c.attempts)
    return connection.execute(wanted.where(steps.c.run_id == run_id, steps.c.path == path).with_for_update()).one()


def _as_json(value: Any) -> Json | None:
    return None if value is None else Json(serialise(value))


def _waits(run_id: str, path: str, verb: str) -> ColumnElement[bool]:
    return and_(steps.c.run_id == run_id, steps.c.path == path, step_can(verb))
