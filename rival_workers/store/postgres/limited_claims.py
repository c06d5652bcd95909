"""Fast paths of steps that have one limit or one rate: claims in one round trip, and the store's operations with
limits. The statements are in `limits.sql`. Steps with several limits, keys of items and the end of a flow take the
portable path.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rival_client.db.prepared_statement import Row, Value
from rival_client.model.kinds import WITH_LANES
from rival_client.model.limits.limits import Limit
from rival_client.sql.gates import RATE_GRACE
from rival_client.sql.grants import Grant
from rival_client.sql.wake import composites_above
from rival_workers.engine.decisions import End, FallBack
from rival_workers.engine.effects import Advance
from rival_workers.store.claim_records import (
    BeginOutcome,
    BeginResult,
    Claim,
    Claimed,
    FinishResult,
    NotYet,
    Queued,
    Successor,
    Without,
    WorkflowVersion,
)
from rival_workers.store.postgres.claims import CLAIM_STEP, ClaimCall, PostgresClaims, route_of
from rival_workers.store.postgres.limited_begins import (
    BEGIN_LIMITED,
    BEGIN_QUEUED,
    BEGIN_QUEUED_FAIRLY,
    BeginGate,
    LimitedBegin,
    may_enter,
)
from rival_workers.store.postgres.limited_finishes import (
    FINISH_LIMITED,
    LIMIT_STATEMENTS,
    LOOK_AGAIN,
    Left,
    LimitedFinish,
    LookAgain,
    gate_values,
    grants_of,
    is_limited,
    the_gate,
)
from rival_workers.store.postgres.statements import PORTABLE, FastPath, Portable, array_of
from rival_workers.store.postgres.steps import BeginCall, FinishCall, PostgresSteps
from rival_workers.store.sql.limited_starts import Start
from rival_workers.store.sql.sweeps import SweepsSql

_WITH_LANES = array_of(WITH_LANES)
#: How many runs and limits without a free slot are remembered.
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
        return {**CLAIM_STEP.values(self.call), **its_gate, "rate_grace": RATE_GRACE}

    @property
    def is_paced(self) -> bool:
        return self.limit.is_rate and self.call.within is None

    @property
    def is_limited(self) -> bool:
        return not self.limit.is_rate and self.call.within is None

    @property
    def may_enter(self) -> bool:
        return self.call.within is None and may_enter(self.limit)


def _enter(claim: LimitedClaim) -> dict[str, Value]:
    above = array_of(composites_above(claim.call.claim.path))
    return {**claim.values, "above": above, "with_lanes": _WITH_LANES}


def _claimed(claim: LimitedClaim, row: Row) -> Claimed | None:
    found = CLAIM_STEP.result(claim.call, row)
    return found if found is None or row[14] is None else replace(found, waited=float(row[14]))


@dataclass(frozen=True)
class Paced:
    """The result of a claim at a rate limit: the step started, came too early, or waits with a ticket. `grants`: the
    tickets that the claim granted. `freed`: gates with room for another granted ticket, of which the statement saw
    none, or which it has entered."""

    answer: Claimed | NotYet | Queued | None
    grants: tuple[Grant, ...] = ()
    freed: tuple[int, ...] = ()


def _paced(claim: LimitedClaim, row: Row) -> Paced:
    if row[0] is None:
        return Paced(NotYet(float(row[17] or 0), route_of(row[10], row[11])))
    return Paced(_claimed(claim, row), grants_of(row[16]), tuple(json.loads(row[15] or "[]")))


def _queued(claim: LimitedClaim, row: Row) -> Queued | Paced:
    queued = Queued(claim.limit.gate_name, row[0] or "")
    return queued if row[1] is None else Paced(queued, freed=(int(row[1]),))


CLAIM_LIMITED: FastPath[LimitedClaim, Claimed] = FastPath(
    shortcuts="claim_step",
    statement=LIMIT_STATEMENTS["rival_claim_step_limited"],
    applies=lambda claim: claim.is_limited,
    because="Its gate has a free slot and no ticket waits, or the ticket of the step has a slot.",
    values=lambda claim: claim.values,
    result=_claimed,
)
CLAIM_PACED: FastPath[LimitedClaim, Paced] = FastPath(
    shortcuts="claim_step",
    statement=LIMIT_STATEMENTS["rival_claim_step_paced"],
    applies=lambda claim: claim.is_paced,
    because="Its ticket was granted, or there are no tickets; the gate says whether it is time.",
    values=lambda claim: claim.values,
    result=_paced,
)
QUEUE_STEP: FastPath[LimitedClaim, Queued | Paced] = FastPath(
    shortcuts="claim_step",
    statement=LIMIT_STATEMENTS["rival_claim_step_queued"],
    applies=lambda claim: claim.may_enter and claim.limit.fair is None,
    because="Its gate is full, or its rate does not allow a start now: the step waits at the end of the queue.",
    values=_enter,
    result=_queued,
)
QUEUE_STEP_FAIRLY = replace(
    QUEUE_STEP,
    applies=lambda claim: claim.may_enter and claim.limit.fair is not None,
    because="The same; no other transaction enters tickets of its group meanwhile, so those that wait are seen.",
    lock=LIMIT_STATEMENTS["rival_lock_fair_group"],
)
_STARTS: tuple[FastPath[LimitedClaim, Any], ...] = (CLAIM_LIMITED, CLAIM_PACED)
_ENTERS: tuple[FastPath[LimitedClaim, Any], ...] = (QUEUE_STEP, QUEUE_STEP_FAIRLY)
_BEGINS_QUEUED = (BEGIN_QUEUED, BEGIN_QUEUED_FAIRLY)


LIMITED: tuple[FastPath[Any, Any], ...] = (BEGIN_LIMITED, *_BEGINS_QUEUED, *_STARTS, *_ENTERS)


class PostgresLimits(PostgresClaims, PostgresSteps, SweepsSql):
    """Tries the fast paths of limits first, then those of steps without limits."""

    #: Runs that have just begun without a slot for their first step, with its limit: the claim of the step will
    #: probably find the gate full as well.
    _found_full: dict[str, BeginGate]
    #: Limits at which the last start had to wait: the next one will probably have to wait as well.
    _full_limits: set[BeginGate]

    def _begin_limited(self, begin: LimitedBegin) -> BeginResult | Portable | None:
        if begin.gate in self._full_limits:
            queued = self._fast(begin, *_BEGINS_QUEUED)
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
        limit = the_gate(limits)
        if limit is not None:
            call = ClaimCall(claim, timeout, executor, of, within, self._queues, policy)
            done = self._claim_limited_fast(LimitedClaim(call, limit))
            if done is not PORTABLE:
                return done
        return super().claim_step(claim, timeout, executor, of=of, within=within, limits=limits, policy=policy)

    def _claim_at_new_gate(
        self,
        claim: Claim,
        timeout: float | None,
        executor: str,
        its_limits: Sequence[Limit],
        of: WorkflowVersion | None,
        within: float | None,
        policy: str | None,
    ) -> tuple[Start, Sequence[Grant]] | None:
        limit = the_gate(its_limits)
        if limit is None:
            return None
        call = ClaimCall(claim, timeout, executor, of, within, self._queues, policy)
        done = self._claim_limited_fast(LimitedClaim(call, limit))
        return None if done is PORTABLE else (done, ())

    def _claim_limited_fast(self, claim: LimitedClaim) -> Claimed | NotYet | Queued | Portable | None:
        gate = self._found_full.pop(claim.call.claim.run_id, None)
        starts_first = gate is None or claim.limit.is_rate
        for paths in (_STARTS, _ENTERS) if starts_first else (_ENTERS, _STARTS):
            done: Any = self._fast(claim, *paths)
            if isinstance(done, Queued) and gate is not None:
                self._has_queued(gate)
            if isinstance(done, Paced):
                self._publish_grants(done.grants + self.look_again(done.freed))
                return done.answer
            if done is not PORTABLE:
                return done  # type: ignore[no-any-return]
        return PORTABLE

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
        opening = advance.next_leaf
        if not limits and opening is not None and advance.limits_of(opening):
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
        if isinstance(end, End) and is_limited(claim.path, advance):
            call = FinishCall(claim, end, advance, self._in_place(claim_for), self.ring_grace, successor)
            left = self._finish_limited(LimitedFinish(call, self._queues))
            if left is not None:
                return replace(left.finished, grants=left.finished.grants + self.look_again(left.freed))
        return super().finish_step(claim, end, advance, claim_for=claim_for)

    def _finish_limited(self, finish: LimitedFinish) -> Left | None:
        left = self._fast(finish, *FINISH_LIMITED)
        return None if left is PORTABLE else left

    def look_again(self, gates: Sequence[int]) -> tuple[Grant, ...]:
        if not gates:
            return ()
        granted = self._fast(LookAgain(gates, self.ring_grace), LOOK_AGAIN)
        return granted if isinstance(granted, tuple) else ()
