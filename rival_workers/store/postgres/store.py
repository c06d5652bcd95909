"""The store on Postgres: tries the fast path of an operation, and takes the portable path of `SqlStore` otherwise."""

from __future__ import annotations

from enum import Enum, auto
from typing import Any, Final, Literal

from rival_client.db.database import Database
from rival_client.db.prepared import PreparedPool
from rival_client.model.payload import Json
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance
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
from rival_workers.store.postgres.events import DELIVER_EVENT, DeliverCall
from rival_workers.store.postgres.flows import (
    COMMIT_FLOW,
    CONTINUE_FLOW,
    READ_CHECKPOINTS,
    RECORD_CHECKPOINT,
    CommitCall,
    ContinueCall,
    ReadCall,
    RecordCall,
)
from rival_workers.store.postgres.statements import Call, FastPath, Result
from rival_workers.store.postgres.steps import (
    BEGIN_RUN,
    CLAIM_STEP,
    FINISH_STEP,
    READ_ITEM,
    BeginCall,
    ClaimCall,
    FinishCall,
    ItemCall,
)
from rival_workers.store.sql_store import SqlStore

FAST_PATHS: tuple[FastPath[Any, Any], ...] = (
    BEGIN_RUN,
    CLAIM_STEP,
    READ_ITEM,
    *FINISH_STEP,
    READ_CHECKPOINTS,
    RECORD_CHECKPOINT,
    *COMMIT_FLOW,
    CONTINUE_FLOW,
    DELIVER_EVENT,
)


class _Path(Enum):
    PORTABLE = auto()


PORTABLE: Final = _Path.PORTABLE


class PostgresStore(SqlStore):
    def __init__(self, database: Database, **options: Any) -> None:
        super().__init__(database, **options)
        self._prepared = PreparedPool(database.url)

    def close(self) -> None:
        self._prepared.close()
        super().close()

    def _fast(self, call: Call, *paths: FastPath[Call, Result]) -> Result | Literal[_Path.PORTABLE] | None:
        """The result of the first path that applies. PORTABLE: none does, or the guard of its statement did not fit."""
        for path in paths:
            if path.applies(call):
                row = path.fetch(self._prepared, call)
                result = None if row is None else path.result(call, row)
                return _Path.PORTABLE if result is None and not path.decides else result
        return _Path.PORTABLE

    def begin_run(
        self, run_id: str, token: int, advance: Advance, *, claim_for: str | None, of: WorkflowVersion | None = None
    ) -> BeginResult | WorkflowVersion | None:
        done = self._fast(BeginCall(run_id, token, advance, claim_for, of), BEGIN_RUN)
        return super().begin_run(run_id, token, advance, claim_for=claim_for, of=of) if done is PORTABLE else done

    def claim_step(
        self,
        claim: Claim,
        timeout: float | None,
        executor: str,
        *,
        of: WorkflowVersion | None = None,
        within: float | None = None,
    ) -> Claimed | NotYet | WorkflowVersion | None:
        done = self._fast(ClaimCall(claim, timeout, executor, of, within), CLAIM_STEP)
        return super().claim_step(claim, timeout, executor, of=of, within=within) if done is PORTABLE else done

    def read_item(self, run_id: str, path: str) -> Any:
        return self._fast(ItemCall(run_id, path), READ_ITEM)

    def finish_step(self, claim: Claim, end: End, advance: Advance, *, claim_for: str | None) -> FinishResult | None:
        done = self._fast(FinishCall(claim, end, advance, claim_for, self.ring_grace), *FINISH_STEP)
        return super().finish_step(claim, end, advance, claim_for=claim_for) if done is PORTABLE else done

    def deliver_event(self, event_id: str, claim: ClaimBy | None = None) -> Delivered:
        done = self._fast(DeliverCall(event_id, claim, self.ring_grace), DELIVER_EVENT)
        return super().deliver_event(event_id, claim) if done is PORTABLE or done is None else done

    def read_checkpoints(self, run_id: str, flow: str) -> StoredFlow:
        done = self._fast(ReadCall(run_id, flow), READ_CHECKPOINTS)
        return super().read_checkpoints(run_id, flow) if done is PORTABLE or done is None else done

    def record_checkpoint(self, claim: Claim, write: CheckpointWrite, state: Json | None = None) -> float | None:
        done = self._fast(RecordCall(claim, write, state), RECORD_CHECKPOINT)
        return super().record_checkpoint(claim, write, state) if done is PORTABLE else done

    def commit_flow(self, claim: Claim, commit: FlowCommit) -> FlowProgress | None:
        done = self._fast(CommitCall(claim, commit), *COMMIT_FLOW)
        return super().commit_flow(claim, commit) if done is PORTABLE else done

    def continue_flow(self, claim: Claim, its_input: Json, state: Json | None = None) -> int | None:
        done = self._fast(ContinueCall(claim, its_input, state, self.ring_grace), CONTINUE_FLOW)
        return super().continue_flow(claim, its_input, state) if done is PORTABLE else done
