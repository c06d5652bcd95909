"""Postgres: the hot operations as one statement and one round trip each. The rest is `SqlStore`'s."""

from __future__ import annotations

from typing import Any

from rival_client.db.database import Database
from rival_client.db.prepared import PreparedPool, Statement
from rival_client.model.payload import Json, load
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance, Close, Join, OpenRow
from rival_workers.engine.paths import is_handler
from rival_workers.engine.replay import CheckpointWrite
from rival_workers.store.flow_records import FlowCommit, FlowProgress, StoredFlow
from rival_workers.store.interface import (
    BeginResult,
    Claim,
    ClaimBy,
    Claimed,
    Delivered,
    FinishResult,
    NotYet,
    WorkflowVersion,
)
from rival_workers.store.postgres import flows
from rival_workers.store.postgres.events import deliver
from rival_workers.store.postgres.statements import (
    BEGIN_RUN,
    CLAIM_STEP,
    FINISH_AND_CLAIM,
    FINISH_AND_COMPLETE,
    FINISH_AND_OPEN,
    FINISH_LANE_AND_CLAIM,
    FINISH_LANE_AND_OPEN,
    READ_ITEM,
)
from rival_workers.store.sql_store import SqlStore


class PostgresStore(SqlStore):
    def __init__(self, database: Database, **options: Any) -> None:
        super().__init__(database, **options)
        self._prepared = PreparedPool(database.url)

    def close(self) -> None:
        self._prepared.close()
        super().close()

    def begin_run(
        self, run_id: str, token: int, advance: Advance, *, claim_for: str | None, of: WorkflowVersion | None = None
    ) -> BeginResult | WorkflowVersion | None:
        opening = advance.next_leaf
        if claim_for is None or opening is None:
            return super().begin_run(run_id, token, advance, claim_for=claim_for, of=of)
        row = self._prepared.fetch(
            BEGIN_RUN, {"run_id": run_id, "token": token, **_of(of), **_next(opening, claim_for)}
        )
        if row is None:
            return None
        if row[1] is not None and row[2] is not None:
            return WorkflowVersion(row[1], row[2])
        return BeginResult(load(row[0]), FinishResult(claimed=opening))

    def claim_step(
        self, claim: Claim, timeout: float | None, executor: str, *, of: WorkflowVersion | None = None,
        within: float | None = None,
    ) -> Claimed | NotYet | WorkflowVersion | None:  # fmt: skip
        if within is not None:
            return super().claim_step(claim, timeout, executor, of=of, within=within)
        parameters: dict[str, Any] = {
            "run_id": claim.run_id, "path": claim.path, "token": claim.token, "executor": executor, "timeout": timeout,
            **_of(of),
        }  # fmt: skip
        row = self._prepared.fetch(CLAIM_STEP, parameters)
        if row is None:
            # Stale, too early, or a timer's row, with which the whole run may have waited.
            return super().claim_step(claim, timeout, executor, of=of)
        token, timeout_token, attempt, lost = (int(text or 0) for text in row[:4])
        return Claimed(claim.run_id, claim.path, token, timeout_token, attempt, lost, load(row[4]), row[5] or "")

    def read_item(self, run_id: str, path: str) -> Any:
        row = self._prepared.fetch(READ_ITEM, {"run_id": run_id, "path": path})
        return None if row is None else load(row[0])

    def deliver_event(self, event_id: str, claim: ClaimBy | None = None) -> Delivered:
        return deliver(self._prepared, event_id, claim, self.ring_grace) or super().deliver_event(event_id, claim)

    def read_checkpoints(self, run_id: str, flow: str) -> StoredFlow:
        return flows.read_checkpoints(self._prepared, run_id, flow)

    def record_checkpoint(self, claim: Claim, ending: CheckpointWrite, state: Json | None = None) -> float | None:
        if ending.mark.found is not None:
            return super().record_checkpoint(claim, ending, state)
        ended_at = flows.record_checkpoint(self._prepared, claim, ending, state)
        # Stale, or paused: then the flow stops with this checkpoint.
        return super().record_checkpoint(claim, ending, state) if ended_at is None else ended_at

    def commit_flow(self, claim: Claim, commit: FlowCommit) -> FlowProgress | None:
        ended = None
        if commit.only_ends_steps:
            ended = flows.end_steps(self._prepared, claim, commit)
        elif (path := commit.only_open_path) is not None:
            ended = flows.receive_end(self._prepared, claim, path, commit)
        return ended or super().commit_flow(claim, commit)

    def continue_flow(self, claim: Claim, its_input: Json, state: Json | None = None) -> int | None:
        return flows.continue_flow(self._prepared, claim, its_input, state, self.ring_grace)

    def finish_step(self, claim: Claim, end: End, advance: Advance, *, claim_for: str | None) -> FinishResult | None:
        opening = advance.next_leaf
        if not _is_plain(claim, end) or not (opening or (advance.completes_run and not _may_be_a_child(claim.run_id))):
            finished = self._finish_lane(claim, end, advance, claim_for)
            return finished or super().finish_step(claim, end, advance, claim_for=claim_for)
        parameters: dict[str, Any] = {
            "run_id": claim.run_id, "path": claim.path, "token": claim.token,
            "status": end.status, "result": end.result, "state": end.state,
        }  # fmt: skip
        finished = self._finish_plain(parameters, opening, claim_for)
        # Stale, or paused: then what follows is opened, and not claimed.
        return finished or super().finish_step(claim, end, advance, claim_for=claim_for)

    def _finish_plain(
        self, given: dict[str, Any], opening: OpenRow | None, claim_for: str | None
    ) -> FinishResult | None:
        if opening is None:
            return self._hot_finish(FINISH_AND_COMPLETE, given, FinishResult(run_ended=True))
        given |= _next(opening, claim_for)
        if claim_for is not None:
            return self._hot_finish(FINISH_AND_CLAIM, given, FinishResult(claimed=opening))
        return self._hot_finish(FINISH_AND_OPEN, given | {"grace": self.ring_grace}, FinishResult(opened=(opening,)))

    def _finish_lane(self, claim: Claim, end: End, advance: Advance, claim_for: str | None) -> FinishResult | None:
        """None: it is no lane of a for_each, or the last one, or stale."""
        lane = _lane_of(advance) if _is_plain(claim, end) else None
        if lane is None:
            return None
        item, join, opening = lane
        parameters = {
            "run_id": claim.run_id, "path": claim.path, "token": claim.token, "status": end.status,
            "result": end.result, "state": end.state, "item": item, "join": join, "grace": self.ring_grace,
            **_next(opening, claim_for), "next_path": opening.path.removeprefix(f"{join}["),
        }  # fmt: skip
        row = self._prepared.fetch(FINISH_LANE_AND_OPEN if claim_for is None else FINISH_LANE_AND_CLAIM, parameters)
        if row is None:
            return None
        if row[0] is None:
            return FinishResult()
        begun = opening.at_item(join, int(row[0]))
        return FinishResult(opened=(begun,)) if claim_for is None else FinishResult(claimed=begun)

    def _hot_finish(
        self, statement: Statement, parameters: dict[str, Any], finished: FinishResult
    ) -> FinishResult | None:
        return None if self._prepared.fetch(statement, parameters) is None else finished


def _lane_of(advance: Advance) -> tuple[str, str, OpenRow] | None:
    """The item that ends, the composite it belongs to, and the one step that opens for the next item."""
    match advance.effects:
        case (Close(path=item, status="completed"), Join(path=join, stops=False, each=(opening,))):
            return (item, join, opening) if opening.starts_at_once else None
    return None


def _may_be_a_child(run_id: str) -> bool:
    """A child's id has its parent's in it, and its end must wake that one."""
    return "/" in run_id


def _is_plain(claim: Claim, end: End) -> bool:
    """The happy path: a step's first attempt that succeeded."""
    return claim.token == 1 and end.status != "failed" and not is_handler(claim.path)


def _of(of: WorkflowVersion | None) -> dict[str, Any]:
    return {"workflow": of and of.workflow, "version": of and of.version}


def _next(opening: OpenRow, executor: str | None) -> dict[str, Any]:
    return {
        "next_path": opening.path,
        "next_kind": opening.kind,
        "executor": executor,
        "timeout": opening.config.limit,
    }
