"""Fast paths of runs and steps: begin, claim and finish in one round trip. The statements are in `steps.sql`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rival_client.db.prepared import Row, Value
from rival_client.model.payload import load
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance, Carried, Close, Join, OpenRow
from rival_workers.engine.paths import is_handler
from rival_workers.store.interface import BeginResult, Claim, Claimed, FinishResult, WorkflowVersion
from rival_workers.store.postgres.statements import FastPath, load_statements

STATEMENTS = load_statements("steps.sql")


@dataclass(frozen=True)
class BeginCall:
    run_id: str
    token: int
    advance: Advance
    claim_for: str | None
    of: WorkflowVersion | None


@dataclass(frozen=True)
class ClaimCall:
    claim: Claim
    timeout: float | None
    executor: str
    of: WorkflowVersion | None
    within: float | None


@dataclass(frozen=True)
class ItemCall:
    run_id: str
    path: str


@dataclass(frozen=True)
class FinishCall:
    claim: Claim
    end: End
    advance: Advance
    claim_for: str | None
    grace: float

    @property
    def succeeded(self) -> bool:
        """A failed attempt is recorded with its error, and a handler's result is not the result of the run."""
        by_attempt = self.claim.guard == "execution_token"
        return by_attempt and self.end.status != "failed" and not is_handler(self.claim.path)

    @property
    def lane(self) -> tuple[str, str, OpenRow] | None:
        """The item that ends, its composite, and the one step that opens for the next item."""
        match self.advance.effects:
            case (Close(item, "completed", Carried()), Join(path=join, stops=False, each=(opening,))):
                return (item, join, opening) if opening.starts_at_once else None
        return None


# -- parameters and results -------------------------------------------------------------------------------


def _version(of: WorkflowVersion | None) -> dict[str, Value]:
    return {"workflow": None, "version": None} if of is None else {"workflow": of.workflow, "version": of.version}


def _next(opening: OpenRow, executor: str | None) -> dict[str, Value]:
    return {
        "next_path": opening.path,
        "next_kind": opening.kind,
        "executor": executor,
        "timeout": opening.config.limit,
    }


def _begin(call: BeginCall) -> dict[str, Value]:
    assert call.advance.next_leaf is not None
    own: dict[str, Value] = {"run_id": call.run_id, "token": call.token}
    return {**own, **_version(call.of), **_next(call.advance.next_leaf, call.claim_for)}


def _begun(call: BeginCall, row: Row) -> BeginResult | WorkflowVersion:
    if row[1] is not None and row[2] is not None:
        return WorkflowVersion(row[1], row[2])
    return BeginResult(load(row[0]), FinishResult(claimed=call.advance.next_leaf, token=call.token))


def _claim(call: ClaimCall) -> dict[str, Value]:
    row = _row(call.claim)
    return {**row, "executor": call.executor, "timeout": call.timeout, **_version(call.of)}


def _claimed(call: ClaimCall, row: Row) -> Claimed:
    token, timeout_token, attempt, lost = (int(text or 0) for text in row[:4])
    run_id, path = call.claim.run_id, call.claim.path
    return Claimed(run_id, path, token, timeout_token, attempt, lost, load(row[4]), row[5] or "")


def _row(claim: Claim) -> dict[str, Value]:
    return {"run_id": claim.run_id, "path": claim.path, "token": claim.token}


def _finish(call: FinishCall) -> dict[str, Value]:
    end, opening = call.end, call.advance.next_leaf
    ended = {"status": end.status, "result": end.result, "state": end.state, "outcome": end.outcome}
    following = {} if opening is None else _next(opening, call.claim_for)
    return {**_row(call.claim), **ended, **following, "grace": call.grace}


def _goes_on(call: FinishCall, row: Row) -> FinishResult:
    token, opening = int(row[0] or 0), call.advance.next_leaf
    assert opening is not None
    if call.claim_for is None:
        return FinishResult(opened=(opening,), token=token)
    return FinishResult(claimed=opening, token=token)


def _finish_lane(call: FinishCall) -> dict[str, Value]:
    assert call.lane is not None
    item, join, opening = call.lane
    following = _next(opening, call.claim_for) | {"next_path": opening.path.removeprefix(f"{join}[")}
    return {**_finish(call), **following, "item": item, "join": join}


def _lane_goes_on(call: FinishCall, row: Row) -> FinishResult:
    assert call.lane is not None
    _, join, opening = call.lane
    if row[0] is None:
        return FinishResult()
    begun, token = opening.at_item(join, int(row[0])), int(row[1] or 0)
    if call.claim_for is None:
        return FinishResult(opened=(begun,), token=token)
    return FinishResult(claimed=begun, token=token)


# -- the paths --------------------------------------------------------------------------------------------

BEGIN_RUN: FastPath[BeginCall, BeginResult | WorkflowVersion] = FastPath(
    shortcuts="begin_run",
    statement=STATEMENTS["rival_begin_run"],
    applies=lambda call: call.claim_for is not None and call.advance.next_leaf is not None,
    because="The run begins with one step, which the executor claims at once.",
    values=_begin,
    result=_begun,
    decides=True,
)
CLAIM_STEP: FastPath[ClaimCall, Claimed] = FastPath(
    shortcuts="claim_step",
    statement=STATEMENTS["rival_claim_step"],
    applies=lambda call: call.within is None,
    because="No row means stale, too early, or a timer, with which the whole run may have waited.",
    values=_claim,
    result=_claimed,
)
READ_ITEM: FastPath[ItemCall, Any] = FastPath(
    shortcuts="read_item",
    statement=STATEMENTS["rival_read_item"],
    applies=lambda call: True,
    because="It is one read by primary key.",
    values=lambda call: {"run_id": call.run_id, "path": call.path},
    result=lambda call, row: load(row[0]),
    decides=True,
)
FINISH_STEP: tuple[FastPath[FinishCall, FinishResult], ...] = (
    FastPath(
        shortcuts="finish_step",
        statement=STATEMENTS["rival_finish_and_claim"],
        applies=lambda call: call.succeeded and call.advance.next_leaf is not None and call.claim_for is not None,
        because="One step follows, and the same executor goes on with it. A paused run opens it without a claim.",
        values=_finish,
        result=_goes_on,
    ),
    FastPath(
        shortcuts="finish_step",
        statement=STATEMENTS["rival_finish_and_open"],
        applies=lambda call: call.succeeded and call.advance.next_leaf is not None and call.claim_for is None,
        because="One step follows, and a message starts it.",
        values=_finish,
        result=_goes_on,
    ),
    FastPath(
        shortcuts="finish_step",
        statement=STATEMENTS["rival_finish_and_complete"],
        applies=lambda call: call.succeeded and call.advance.completes_run,
        because="The result of the last step is the result of the run, and a run without a parent resumes no other.",
        values=_finish,
        result=lambda call, row: FinishResult(run_ended=True),
    ),
    FastPath(
        shortcuts="finish_step",
        statement=STATEMENTS["rival_finish_lane_and_claim"],
        applies=lambda call: call.succeeded and call.lane is not None and call.claim_for is not None,
        because="A lane of a for_each that is not the last one only counts down and opens the next item.",
        values=_finish_lane,
        result=_lane_goes_on,
    ),
    FastPath(
        shortcuts="finish_step",
        statement=STATEMENTS["rival_finish_lane_and_open"],
        applies=lambda call: call.succeeded and call.lane is not None and call.claim_for is None,
        because="As with a claim; a message starts the next item.",
        values=_finish_lane,
        result=_lane_goes_on,
    ),
)
