"""One transaction of a flow's attempt: the rows of its checkpoints, its own row, its children, its history. Every write
happens under the token of the flow's step, whose row stays locked until the commit.
"""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import dataclass, field
from typing import Any, Self

from sqlalchemy import Connection, Row, delete, select, update
from sqlalchemy.dialects import postgresql, sqlite

from rival_client.db.event_tables import waits
from rival_client.db.run_tables import steps
from rival_client.db.types import after, clock, now
from rival_client.errors import InvalidArgument, InvalidInput, UnknownWorkflow
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.inputs import InputSchemas
from rival_client.model.kinds import FLOW_WAIT
from rival_client.model.payload import Json, load, serialise
from rival_client.model.starts.starts import Start
from rival_client.model.statuses import STEP_TERMINAL
from rival_client.model.timers import NEVER_PUBLISHED, is_near, look_at
from rival_client.model.workflow_info import WorkflowInfo
from rival_client.sql.history import HistoryWriter
from rival_client.sql.run_inserts import insert_runs
from rival_client.sql.wake import suspend_run
from rival_client.sql.workflows import current_workflow, workflow_names
from rival_workers.engine.replay import Checkpoint, CheckpointRef, CheckpointWrite
from rival_workers.store.claim_records import Claim
from rival_workers.store.flow_records import ChildRun, SpawnedChild
from rival_workers.store.sql.guards import guard, leave_running, next_look

#: Children of one name are numbered consecutively up to this number.
_NUMBERED = 10
#: Of the workflows whose runs were started as children.
_schemas = InputSchemas()


CHECKPOINT_COLUMNS = (
    steps.c.path,
    steps.c.kind,
    steps.c.status,
    steps.c.opened,
    steps.c.attempts,
    steps.c.result,
    steps.c.error,
    steps.c.due_at,
    steps.c.completed_at,
    steps.c.end_order,
    steps.c.item,
    steps.c.begun_after,
    steps.c.execution_token,
)


@dataclass(frozen=True)
class CheckpointRow:
    path: str
    kind: str
    status: str
    opened: int
    attempts: int
    result: Any = None
    error: dict[str, Any] | None = None
    due_at: dt.datetime | None = None
    completed_at: dt.datetime | None = None
    end_order: int | None = None
    item: Any = None
    begun_after: int | None = None
    execution_token: int = 0

    @property
    def is_revived(self) -> bool:
        """A wait that a retry kept with its due time. It is not in `waits` until the flow reaches it again."""
        return self.kind == FLOW_WAIT and self.status == statuses.PENDING

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(
            self.path,
            self.kind,
            self.status,
            self.opened,
            self.attempts,
            self.result,
            self.error,
            end_order=self.end_order,
            ended_at=None if self.completed_at is None else self.completed_at.timestamp(),
            child=self.item if isinstance(self.item, str) else None,
        )


@dataclass(frozen=True)
class EndedCheckpoint:
    """A checkpoint that has ended and that the flow has not received yet."""

    at: dt.datetime
    row: CheckpointRow
    #: Set for a step that ended in this attempt.
    write: CheckpointWrite | None = None


@dataclass(frozen=True)
class SweepDelays:
    """Delays after which the keeper looks at the rows that this store writes."""

    grace: float
    near: float


