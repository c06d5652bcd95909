"""Verbs of operators that reopen a run (retry, rewind), in portable SQL. Each takes the exclusive lock of the run
first.

Rewound rows are deleted and inserted again. The token of the run is raised above all tokens of the deleted rows, and
new rows take theirs from it, so a late result of a deleted attempt is stale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, and_, delete, update

from rival_client.db.event_tables import waits
from rival_client.db.guards import run_can
from rival_client.db.locks import lock_run
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import after
from rival_client.errors import DatabaseRefused, NotPossible
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.starts.queues import Route
from rival_client.model.transitions import run_sources
from rival_client.sql.dead_letters import remove_redriven
from rival_client.sql.history import HistoryWriter, record
from rival_client.sql.orphans import leave_started_by
from rival_client.sql.tickets import slots_of, withdraw
from rival_workers.engine.effects import OpenRow
from rival_workers.engine.plan import Plan
from rival_workers.engine.policies import Policies
from rival_workers.engine.rewind import retry, rewind
from rival_workers.engine.rewind_plan import NotPossible as NotPlanned
from rival_workers.engine.rewind_plan import RewindPlan, Row
from rival_workers.store.claim_records import FinishResult
from rival_workers.store.operator_records import Operated, Order
from rival_workers.store.sql import refusals
from rival_workers.store.sql.locks import change_locked, in_lock_order
from rival_workers.store.sql.open_rows import OpenRowsSql
from rival_workers.store.sql.part import StorePart
from rival_workers.store.sql.reopened_runs import (
    RENEWED_DEADLINE,
    carried_inputs,
    children_of,
    children_to_retry,
    highest_token,
    in_chunks,
    open_run,
    refuse_taken_place,
    revive_steps,
    rows_of,
    ruled_policies,
)
from rival_workers.store.sql.singletons import retake_slot

#: The verbs that reopen a run by themselves.
_REOPENING = ("retry", "rewind")
#: SQLSTATE of a unique violation. (On SQLite, transactions exclude each other.)
UNIQUE_VIOLATION = "23505"


def operated(run: Any, *outcome: Any, **more: Any) -> Operated:
    done = Operated(run.workflow, run.version, *outcome, **more)
    return replace(done, route=Route(run.queue, run.priority or 0))


class OperatorSql(StorePart):
    def retry_run(self, run_id: str, order: Order) -> Operated:
        """With `dry_run` nothing is changed."""

        def once(connection: Connection, alone: bool) -> Operated:
            return self._reopen(connection, run_id, order, retry)

        return self._alone(run_id, order.verb, once)

    def rewind_run(self, run_id: str, order: Order) -> Operated:
        """Rewind the run to the step of the order. With `dry_run` nothing is changed."""

        def once(connection: Connection, alone: bool) -> Operated:
            return self._reopen(connection, run_id, order, lambda plan, rows: rewind(plan, rows, order.step or ""))

        return self._alone(run_id, order.verb, once)

    def _alone(self, run_id: str, verb: str, once: Callable[[Connection, bool], Operated]) -> Operated:
        """Run `once` with the exclusive lock of the run. The lock does not prevent another start from taking the
        singleton place of the run at the same moment; then the unique index rejects the reopened run."""
        while True:
            try:
                return in_lock_order(self.database, run_id, once, alone=True)
            except DatabaseRefused as error:
                if error.sqlstate != UNIQUE_VIOLATION:
                    raise
            with self.database.autocommit() as connection:
                # Raises NotPossible, unless the other run has ended in the meantime.
                refuse_taken_place(connection, run_id, verb)

    def _reopen(
        self, connection: Connection, run_id: str, order: Order, choose: Callable[[Plan, list[Row]], RewindPlan]
    ) -> Operated:
        run = lock_run(connection, run_id, order.if_entry)
        if run.status not in run_sources(f"{order.verb}_run"):
            raise NotPossible(order.verb, run_id, refusals.wrong_status(run.status, order.step))
        rows = rows_of(connection, run_id)
        if not rows and order.verb == "retry":
            return self._begin_again(connection, run, order)
        with refused(order.verb, run_id):
            policies = ruled_policies(connection, run)
            cut = choose(policies.plan, rows)
        refuse_taken_place(connection, run_id, order.verb)
        children = children_of(connection, run_id, cut.deleted)
        retried = () if order.children_retried else children_to_retry(connection, run, cut.deleted)
        if order.dry_run or retried:
            return operated(run, cut=cut, children=children, retried_children=retried)
        finished = self._apply(connection, policies, run_id, cut, order)
        retake_slot(connection, run_id, order.verb)
        return operated(run, finished, cut, children=children)

    def _begin_again(self, connection: Connection, run: Any, order: Order) -> Operated:
        """Reopen a run that was cancelled before it began."""
        refuse_taken_place(connection, run.id, order.verb)
        if order.dry_run:
            return operated(run)
        again = (
            update(runs)
            .where(runs.c.id == run.id, runs.c.token == run.token, run_can("retry_run"))
            .values(
                status=statuses.PENDING,
                token=run.token + 1,
                completed_at=None,
                error=None,
                failed_step=None,
                gather_key=None,
                deadline_at=RENEWED_DEADLINE,
                ring_at=after(self.ring_grace),
                rings=0,
                paused_at=None,
            )
        )
        change_locked(connection, again, f"run {run.id!r}")
        record(connection, run.id, None, entries.RETRY_RUN, by=order.by, reason=order.reason)
        return operated(run, begin=run.token + 1)

    def _apply(
        self, connection: Connection, policies: Policies, run_id: str, cut: RewindPlan, order: Order
    ) -> FinishResult:
        what = f"{order.verb}_run" if order.verb in _REOPENING else "retry_run"
        record(
            connection,
            run_id,
            order.step,
            what,
            by=order.by,
            reason=order.reason,
            deleted=cut.deleted,
            opened=[one.path for one in cut.opens],
            revived=[one.path for one in cut.revived],
        )
        open_run(connection, run_id, highest_token(connection, run_id, cut.deleted) + 2)
        carried = carried_inputs(connection, run_id, cut, order.step if order.verb == "rewind" else None)
        slots: list[int] = []
        for part in in_chunks(cut.deleted):
            leave_started_by(connection, run_id, part)
            remove_redriven(connection, run_id, part, order.by)
            slots += slots_of(connection, and_(steps.c.run_id == run_id, steps.c.path.in_(part)))
            slots += withdraw(connection, run_id, part)
            connection.execute(delete(waits).where(waits.c.run_id == run_id, waits.c.path.in_(part)))
            connection.execute(delete(steps).where(steps.c.run_id == run_id, steps.c.path.in_(part)))
        revive_steps(connection, run_id, cut.revived)
        writer = HistoryWriter(connection, run_id, order.by)
        limits = (self.ring_grace, self.near, writer, policies.at, policies.recorded)
        opening = OpenRowsSql(connection, run_id, None, *limits, carried)
        opening.slots, opening.ended_keys = slots, dict.fromkeys(cut.deleted)
        for row in _delayed(cut.opens, order.delay):
            opening.open(row)
        return opening.conclude()


def _delayed(opens: Sequence[OpenRow], delay: float) -> list[OpenRow]:
    return [replace(one, delay=delay) if delay and one.starts_at_once else one for one in opens]


@contextmanager
def refused(verb: str, run_id: str) -> Iterator[None]:
    try:
        yield
    except NotPlanned as why:
        raise NotPossible(verb, run_id, str(why)) from None
