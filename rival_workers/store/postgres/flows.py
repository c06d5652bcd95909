"""Fast paths of flows: a checkpoint, ends of parallel steps, a received end, and continue_as in one round trip each.
The statements are in `flows.sql`.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from rival_client.db.prepared import PreparedPool
from rival_client.db.prepared_statement import Row, Value
from rival_client.model.payload import Json, load, serialise
from rival_client.model.timers import is_due, is_near, look_at
from rival_client.sql.history import as_json
from rival_client.sql.wake import composites_above
from rival_workers.engine.replay import Checkpoint, CheckpointWrite
from rival_workers.store.claim_records import Claim
from rival_workers.store.database_clock import DatabaseClock
from rival_workers.store.flow_records import ContinuedFlow, FlowClaim, FlowCommit, FlowProgress, StoredFlow
from rival_workers.store.group_commits import ALONE
from rival_workers.store.postgres.flow_groups import (
    ContinueCall,
    FlowCall,
    JoinedCalls,
    RecordCall,
    checkpoint_row,
    commit_flows,
)
from rival_workers.store.postgres.statements import PORTABLE, FastPath, FastPaths, load_statements
from rival_workers.store.sql.flow_commits import FlowCommitsSql
from rival_workers.store.sql.flow_rows import SweepDelays
from rival_workers.store.sql.flows import FlowsSql

STATEMENTS = load_statements("flows.sql")


@dataclass(frozen=True)
class ReadCall:
    run_id: str
    flow: str


@dataclass(frozen=True)
class RecordAllCall:
    claim: Claim
    writes: Sequence[CheckpointWrite]
    state: Json | None


@dataclass(frozen=True)
class CommitCall:
    claim: Claim
    commit: FlowCommit
    times: SweepDelays
    clock: DatabaseClock

    @cached_property
    def numbered(self) -> list[CheckpointWrite]:
        """The ended steps in the order in which the flow receives their ends."""
        in_order = sorted(self.commit.writes, key=lambda one: (-one.ago, one.ref.path))
        return [replace(one, end_order=order) for order, one in enumerate(in_order, start=self.commit.next_order)]


# -- parameters and results -------------------------------------------------------------------------------


def _flow(claim: Claim) -> dict[str, Value]:
    return {"run_id": claim.run_id, "flow": claim.path, "token": claim.token}


def _record(call: RecordCall) -> dict[str, Value]:
    row = checkpoint_row(call.write, call.state)
    error = None if call.write.error is None else serialise(call.write.error)
    return {**_flow(call.claim), **row, "error": error, "delay": call.write.delay, "state": call.state}


def _end_steps(claim: Claim, writes: Sequence[CheckpointWrite], state: Json | None) -> dict[str, Value]:
    """The first history entry of the commit contains the new state of the flow."""
    states = (state, *(None for _ in writes[1:]))
    rows = ({**checkpoint_row(one, state), "flow_state": state} for one, state in zip(writes, states, strict=True))
    return {**_flow(claim), "writes": "[" + ",".join(as_json(row) for row in rows) + "]"}


def _steps_ended(call: CommitCall, row: Row) -> FlowProgress | None:
    if int(row[1] or 0) != len(call.numbered):
        return None
    ended_at = float(row[0] or 0.0)
    return FlowProgress(tuple(_checkpoint(one, ended_at) for one in call.numbered))


def _checkpoint(write: CheckpointWrite, ended_at: float) -> Checkpoint:
    ref = write.ref
    return Checkpoint(
        path=ref.path,
        kind=ref.kind,
        status=write.status,
        number=ref.number,
        attempts=write.attempts,
        result=load(write.result),
        error=write.error,
        end_order=write.end_order,
        ended_at=ended_at,
    )


def _receive(call: CommitCall) -> dict[str, Value]:
    order, state = call.commit.next_order, call.commit.state
    detail = as_json({"end_order": order, "state": state})
    return {
        **_flow(call.claim),
        "path": call.commit.only_open_path,
        "end_order": order,
        "detail": detail,
        "state": state,
    }


def _received(call: CommitCall, row: Row) -> FlowProgress:
    path, kind, status, number, attempts = row[:5]
    received = Checkpoint(
        path=path or "",
        kind=kind or "",
        status=status or "",
        number=int(number or 0),
        attempts=int(attempts or 0),
        result=load(row[5]),
        error=load(row[6]),
        end_order=call.commit.next_order,
        ended_at=float(row[7] or 0.0),
    )
    return FlowProgress((received,))


def _sleeps_alone(call: CommitCall) -> bool:
    sleep = call.commit.only_sleep
    return sleep is not None and not is_due(sleep.delay) and not composites_above(call.claim.path)


def _sleep(call: CommitCall) -> dict[str, Value]:
    sleep = call.commit.only_sleep
    assert sleep is not None
    # The database keeps microseconds.
    delay = dt.timedelta(seconds=sleep.delay or 0.0).total_seconds()
    look = look_at(delay, is_near(delay, call.times.near), call.times.grace)
    return {
        **_flow(call.claim),
        **checkpoint_row(sleep, call.commit.state),
        "delay": delay,
        "look": look.seconds,
        "rings": look.rings,
        "state": call.commit.state,
    }


def _slept(call: CommitCall, row: Row) -> FlowProgress:
    call.clock.read(float(row[2] or 0.0))
    left = call.clock.until(float(row[1] or 0.0))
    return FlowProgress((), int(row[0] or 0), max(0.0, left), due_in=left)


def _continue(call: ContinueCall) -> dict[str, Value]:
    again: dict[str, Value] = {**_flow(call.claim), "input": call.its_input, "state": call.state}
    by = call.claim_by
    if by is None:
        return {**again, "grace": call.grace}
    return {**again, "executor": by.executor, "timeout": by.timeout, "policy": by.policy, "queues": call.queues}


def _continued(call: ContinueCall, row: Row) -> ContinuedFlow:
    return ContinuedFlow(int(row[0] or 0), None if row[1] is None else int(row[1]))


# -- the paths --------------------------------------------------------------------------------------------

READ_CHECKPOINTS: FastPath[ReadCall, StoredFlow] = FastPath(
    shortcuts="read_checkpoints",
    statement=STATEMENTS["rival_read_checkpoints"],
    applies=lambda call: True,
    because="It only reads, and always returns a row.",
    values=lambda call: {"run_id": call.run_id, "flow": call.flow},
    result=lambda call, row: StoredFlow([Checkpoint(*columns) for columns in load(row[1]) or ()], load(row[0])),
)
RECORD_CHECKPOINT: FastPath[RecordCall, float] = FastPath(
    shortcuts="record_checkpoint",
    statement=STATEMENTS["rival_record_checkpoint"],
    applies=lambda call: call.write.ref.found is None,
    because="A new checkpoint has no row to lock before the flow. No row means stale or paused: then the flow stops.",
    values=_record,
    result=lambda call, row: float(row[0] or 0.0),
)
RECORD_CHECKPOINTS: FastPath[RecordAllCall, float] = FastPath(
    shortcuts="record_checkpoints",
    statement=STATEMENTS["rival_record_checkpoints_in_turn"],
    applies=lambda call: all(one.ref.found is None and one.delay is None for one in call.writes),
    because="As a new checkpoint. If an earlier try wrote some, the portable path reads those.",
    values=lambda call: _end_steps(call.claim, call.writes, call.state),
    result=lambda call, row: float(row[0] or 0.0) if int(row[1] or 0) == len(call.writes) else None,
)
COMMIT_FLOW: tuple[FastPath[CommitCall, FlowProgress], ...] = (
    FastPath(
        shortcuts="commit_flow",
        statement=STATEMENTS["rival_commit_flow_ends"],
        applies=lambda call: call.commit.only_ends_steps,
        because="Steps ended at their first attempt. If an earlier try wrote some, the portable path reads those.",
        values=lambda call: _end_steps(call.claim, call.numbered, call.commit.state),
        result=_steps_ended,
    ),
    FastPath(
        shortcuts="commit_flow",
        statement=STATEMENTS["rival_commit_flow_receipt"],
        applies=lambda call: call.commit.only_open_path is not None,
        because="The flow waits for one checkpoint. No row means that it has not ended, or was received before.",
        values=_receive,
        result=_received,
    ),
    FastPath(
        shortcuts="commit_flow",
        statement=STATEMENTS["rival_commit_flow_sleep"],
        applies=_sleeps_alone,
        because="A flow outside of composites waits for one new sleep. No row: stale, paused, with a slot or a row.",
        values=_sleep,
        result=_slept,
    ),
)
CONTINUE_FLOW: tuple[FastPath[ContinueCall, ContinuedFlow], ...] = (
    FastPath(
        shortcuts="continue_flow",
        statement=STATEMENTS["rival_continue_flow_and_claim"],
        applies=lambda call: call.claim_by is not None,
        because="As without a claim. No row also means that it cannot be claimed now: its run is paused, for example.",
        values=_continue,
        result=_continued,
        lock=STATEMENTS["rival_lock_run"],
    ),
    FastPath(
        shortcuts="continue_flow",
        statement=STATEMENTS["rival_continue_flow"],
        applies=lambda call: call.claim_by is None,
        because="The exclusive lock of the run is taken first, as in the portable path. No row: stale, or with a slot.",
        values=_continue,
        result=_continued,
        lock=STATEMENTS["rival_lock_run"],
    ),
)


class PostgresFlows(FastPaths, FlowsSql, FlowCommitsSql):
    #: Connections with the settings that the plans of groups need.
    _groups: PreparedPool

    @cached_property
    def _joined(self) -> JoinedCalls[FlowCall, Any]:
        return JoinedCalls(self._commit_together)

    def _commit_joined(self, call: FlowCall) -> Any:
        """PORTABLE: nothing was committed, and the portable path decides."""
        done = self._joined.call(call) if call.can_join else ALONE
        return self._commit_together([call])[0] if done is ALONE else done

    def _commit_together(self, calls: Sequence[FlowCall]) -> list[Any]:
        if len(calls) > 1:
            return commit_flows(self._groups, calls)
        [call] = calls
        if isinstance(call, RecordCall):
            return [self._fast(call, RECORD_CHECKPOINT)]
        return [self._fast(call, *CONTINUE_FLOW)]

    def read_checkpoints(self, run_id: str, flow: str) -> StoredFlow:
        done = self._fast(ReadCall(run_id, flow), READ_CHECKPOINTS)
        return super().read_checkpoints(run_id, flow) if done is PORTABLE or done is None else done

    def record_checkpoint(self, claim: Claim, write: CheckpointWrite, state: Json | None = None) -> float | None:
        done = self._commit_joined(RecordCall(claim, write, state))
        return super().record_checkpoint(claim, write, state) if done is PORTABLE else done

    def record_checkpoints(
        self, claim: Claim, writes: Sequence[CheckpointWrite], state: Json | None = None
    ) -> float | None:
        done = self._fast(RecordAllCall(claim, writes, state), RECORD_CHECKPOINTS)
        return super().record_checkpoints(claim, writes, state) if done is PORTABLE else done

    def commit_flow(self, claim: Claim, commit: FlowCommit) -> FlowProgress | None:
        done = self._fast(CommitCall(claim, commit, self.sweep_delays, self.database_clock), *COMMIT_FLOW)
        return super().commit_flow(claim, commit) if done is PORTABLE else done

    def continue_flow(
        self, claim: Claim, its_input: Json, state: Json | None = None, claim_by: FlowClaim | None = None
    ) -> ContinuedFlow | None:
        call = ContinueCall(claim, its_input, state, self.ring_grace, claim_by, self._queues)
        done = self._commit_joined(call)
        return super().continue_flow(claim, its_input, state, claim_by) if done is PORTABLE else done
