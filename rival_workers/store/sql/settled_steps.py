"""Verbs of operators that settle a step (skip, set_result), in portable SQL: which steps can be settled, the change of
the row, and what follows from its end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, delete, select, update

from rival_client.db.event_tables import waits
from rival_client.db.locks import lock_run
from rival_client.db.run_tables import steps
from rival_client.db.types import now
from rival_client.errors import NotPossible
from rival_client.model import statuses
from rival_client.model.kinds import FLOW, SETTLEABLE
from rival_client.model.transitions import run_sources, step_sources
from rival_client.sql.history import HistoryWriter
from rival_client.sql.orphans import leave_awaited
from rival_client.sql.tickets import withdraw
from rival_client.sql.wake import wake_run
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance
from rival_workers.engine.paths import is_compensation
from rival_workers.engine.plan import Plan
from rival_workers.engine.policies import Policies
from rival_workers.engine.rewind import retry
from rival_workers.engine.rewind_plan import Row
from rival_workers.store.claim_records import Claim, FinishResult
from rival_workers.store.operator_records import Operated, Order
from rival_workers.store.sql import refusals
from rival_workers.store.sql.apply_effects import EffectsSql
from rival_workers.store.sql.composite_results import Outcome
from rival_workers.store.sql.guards import guard
from rival_workers.store.sql.locks import change_locked
from rival_workers.store.sql.operator import OperatorSql, operated, refused
from rival_workers.store.sql.reopened_runs import refuse_taken_place, rows_of, ruled_policies
from rival_workers.store.sql.scopes import below
from rival_workers.store.sql.singletons import retake_slot


class SettledStepsSql(OperatorSql):
    def settle_step(
        self, run_id: str, order: Order, end: End, advance: Callable[[Plan, str, End, str], Advance]
    ) -> Operated:
        """End an open step as the operator decides; if the step stopped its run, the run is reopened first. With
        `dry_run` everything is rolled back."""

        def once(connection: Connection, alone: bool) -> Operated:
            done = self._settle(connection, run_id, order, end, advance)
            if order.dry_run:
                connection.rollback()
            return done

        return self._alone(run_id, order.verb, once)

    def _settle(
        self,
        connection: Connection,
        run_id: str,
        order: Order,
        end: End,
        advance: Callable[[Plan, str, End, str], Advance],
    ) -> Operated:
        run = lock_run(connection, run_id, order.if_entry)
        policies, path = ruled_policies(connection, run), order.step or ""
        if run.status == statuses.PENDING:
            raise NotPossible(order.verb, run_id, refusals.not_begun(order.verb, path))
        reopened = self._reopened_for(connection, run, policies, order)
        step = open_step(connection, run_id, path, order.verb)
        settle_row(connection, Claim(run_id, path, step.execution_token), end)
        slots = [*(step.slots or ()), *withdraw(connection, run_id, [path])]
        connection.execute(delete(waits).where(waits.c.run_id == run_id, below(path, waits)))
        # The whole run may have been suspended with the step.
        wake_run(connection, run_id)
        limits = (
            self.ring_grace,
            self.near,
            HistoryWriter(connection, run_id, order.by),
            policies.at,
            policies.recorded,
        )
        following = EffectsSql(connection, run_id, None, *limits, max_payload=self.max_payload, alone=True)
        following.slots = slots
        following.ended_keys[path] = end.shared
        following.writer.add(order.verb, path, reason=order.reason, was=step.status, result=end.result)
        # The children that a flow waits for become orphans.
        leave_awaited(connection, run_id, below(path))
        following.cancel(path, below(path))
        following.outcome = Outcome(end.result or Outcome().result, None, path, end.items)
        following.opened += [one for one in reopened.opened if one.path != path]
        following.apply(advance(policies.plan, path, end, step.kind).effects)
        finished = following.conclude()
        retake_slot(connection, run_id, order.verb)
        return operated(run, finished)

    def _reopened_for(self, connection: Connection, run: Any, policies: Policies, order: Order) -> FinishResult:
        """Reopen a run that stopped at the step, and the step with it."""
        if run.status not in run_sources("retry_run"):
            return FinishResult()
        refuse_taken_place(connection, run.id, order.verb)
        rows = rows_of(connection, run.id)
        with refused(order.verb, run.id):
            cut = retry(policies.plan, rows)
        stopped, path = [one.path for one in cut.opens], order.step or ""
        if path in stopped:
            return self._apply(connection, policies, run.id, cut, order)
        flow = _flow_above(connection, run.id, path) if any(one.path == path for one in rows) else None
        if flow in stopped:
            raise NotPossible(order.verb, run.id, refusals.checkpoint(order.verb, path, flow))
        undone = any(is_compensation(one) for one in cut.deleted)
        why = refusals.compensated if undone else refusals.stopped_elsewhere
        raise NotPossible(order.verb, run.id, why(order.verb, run.status, path, stopped))


def open_step(connection: Connection, run_id: str, path: str, verb: str) -> Any:
    """The row of a step that an operator can settle, locked: a claim, a retry or a takeover changes one row without the
    lock of the run. Raises NotPossible if there is none."""
    columns = (steps.c.kind, steps.c.status, steps.c.execution_token, steps.c.slots)
    wanted = select(*columns).where(steps.c.run_id == run_id, steps.c.path == path)
    step = connection.execute(wanted.with_for_update()).first()
    is_open = step is not None and step.status in step_sources("settle_step")
    if is_open and (flow := _flow_above(connection, run_id, path)):
        raise NotPossible(verb, run_id, refusals.checkpoint(verb, path, flow))
    if step is None or not is_open or step.kind not in SETTLEABLE:
        raise NotPossible(verb, run_id, _no_open_step(verb, path, step, rows_of(connection, run_id)))
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
    """The flow to which the checkpoint at `path` belongs. A checkpoint's name may contain slashes."""
    parts = path.split("/")
    above = ["/".join(parts[:count]) for count in range(1, len(parts))]
    flow: str | None = connection.scalar(
        select(steps.c.path).where(steps.c.run_id == run_id, steps.c.kind == FLOW, steps.c.path.in_(above))
    )
    return flow
