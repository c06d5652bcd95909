"""Fast paths for the start of a run whose first step has one concurrency limit: the step starts, or waits with a
ticket, in the commit that begins the run. The statements are in `limits.sql`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from rival_client.db.prepared_statement import Row, Value
from rival_client.model.limits.limits import Limit
from rival_client.model.payload import load
from rival_workers.store.claim_records import BeginResult, FinishResult, WorkflowVersion
from rival_workers.store.postgres.claims import facts_of, version_values
from rival_workers.store.postgres.limited_finishes import LIMIT_STATEMENTS, gate_values, the_gate
from rival_workers.store.postgres.statements import FastPath
from rival_workers.store.postgres.steps import BeginCall, next_values

#: Identifies the gates of a first step: the workflow, and the name of the limit, if it has one.
BeginGate = tuple[str | None, str | None]


def begin_gate(limit: Limit | None, of: WorkflowVersion | None) -> BeginGate:
    return None if of is None else of.workflow, None if limit is None else limit.name


def may_enter(limit: Limit) -> bool:
    """True if the key has one gate and a ticket can be added without counting the others."""
    return limit.max_waiting is None and limit.on_full == "wait" and limit.shards == 1


@dataclass(frozen=True)
class LimitedBegin:
    call: BeginCall
    grace: float

    @property
    def limit(self) -> Limit | None:
        opening = self.call.advance.next_leaf
        return None if opening is None else the_gate(self.call.advance.config_of(opening.path).limits)

    @property
    def may_enter(self) -> bool:
        return self.call.claim_for is not None and self.limit is not None and may_enter(self.limit)

    @property
    def is_fair(self) -> bool:
        return self.limit is not None and self.limit.fair is not None

    @property
    def gate(self) -> BeginGate:
        return begin_gate(self.limit, self.call.of)


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
    because="The run begins with one step. Without a slot, and with a rate, a claim of its own follows, as on the "
    "portable path.",
    values=_begin,
    result=_begun,
)


BEGIN_QUEUED: FastPath[LimitedBegin, BeginResult] = FastPath(
    shortcuts="begin_run",
    statement=LIMIT_STATEMENTS["rival_begin_run_queued"],
    applies=lambda begin: begin.may_enter and not begin.is_fair,
    because="The gate of its first step is full: the step waits at the end of the queue, as after a claim of its own.",
    values=_begin,
    result=lambda begin, row: BeginResult(load(row[0]), FinishResult(token=begin.call.token), facts_of(*row[1:])),
)
BEGIN_QUEUED_FAIRLY = replace(
    BEGIN_QUEUED,
    applies=lambda begin: begin.may_enter and begin.is_fair,
    because="The same; no other transaction enters tickets of its group meanwhile, so those that wait are seen.",
    lock=LIMIT_STATEMENTS["rival_lock_fair_group"],
)