@dataclass
class FlowTransaction:
    connection: Connection
    claim: Claim
    writer: HistoryWriter
    #: The time of the database.
    now: dt.datetime
    times: SweepDelays
    is_paused: bool = False
    #: The flow's new state, as written to its row; None after a history entry has recorded it, or if it has not
    #: changed.
    state: Json | None = None
    #: Slots of limits that the flow no longer uses; released by the caller after all other locks.
    slots: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, connection: Connection, claim: Claim, times: SweepDelays, state: Json | None) -> Self | None:
        """Lock the flow's row. None: the flow has moved on without this attempt. Progress of a flow resets its count of
        losses. `state`: the flow's state, if it has changed."""
        row = connection.execute(
            update(steps)
            .where(guard(claim, "suspend_step"))
            .values(lost=0, **new_state(state))
            .returning(steps.c.executor_id, steps.c.paused, now().label("now"))
        ).first()
        if row is None:
            return None
        writer = HistoryWriter(connection, claim.run_id, row.executor_id)
        return cls(connection, claim, writer, row.now, times, row.paused, state)

    def record(self, what: str, path: str, **detail: Any) -> None:
        """Add a history entry. The first entry of the transaction contains the flow's new state."""
        self.writer.add(what, path, **detail, state=self.state)
        self.state = None

    def close(self) -> bool:
        """Write the history. If nothing was done, roll back: no loss is reset and no state is stored, because no
        history entry would record it."""
        written = self.writer.write()
        if not written:
            self.connection.rollback()
        return written

    # -- checkpoints --------------------------------------------------------------------------------------

    def write(self, write: CheckpointWrite, item: Any = None) -> bool:
        """Write the checkpoint's row: insert it with a token higher than any before at its path, or update an open one.
        An ended row stays as it is."""
        changes = self._changes(write)
        statement = self._insert(write, item, changes).on_conflict_do_update(
            index_elements=["run_id", "path"], set_=changes, where=steps.c.status.not_in(STEP_TERMINAL)
        )
        return self._written(statement, write, item)

    def begin(self, write: CheckpointWrite, item: Any = None) -> bool:
        """Like `write`, for a checkpoint that begins to wait. An existing row stays as it is: the commit
        is repeated."""
        statement = self._insert(write, item, self._changes(write)).on_conflict_do_nothing()
        return self._written(statement, write, item)

    def _changes(self, write: CheckpointWrite) -> dict[str, Any]:
        return {
            "status": write.status,
            "result": write.result,
            "error": write.error,
            "attempts": write.attempts,
            "completed_at": self.now if write.status in STEP_TERMINAL else None,
            # Timers that begin in one commit count from one instant, so they end in the order of their lengths.
            "due_at": None if write.delay is None else self.now + dt.timedelta(seconds=write.delay),
            "end_order": write.end_order,
        }

    def _insert(self, write: CheckpointWrite, item: Any, changes: dict[str, Any]) -> Any:
        ref = write.ref
        dialect: Any = postgresql if self.connection.dialect.name == "postgresql" else sqlite
        return dialect.insert(steps).values(
            run_id=self.claim.run_id,
            path=ref.path,
            kind=ref.kind,
            opened=ref.number,
            begun_after=ref.begun_after,
            execution_token=self.claim.token,
            # One time for all rows: the clock of SQLite advances within a transaction.
            created_at=self.now,
            started_at=self.now,
            item=item,
            **changes,
        )

    def _written(self, statement: Any, write: CheckpointWrite, item: Any) -> bool:
        written = self.connection.execute(statement.returning(steps.c.path)).first() is not None
        if written:
            self.record(write.what, write.ref.path, **write.detail, item=item)
        return written

    def delete_waits(self, path: str) -> None:
        self.connection.execute(delete(waits).where(waits.c.run_id == self.claim.run_id, waits.c.path == path))

    # -- the flow itself ----------------------------------------------------------------------------------

    def suspend(self, seconds: float | None) -> tuple[int, float | None]:
        """Suspend the flow. Returns its new token and the seconds until it is due, corrected for the time since the
        transaction began, so that the message is neither late nor early."""
        # Last, so that little time passes between reading the clock and the countdown of the message.
        self.record_suspended(seconds)
        left, self.slots = leave(self.connection, self.claim, seconds, self.times)
        assert left is not None, "the flow's row is locked"
        due_in = None if left.due_at is None else max(0.0, (left.due_at - left.at).total_seconds())
        return int(left.execution_token), due_in

    def record_suspended(self, seconds: float | None) -> None:
        stopped = suspend_run(self.connection, self.claim.run_id, self.claim.path)
        self.record(entries.SUSPENDED, self.claim.path, seconds=seconds, run=stopped)
        self.writer.write()

    def stop(self) -> None:
        """Stop the flow because its run is paused: it waits to be resumed, and does not use up an attempt."""
        look = {"due_at": None, "ring_at": after(self.times.grace), "rings": 0}
        waits = {"attempts": steps.c.attempts - 1, **look}
        _, self.slots = leave_running(
            self.connection, self.claim, "hand_back_step", statuses.PENDING, waits, steps.c.execution_token
        )
        self.record(entries.HANDED_BACK, self.claim.path, why="paused")

    # -- children -----------------------------------------------------------------------------------------

    def start_child(self, ref: CheckpointRef, child: ChildRun, *, awaited: bool) -> SpawnedChild:
        """Insert the child run and its checkpoint. A child that an earlier attempt of the flow started keeps its id."""
        workflow = current_workflow(self.connection, child.workflow)
        if workflow is None:
            return self._refused(ref, UnknownWorkflow(child.workflow, workflow_names(self.connection)))
        try:
            child.options.check_steps(workflow)
            _check_input(workflow, child)
        except (InvalidArgument, InvalidInput) as error:
            return self._refused(ref, error)
        parent = (self.claim.run_id, ref.path)
        new = next(
            one
            for one in self._child_ids(child)
            if insert_runs(
                self.connection, Start(workflow, {one: child.input}, child.options, parent), self.times.grace
            )
        )
        self.writer.add(entries.CHILD, ref.path, run_id=new, workflow=child.workflow, awaited=awaited)
        result = None if awaited else Json(serialise(new))
        write = CheckpointWrite(ref, statuses.WAITING if awaited else statuses.COMPLETED, result)
        self.write(write, item=new if awaited else None)
        return SpawnedChild(new)

    def _refused(self, ref: CheckpointRef, why: Exception) -> SpawnedChild:
        error = _error(why)
        self.write(CheckpointWrite(ref, statuses.FAILED, error=error))
        return SpawnedChild(None, error)

    def _child_ids(self, child: ChildRun) -> Any:
        # The flow's token only grows, so an id with the token is free after a few tries, however many children there
        # are.
        numbers = itertools.chain(range(1, _NUMBERED), itertools.count(max(_NUMBERED, self.claim.token)))
        return (child.run_id if n == 1 else f"{child.run_id}~{n}" for n in numbers)


