"""The step that an operator settles (skip, set_result): which one it may be, and its row."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, select, update

from rival_client.db.run_tables import steps
from rival_client.db.types import now
from rival_client.errors import NotPossible
from rival_client.model.kinds import FLOW, SETTLEABLE
from rival_client.model.transitions import step_sources
from rival_workers.engine.decisions import End
from rival_workers.engine.rewind_records import Row
from rival_workers.store.claim_records import Claim
from rival_workers.store.sql import refusals
from rival_workers.store.sql.guards import guard
from rival_workers.store.sql.locks import change_locked
from rival_workers.store.sql.reopened_runs import rows_of


def open_step(connection: Connection, run_id: str, path: str, verb: str) -> Any:
    """The row of a step that an operator can settle. NotPossible if there is none.

    Locked: a claim, a retry or a take-over changes one row without the lock of the run."""
    columns = (steps.c.kind, steps.c.status, steps.c.execution_token, steps.c.slots)
    wanted = select(*columns).where(steps.c.run_id == run_id, steps.c.path == path)
    step = connection.execute(wanted.with_for_update()).first()
    if step is None or step.kind not in SETTLEABLE or step.status not in step_sources("settle_step"):
        raise NotPossible(verb, run_id, _no_open_step(verb, path, step, rows_of(connection, run_id)))
    if flow := _flow_above(connection, run_id, path):
        raise NotPossible(verb, run_id, refusals.checkpoint(verb, path, flow))
    return step


def settle_row(connection: Connection, claim: Claim, end: End) -> None:
    ended = {"status": end.status, "result": end.result, "error": None, "completed_at": now()}
    idle = {"ring_at": None, "timeout_at": None, "slots": None}
    tokens = {name: steps.c[name] + 1 for name in ("execution_token", "timeout_token")}
    settled = update(steps).where(guard(claim, "settle_step")).values(**ended, **idle, **tokens)
    change_locked(connection, settled, f"run {claim.run_id!r}: step {claim.path!r}")


def _no_open_step(verb: str, path: str, step: Any, rows: list[Row]) -> str:
    flows = {f"{row.path}/" for row in rows if row.kind == FLOW}
    can_end = (row.path for row in rows if row.kind in SETTLEABLE and row.status in step_sources("settle_step"))
    known = [one for one in can_end if not one.startswith(tuple(flows))]
    if step is None:
        return refusals.unknown_step(path, known)
    if step.kind not in SETTLEABLE:
        return refusals.composite(verb, path, step.kind, known)
    return refusals.not_open(path, step.status, known)


def _flow_above(connection: Connection, run_id: str, path: str) -> str | None:
    """The flow that the path is a checkpoint of. A checkpoint's name may have slashes of its own."""
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    flow: str | None = connection.scalar(
        select(steps.c.path).where(steps.c.run_id == run_id, steps.c.kind == FLOW, steps.c.path.in_(above))
    )
    return flow
