"""`commit_flow`: writes everything that the lanes of a flow did since the last commit, and returns everything that
ended for them, in one transaction.

Only the attempt that holds the flow's token assigns an `end_order`, so there is one order. An event or a child ends its
checkpoint without one; the checkpoint gets its order here, before the flow learns of the end.

**Lock order** (see `rival_client.db.locks`): topics (sorted), child runs (sorted by id, before any lock of their
parent), the shared lock of the run, checkpoints (sorted by path), the flow's row, the run's row. No wake-up is lost: a
transaction that ends a checkpoint locks it first and then resumes the flow if its status is `waiting`; the commit that
suspends the flow locks all open checkpoints first. So either this commit sees the end, or the other transaction sees
the flow waiting.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, delete, select, update

from rival_client.db.event_tables import deliveries, events
from rival_client.db.locks import share_run
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import CHILD, FLOW_WAIT, SLEEP
from rival_client.model.payload import Json, load, serialise
from rival_client.model.statuses import RUN_TERMINAL, STEP_TERMINAL
from rival_client.model.timers import is_due
from rival_client.sql.checkpoint_ends import child_error
from rival_client.sql.orphans import leave_awaited
from rival_workers.engine.replay import Checkpoint, CheckpointRef, CheckpointWrite
from rival_workers.store.claim_records import Claim
from rival_workers.store.flow_records import ChildStart, ChildWait, EventWait, FlowCommit, FlowPaused, FlowProgress
from rival_workers.store.sql.event_waits import Waiting, begin_wait
from rival_workers.store.sql.flow_rows import (
    CHECKPOINT_COLUMNS,
    CheckpointRow,
    EndedCheckpoint,
    FlowTransaction,
    SweepDelays,
)
from rival_workers.store.sql.locks import lock_topics
from rival_workers.store.sql.part import StorePart

_ENDED = (statuses.COMPLETED, statuses.SKIPPED, statuses.FAILED)


class FlowCommitsSql(StorePart):
    def commit_flow(self, claim: Claim, commit: FlowCommit) -> FlowProgress | None:
        """None: the flow has moved on. Safe to repeat: an ended checkpoint stays as it is, with its order."""
        with self.database.transaction() as connection:
            lock_topics(connection, [wait for one in commit.waits for wait in one.waits_for])
            children = _lock_children(connection, commit.child_waits)
            share_run(connection, claim.run_id)
            rows = _lock_rows(connection, claim, commit)
            flow = FlowTransaction.of(connection, claim, SweepDelays(self.ring_grace, self.near), commit.state)
            if flow is None:
                return None
            progress, read_at = _Applying(flow, commit, rows, children).apply(), time.monotonic()
            grants = self._leave(connection, flow.slots)
        self._publish_grants(grants)
        if progress.seconds is not None:
            # The time of the commit itself has passed, too.
            left = progress.seconds - (time.monotonic() - read_at)
            progress = replace(progress, seconds=max(0.0, left))
        if flow.is_paused and commit.may_stop and progress.token is None:
            raise FlowPaused
        return progress


def _lock_children(connection: Connection, waits: Sequence[ChildWait]) -> dict[str, Row[Any]]:
    """Lock the child runs that the flow begins to wait for, so that none of them can end unseen before the commit."""
    ids = [one.run_id for one in waits]
    if not ids:
        return {}
    wanted: Any = select(runs.c.id, runs.c.status, runs.c.result, runs.c.error, runs.c.failed_step).where(
        runs.c.id.in_(ids)
    )
    return {row.id: row for row in connection.execute(wanted.order_by(runs.c.id).with_for_update(read=True))}


def _lock_rows(connection: Connection, claim: Claim, commit: FlowCommit) -> dict[str, CheckpointRow]:
    """Lock the rows that this commit changes, including rows that an earlier try of it has written. New sleeps need no
    lock: their insert leaves an existing row unchanged."""
    others: list[Any] = [*commit.writes, *commit.waits, *commit.children, *commit.child_waits]
    refs = [*(one.ref.path for one in others), *(ref.path for ref in commit.given_up)]
    paths = [*commit.open_paths, *refs]
    if not paths:
        return {}
    wanted = select(*CHECKPOINT_COLUMNS).where(steps.c.run_id == claim.run_id, steps.c.path.in_(paths))
    found = connection.execute(wanted.order_by(steps.c.path).with_for_update())
    return {row.path: CheckpointRow(**row._mapping) for row in found}


class _Applying:
    def __init__(
        self, flow: FlowTransaction, commit: FlowCommit, rows: dict[str, CheckpointRow], children: dict[str, Row[Any]]
    ) -> None:
        self._flow, self._commit, self._rows, self._children = flow, commit, rows, children
        self._connection, self._run_id = flow.connection, flow.claim.run_id
        #: The open checkpoints of earlier commits and of this one.
        self._open = {path: rows[path] for path in commit.open_paths if path in rows}

    def apply(self) -> FlowProgress:
        commit, flow = self._commit, self._flow
        for ref in commit.given_up:
            self._give_up(ref)
        started = self._begin()
        arrivals, due_in = self._arrivals()
        ended = self._receive(arrivals)
        if ended or not commit.suspend:
            if flow.is_paused and commit.may_stop:
                flow.stop()
            is_empty = not flow.close()
            return FlowProgress(ended, children=started, due_in=due_in, is_paused=flow.is_paused, is_empty=is_empty)
        ends = [one for one in (due_in, commit.retry_in) if one is not None]
        seconds = max(0.0, min(ends)) if ends else None
        return FlowProgress((), *flow.suspend(seconds), started, due_in)

    # -- what the lanes did -------------------------------------------------------------------------------

    def _begin(self) -> tuple[str, ...]:
        """Write the new checkpoints and waits. Returns the ids of the child runs that were started."""
        commit, flow = self._commit, self._flow
        for write in commit.writes:
            if write.status not in STEP_TERMINAL:
                flow.write(write)
        for sleep in commit.sleeps:
            self._opened(sleep)
        others: list[Any] = [*commit.waits, *commit.children, *commit.child_waits]
        for one in others:
            if one.ref.path in self._rows:  # an earlier try of this commit has written it
                self._open[one.ref.path] = self._rows[one.ref.path]
        for wait in commit.waits:
            row = self._rows.get(wait.ref.path)
            if row is None:
                self._begin_wait(wait, flow.claim.token)
            elif row.is_revived:
                self._wait_again(wait, row)
        for child_wait in commit.child_waits:
            if child_wait.ref.path not in self._rows:
                self._wait_for_child(child_wait)
        started = [self._start(one) for one in commit.children if one.ref.path not in self._rows]
        return tuple(one for one in started if one is not None)

    def _opened(self, write: CheckpointWrite, item: Any = None) -> None:
        """Write the checkpoint, which now waits or has already ended."""
        is_new = write.ref.path not in self._rows
        (self._flow.begin if is_new else self._flow.write)(write, item)
        ref, here = write.ref, self._flow.now
        self._open[ref.path] = CheckpointRow(
            ref.path,
            ref.kind,
            write.status,
            ref.number,
            write.attempts,
            load(write.result),
            write.error,
            due_at=None if write.delay is None else here + dt.timedelta(seconds=write.delay),
            completed_at=here if write.status in STEP_TERMINAL else None,
            item=item,
        )

    def _wait_again(self, one: EventWait, row: CheckpointRow) -> None:
        """Wait again for the time that is left."""
        left = None if row.due_at is None else max(0.0, (row.due_at - self._flow.now).total_seconds())
        ref = replace(one.ref, begun_after=row.begun_after)
        self._begin_wait(replace(one, ref=ref, timeout=left), row.execution_token)

    def _begin_wait(self, one: EventWait, token: int) -> None:
        waiting = Waiting(self._run_id, one.ref.path, token)
        event = begin_wait(self._connection, waiting, one.waits_for, self._flow.writer)
        if event is not None:
            self._opened(CheckpointWrite(one.ref, statuses.COMPLETED, Json(serialise(event))))
        else:
            self._opened(CheckpointWrite(one.ref, statuses.WAITING, delay=one.timeout))

    def _start(self, one: ChildStart) -> str | None:
        child = self._flow.start_child(one.ref, one.child, awaited=True)
        if child.error is not None:
            failed = CheckpointRow(one.ref.path, one.ref.kind, statuses.FAILED, one.ref.number, 1, error=child.error)
            self._open[one.ref.path] = replace(failed, completed_at=self._flow.now)
        return child.run_id

    def _wait_for_child(self, one: ChildWait) -> None:
        child = self._children.get(one.run_id)
        if child is not None and child.status not in RUN_TERMINAL:
            self._opened(CheckpointWrite(one.ref, statuses.WAITING), item=one.run_id)
            return
        error = child_error(one.run_id, child)
        result = None if error or child is None else Json(serialise(child.result))
        self._opened(
            CheckpointWrite(one.ref, statuses.FAILED if error else statuses.COMPLETED, result, error), item=one.run_id
        )

    def _give_up(self, ref: CheckpointRef) -> None:
        """Cancel a checkpoint that no lane waits for any more. An event that it got, and that its lane has not seen, is
        returned."""
        row = self._rows.get(ref.path)
        if row is None or row.status == statuses.CANCELLED:
            return
        if ref.kind == CHILD:
            leave_awaited(self._connection, self._run_id, steps.c.path == ref.path)
        if ref.kind == FLOW_WAIT and row.status == statuses.COMPLETED and row.result is not None:
            self._give_back(row.result["id"])
        self._update(
            row,
            status=statuses.CANCELLED,
            result=None,
            error=None,
            end_order=None,
            ring_at=None,
            completed_at=row.completed_at or self._flow.now,
            execution_token=steps.c.execution_token + 1,
        )
        self._flow.record(entries.GIVEN_UP, ref.path, kind=ref.kind)
        if ref.kind == FLOW_WAIT:
            self._flow.delete_waits(ref.path)

    def _give_back(self, event_id: str) -> None:
        """Make an event deliverable again: another run may be waiting for it."""
        # Lock the event before its delivery, as in the deletion of expired events.
        self._connection.execute(
            update(events)
            .where(events.c.id == event_id, events.c.status == "consumed")
            .values(status="sent", ring_at=now(), rings=0)
        )
        had = (deliveries.c.event_id == event_id, deliveries.c.run_id == self._run_id)
        self._connection.execute(delete(deliveries).where(*had))

    # -- what has ended -----------------------------------------------------------------------------------

    def _arrivals(self) -> tuple[list[EndedCheckpoint], float | None]:
        """The checkpoints that ended without an order, sorted by time; and the seconds until the next timer is due."""
        here = self._flow.now
        arrivals = [self._of_step(one) for one in self._commit.writes if one.status in STEP_TERMINAL]
        due_in: float | None = None
        for row in self._open.values():
            if row.status in _ENDED:
                arrivals.append(EndedCheckpoint(row.completed_at or here, row))
            elif row.status == statuses.WAITING and row.due_at is not None:
                left = (row.due_at - here).total_seconds()
                if is_due(left):
                    arrivals.append(EndedCheckpoint(row.due_at, row))
                else:
                    due_in = left if due_in is None else min(left, due_in)
        return sorted(arrivals, key=lambda one: (one.at, one.row.path)), due_in

    def _of_step(self, write: CheckpointWrite) -> EndedCheckpoint:
        ref, here = write.ref, self._flow.now
        before = self._rows.get(ref.path)
        if before is None or before.status not in STEP_TERMINAL:
            before = CheckpointRow(
                ref.path,
                ref.kind,
                write.status,
                ref.number,
                write.attempts,
                load(write.result),
                write.error,
                completed_at=here,
            )
        return EndedCheckpoint(here - dt.timedelta(seconds=write.ago), before, write)

    def _receive(self, arrivals: Sequence[EndedCheckpoint]) -> tuple[Checkpoint, ...]:
        """Assign end orders: the flow receives the checkpoints in this order. A checkpoint that has an order got it
        from an earlier try of this commit."""
        before = [one.row.end_order for one in arrivals if one.row.end_order is not None]
        order = max([self._commit.next_order, *(number + 1 for number in before)])
        received: list[CheckpointRow] = []
        for arrival in arrivals:
            row = arrival.row
            if row.end_order is None:
                row, order = self._received(replace(row, end_order=order), arrival.write), order + 1
            received.append(row)
        return tuple(row.checkpoint for row in sorted(received, key=lambda one: one.end_order or 0))

    def _received(self, row: CheckpointRow, write: CheckpointWrite | None) -> CheckpointRow:
        if write is not None:
            self._flow.write(replace(write, end_order=row.end_order))
            return row
        if row.status != statuses.WAITING:
            self._flow.record(entries.RECEIVED, row.path, end_order=row.end_order)
            self._update(row, end_order=row.end_order)
            return row
        # A due sleep is completed; a due wait for an event is skipped.
        status, here = statuses.COMPLETED if row.kind == SLEEP else statuses.SKIPPED, self._flow.now
        self._flow.record(status, row.path, end_order=row.end_order)
        self._update(
            row,
            end_order=row.end_order,
            status=status,
            completed_at=here,
            execution_token=steps.c.execution_token + 1,
        )
        if row.kind == FLOW_WAIT:
            self._flow.delete_waits(row.path)
        return replace(row, status=status, completed_at=here)

    def _update(self, row: CheckpointRow, **values: Any) -> None:
        at = (steps.c.run_id == self._run_id, steps.c.path == row.path)
        self._connection.execute(update(steps).where(*at).values(values))