def _check_input(workflow: WorkflowInfo, child: ChildRun) -> None:
    """As a producer's start does, but without quoting the input: the error is stored. A replay reads it from there."""
    problems = _schemas.of(workflow).problems(load(child.input), quote=False)
    if problems:
        raise InvalidInput(workflow.name, problems)


def new_state(state: Json | None) -> dict[str, Any]:
    """The columns of the flow's row. None: the state has not changed and is not written."""
    return {} if state is None else {"state": state}


def leave(
    connection: Connection, claim: Claim, seconds: float | None, times: SweepDelays, state: Json | None = None
) -> tuple[Row[Any] | None, list[int]]:
    """Let the flow's step wait: until a time, or without one for something else. Returns its row and the slots that it
    used; None: the flow has moved on."""
    due: dict[str, Any] = {"due_at": None, "ring_at": None, "rings": NEVER_PUBLISHED}
    if seconds is not None:
        look = look_at(seconds, is_near(seconds, times.near), times.grace)
        due = {"due_at": after(seconds), **next_look(look)}
    waits = {"attempts": steps.c.attempts - 1, "lost": 0, **due, **new_state(state)}
    columns = (steps.c.execution_token, steps.c.executor_id, steps.c.due_at, now().label("now"), clock().label("at"))
    return leave_running(connection, claim, "suspend_step", statuses.WAITING, waits, *columns)


def lock_leaves(connection: Connection, claim: Claim, paths: list[str]) -> None:
    """Lock checkpoints before the flow's own row: see the lock order in `flow_commits`."""
    if paths:
        leaves = select(steps.c.path).where(steps.c.run_id == claim.run_id, steps.c.path.in_(paths))
        connection.execute(leaves.order_by(steps.c.path).with_for_update())


def _error(error: Exception) -> dict[str, Any]:
    return {"type": type(error).__qualname__, "message": str(error), "attempt": 1}
