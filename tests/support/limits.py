"""Limits in tests: attempts that stay `running` until the test ends them, transactions that the test ends, and what
must hold of gates at any moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import psycopg
from sqlalchemy import Connection, select

from rival_client.db.database import Database
from rival_client.db.database_urls import libpq_url
from rival_client.db.limit_tables import gates, limits, tickets
from rival_client.db.run_tables import runs, steps
from rival_client.model.payload import Json
from rival_workers.engine import interpreter
from rival_workers.engine.decisions import End
from rival_workers.engine.step_limits import limits_at
from rival_workers.store.claim_records import Claim, Claimed, Successor, WorkflowVersion
from rival_workers.store.group_commits import BeginRun, FinishStep
from rival_workers.store.postgres.claims import ClaimCall
from rival_workers.store.postgres.limited_begins import BEGIN_QUEUED, LimitedBegin
from rival_workers.store.postgres.limited_claims import (
    CLAIM_LIMITED,
    CLAIM_PACED,
    QUEUE_STEP,
    QUEUE_STEP_FAIRLY,
    LimitedClaim,
)
from rival_workers.store.postgres.limited_finishes import FINISH_LIMITED, LimitedFinish
from rival_workers.store.postgres.statements import FastPath
from rival_workers.store.postgres.steps import BeginCall, FinishCall
from tests.support.inline import Inline


def work(run: Any) -> str:
    """The function of a step."""
    return str(run.run_id)


class Slots:
    """Claims steps of an `Inline` without running them."""

    def __init__(self, inline: Inline) -> None:
        self.inline, self.store, self.database = inline, inline.store, inline.store.database
        self.running: dict[str, Claim] = {}

    def start(self, run_id: str, input: Any = None, workflow: str = "w") -> None:
        """A run whose first step is open; no message is left."""
        self.inline.rival.run(workflow, input, run_id=run_id)
        self.store.begin_run(
            run_id,
            0,
            interpreter.first(self._plan(workflow)).with_options(self._definition(workflow).policies.at),
            claim_for=None,
        )
        self.inline.doorbell.take()

    def claim(self, run_id: str, path: str = "work", workflow: str = "w", *, limited: bool = True) -> Any:
        """What the store says to a claim with the present token."""
        token = self.step(run_id, path)["execution_token"]
        config = self._definition(workflow).policies.at(path)
        its_limits = limits_at(workflow, path, config) if limited else ()
        executor = self.inline.process.executor.id
        claimed = self.store.claim_step(Claim(run_id, path, token), config.limit, executor, limits=its_limits)
        if isinstance(claimed, Claimed):
            self.running[run_id] = Claim(run_id, path, claimed.token)
        return claimed

    def hold(self, *run_ids: str, input: Any = None) -> None:
        """Start each of them and claim its step."""
        for run_id in run_ids:
            self.start(run_id, input)
            self.claim(run_id)

    def finish(
        self, run_id: str, workflow: str = "w", *, claim_for: str | None = None, successor: Successor | None = None
    ) -> Any:
        claim = self.running.pop(run_id)
        end = End("completed", Json("null"))
        advance = interpreter.advance(self._plan(workflow), claim.path, end, "step").with_options(
            self._definition(workflow).policies.at
        )
        finished = self.store.finish_step(claim, end, advance, claim_for=claim_for, successor=successor)
        if finished is not None and finished.taken is not None:
            taken = finished.taken
            self.running[taken.run_id] = Claim(taken.run_id, taken.path, taken.token)
        return finished

    def finishing(self, claim: Claim, workflow: str = "w") -> FinishStep:
        """The commit that a worker makes, alone or with others."""
        end, policies = End("completed", Json("null")), self._definition(workflow).policies
        advance = interpreter.advance(self._plan(workflow), claim.path, end, "step").with_options(policies.at)
        return FinishStep(claim, end, advance, self.inline.process.executor.id)

    def beginning(self, run_id: str, workflow: str = "w") -> BeginRun:
        definition = self._definition(workflow)
        first = interpreter.first(definition.plan).with_options(definition.policies.at)
        of = WorkflowVersion(workflow, definition.version)
        return BeginRun(run_id, 0, first, self.inline.process.executor.id, of)

    def successor(self, path: str = "work", workflow: str = "w") -> Successor | None:
        """How this process starts the step that gets the slot; None: the step has several limits."""
        definition = self._definition(workflow)
        config = definition.policies.at(path)
        of, its_limits = WorkflowVersion(workflow, definition.version), limits_at(workflow, path, config)
        executor = self.inline.process.executor.id
        return Successor(executor, of, its_limits[0], config.limit) if len(its_limits) == 1 else None

    def _definition(self, workflow: str) -> Any:
        return next(one for one in self.inline.registry if one.name == workflow)

    def _plan(self, workflow: str) -> Any:
        return self._definition(workflow).plan

    # -- looking ------------------------------------------------------------------------------------------

    def step(self, run_id: str, path: str = "work") -> Any:
        with self.database.autocommit() as connection:
            where = (steps.c.run_id == run_id, steps.c.path == path)
            return connection.execute(select(steps).where(*where)).mappings().one()

    def run(self, run_id: str) -> Any:
        with self.database.autocommit() as connection:
            return connection.execute(select(runs).where(runs.c.id == run_id)).one()

    def status(self, run_id: str, path: str = "work") -> str:
        return str(self.step(run_id, path)["status"])

    @property
    def used(self) -> dict[str, int]:
        """Key (or the name of a limit without keys) -> slots in use."""
        counted: Counter[str] = Counter()
        with self.database.autocommit() as connection:
            for row in connection.execute(select(gates)):
                counted[row.key or row.name] += row.used
        return dict(counted)

    @property
    def waiting(self) -> list[str]:
        """Runs whose ticket is not granted, in the order of the queue."""
        return self._tickets(tickets.c.granted_at.is_(None))

    @property
    def granted(self) -> list[str]:
        return self._tickets(tickets.c.granted_at.is_not(None))

    def _tickets(self, which: Any) -> list[str]:
        with self.database.autocommit() as connection:
            return list(connection.scalars(select(tickets.c.run_id).where(which).order_by(tickets.c.rank)))


def expire(slots: Slots, run_id: str, token: int) -> Any:
    """Its queue_timeout is over."""
    error = {"type": "QueueTimeout", "message": "no worker has begun the step in time", "attempt": 0}
    end = End("failed", error=error, hard=True, outcome="expired")
    definition = next(iter(slots.inline.registry))
    advance = interpreter.advance(definition.plan, "work", end, "step").with_options(definition.policies.at)
    claim = Claim(run_id, "work", token, "timeout_token")
    return slots.store.finish_step(claim, end, advance, claim_for=None)


class OtherTransaction:
    """Another transaction: it carries out a statement, and ends when the test says so."""

    def __init__(self, slots: Slots) -> None:
        self.slots = slots
        self.connection = psycopg.connect(libpq_url(slots.database.url))

    def carry_out(self, path: FastPath[Any, Any], call: Any) -> None:
        """It has had its effect, and is not committed."""
        self.connection.execute("SELECT 1")
        for statement in filter(None, (path.lock, path.statement)):
            values = statement.values(path.values(call))
            result = self.connection.pgconn.exec_params(statement.sql.encode(), values)
            assert result.ntuples == 1, result.error_message

    def enter(self, run_id: str) -> None:
        self._carry_out_first((QUEUE_STEP, QUEUE_STEP_FAIRLY), self._claim(run_id))

    def begin(self, run_id: str) -> None:
        """A run that begins at a full gate."""
        definition = next(iter(self.slots.inline.registry))
        self.slots.inline.rival.run("w", None, run_id=run_id)
        first = interpreter.first(definition.plan).with_options(definition.policies.at)
        executor = self.slots.inline.process.executor.id
        self.carry_out(BEGIN_QUEUED, LimitedBegin(BeginCall(run_id, 0, first, executor, None), 10.0))

    def claim(self, run_id: str) -> None:
        self._carry_out_first((CLAIM_LIMITED, CLAIM_PACED), self._claim(run_id))

    def finish(self, run_id: str, successor: Successor | None = None) -> None:
        claim, end = self.slots.running.pop(run_id), End("completed", Json("null"))
        definition = next(iter(self.slots.inline.registry))
        advance = interpreter.advance(definition.plan, claim.path, end, "step").with_options(definition.policies.at)
        call = LimitedFinish(FinishCall(claim, end, advance, None, 10.0, successor), "{default}")
        self._carry_out_first(FINISH_LIMITED, call)

    def _carry_out_first(self, paths: Sequence[FastPath[Any, Any]], call: Any) -> None:
        self.carry_out(next(path for path in paths if path.applies(call)), call)

    def _claim(self, run_id: str) -> LimitedClaim:
        definition = next(iter(self.slots.inline.registry))
        its_limit = limits_at("w", "work", definition.policies.at("work"))[0]
        claim = Claim(run_id, "work", self.slots.step(run_id)["execution_token"])
        executor = self.slots.inline.process.executor.id
        return LimitedClaim(ClaimCall(claim, None, executor, None, None, "{default}", None), its_limit)

    def commit(self) -> None:
        self.connection.commit()

    def rollback(self) -> None:
        self.connection.rollback()


def assert_gates_are_consistent(database: Database, *, at_rest: bool = False, drains: bool = False) -> None:
    """The count of each gate is what rows and tickets use, and no more than allowed. `at_rest`: no ticket waits at a
    gate that has room, and every ticket belongs to a row that waits. `drains`: a limit may have been lowered."""
    with database.snapshot() as connection:
        found = {row.id: row for row in connection.execute(select(gates))}
        counted = _used(connection)
        all_tickets = connection.execute(select(tickets)).all()
        allowed = {row.name: row.max for row in connection.execute(select(limits))}
        waits = {(row.run_id, row.path) for row in connection.execute(select(steps).where(steps.c.status == "waiting"))}
        waits |= {(row.id, "") for row in connection.execute(select(runs.c.id).where(runs.c.status == "pending"))}
    by_key: Counter[tuple[str, str]] = Counter()
    for gate in found.values():
        assert gate.used == counted[gate.id], f"gate {gate.name}[{gate.key}]: {gate.used}, not {counted[gate.id]}"
        by_key[gate.name, gate.key] += gate.used if gate.gap is None else 0
    for (name, key), number in by_key.items():
        assert drains or number <= allowed[name], f"limit {name}[{key}]: {number} of {allowed[name]}"
    if at_rest:
        rooms = {(gate.name, gate.key) for gate in found.values() if gate.used < gate.max}
        queued = [one for one in all_tickets if one.granted_at is None]
        assert not [one for one in queued if (found[one.gate].name, found[one.gate].key) in rooms], queued
        held = {(one.run_id, one.path) for one in all_tickets}
        assert held <= waits, held - waits


def _used(connection: Connection) -> Counter[int]:
    counted: Counter[int] = Counter()
    for table in (steps, runs):
        for slots in connection.scalars(select(table.c.slots).where(table.c.slots.is_not(None))):
            counted.update(slots)
    counted.update(connection.scalars(select(tickets.c.slot).where(tickets.c.slot.is_not(None))))
    return counted
