"""Flows, in portable SQL: checkpoints, suspending, children, continuing; each under the token of the flow's step."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Table, and_, delete, false, select, update
from sqlalchemy.dialects import postgresql, sqlite

from rival_client import runs as run_statements
from rival_client.database import Database
from rival_client.errors import UnknownWorkflow
from rival_client.history import REOPENINGS, Telling, tell
from rival_client.payload import Json, serialise
from rival_client.tables import (
    RUN_TERMINAL,
    STEP_TERMINAL,
    after,
    attempts,
    deliveries,
    events,
    history,
    logs,
    now,
    runs,
    steps,
    waits,
)
from rival_client.waking import run_stops
from rival_client.workflows import current_workflow, workflow_names
from rival_workers.engine.effects import WaitFor
from rival_workers.engine.replay import Checkpoint, Ending, Mark
from rival_workers.store.base import NEVER_RUNG, ChildRun, Held, Suspended, WaitOver
from rival_workers.store.eventing import Waiting, begin_wait, lock_topics
from rival_workers.store.following import LEAD
from rival_workers.store.guards import chosen, guard, step_leaves_running
from rival_workers.store.scopes import below

#: What a flow that begins anew takes along: its own row, what it has had of what is for each run once, and what has
#: happened to its whole run.
_STAYS: dict[Table, ColumnElement[bool]] = {
    steps: steps.c.kind == "flow",
    deliveries: select(events.c.id).where(events.c.id == deliveries.c.event_id, events.c.delivery == "all").exists(),
    history: history.c.what.in_(REOPENINGS),
}
#: So many children of one name are numbered one after the other.
_NUMBERED = 10


class Flowing:
    database: Database
    ring_grace: float
    near: float

    def read_checkpoints(self, run_id: str, flow: str) -> list[Checkpoint]:
        """All of a flow's, at once."""
        columns = (
            steps.c.path, steps.c.kind, steps.c.status, steps.c.opened, steps.c.attempts, steps.c.result,
            steps.c.error, steps.c.due_at, now().label("now"),
        )  # fmt: skip
        begin = f"{flow}/"
        with self.database.autocommit() as connection:
            found = connection.execute(
                select(*columns).where(
                    steps.c.run_id == run_id, steps.c.path > begin, steps.c.path < f"{flow}0",
                    steps.c.opened.is_not(None),
                )
            ).all()  # fmt: skip
        return [
            Checkpoint(
                row.path, row.kind, row.status, row.opened, row.attempts, row.result, row.error,
                None if row.due_at is None else (row.due_at - row.now).total_seconds(),
            )
            for row in found
        ]  # fmt: skip

    def record_checkpoint(self, held: Held, ending: Ending) -> bool:
        """False: the flow has moved on without this attempt."""
        with self.database.transaction() as connection:
            _lock_leaf(connection, held, ending.mark)
            telling = self._holds(connection, held)
            if telling is None:
                return False
            self._write(connection, held, ending, telling)
            _keep_if_told(connection, telling)
            return True

    def suspend_step(self, held: Held, ending: Ending | None, seconds: float | None) -> int | None:
        """The flow waits: for a time, or without one for something else. Its new token; None: it has moved on."""
        with self.database.transaction() as connection:
            if ending is not None:
                _lock_leaf(connection, held, ending.mark)
            left = self._leave(connection, held, seconds)
            if left is None:
                return None
            telling = Telling(connection, held.run_id, left.executor_id)
            if ending is not None:
                self._write(connection, held, ending, telling)
            _tell_suspended(connection, held, seconds, telling)
            return int(left.execution_token)

    def suspend_for_event(
        self, held: Held, mark: Mark, waits_for: Sequence[WaitFor], timeout: float | None
    ) -> Suspended | None:
        with self.database.transaction() as connection:
            # Before any step: whoever delivers has the topic's lock when it comes to the steps.
            in_order = lock_topics(connection, waits_for)
            telling = self._holds(connection, held)
            if telling is None:
                return None
            if (had := _said_before(connection, held, mark)) is not None:
                return Suspended(event=had)
            for wait in in_order:
                event = begin_wait(connection, Waiting(held.run_id, mark.path, held.token), wait, telling)
                if event is not None:
                    _forget_waits(connection, held.run_id, mark.path)
                    self._write(connection, held, Ending(mark, "completed", _json(event)), telling)
                    telling.write()
                    return Suspended(event=event)
            self._write(connection, held, Ending(mark, "waiting"), telling)
            return Suspended(self._suspend(connection, held, timeout, telling))

    def give_up_wait(self, held: Held, mark: Mark) -> WaitOver | None:
        """The event has not come in time, or at this very moment. None: the flow has moved on."""
        with self.database.transaction() as connection:
            _lock_leaf(connection, held, mark)
            telling = self._holds(connection, held)
            if telling is None:
                return None
            at = (steps.c.run_id == held.run_id, steps.c.path == mark.path)
            given_up = connection.execute(
                update(steps)
                .where(*at, steps.c.status == "waiting")
                .values(status="skipped", completed_at=now(), execution_token=steps.c.execution_token + 1)
            )
            if given_up.rowcount:
                _forget_waits(connection, held.run_id, mark.path)
                telling.add("skipped", mark.path)
            event = connection.scalar(select(steps.c.result).where(*at))
            _keep_if_told(connection, telling)
            return WaitOver(event)

    def start_child(self, held: Held, mark: Mark, child: ChildRun, *, awaited: bool) -> str | None:
        """The child run is there with the checkpoint; an awaited one lets the flow wait. The child's id."""
        with self.database.transaction() as connection:
            telling = self._holds(connection, held)
            if telling is None:
                return None
            if (started := _said_before(connection, held, mark)) is not None:
                return str(started)
            child_id = self._insert_child(connection, held, mark, child)
            telling.add("child", mark.path, run_id=child_id, workflow=child.workflow, awaited=awaited)
            if awaited:
                self._write(connection, held, Ending(mark, "waiting"), telling, item=child_id)
                self._suspend(connection, held, None, telling)
            else:
                self._write(connection, held, Ending(mark, "completed", _json(child_id)), telling)
                telling.write()
            return child_id

    def _insert_child(self, connection: Connection, held: Held, mark: Mark, child: ChildRun) -> str:
        """One that an earlier try of the flow has had keeps its id; then this one's has a number."""
        workflow = current_workflow(connection, child.workflow)
        if workflow is None:
            raise UnknownWorkflow(child.workflow, workflow_names(connection))
        # The flow's token only goes up: after some tries it is a number that none of very many can have.
        numbers = itertools.chain(range(1, _NUMBERED), itertools.count(max(_NUMBERED, held.token)))
        ids = (child.run_id if n == 1 else f"{child.run_id}~{n}" for n in numbers)
        new = next(
            one for one in ids
            if run_statements.insert_runs(connection, workflow, {one: child.input}, self.ring_grace)
        )  # fmt: skip
        connection.execute(
            update(runs).where(runs.c.id == new).values(parent_run_id=held.run_id, parent_path=mark.path)
        )
        return new

    def started_run(self, run_id: str) -> tuple[int, str, str] | None:
        """(token, workflow, version) of a run that nobody has begun yet: what a ring for it says."""
        with self.database.autocommit() as connection:
            row = connection.execute(
                select(runs.c.token, runs.c.workflow, runs.c.version).where(
                    runs.c.id == run_id, runs.c.status == "pending"
                )
            ).first()
        return None if row is None else (row.token, row.workflow, row.version)

    def continue_flow(self, held: Held, its_input: Json) -> int | None:
        """The flow begins anew with another input: what it has done is gone, and its run goes on."""
        with self.database.transaction() as connection:
            row = connection.execute(
                step_leaves_running(held, "suspend_step", "pending")
                .values(attempts=0, lost=0, item=its_input, due_at=None, ring_at=after(self.ring_grace), rings=0)
                .returning(steps.c.execution_token, steps.c.executor_id, steps.c.kind)
            ).first()
            if row is None:
                return None
            # What other steps of the plan have gone through, and wait for, stays.
            for table in (steps, attempts, logs, waits, deliveries, history):
                its_own = and_(table.c.run_id == held.run_id, below(held.path, table))
                connection.execute(delete(table).where(its_own, ~_STAYS.get(table, false())))
            tell(connection, held.run_id, held.path, "continued", by=row.executor_id, kind=row.kind, item=its_input)
            self._forget_children(connection, held)
            return int(row.execution_token)

    def _forget_children(self, connection: Connection, held: Held) -> None:
        """Those that have ended are no part of what is to come: a run that goes on for ever must not keep them all."""
        its_own = and_(runs.c.parent_path >= f"{held.path}/", runs.c.parent_path < f"{held.path}0")
        ended = (
            select(runs.c.id)
            .where(runs.c.parent_run_id == held.run_id, its_own, runs.c.status.in_(RUN_TERMINAL))
            .with_for_update(skip_locked=True)
        )
        connection.execute(
            update(runs).where(runs.c.id.in_(chosen(ended))).values(parent_run_id=None, parent_path=None)
        )

    # -- one transaction ----------------------------------------------------------------------------------

    def _holds(self, connection: Connection, held: Held) -> Telling | None:
        """The flow's step is still this attempt's, and stays so until the commit. What is done forgives old losses."""
        held_by = connection.execute(
            update(steps).where(guard(held, "suspend_step")).values(lost=0).returning(steps.c.executor_id)
        ).first()
        return None if held_by is None else Telling(connection, held.run_id, held_by.executor_id)

    def _suspend(self, connection: Connection, held: Held, seconds: float | None, telling: Telling) -> int | None:
        left = self._leave(connection, held, seconds)
        if left is None:
            return None
        _tell_suspended(connection, held, seconds, telling)
        return int(left.execution_token)

    def _leave(self, connection: Connection, held: Held, seconds: float | None) -> Row[Any] | None:
        rung = seconds is not None and seconds <= self.near
        ring_in = None if seconds is None else seconds + (self.ring_grace if rung else -LEAD)
        return connection.execute(
            step_leaves_running(held, "suspend_step", "waiting")
            .values(
                attempts=steps.c.attempts - 1, lost=0, due_at=None if seconds is None else after(seconds),
                ring_at=None if ring_in is None else after(ring_in), rings=0 if rung else NEVER_RUNG,
            )
            .returning(steps.c.execution_token, steps.c.executor_id)
        ).first()  # fmt: skip

    def _write(self, connection: Connection, held: Held, ending: Ending, telling: Telling, item: Any = None) -> None:
        """The checkpoint's row: new, with a token that none before it at its path has had, or one that was waiting for
        another try. What is over stays as it is. `item`: the child that it waits for."""
        over, mark = ending.status in STEP_TERMINAL, ending.mark
        changes: dict[str, Any] = {
            "status": ending.status, "result": ending.result, "error": ending.error, "attempts": ending.attempts,
            "completed_at": now() if over else None, "due_at": None if ending.delay is None else after(ending.delay),
        }  # fmt: skip
        dialect: Any = postgresql if self.database.is_postgres else sqlite
        statement = dialect.insert(steps).values(
            run_id=held.run_id, path=mark.path, kind=mark.kind, opened=mark.number, total=mark.gathered,
            execution_token=held.token, created_at=now(), started_at=now(), item=item, **changes,
        )  # fmt: skip
        written = connection.execute(
            statement.on_conflict_do_update(
                index_elements=["run_id", "path"], set_=changes, where=steps.c.status.not_in(STEP_TERMINAL)
            ).returning(steps.c.path)
        ).first()
        if written is not None:
            telling.add(ending.what, mark.path, **ending.told, item=item)


