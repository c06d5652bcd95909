"""Fast paths of runs and steps: begin, claim and finish in one round trip. The statements are in `steps.sql`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rival_client.db.prepared_statement import Row, Value
from rival_client.model.limits.limits import Limit
from rival_client.model.payload import load
from rival_client.sql.history import result_details
from rival_workers.engine.decisions import End, FallBack
from rival_workers.engine.effects import Advance, OpenRow
from rival_workers.store.claim_records import (
    BeginOutcome,
    BeginResult,
    Claim,
    Expired,
    FinishResult,
    HasRules,
    NotYet,
    Successor,
    Without,
    WorkflowVersion,
)
from rival_workers.store.postgres.claims import STATEMENTS, claim_values, facts_of, version_values
from rival_workers.store.postgres.endings import at_once, has_succeeded
from rival_workers.store.postgres.statements import PORTABLE, FastPath, FastPaths
from rival_workers.store.sql.step_transitions import StepTransitionsSql


@dataclass(frozen=True)
class BeginCall:
    run_id: str
    token: int
    advance: Advance
    claim_for: str | None
    of: WorkflowVersion | None
    without: Without | None = None


@dataclass(frozen=True)
class FinishCall:
    claim: Claim
    end: End
    advance: Advance
    claim_for: str | None
    grace: float
    successor: Successor | None = None

    @property
    def claimer(self) -> str | None:
        """The executor that continues with the next step. A step with limits is claimed in a transaction of its own."""
        opening = self.advance.next_leaf or (self.lane[2] if self.lane else None)
        return self.claim_for if at_once(self.advance, opening) else None

    @property
    def succeeded(self) -> bool:
        return has_succeeded(self.claim, self.end)

    @property
    def lane(self) -> tuple[str, str, OpenRow] | None:
        return self.advance.lane


def next_values(advance: Advance, opening: OpenRow, executor: str | None) -> dict[str, Value]:
    return {
        "next_path": opening.path,
        "next_kind": opening.kind,
        "executor": executor,
        "timeout": advance.config_of(opening.path).limit,
        "policy": advance.policy_of(opening.path),
    }


def _begin(call: BeginCall) -> dict[str, Value]:
    assert call.advance.next_leaf is not None
    own: dict[str, Value] = {"run_id": call.run_id, "token": call.token, "without": call.without}
    return {**own, **version_values(call.of), **next_values(call.advance, call.advance.next_leaf, call.claim_for)}


def _begun(call: BeginCall, row: Row) -> BeginResult | NotYet | Expired | HasRules | WorkflowVersion | None:
    if row[1] is None or row[2] is None:
        finished = FinishResult(claimed=call.advance.next_leaf, token=call.token)
        return BeginResult(load(row[0]), finished, facts_of(row[3], row[4], row[5], row[6], row[8]))
    found = WorkflowVersion(row[1], row[2])
    if call.of not in (None, found):
        return found
    if row[7] is not None:
        return Expired() if float(row[7]) < 0 else NotYet(float(row[7]))
    return None if row[3] is None and row[8] is None else HasRules(load(row[8]), load(row[3]))


def ended_values(call: FinishCall) -> dict[str, Value]:
    end = call.end
    ended = {"status": end.status, "result": end.result, "state": end.state, "outcome": end.outcome}
    named = result_details(call.claim.path, call.claim.token + 1, end.result, end.state)
    details: dict[str, Value] = {"own_detail": named[0], "upper_detail": named[1]}
    return {**claim_values(call.claim), **ended, **details, "grace": call.grace}


def _finish(call: FinishCall) -> dict[str, Value]:
    opening = call.advance.next_leaf
    following = {} if opening is None else next_values(call.advance, opening, call.claimer)
    return {**ended_values(call), **following}


def _goes_on(call: FinishCall, row: Row) -> FinishResult:
    token, opening = int(row[0] or 0), call.advance.next_leaf
    assert opening is not None
    if call.claimer is None:
        return FinishResult(opened=(opening,), token=token)
    return FinishResult(claimed=opening, token=token)


def _finish_lane(call: FinishCall) -> dict[str, Value]:
    assert call.lane is not None
    item, join, opening = call.lane
    following = next_values(call.advance, opening, call.claimer) | {"next_path": opening.path.removeprefix(f"{join}[")}
    return {**_finish(call), **following, "item": item, "join": join}


def _lane_goes_on(call: FinishCall, row: Row) -> FinishResult:
    assert call.lane is not None
    _, join, opening = call.lane
    if row[0] is None:
        return FinishResult()
    begun, token = opening.at_item(join, int(row[0])), int(row[1] or 0)
    if call.claimer is None:
        return FinishResult(opened=(begun,), token=token)
    return FinishResult(claimed=begun, token=token)


# -- the paths --------------------------------------------------------------------------------------------

BEGIN_RUN: FastPath[BeginCall, BeginResult | NotYet | Expired | HasRules | WorkflowVersion] = FastPath(
    shortcuts="begin_run",
    statement=STATEMENTS["rival_begin_run"],
    applies=lambda call: call.claim_for is not None and at_once(call.advance, call.advance.next_leaf),
    because="The run begins with one step without limits, which the executor claims at once.",
    values=_begin,
    result=_begun,
    decides=True,
)
FINISH_STEP: tuple[FastPath[FinishCall, FinishResult], ...] = (
    FastPath(
        shortcuts="finish_step",
        statement=STATEMENTS["rival_finish_step_and_claim"],
        applies=lambda call: call.succeeded and call.advance.next_leaf is not None and call.claimer is not None,
        because="One step follows, and the same executor continues with it. A paused run opens it without a claim.",
        values=_finish,
        result=_goes_on,
    ),
    FastPath(
        shortcuts="finish_step",
        statement=STATEMENTS["rival_finish_step_and_open"],
        applies=lambda call: call.succeeded and call.advance.next_leaf is not None and call.claimer is None,
        because="One step follows, and a message starts it.",
        values=_finish,
        result=_goes_on,
    ),
    FastPath(
        shortcuts="finish_step",
        statement=STATEMENTS["rival_finish_step_and_complete"],
        applies=lambda call: call.succeeded and call.advance.completes_run,
        because="The result of the last step is the result of the run, and a run without a parent resumes no other.",
        values=_finish,
        result=lambda call, row: FinishResult(run_ended=True),
    ),
    FastPath(
        shortcuts="finish_step",
        statement=STATEMENTS["rival_finish_step_of_lane_and_claim"],
        applies=lambda call: call.succeeded and call.lane is not None and call.claimer is not None,
        because="A lane of a for_each that is not the last one only counts down and opens the next item.",
        values=_finish_lane,
        result=_lane_goes_on,
    ),
    FastPath(
        shortcuts="finish_step",
        statement=STATEMENTS["rival_finish_step_of_lane_and_open"],
        applies=lambda call: call.succeeded and call.lane is not None and call.claimer is None,
        because="As with a claim; a message starts the next item.",
        values=_finish_lane,
        result=_lane_goes_on,
    ),
)


class PostgresSteps(FastPaths, StepTransitionsSql):
    def begin_run(
        self,
        run_id: str,
        token: int,
        advance: Advance,
        *,
        claim_for: str | None,
        of: WorkflowVersion | None = None,
        limits: Sequence[Limit] = (),
        without: Without | None = None,
    ) -> BeginOutcome:
        if not limits:
            done = self._fast(BeginCall(run_id, token, advance, self._in_place(claim_for), of, without), BEGIN_RUN)
            if done is not PORTABLE:
                return done
        return super().begin_run(run_id, token, advance, claim_for=claim_for, of=of, limits=limits, without=without)

    def finish_step(
        self,
        claim: Claim,
        end: End | FallBack,
        advance: Advance,
        *,
        claim_for: str | None,
        successor: Successor | None = None,
    ) -> FinishResult | None:
        if isinstance(end, FallBack):
            return super().finish_step(claim, end, advance, claim_for=claim_for)
        done = self._fast(FinishCall(claim, end, advance, self._in_place(claim_for), self.ring_grace), *FINISH_STEP)
        return super().finish_step(claim, end, advance, claim_for=claim_for) if done is PORTABLE else done
