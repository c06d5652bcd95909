"""`commit_flow`: everything that the lanes of a flow did since the last commit, in one transaction, and everything that
ended for them.

Only the attempt that holds the flow's token gives an `end_order`, so there is one order. An event or a child ends its
checkpoint without one; the checkpoint gets it here, before the flow knows of the end.

**Lock order** (see `rival_client.locks`): topics (sorted), child runs (sorted by id, before any lock of their parent),
the shared lock of the run, checkpoints (sorted by path), the flow's row, the run's row. No wake-up is lost: what ends a
checkpoint locks it first and then resumes the flow if its status is `waiting`; the commit that suspends the flow locks
all open checkpoints first. So either this commit sees the end, or the other transaction sees the flow waiting.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, Row, delete, func, select, update

from rival_client.database import Database
from rival_client.locks import share_run
from rival_client.orphans import leave_awaited
from rival_client.payload import Json, serialise
from rival_client.tables import RUN_TERMINAL, STEP_TERMINAL, deliveries, events, now, runs, steps
from rival_client.waking import child_error
from rival_workers.engine.replay import Checkpoint, Ending, Mark
from rival_workers.store.base import Held
from rival_workers.store.eventing import Waiting, begin_wait
from rival_workers.store.flow_records import ChildWait, EventWait, FlowCommit, FlowProgress
from rival_workers.store.flow_rows import FlowTransaction, RingTimes, lock_leaves
from rival_workers.store.flowing import checkpoint_of
from rival_workers.store.locking import lock_topics

#: A timer that is this much early counts as due.
EARLY = 0.005
_ENDED = ("completed", "skipped", "failed")


class FlowCommits:
    database: Database
    ring_grace: float
    near: float

    def commit_flow(self, held: Held, commit: FlowCommit) -> FlowProgress | None:
        """None: the flow has moved on. Safe to repeat: what is over stays as it is, with its order."""
        with self.database.transaction() as connection:
            lock_topics(connection, [wait for one in commit.waits for wait in one.waits_for])
            children = _lock_children(connection, commit.child_waits)
            share_run(connection, held.run_id)
            over = [one.mark.path for one in commit.endings]
            lock_leaves(connection, held, [*commit.open_paths, *(mark.path for mark in commit.given_up), *over])
            flow = FlowTransaction.of(connection, held, RingTimes(self.ring_grace, self.near))
            return None if flow is None else _Applying(flow, commit, children).apply()


def _lock_children(connection: Connection, waits: Sequence[ChildWait]) -> dict[str, Row[Any]]:
    """The runs that begin to be waited for: none of them can end before the commit without being seen here."""
    ids = [one.run_id for one in waits]
    if not ids:
        return {}
    wanted: Any = select(runs.c.id, runs.c.status, runs.c.result, runs.c.error).where(runs.c.id.in_(ids))
    return {row.id: row for row in connection.execute(wanted.order_by(runs.c.id).with_for_update(read=True))}


@dataclass(frozen=True)
class _Arrival:
    """A checkpoint that has ended, and that the flow has not received."""

    at: dt.datetime
    path: str
    #: A step that ended here, or the row of what ended elsewhere or is due.
    what: Ending | Row[Any]


class _Applying:
    def __init__(self, flow: FlowTransaction, commit: FlowCommit, children: dict[str, Row[Any]]) -> None:
        self._flow, self._commit, self._children = flow, commit, children
        self._connection, self._run_id = flow.connection, flow.held.run_id
        self._over = [ending for ending in commit.endings if ending.status in STEP_TERMINAL]
        self._open = [*commit.open_paths, *commit.new_paths]

    def apply(self) -> FlowProgress:
        commit, flow = self._commit, self._flow
        for mark in commit.given_up:
            self._give_up(mark)
        started = self._begin()
        arrivals, due_in = self._arrivals()
        self._receive(arrivals)
        ended = self._ended()
        if ended or not commit.suspend:
            flow.close()
            return FlowProgress(ended, children=started, due_in=due_in)
        ends = [one for one in (due_in, commit.retry_in) if one is not None]
        seconds = max(0.0, min(ends)) if ends else None
        return FlowProgress((), flow.suspend(seconds), seconds, started, due_in)

    # -- what the lanes did -------------------------------------------------------------------------------

    def _begin(self) -> tuple[str, ...]:
        """The child runs that were started."""
        commit, flow = self._commit, self._flow
        for ending in commit.endings:
            if ending.status not in STEP_TERMINAL:
                flow.write(ending)
        for sleep in commit.sleeps:
            flow.begin(sleep)
        there = self._there([*(one.mark.path for one in commit.waits), *(one.mark.path for one in commit.children)])
        for wait in commit.waits:
            if wait.mark.path not in there:
                self._begin_wait(wait)
        for child_wait in commit.child_waits:
            self._wait_for_child(child_wait)
        started = [one for one in commit.children if one.mark.path not in there]
        ids = [flow.start_child(one.mark, one.child, awaited=True).run_id for one in started]
        return tuple(one for one in ids if one is not None)

    def _there(self, paths: list[str]) -> set[str]:
        """Rows that an earlier try of this commit has written."""
        if not paths:
            return set()
        return set(self._connection.scalars(select(steps.c.path).where(*self._at(paths))))

    def _begin_wait(self, one: EventWait) -> None:
        path = one.mark.path
        for wait in one.waits_for:
            event = begin_wait(
                self._connection, Waiting(self._run_id, path, self._flow.held.token), wait, self._flow.telling
            )
            if event is not None:
                self._flow.forget_waits(path)
                self._flow.write(Ending(one.mark, "completed", Json(serialise(event))))
                return
        self._flow.begin(Ending(one.mark, "waiting", delay=one.timeout))

    def _wait_for_child(self, one: ChildWait) -> None:
        child = self._children.get(one.run_id)
        if child is not None and child.status not in RUN_TERMINAL:
            self._flow.begin(Ending(one.mark, "waiting"), item=one.run_id)
            return
        error = child_error(one.run_id, child)
        result = None if error or child is None else Json(serialise(child.result))
        self._flow.begin(Ending(one.mark, "failed" if error else "completed", result, error), item=one.run_id)

    def _give_up(self, mark: Mark) -> None:
        """No lane waits for it any more. An event that it got, and that its lane has not seen, goes back."""
        at = self._at([mark.path])
        row = self._connection.execute(select(steps.c.status, steps.c.result).where(*at)).first()
        if row is None or row.status == "cancelled":
            return
        if mark.kind == "child":
            leave_awaited(self._connection, self._run_id, steps.c.path == mark.path)
        if mark.kind == "flow_wait" and row.status == "completed" and row.result is not None:
            self._give_back(row.result["id"])
        self._connection.execute(
            update(steps)
            .where(*at)
            .values(
                status="cancelled", result=None, error=None, end_order=None, ring_at=None,
                completed_at=func.coalesce(steps.c.completed_at, now()),
                execution_token=steps.c.execution_token + 1,
            )
        )  # fmt: skip
        self._flow.telling.add("given_up", mark.path, kind=mark.kind)
        self._flow.forget_waits(mark.path)

    def _give_back(self, event_id: str) -> None:
        """It is delivered again: another run may be waiting for it."""
        # The event before its delivery, as where an expired event is deleted.
        self._connection.execute(
            update(events)
            .where(events.c.id == event_id, events.c.status == "consumed")
            .values(status="sent", ring_at=now(), rings=0)
        )
        had = (deliveries.c.event_id == event_id, deliveries.c.run_id == self._run_id)
        self._connection.execute(delete(deliveries).where(*had))

    # -- what has ended -----------------------------------------------------------------------------------

    def _arrivals(self) -> tuple[list[_Arrival], float | None]:
        """What has ended without an order, by its time; and seconds until the next timer is due."""
        here = self._flow.now
        arrivals = [_Arrival(here - dt.timedelta(seconds=one.ago), one.mark.path, one) for one in self._over]
        due_in: float | None = None
        for row in self._without_order():
            if row.status != "waiting":
                arrivals.append(_Arrival(row.completed_at, row.path, row))
                continue
            left = (row.due_at - here).total_seconds()
            if left <= EARLY:
                arrivals.append(_Arrival(row.due_at, row.path, row))
            else:
                due_in = left if due_in is None else min(left, due_in)
        return sorted(arrivals, key=lambda one: (one.at, one.path)), due_in

    def _without_order(self) -> Sequence[Row[Any]]:
        if not self._open:
            return ()
        columns: Any = (steps.c.path, steps.c.kind, steps.c.status, steps.c.due_at, steps.c.completed_at)
        ended = steps.c.status.in_(_ENDED) | ((steps.c.status == "waiting") & steps.c.due_at.is_not(None))
        found = select(*columns).where(*self._at(self._open), steps.c.end_order.is_(None), ended)
        return self._connection.execute(found).all()

    def _receive(self, arrivals: Sequence[_Arrival]) -> None:
        """The flow receives them in this order."""
        before = self._received_before()
        order = max([self._commit.next_order, *(number + 1 for number in before.values())])
        for arrival in arrivals:
            if arrival.path in before:
                continue
            if isinstance(arrival.what, Ending):
                self._flow.write(replace(arrival.what, end_order=order))
            else:
                self._receive_row(arrival.what, order)
            order += 1

    def _received_before(self) -> dict[str, int]:
        """Endings that an earlier try of this commit has written."""
        paths = [one.mark.path for one in self._over]
        if not paths:
            return {}
        found = select(steps.c.path, steps.c.end_order).where(*self._at(paths), steps.c.end_order.is_not(None))
        return {row.path: row.end_order for row in self._connection.execute(found)}

    def _receive_row(self, row: Row[Any], order: int) -> None:
        values: dict[str, Any] = {"end_order": order}
        if row.status == "waiting":
            # Its time has come: a sleep is over, an event has not come.
            status = "completed" if row.kind == "sleep" else "skipped"
            values |= {"status": status, "completed_at": now(), "execution_token": steps.c.execution_token + 1}
            self._flow.forget_waits(row.path)
            self._flow.telling.add(status, row.path, end_order=order)
        else:
            self._flow.telling.add("received", row.path, end_order=order)
        self._connection.execute(update(steps).where(*self._at([row.path])).values(values))

    def _ended(self) -> tuple[Checkpoint, ...]:
        """All that is over among what this commit is about, also what an earlier try of it has ended."""
        paths = [*(one.mark.path for one in self._over), *self._open]
        if not paths:
            return ()
        ended = (steps.c.end_order.is_not(None), steps.c.completed_at.is_not(None))
        found = select(steps, now().label("now")).where(*self._at(paths), *ended).order_by(steps.c.end_order)
        return tuple(checkpoint_of(row) for row in self._connection.execute(found))

    def _at(self, paths: Sequence[str]) -> tuple[Any, ...]:
        only = steps.c.path == paths[0] if len(paths) == 1 else steps.c.path.in_(paths)
        return steps.c.run_id == self._run_id, only
