"""Flows, in portable SQL: reading and recording checkpoints, suspending, spawning, continuing; each under the token of
the flow's step. Commits of several lanes are in `flow_commits`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, false, or_, select, update

from rival_client.broker.message import StepMessage
from rival_client.db.event_tables import deliveries, events, waits
from rival_client.db.locks import lock_run, share_run
from rival_client.db.log_tables import history, logs
from rival_client.db.run_tables import attempts, runs, steps
from rival_client.db.types import after, now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.history_entries import REOPENINGS
from rival_client.model.kinds import FLOW
from rival_client.model.payload import Json
from rival_client.model.starts.queues import Route
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.sql.history import HistoryWriter
from rival_workers.engine.replay import Checkpoint, CheckpointRef, CheckpointWrite
from rival_workers.store.claim_records import Claim
from rival_workers.store.flow_records import ChildRun, ContinuedFlow, FlowClaim, FlowPaused, SpawnedChild, StoredFlow
from rival_workers.store.sql.flow_rows import (
    CHECKPOINT_COLUMNS,
    FlowTransaction,
    SweepDelays,
    leave,
    lock_leaves,
    new_state,
)
from rival_workers.store.sql.guards import chosen, in_time, is_served, leave_running, run_goes_on, step_starts
from rival_workers.store.sql.part import StorePart
from rival_workers.store.sql.scopes import below

#: Rows kept by continue_as: the flow's own row, deliveries of broadcast events, and history of the whole run.
_STAYS: dict[Table, ColumnElement[bool]] = {
    steps: steps.c.kind == FLOW,
    deliveries: select(events.c.id).where(events.c.id == deliveries.c.event_id, events.c.delivery == "all").exists(),
    history: history.c.what.in_(REOPENINGS),
}

_STARTED = (runs.c.token, runs.c.workflow, runs.c.version, runs.c.due_at, runs.c.queue, runs.c.priority)
_COLUMNS = (*CHECKPOINT_COLUMNS, steps.c.state, now().label("now"))


def checkpoint_of(row: Any) -> Checkpoint:
    return Checkpoint(
        row.path,
        row.kind,
        row.status,
        row.opened,
        row.attempts,
        row.result,
        row.error,
        None if row.due_at is None else (row.due_at - row.now).total_seconds(),
        row.end_order,
        None if row.completed_at is None else row.completed_at.timestamp(),
        row.item if isinstance(row.item, str) else None,
        row.begun_after,
    )


class FlowsSql(StorePart):
    @property
    def sweep_delays(self) -> SweepDelays:
        return SweepDelays(self.ring_grace, self.near)

    def read_checkpoints(self, run_id: str, flow: str) -> StoredFlow:
        """All checkpoints of a flow, and its state."""
        with self.database.autocommit() as connection:
            found = connection.execute(
                select(*_COLUMNS).where(
                    steps.c.run_id == run_id,
                    steps.c.path >= flow,
                    steps.c.path < f"{flow}0",
                    or_(steps.c.path == flow, and_(steps.c.path > f"{flow}/", steps.c.opened.is_not(None))),
                )
            ).all()
        checkpoints = [checkpoint_of(row) for row in found if row.path != flow]
        return StoredFlow(checkpoints, next((row.state for row in found if row.path == flow), None))

    def flow_began_at(self, claim: Claim) -> float:
        """The creation time of the flow's row, at which the clock of an async flow starts."""
        with self.database.autocommit() as connection:
            at = (steps.c.run_id == claim.run_id, steps.c.path == claim.path)
            began: Any = connection.scalar(select(steps.c.created_at).where(*at))
            return float(began.timestamp())

    def record_checkpoint(self, claim: Claim, write: CheckpointWrite, state: Json | None = None) -> float | None:
        """Returns the end time by the database's clock; None: the flow has moved on without this attempt. `state`, here
        and below: the flow's state, if it has changed."""
        return self._record_all(claim, [write], state)

    def record_checkpoints(
        self, claim: Claim, writes: Sequence[CheckpointWrite], state: Json | None = None
    ) -> float | None:
        """The same for several steps that have ended one after the other: their ends are one commit, in this order.
        Returns the end time of the last one."""
        return self._record_all(claim, writes, state)

    def _record_all(self, claim: Claim, writes: Sequence[CheckpointWrite], state: Json | None) -> float | None:
        with self.database.transaction() as connection:
            share_run(connection, claim.run_id)
            if found := [write.ref.path for write in writes if write.ref.found is not None]:
                lock_leaves(connection, claim, found)
            flow = FlowTransaction.of(connection, claim, self.sweep_delays, state)
            if flow is None:
                return None
            ended_at: Any = flow.now
            for write in writes:
                if not flow.write(write):  # an earlier try wrote it
                    at = (steps.c.run_id == claim.run_id, steps.c.path == write.ref.path)
                    ended_at = connection.scalar(select(steps.c.completed_at).where(*at))
            if flow.is_paused:
                flow.stop()
            flow.close()
            grants = self._leave(connection, flow.slots)
        self._publish_grants(grants)
        if flow.is_paused:
            raise FlowPaused
        return float(ended_at.timestamp())

    def suspend_step(
        self, claim: Claim, write: CheckpointWrite | None, seconds: float | None, state: Json | None = None
    ) -> int | None:
        """Suspend the flow: until a time, or without one for something else. Returns its new token; None: it has moved
        on."""
        with self.database.transaction() as connection:
            share_run(connection, claim.run_id)
            if write is not None:
                lock_leaves(connection, claim, [write.ref.path])
            left, slots = leave(connection, claim, seconds, self.sweep_delays, state)
            if left is None:
                return None
            writer = HistoryWriter(connection, claim.run_id, left.executor_id)
            flow = FlowTransaction(connection, claim, writer, left.now, self.sweep_delays, state=state)
            if write is not None:
                flow.write(write)
            flow.record_suspended(seconds)
            grants = self._leave(connection, slots)
        self._publish_grants(grants)
        return int(left.execution_token)

    def spawn_child(
        self, claim: Claim, ref: CheckpointRef, child: ChildRun, state: Json | None = None
    ) -> SpawnedChild | None:
        """Insert the child run and its checkpoint, which does not wait for the child. None: the flow has moved on."""
        with self.database.transaction() as connection:
            share_run(connection, claim.run_id)
            flow = FlowTransaction.of(connection, claim, self.sweep_delays, state)
            if flow is None:
                return None
            at = (steps.c.run_id == claim.run_id, steps.c.path == ref.path)
            before = connection.execute(select(steps.c.result, steps.c.error).where(*at)).first()
            # The answer of an earlier try was lost: return what it did.
            done = flow.start_child(ref, child, awaited=False) if before is None else SpawnedChild(*before)
            if flow.is_paused:
                flow.stop()
            flow.close()
            grants = self._leave(connection, flow.slots)
        self._publish_grants(grants)
        if flow.is_paused:
            raise FlowPaused
        return done

    def started_run(self, run_id: str) -> StepMessage | None:
        """The message of a run that has not begun; None if it has begun or does not exist."""
        with self.database.autocommit() as connection:
            row = connection.execute(
                select(*_STARTED, now().label("now")).where(runs.c.id == run_id, runs.c.status == statuses.PENDING)
            ).first()
        if row is None:
            return None
        seconds = 0.0 if row.due_at is None else max(0.0, (row.due_at - row.now).total_seconds())
        route = Route(row.queue, row.priority or 0)
        return StepMessage(run_id, None, row.token, row.workflow, row.version, countdown=seconds, route=route)

    def continue_flow(
        self, claim: Claim, its_input: Json, state: Json | None = None, claim_by: FlowClaim | None = None
    ) -> ContinuedFlow | None:
        """continue_as: restart the flow with another input and delete its checkpoints. Its state stays visible until
        its next checkpoint. `claim_by`: claim the next attempt if it may start now; the token is the same as without a
        claim."""
        with self.database.transaction() as connection:
            lock_run(connection, claim.run_id)
            again = {"attempts": 0, "lost": 0, "item": its_input, "due_at": None, **new_state(state)}
            look = {"ring_at": after(self.ring_grace), "rings": 0}
            columns = (steps.c.execution_token, steps.c.executor_id, steps.c.kind, steps.c.state)
            row, slots = leave_running(connection, claim, "suspend_step", statuses.PENDING, again | look, *columns)
            if row is None:
                return None
            self._delete_past(connection, claim)
            writer = HistoryWriter(connection, claim.run_id, claim_by.executor if claim_by else row.executor_id)
            writer.add(entries.CONTINUED, claim.path, kind=row.kind, item=its_input, state=row.state)
            pending, timeout_token = replace(claim, token=row.execution_token), None
            if claim_by is not None:
                timeout_token = self._claim_continued(connection, pending, claim_by, writer)
            writer.write()
            grants = self._leave(connection, slots)
        self._publish_grants(grants)
        return ContinuedFlow(pending.token, timeout_token)

    def _claim_continued(
        self, connection: Connection, claim: Claim, by: FlowClaim, writer: HistoryWriter
    ) -> int | None:
        """The timeout token of the attempt; None: the attempt may not start now."""
        # No other transaction has seen the token of the pending row, so the attempt can use it.
        tokens = {"execution_token": steps.c.execution_token, "timeout_token": steps.c.timeout_token}
        starts = step_starts(claim, by.executor, by.timeout, by.policy).values(tokens)
        starts = starts.where(run_goes_on(claim.run_id), in_time(), is_served(self.served))
        timeout_token: int | None = connection.scalar(starts.returning(steps.c.timeout_token))
        if timeout_token is not None:
            writer.add(entries.CLAIMED, claim.path, attempt=1)
        return timeout_token

    def _delete_past(self, connection: Connection, claim: Claim) -> None:
        """Delete what the flow did so far. Rows of other steps of the plan stay."""
        for table in (steps, attempts, logs, waits, deliveries, history):
            its_own = and_(table.c.run_id == claim.run_id, below(claim.path, table))
            connection.execute(delete(table).where(its_own, ~_STAYS.get(table, false())))
        self._detach_ended_children(connection, claim)

    def _detach_ended_children(self, connection: Connection, claim: Claim) -> None:
        """Detach ended children: a run that continues forever must not keep all of them."""
        its_own = and_(runs.c.parent_path >= f"{claim.path}/", runs.c.parent_path < f"{claim.path}0")
        ended = (
            select(runs.c.id)
            .where(runs.c.parent_run_id == claim.run_id, its_own, runs.c.status.in_(RUN_TERMINAL))
            .with_for_update(skip_locked=True)
        )
        connection.execute(
            update(runs).where(runs.c.id.in_(chosen(ended))).values(parent_run_id=None, parent_path=None)
        )
