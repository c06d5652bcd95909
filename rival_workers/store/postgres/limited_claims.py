"""Fast paths of steps that have one limit of how many run at once: claims in one round trip, and the store's operations
with limits. The statements are in `limits.sql`.

Rates, several limits of one step, keys of items and the end of a flow take the portable path.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rival_client.db.prepared_statement import Row, Value
from rival_client.model.kinds import WITH_LANES
from rival_client.model.limits import Limit
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
    Successor,
    Without,
    WorkflowVersion,
)
from rival_workers.store.postgres.claims import CLAIM_STEP, ClaimCall, PostgresClaims
from rival_workers.store.postgres.limited_begins import BEGIN_LIMITED, BEGIN_QUEUED, BeginGate, LimitedBegin, may_enter
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
from rival_workers.store.postgres.statements import PORTABLE, FastPath, Portable, array_of
from rival_workers.store.postgres.steps import BeginCall, FinishCall, PostgresSteps
from rival_workers.store.sql.sweeps import SweepsSql

_WITH_LANES = array_of(WITH_LANES)
#: How many runs, and limits, are remembered that had no slot.
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
        return may_enter(self.limit)


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


LIMITED: tuple[FastPath[Any, Any], ...] = (BEGIN_LIMITED, BEGIN_QUEUED, CLAIM_LIMITED, QUEUE_STEP)


class PostgresLimits(PostgresClaims, PostgresSteps, SweepsSql):
    """Stands before the fast paths of steps without limits, which it calls with all others."""

    #: Runs that have just begun without a slot for their first step, and its limit: the claim of the step will probably
    #: find the gate full, too.
    _found_full: dict[str, BeginGate]
    #: Limits at which the last start had to wait: the next one will probably have to wait, too.
    _full_limits: set[BeginGate]

    def _begin_limited(self, begin: LimitedBegin) -> BeginResult | Portable | None:
        if begin.gate in self._full_limits:
            queued = self._fast(begin, BEGIN_QUEUED)
            if queued is not PORTABLE:
                return queued
            self._full_limits.discard(begin.gate)
        begun = self._fast(begin, BEGIN_LIMITED)
        if isinstance(begun, BeginResult) and begun.finished.opened:
            if len(self._found_full) > _REMEMBERED:
                self._found_full.clear()
            self._found_full[begin.call.run_id] = begin.gate
        return begun

    def _has_queued(self, gate: BeginGate) -> None:
        if len(self._full_limits) > _REMEMBERED:
            self._full_limits.clear()
        self._full_limits.add(gate)

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
            gate = self._found_full.pop(claim.run_id, None)
            for path in paths if gate is None else reversed(paths):
                done = self._fast(call, path)
                if isinstance(done, Queued) and gate is not None:
                    self._has_queued(gate)
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
            done = self._begin_limited(LimitedBegin(call, self.ring_grace))
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
        if isinstance(end, End):
            call = FinishCall(claim, end, advance, self._in_place(claim_for), self.ring_grace, successor)
            finish = LimitedFinish(call, self._queues)
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
