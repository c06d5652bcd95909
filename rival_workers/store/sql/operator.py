"""Verbs of operators, in portable SQL: reopen a run (retry, rewind), or settle a step (skip, set_result). Each takes
the exclusive lock of the run first.

Undone rows are deleted and inserted again. The token of the run is raised above all tokens of the deleted rows, and new
rows take theirs from it, so a late result of an undone attempt is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, case, delete, select, update

from rival_client.db.database import Database
from rival_client.db.guards import run_can
from rival_client.db.locks import lock_run
from rival_client.db.tables import after, now, runs, steps, waits
from rival_client.errors import NotPossible, RivalError
from rival_client.model.kinds import FLOW, SETTLEABLE
from rival_client.model.transitions import run_sources, step_sources
from rival_client.sql.history import HistoryWriter, record
from rival_client.sql.orphans import leave_awaited, leave_started_by
from rival_client.sql.wake import wake_run
from rival_client.sql.workflows import workflow_version
from rival_workers.engine import rewind
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance
from rival_workers.engine.paths import is_compensation
from rival_workers.engine.plan import Plan
from rival_workers.engine.rewind import RewindPlan, Row
from rival_workers.engine.rewind_flows import culprits_of
from rival_workers.store.interface import Claim, FinishResult
from rival_workers.store.sql import refusals
from rival_workers.store.sql.apply_effects import EffectsSql
from rival_workers.store.sql.composite_results import Outcome
from rival_workers.store.sql.guards import guard
from rival_workers.store.sql.locks import in_lock_order
from rival_workers.store.sql.reopened_runs import (
    carried_inputs,
    children_of,
    children_to_retry,
    highest_token,
    in_chunks,
    open_run,
    revive_rows,
)
from rival_workers.store.sql.scopes import below

#: The verbs that open a run again by themselves.
_REOPENING = ("retry", "rewind")


@dataclass(frozen=True)
class Order:
    """What an operator asks for, and what the history records of it."""

    verb: str
    by: str
    step: str | None = None
    reason: str | None = None
    dry_run: bool = False
    #: The children that must be retried with the run have been.
    children_retried: bool = False


@dataclass(frozen=True)
class Operated:
    """The outcome of an order."""

    workflow: str
    version: str
    finished: FinishResult = field(default_factory=FinishResult)
    cut: RewindPlan = field(default_factory=RewindPlan)
    #: The token of a run that must be begun.
    begin: int | None = None
    #: The runs that the steps of the cut had started.
    children: tuple[str, ...] = ()
    #: Runs that the run has spawned, and that must be retried before it. If there are any, nothing was changed unless
    #: the order says that they have been.
    retried_children: tuple[str, ...] = ()


class OperatorSql:
    database: Database
    ring_grace: float
    near: float
    max_payload: int

    def reopen_run(self, run_id: str, order: Order, cut: Callable[[Plan, list[Row]], RewindPlan]) -> Operated:
        """A retry or a rewind. With `dry_run` nothing is changed."""

        def once(connection: Connection, alone: bool) -> Operated:
            return self._reopen(connection, run_id, order, cut)

        return in_lock_order(self.database, run_id, once, alone=True)

    def settle_step(
        self, run_id: str, order: Order, end: End, advance: Callable[[Plan, str, End, str], Advance]
    ) -> Operated:
        """An open step ends as the operator says; one that has stopped its run is opened again for that. With
        `dry_run` all of it is rolled back.
        """

        def once(connection: Connection, alone: bool) -> Operated:
            done = self._settle(connection, run_id, order, end, advance)
            if order.dry_run:
                connection.rollback()
            return done

        return in_lock_order(self.database, run_id, once, alone=True)

    # -- retry, rewind ------------------------------------------------------------------------------------

    def _reopen(
        self, connection: Connection, run_id: str, order: Order, choose: Callable[[Plan, list[Row]], RewindPlan]
    ) -> Operated:
        run = lock_run(connection, run_id)
        if run.status not in run_sources(f"{order.verb}_run"):
            raise NotPossible(order.verb, run_id, refusals.wrong_status(run.status, order.step))
        rows = _rows(connection, run_id)
        if not rows and order.verb == "retry":
            return self._begin_again(connection, run, order)
        with _refused(order.verb, run_id):
            cut = choose(_plan(connection, run), rows)
        children = children_of(connection, run_id, cut.deleted)
        retried = () if order.children_retried else children_to_retry(connection, run, cut.deleted)
        if order.dry_run or retried:
            return Operated(run.workflow, run.version, cut=cut, children=children, retried_children=retried)
        finished = self._apply(connection, run_id, cut, order)
        return Operated(run.workflow, run.version, finished, cut, children=children)

    def _begin_again(self, connection: Connection, run: Any, order: Order) -> Operated:
        """Reopen a run that was cancelled before it began."""
        if order.dry_run:
            return Operated(run.workflow, run.version)
        connection.execute(
            update(runs)
            .where(runs.c.id == run.id, runs.c.token == run.token, run_can("retry_run"))
            .values(
                status="pending",
                token=run.token + 1,
                completed_at=None,
                ring_at=after(self.ring_grace),
                rings=0,
                paused_at=None,
            )
        )
        record(connection, run.id, None, "retry_run", by=order.by, reason=order.reason)
        return Operated(run.workflow, run.version, begin=run.token + 1)

    def _apply(self, connection: Connection, run_id: str, cut: RewindPlan, order: Order) -> FinishResult:
        what = f"{order.verb}_run" if order.verb in _REOPENING else "retry_run"
        record(
            connection,
            run_id,
            order.step,
            what,
            by=order.by,
            reason=order.reason,
            undone=cut.deleted,
            opened=[one.path for one in cut.opens],
            revived=[one.path for one in cut.revived],
        )
        open_run(connection, run_id, highest_token(connection, run_id, cut.deleted) + 2)
        carried = carried_inputs(connection, run_id, cut, order.step if order.verb == "rewind" else None)
        for part in in_chunks(cut.deleted):
            leave_started_by(connection, run_id, part)
            connection.execute(delete(waits).where(waits.c.run_id == run_id, waits.c.path.in_(part)))
            connection.execute(delete(steps).where(steps.c.run_id == run_id, steps.c.path.in_(part)))
        revive_rows(connection, run_id, cut.revived)
        following = self._whole(connection, run_id, order)
        following.carried = carried
        following.apply(cut.opens)
        return following.conclude()

    def _whole(self, connection: Connection, run_id: str, order: Order) -> EffectsSql:
        limits = (self.ring_grace, self.near, self.max_payload)
        return EffectsSql(connection, run_id, None, *limits, HistoryWriter(connection, run_id, order.by), alone=True)

    # -- skip, set_result ---------------------------------------------------------------------------------

    def _settle(
        self,
        connection: Connection,
        run_id: str,
        order: Order,
        end: End,
        advance: Callable[[Plan, str, End, str], Advance],
    ) -> Operated:
        run = lock_run(connection, run_id)
        plan, path = _plan(connection, run), order.step or ""
        if run.status == "pending":
            raise NotPossible(order.verb, run_id, refusals.not_begun(order.verb, path))
        reopened = self._reopened_for(connection, run, plan, order)
        step = _open_step(connection, run_id, path, order.verb)
        _settle_row(connection, Claim(run_id, path, step.execution_token), end)
        connection.execute(delete(waits).where(waits.c.run_id == run_id, below(path, waits)))
        # The whole run may have waited with the step.
        wake_run(connection, run_id)
        following = self._whole(connection, run_id, order)
        following.writer.add(order.verb, path, reason=order.reason, was=step.status, result=end.result)
        # What a flow was waiting for.
        leave_awaited(connection, run_id, below(path))
        following.cancel(path, below(path))
        following.outcome = Outcome(end.result or Outcome().result, None, path, end.items)
        following.opened += [one for one in reopened.opened if one.path != path]
        following.apply(advance(plan, path, end, step.kind).effects)
        return Operated(run.workflow, run.version, following.conclude())

    def _reopened_for(self, connection: Connection, run: Any, plan: Plan, order: Order) -> FinishResult:
        """A run that has stopped at the step is opened again, and the step with it."""
        if run.status not in run_sources("retry_run"):
            return FinishResult()
        with _refused(order.verb, run.id):
            cut = rewind.retry(plan, _rows(connection, run.id))
        stopped = [one.path for one in cut.opens]
        if order.step not in stopped:
            undone = any(is_compensation(path) for path in cut.deleted)
            why = refusals.compensated if undone else refusals.stopped_elsewhere
            raise NotPossible(order.verb, run.id, why(order.verb, run.status, order.step or "", stopped))
        return self._apply(connection, run.id, cut, order)


def _open_step(connection: Connection, run_id: str, path: str, verb: str) -> Any:
    """The row of a step that an operator can settle. NotPossible if there is none."""
    step = connection.execute(
        select(steps.c.kind, steps.c.status, steps.c.execution_token).where(
            steps.c.run_id == run_id, steps.c.path == path
        )
    ).first()
    if step is None or step.kind not in SETTLEABLE or step.status not in step_sources("settle_step"):
        raise NotPossible(verb, run_id, _no_open_step(verb, path, step, _rows(connection, run_id)))
    if flow := _flow_above(connection, run_id, path):
        raise NotPossible(verb, run_id, refusals.checkpoint(verb, path, flow))
    return step


def _settle_row(connection: Connection, claim: Claim, end: End) -> None:
    connection.execute(
        update(steps)
        .where(guard(claim, "settle_step"))
        .values(
            status=end.status,
            result=end.result,
            error=None,
            completed_at=now(),
            ring_at=None,
            timeout_at=None,
            execution_token=steps.c.execution_token + 1,
            timeout_token=steps.c.timeout_token + 1,
        )
    )


@contextmanager
def _refused(verb: str, run_id: str) -> Iterator[None]:
    try:
        yield
    except rewind.NotPossible as why:
        raise NotPossible(verb, run_id, str(why)) from None


def _plan(connection: Connection, run: Any) -> Plan:
    info = workflow_version(connection, run.workflow, run.version)
    if info is None:
        raise RivalError(f"Version {run.version} of workflow {run.workflow!r} is not in the database any more.")
    return Plan.load(info.plan)


def _rows(connection: Connection, run_id: str) -> list[Row]:
    columns = (
        steps.c.path,
        steps.c.kind,
        steps.c.status,
        steps.c.started_at,
        steps.c.end_order,
        steps.c.begun_after,
        steps.c.opened,
        case((steps.c.kind == FLOW, steps.c.error), else_=None).label("error"),
    )
    found = connection.execute(
        select(*columns).where(steps.c.run_id == run_id).order_by(steps.c.created_at, steps.c.path)
    )
    return [_row(one) for one in found]


def _row(row: Any) -> Row:
    return Row(
        row.path,
        row.kind,
        row.status,
        row.started_at is not None,
        row.end_order,
        row.begun_after,
        row.opened,
        culprits_of(row.error),
    )


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
