"""Starts of steps and runs that have limits, in portable SQL: each takes its slots, or waits with a ticket. Steps and
runs without limits do not use this module.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, select, update

from rival_client.db.guards import run_can
from rival_client.db.limit_tables import tickets
from rival_client.db.locks import share_run
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import EXTERNAL, ITEM
from rival_client.model.limits.limits import Limit
from rival_client.model.starts.queues import Route
from rival_client.model.timers import EARLY
from rival_client.sql.external_steps import ATTEMPT, COMPLETED, FAILED
from rival_client.sql.grants import Grant
from rival_client.sql.history import record
from rival_client.sql.wake import suspend_run, wake_run
from rival_workers.store.claim_records import Claim, Claimed, NotYet, Queued, Refused, WorkflowVersion
from rival_workers.store.sql.admission import Admission, with_gates
from rival_workers.store.sql.applicants import Admitted, Applicant, Early, Full
from rival_workers.store.sql.guards import (
    FACTS,
    earlier_limit,
    facts_of,
    guard,
    in_time,
    is_of,
    is_served,
    may_begin_now,
    other_than,
    route_of,
    run_goes_on,
    seconds_until,
    step_starts,
)
from rival_workers.store.sql.locks import change_locked
from rival_workers.store.sql.part import StorePart
from rival_workers.store.sql.singletons import applicant_of, run_before, slot_name

_STEP = tuple(
    steps.c[name]
    for name in (
        "status",
        "kind",
        "attempts",
        "lost",
        "execution_token",
        "timeout_token",
        "due_at",
        "item",
        "slots",
        "queue",
        "priority",
        "deadline_at",
    )
)
_RUN = (
    *(runs.c[name] for name in ("id", "workflow", "version", "input", "queue", "created_at", "due_at", "singleton")),
    *FACTS,
)


Start = Claimed | NotYet | Queued | WorkflowVersion | None


class LimitedStartsSql(StorePart):
    def _claim_limited(
        self,
        claim: Claim,
        timeout: float | None,
        executor: str,
        its_limits: Sequence[Limit],
        *,
        of: WorkflowVersion | None,
        within: float | None,
        policy: str | None,
    ) -> Start:
        """None: stale, or the step still waits."""

        def once(all_shards: bool) -> tuple[Start, Sequence[Grant]]:
            with self.database.transaction() as connection:
                share_run(connection, claim.run_id)
                may_start = (in_time(), is_served(self.served))
                step = connection.execute(_locked_step(claim, of).where(*may_start)).first()
                if step is None:
                    return other_than(connection, claim.run_id, of), ()
                start = _StepStart(connection, claim, step, executor, timeout, policy)
                early = EARLY if within is None else within
                return start.attempt(its_limits, self.ring_grace, all_shards, early), start.grants

        def fast() -> tuple[Start, Sequence[Grant]] | None:
            return self._claim_at_new_gate(claim, timeout, executor, its_limits, of, within, policy)

        start, grants = with_gates(self.database, once, fast)
        self._publish_grants(grants)
        return start

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
        """Called after gates were inserted, since a fast path may fit then. Returns its result and the grants to
        publish; None: this store has no fast path."""
        return None

    def _admit_run(
        self,
        connection: Connection,
        run_id: str,
        token: int,
        of: WorkflowVersion | None,
        its_limits: Sequence[Limit],
        all_shards: bool,
        grants: list[Grant],
    ) -> Admitted | Queued | NotYet | None:
        """Ask whether a run may begin. None: stale, or it still waits. `grants`: tickets granted to others are
        appended."""
        if not its_limits:
            return Admitted([])
        pending = (runs.c.id == run_id, runs.c.token == token, runs.c.paused_at.is_(None), is_of(of))
        can_begin = (*pending, run_can("begin_run"), may_begin_now())
        wanted = select(*_RUN).where(*can_begin).with_for_update(key_share=True)
        run = connection.execute(wanted).first()
        if run is None:
            return None
        applicant = applicant_of(run, token + 1)
        values = {"input": run.input, "labels": run.labels, "run": {"id": run_id}}
        # Before the gates are locked: the order of locks.
        before = run_before(connection, run)
        admission = Admission(connection, applicant, applicant.wants(its_limits, values), self.ring_grace, all_shards)
        if admission.is_waiting:
            return None
        admission.passes_at = slot_name(run) if before is None else None
        match admission.decide() if before is None else admission.wait_behind(*before):
            case Early(seconds):
                return NotYet(seconds)
            case Admitted() as admitted:
                grants.extend(admitted.grants)
                return admitted
            case Full() as full:
                grants.extend(full.grants)
                return _queue_run(connection, run_id, token, full)


def _queue_run(connection: Connection, run_id: str, token: int, full: Full) -> Queued:
    """Leave the run pending; its ticket will start it."""
    waits = {"token": runs.c.token + 1, "ring_at": runs.c.deadline_at, "rings": 0, "parked": None}
    its_run = update(runs).where(runs.c.id == run_id, runs.c.token == token, run_can("queue_run"))
    change_locked(connection, its_run.values(waits), f"run {run_id!r}")
    limit, key = full.wanted.limit.gate_name, full.wanted.key
    record(connection, run_id, None, entries.QUEUED, limit=limit, key=key or None)
    return Queued(limit, key)


def has_ticket(connection: Connection, claim: Claim) -> bool:
    its_own = (tickets.c.run_id == claim.run_id, tickets.c.path == claim.path, tickets.c.token == claim.token)
    return connection.scalar(select(tickets.c.path).where(*its_own)) is not None


def _locked_step(claim: Claim, of: WorkflowVersion | None) -> Any:
    columns = (*_STEP, now().label("now"))
    return select(*columns).where(guard(claim, "claim_step"), run_goes_on(claim.run_id, of)).with_for_update()


class _StepStart:
    """The start of one step whose row is locked."""

    def __init__(
        self,
        connection: Connection,
        claim: Claim,
        step: Row[Any],
        executor: str,
        timeout: float | None,
        policy: str | None,
    ) -> None:
        self._connection, self._claim, self._step = connection, claim, step
        self._executor, self._timeout, self._policy = executor, timeout, policy
        #: Tickets granted to other steps and runs.
        self.grants: Sequence[Grant] = ()
        # Lock the run before any gate: its status changes with that of the step.
        run = select(*_RUN).where(runs.c.id == claim.run_id)
        self._run = connection.execute(run.with_for_update(key_share=True)).one()

    def attempt(self, its_limits: Sequence[Limit], grace: float, all_shards: bool, early: float) -> Start:
        step = self._step
        left = None if step.due_at is None else (step.due_at - step.now).total_seconds()
        route = self._route
        if left is not None and left > early:
            return NotYet(left, route)
        if step.slots or _is_answered(step):
            # An external step keeps its slots while it waits. The claim of an answered step only ends it.
            return self._claimed(step.slots)
        applicant = Applicant(
            self._claim.run_id,
            self._claim.path,
            step.execution_token + 1,
            self._run.workflow,
            self._run.version,
            step.attempts + 1,
            step.lost,
            route.level,
            route.queue,
        )
        wanted = applicant.wants(its_limits, self._values(its_limits))
        admission = Admission(self._connection, applicant, wanted, grace, all_shards)
        if admission.is_waiting or (step.status == statuses.WAITING and left is None and admission.ticket is None):
            return None
        return self._applied(admission)

    def _applied(self, admission: Admission) -> Claimed | NotYet | Queued:
        match admission.decide():
            case Admitted() as admitted:
                self.grants = admitted.grants
                return self._claimed(admitted.slots or None, admitted)
            case Early(seconds):
                return NotYet(seconds, self._route)
            case Full() as full:
                self.grants = full.grants
                refused = _refusal(full)
                return self._queued(full) if refused is None else self._claimed(None, refused=refused)

    @property
    def _route(self) -> Route:
        return route_of(self._step, self._run.priority or 0)

    @property
    def _what(self) -> str:
        return f"run {self._claim.run_id!r}: step {self._claim.path!r}"

    # -- outcomes -----------------------------------------------------------------------------------------

    def _claimed(
        self, slots: Sequence[int] | None, admitted: Admitted | None = None, refused: Refused | None = None
    ) -> Claimed:
        claim, step = self._claim, self._step
        at: dict[str, Any] = {} if admitted is None or admitted.at is None else {"started_at": admitted.at}
        started = step_starts(claim, self._executor, self._timeout, self._policy).values(slots=slots, **at)
        change_locked(self._connection, started, self._what)
        wake_run(self._connection, claim.run_id)
        attempt = step.attempts + 1
        waited = None if admitted is None else admitted.waited
        detail = {"attempt": attempt, "waited": waited, "refused_by": None if refused is None else refused.limit}
        record(self._connection, claim.run_id, claim.path, entries.CLAIMED, by=self._executor, **detail)
        return Claimed(
            claim.run_id,
            claim.path,
            step.execution_token + 1,
            step.timeout_token + 1,
            attempt,
            step.lost,
            self._run.input,
            step.kind,
            facts=facts_of(self._run),
            route=self._route,
            left=seconds_until(step.deadline_at, step.now),
            refused=refused,
            waited=waited,
        )

    def _queued(self, full: Full) -> Queued:
        claim, wanted = self._claim, full.wanted
        waits = {"status": statuses.WAITING, "execution_token": steps.c.execution_token + 1}
        queued = update(steps).where(guard(claim, "queue_step")).values(**waits, due_at=None, rings=0, parked=None)
        change_locked(self._connection, queued.values(ring_at=earlier_limit()), self._what)
        stopped = suspend_run(self._connection, claim.run_id, claim.path)
        detail = {"limit": wanted.limit.gate_name, "key": wanted.key or None, "run": stopped}
        record(self._connection, claim.run_id, claim.path, entries.QUEUED, by=self._executor, **detail)
        return Queued(wanted.limit.gate_name, wanted.key)

    # -- keys ---------------------------------------------------------------------------------------------

    def _values(self, its_limits: Sequence[Limit]) -> Mapping[str, Any]:
        """The values that the keys of the limits can refer to."""
        named = {place.partition(".")[0] for one in its_limits for place in (one.key, one.fair) if place}
        run = self._run
        values = {"input": run.input, "labels": run.labels, "run": {"id": run.id}}
        return {**values, "item": self._item()} if "item" in named else values

    def _item(self) -> Any:
        """The item of the innermost for_each around the step."""
        parts = self._claim.path.split("/")
        around = ["/".join(parts[:n]) for n in range(1, len(parts)) if parts[n - 1].endswith("]")]
        items = select(steps.c.item).where(steps.c.run_id == self._claim.run_id, steps.c.path.in_(around))
        return self._connection.scalar(items.where(steps.c.kind == ITEM).order_by(steps.c.path.desc()).limit(1))


def _is_answered(step: Row[Any]) -> bool:
    """True if an external system has answered: the claim only ends the step."""
    if step.kind != EXTERNAL or not isinstance(step.item, dict):
        return False
    return step.item.get(ATTEMPT) == step.attempts + 1 and bool({COMPLETED, FAILED} & step.item.keys())


def _refusal(full: Full) -> Refused | None:
    limit = full.wanted.limit
    if full.why is None:
        return None
    on_full = "fail" if limit.on_full == "wait" else limit.on_full
    return Refused(limit.gate_name, full.wanted.key, on_full, full.why)
