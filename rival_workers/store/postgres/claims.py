"""Fast paths of claims: claim a step, read its item, ask its circuit breaker. The statements are in `steps.sql`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rival_client.db.prepared_statement import Row, Value
from rival_client.model.limits.limits import Limit
from rival_client.model.payload import load
from rival_client.model.policies.breakers import Breaker
from rival_client.model.starts.queues import USUAL_ROUTE, Route
from rival_workers.store.call_records import BreakerAnswer
from rival_workers.store.claim_records import NO_FACTS, Claim, Claimed, NotYet, Queued, RunFacts, WorkflowVersion
from rival_workers.store.postgres.statements import PORTABLE, FastPath, FastPaths, load_statements
from rival_workers.store.sql.breakers import BreakersSql
from rival_workers.store.sql.claims import ClaimsSql

STATEMENTS = load_statements("steps.sql")


@dataclass(frozen=True)
class ClaimCall:
    claim: Claim
    timeout: float | None
    executor: str
    of: WorkflowVersion | None
    within: float | None
    #: The queues of the worker, as a Postgres array.
    queues: str
    policy: str | None


@dataclass(frozen=True)
class ItemCall:
    run_id: str
    path: str


@dataclass(frozen=True)
class AskCall:
    breaker: str


# -- parameters and results -------------------------------------------------------------------------------


def version_values(of: WorkflowVersion | None) -> dict[str, Value]:
    return {"workflow": None, "version": None} if of is None else {"workflow": of.workflow, "version": of.version}


def _claim(call: ClaimCall) -> dict[str, Value]:
    row = claim_values(call.claim)
    own: dict[str, Value] = {"executor": call.executor, "timeout": call.timeout, "queues": call.queues}
    own["policy"] = call.policy
    return {**row, **own, **version_values(call.of)}


def _claimed(call: ClaimCall, row: Row) -> Claimed:
    return claimed_of(call.claim.run_id, call.claim.path, row)


def claimed_of(run_id: str, path: str, row: Row) -> Claimed:
    """`row`: the columns that a claim statement returns."""
    token, timeout_token, attempt, lost = (int(text or 0) for text in row[:4])
    tokens = (token, timeout_token, attempt, lost)
    left = None if row[12] is None else float(row[12])
    facts, route = facts_of(row[6], row[7], row[8], row[9], row[13]), route_of(row[10], row[11])
    return Claimed(run_id, path, *tokens, load(row[4]), row[5] or "", facts=facts, route=route, left=left)


def facts_of(
    labels: str | None, deadline: str | None, left: str | None, level: str | None, policies: str | None
) -> RunFacts:
    """`deadline`: seconds since the epoch."""
    if labels is None and level is None and policies is None and (deadline is None or left is None):
        return NO_FACTS
    its_labels, its_level = None if labels is None else load(labels), int(level or 0)
    if deadline is None or left is None:
        return RunFacts(its_labels, level=its_level, policies=load(policies))
    at = dt.datetime.fromtimestamp(float(deadline), dt.UTC)
    return RunFacts(its_labels, at, float(left), its_level, load(policies))


def route_of(queue: str | None, level: str | None) -> Route:
    return USUAL_ROUTE if queue is None and level is None else Route(queue, int(level or 0))


def claim_values(claim: Claim) -> dict[str, Value]:
    return {"run_id": claim.run_id, "path": claim.path, "token": claim.token}


CLAIM_STEP: FastPath[ClaimCall, Claimed] = FastPath(
    shortcuts="claim_step",
    statement=STATEMENTS["rival_claim_step"],
    applies=lambda call: call.within is None,
    because="No row means stale or too early, or a wait whose time is over.",
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
ASK_BREAKER: FastPath[AskCall, BreakerAnswer] = FastPath(
    shortcuts="ask_breaker",
    statement=STATEMENTS["rival_ask_breaker"],
    applies=lambda call: True,
    because="The breaker is closed, no step waits since it was open, and nothing changes.",
    values=lambda call: {"name": call.breaker},
    result=lambda call, row: BreakerAnswer(True) if row[0] in (None, "closed") and row[1] is None else None,
)


class PostgresBreakers(FastPaths, BreakersSql):
    def ask_breaker(self, breaker: Breaker, claim: Claim, executor: str) -> BreakerAnswer:
        done = self._fast(AskCall(breaker.name), ASK_BREAKER)
        return super().ask_breaker(breaker, claim, executor) if done is PORTABLE or done is None else done


class PostgresClaims(FastPaths, ClaimsSql):
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
        call = ClaimCall(claim, timeout, executor, of, within, self._queues, policy)
        if not limits:
            done = self._fast(call, CLAIM_STEP)
            if done is not PORTABLE:
                return done
        return super().claim_step(claim, timeout, executor, of=of, within=within, limits=limits, policy=policy)

    def read_item(self, run_id: str, path: str) -> Any:
        return self._fast(ItemCall(run_id, path), READ_ITEM)