def _tell_suspended(connection: Connection, held: Held, seconds: float | None, telling: Telling) -> None:
    stopped = run_stops(connection, held.run_id, held.path)
    telling.add("suspended", held.path, seconds=seconds, run=stopped)
    telling.write()


def _keep_if_told(connection: Connection, telling: Telling) -> None:
    """Nothing was to be done: then no loss is forgiven either, since the history would not know of it."""
    if not telling.write():
        connection.rollback()


def _lock_leaf(connection: Connection, held: Held, mark: Mark) -> None:
    """A checkpoint that is there already comes before its flow, as with all locks: somebody may be ending it."""
    if mark.found is not None:
        leaf = select(steps.c.path).where(steps.c.run_id == held.run_id, steps.c.path == mark.path)
        connection.execute(leaf.with_for_update())


def _said_before(connection: Connection, held: Held, mark: Mark) -> Any:
    """The result of a checkpoint whose answer was lost, so that it is come to again: then nothing is done anew."""
    result = connection.scalar(select(steps.c.result).where(steps.c.run_id == held.run_id, steps.c.path == mark.path))
    if result is not None:
        connection.rollback()
    return result


def _forget_waits(connection: Connection, run_id: str, path: str) -> None:
    connection.execute(delete(waits).where(waits.c.run_id == run_id, waits.c.path == path))


def _json(value: Any) -> Json:
    return Json(serialise(value))
