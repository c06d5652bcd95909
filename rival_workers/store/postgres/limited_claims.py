"""Fast paths of steps that have one limit of how many run at once: begin and claim in one round trip, and the store's
operations with limits. The statements are in `limits.sql`.

Rates, several limits of one step, keys of items and the end of a flow take the portable path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rival_client.db.prepared_statement import Row, Value
from rival_client.model.kinds import WITH_LANES
from rival_client.model.limits import Limit
from rival_client.model.payload import load
from rival_client.sql.gates import Grant
from rival_client.sql.wake import composites_above
from rival_workers.engine.decisions import End, FallBack
from rival_workers.engine.effects import Advance
from rival_workers.store.claim_records import (
    BeginResult,
    Begun,
    Claim,
    Claimed,
    FinishResult,
    NotYet,
    Queued,
    Without,
    WorkflowVersion,
)
from rival_workers.store.postgres.claims import CLAIM_STEP, ClaimCall, PostgresClaims, facts_of, version_values
from rival_workers.store.postgres.limited_finishes import (
    FINISH_LIMITED,
    LIMIT_STATEMENTS,
    LOOK_AGAIN,
    Left,
    LimitedFinish,
    Look,
    gate_values,
    the_limit,
)
from rival_workers.store.postgres.statements import PORTABLE, FastPath, array_of
from rival_workers.store.postgres.steps import BeginCall, FinishCall, PostgresSteps, next_values
from rival_workers.store.sql.sweeps import SweepsSql

_WITH_LANES = array_of(WITH_LANES)
#: How many runs are remembered that have begun without a slot.
_REMEMBERED = 1000


# -- claims -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LimitedClaim:
    call: ClaimCall
    limit: Limit

    @property
    def values(self) -> dict[str, Value]:
        claim = self.call.claim
        its_gate = gate_values(self.limit, claim.run_id, claim.path)
        return {**CLAIM_STEP.values(self.call), **its_gate}

    @property
    def may_enter(self) -> bool:
        """Its ticket needs no look at other tickets: neither how many there are, nor those of a group."""
        limit = self.limit
        is_plain = limit.fair is None and limit.max_waiting is None and limit.on_full == "wait"
        return is_plain and limit.shards == 1


def _enter(claim: LimitedClaim) -> dict[str, Value]:
    above = array_of(composites_above(claim.call.claim.path))
    return {**claim.values, "above": above, "with_lanes": _WITH_LANES}


def _claimed(claim: LimitedClaim, row: Row) -> Claimed | None:
    found = CLAIM_STEP.result(claim.call, row)
    return found if found is None or row[14] is None else replace(found, waited=float(row[14]))


CLAIM_LIMITED: FastPath[LimitedClaim, Claimed] = FastPath(
    shortcuts="claim_step",
    statement=LIMIT_STATEMENTS["rival_claim_step_limited"],
    applies=lambda claim: claim.call.within is None,
    because="Its gate has a slot and nothing waits at it, or the ticket of the step has a slot.",
    values=lambda claim: claim.values,
    result=_claimed,
)
QUEUE_STEP: FastPath[LimitedClaim, Queued] = FastPath(
    shortcuts="claim_step",
    statement=LIMIT_STATEMENTS["rival_claim_step_queued"],
    applies=lambda claim: claim.call.within is None and claim.may_enter,
    because="Its gate is full: the step waits at the end of the queue.",
    values=_enter,
    result=lambda claim, row: Queued(claim.limit.gate_name, row[0] or ""),
)


# -- begin ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LimitedBegin:
    call: BeginCall
    grace: float

    @property
    def limit(self) -> Limit | None:
        opening = self.call.advance.next_leaf
        return None if opening is None else the_limit(self.call.advance.config_of(opening.path).limits)


def _begin(begin: LimitedBegin) -> dict[str, Value]:
    call, opening = begin.call, begin.call.advance.next_leaf
    assert opening is not None
    own: dict[str, Value] = {"run_id": call.run_id, "token": call.token, "grace": begin.grace, "without": call.without}
    its_gate = gate_values(begin.limit, call.run_id, opening.path)
    return {**own, **version_values(call.of), **next_values(call.advance, opening, call.claim_for), **its_gate}


def _begun(begin: LimitedBegin, row: Row) -> BeginResult:
    opening, token = begin.call.advance.next_leaf, begin.call.token
    assert opening is not None
    at_once = FinishResult(claimed=opening, token=token)
    finished = at_once if row[6] == "t" else FinishResult(opened=(opening,), token=token)
    return BeginResult(load(row[0]), finished, facts_of(row[1], row[2], row[3], row[4], row[5]))


BEGIN_LIMITED: FastPath[LimitedBegin, BeginResult] = FastPath(
    shortcuts="begin_run",
    statement=LIMIT_STATEMENTS["rival_begin_run_limited"],
    applies=lambda begin: begin.limit is not None,
    because="The run begins with one step. Without a slot, a claim of its own follows, as on the portable path.",
    values=_begin,
    result=_begun,
)


LIMITED: tuple[FastPath[Any, Any], ...] = (BEGIN_LIMITED, CLAIM_LIMITED, QUEUE_STEP)


class PostgresLimits(PostgresClaims, PostgresSteps, SweepsSql):
    """Stands before the fast paths of steps without limits, which it calls with all others."""

    #: Runs that have just begun without a slot for their first step: its claim will probably find the gate full, too.
    _found_full: set[str]

    def _remember(self, run_id: str, begun: BeginResult | None) -> None:
        if begun is not None and begun.finished.opened:
            if len(self._found_full) > _REMEMBERED:
                self._found_full.clear()
            self._found_full.add(run_id)

    def _was_full(self, claim: Claim) -> bool:
        if claim.run_id not in self._found_full:
            return False
        self._found_full.discard(claim.run_id)
        return True

    def claim_step(
        self,
        claim: Claim,
        timeout: float | None,
        executor: str,
        *,
        of: WorkflowVersion | None = None,
        within: float | None = None,
        limits: Sequence[Limit] = (),
        policy: str | None = None,
    ) -> Claimed | NotYet | Queued | WorkflowVersion | None:
        limit = the_limit(limits)
        if limit is not None:
            call = LimitedClaim(ClaimCall(claim, timeout, executor, of, within, self._queues, policy), limit)
            paths: tuple[FastPath[LimitedClaim, Any], ...] = (CLAIM_LIMITED, QUEUE_STEP)
            for path in reversed(paths) if self._was_full(claim) else paths:
                done = self._fast(call, path)
                if done is not PORTABLE:
                    return done
        return super().claim_step(claim, timeout, executor, of=of, within=within, limits=limits, policy=policy)

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
    ) -> Begun:
        if not limits:
            call = BeginCall(run_id, token, advance, self._in_place(claim_for), of, without)
            done = self._fast(LimitedBegin(call, self.ring_grace), BEGIN_LIMITED)
            if done is not PORTABLE:
                self._remember(run_id, done)
                return done
        return super().begin_run(run_id, token, advance, claim_for=claim_for, of=of, limits=limits, without=without)

    def finish_step(
        self, claim: Claim, end: End | FallBack, advance: Advance, *, claim_for: str | None
    ) -> FinishResult | None:
        if isinstance(end, End):
            finish = LimitedFinish(FinishCall(claim, end, advance, self._in_place(claim_for), self.ring_grace))
            left = self._finish_limited(finish) if finish.is_limited else None
            if left is not None:
                return replace(left.finished, grants=left.finished.grants + self.look_again(left.freed))
        return super().finish_step(claim, end, advance, claim_for=claim_for)

    def _finish_limited(self, finish: LimitedFinish) -> Left | None:
        left = self._fast(finish, *FINISH_LIMITED)
        return None if left is PORTABLE else left

    def look_again(self, gates: Sequence[int]) -> tuple[Grant, ...]:
        if not gates:
            return ()
        granted = self._fast(Look(gates, self.ring_grace), LOOK_AGAIN)
        return granted if isinstance(granted, tuple) else ()
