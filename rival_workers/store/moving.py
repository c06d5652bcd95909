"""Moving a run, in portable SQL: one guarded transition per operation, one transaction each.

Lock order within a transaction: a step before its run (see `rival_client.runs.LockedRun`).
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, insert, or_, select, update

from rival_client import runs as run_statements
from rival_client.database import Database
from rival_client.records import Step
from rival_client.tables import after, now, runs, steps
from rival_workers.engine.decisions import End, Retry
from rival_workers.engine.interpreter import Advance, Opening, is_handler
from rival_workers.engine.transitions import run_sources
from rival_workers.store.base import NEVER_RUNG, Claimed, Held, NotYet, ReleaseReason, RunningAttempt
from rival_workers.store.guards import (
    ATTEMPT_COLUMNS,
    RUNNING,
    after_or_never,
    first_claim,
    guard,
    record_attempt,
    run_is_open,
    run_leaves_pending,
    running_of,
    step_leaves_running,
)

#: A countdown that fires this much early still counts as due.
EARLY = 0.005
#: A far timer is rung this long before it is due, so that a countdown can make it precise.
LEAD = 5.0


class Moving:
    database: Database
    ring_grace: float

    def begin_run(self, run_id: str, token: int, opening: Opening, *, claim_for: str | None) -> Claimed | None:
        """The run starts and its first step opens; without `claim_for`, it is left to be claimed by a message."""
        with self.database.transaction() as connection:
            run = connection.execute(run_leaves_pending(run_id, token).returning(runs.c.input)).first()
            if run is None:
                return None
            self._open(connection, run_id, opening, claim_for)
            return first_claim(run_id, opening, run.input)

    def claim_step(self, held: Held, timeout: float | None, executor: str) -> Claimed | NotYet | None:
        due = or_(steps.c.due_at.is_(None), steps.c.due_at <= after(EARLY))
        statement = (
            update(steps)
            .where(guard(held, "claim_step"), due, run_is_open(held.run_id))
            .values(
                status="running", attempts=steps.c.attempts + 1, executor_id=executor, started_at=now(),
                execution_token=steps.c.execution_token + 1, timeout_token=steps.c.timeout_token + 1,
                timeout_at=after_or_never(timeout), ring_at=after_or_never(timeout), rings=0, parked=None,
            )
            .returning(steps.c.execution_token, steps.c.timeout_token, steps.c.attempts, steps.c.lost)
        )  # fmt: skip
        with self.database.transaction() as connection:
            step = connection.execute(statement).first()
            if step is None:
                return self._too_early(connection, held)
            run = connection.execute(
                select(runs.c.input, runs.c.failed_step, runs.c.error).where(runs.c.id == held.run_id)
            ).one()
            token, timeout_token, attempt, lost = step
            return Claimed(
                held.run_id, held.path, token, timeout_token, attempt, lost, run.input, run.failed_step, run.error
            )

    def _too_early(self, connection: Connection, held: Held) -> NotYet | None:
        row = connection.execute(
            select(steps.c.due_at, now().label("now")).where(guard(held, "claim_step"), steps.c.due_at > now())
        ).first()
        return None if row is None else NotYet((row.due_at - row.now).total_seconds())

    def finish_step(self, held: Held, end: End, advance: Advance, *, claim_for: str | None) -> bool:
        verb = "finish_step" if held.guard == "execution_token" else "time_out_finish"
        with self.database.transaction() as connection:
            step = connection.execute(
                step_leaves_running(held, verb, end.status)
                .values(result=end.result, state=end.state, error=end.error, completed_at=now(), ring_at=None)
                .returning(*ATTEMPT_COLUMNS)
            ).first()
            if step is None:
                return False
            if end.status == "failed" or step.attempts > 1:
                record_attempt(connection, held, step, end.outcome, end.error)
            if end.status == "failed":
                run_statements.record(connection, held.run_id, held.path, end.outcome, {"error": end.error})
            self._follow(connection, held.run_id, held.path, end, advance, claim_for)
            return True

    def _follow(
        self, connection: Connection, run_id: str, path: str, end: End, advance: Advance, claim_for: str | None
    ) -> None:
        """What follows from a step's end: the next step opens, the run is marked, the run ends."""
        if advance.opening is not None:
            self._open(connection, run_id, advance.opening, claim_for)
        changes: dict[str, Any] = {}
        if advance.fails_run:
            changes |= {"error": end.error, "failed_step": path}
        if advance.run_ends is not None:
            changes |= {"status": advance.run_ends, "completed_at": now(), "ring_at": None, "token": runs.c.token + 1}
        if advance.run_ends == "completed" and not is_handler(path):
            changes["result"] = end.result
        if changes:
            connection.execute(
                update(runs).where(runs.c.id == run_id, runs.c.status.in_(run_sources("end_run"))).values(changes)
            )

    def _open(self, connection: Connection, run_id: str, opening: Opening, claim_for: str | None) -> None:
        values: dict[str, Any] = {
            "run_id": run_id, "path": opening.path, "kind": opening.kind, "created_at": now(),
        }  # fmt: skip
        if claim_for is None:
            values |= {"status": "pending", "ring_at": after(self.ring_grace)}
        else:
            timeout = after_or_never(opening.config.timeout)
            values |= {
                "status": "running", "attempts": 1, "execution_token": 1, "timeout_token": 1,
                "executor_id": claim_for, "started_at": now(), "timeout_at": timeout, "ring_at": timeout,
            }  # fmt: skip
        connection.execute(insert(steps).values(values))

    def retry_step(self, held: Held, retry: Retry, *, rung: bool) -> int | None:
        """`rung`: the caller rings with a countdown. Otherwise the keeper does, shortly before it is due."""
        verb = "retry_step" if held.guard == "execution_token" else "time_out_retry"
        with self.database.transaction() as connection:
            step = connection.execute(
                step_leaves_running(held, verb, "waiting_retry")
                .values(
                    state=retry.state, error=retry.error, due_at=after(retry.delay),
                    ring_at=after(retry.delay + (self.ring_grace if rung else -LEAD)), rings=0 if rung else NEVER_RUNG,
                )
                .returning(*ATTEMPT_COLUMNS)
            ).first()  # fmt: skip
            if step is None:
                return None
            record_attempt(connection, held, step, retry.outcome, retry.error)
            run_statements.record(
                connection, held.run_id, held.path, "retried",
                {"attempt": step.attempts, "delay": retry.delay, "error": retry.error},
            )  # fmt: skip
            return int(step.execution_token)

    def release_step(self, held: Held, reason: ReleaseReason) -> int | None:
        """The attempt is given up without using one up: it will be started again."""
        lost = 1 if reason == "lost" else 0
        with self.database.transaction() as connection:
            step = connection.execute(
                step_leaves_running(held, "release_step", "pending")
                .values(
                    attempts=steps.c.attempts - 1, lost=steps.c.lost + lost, due_at=None,
                    ring_at=after(self.ring_grace), rings=0,
                )
                .returning(*ATTEMPT_COLUMNS)
            ).first()  # fmt: skip
            if step is None:
                return None
            record_attempt(connection, held, step, reason, None, attempt=step.attempts + 1)
            run_statements.record(connection, held.run_id, held.path, reason, {"executor": step.executor_id})
            return int(step.execution_token)

    def park(self, run_id: str, path: str | None, token: int, reason: str, delay: float) -> bool:
        """Nobody here can run it: say why, and look again later. The token stays, so that others may take it."""
        if path is None:
            statement = (
                update(runs)
                .where(runs.c.id == run_id, runs.c.token == token, runs.c.status.in_(run_sources("park_run")))
                .values(parked=reason, ring_at=after(delay))
            )
        else:
            statement = (
                update(steps)
                .where(guard(Held(run_id, path, token), "park_step"))
                .values(parked=reason, ring_at=after(delay))
            )
        with self.database.transaction() as connection:
            return connection.execute(statement).rowcount == 1

    # -- reading, for attempts ----------------------------------------------------------------------------

    def read_step(self, run_id: str, path: str) -> Step | None:
        with self.database.autocommit() as connection:
            return run_statements.read_step(connection, run_id, path)

    def token_of(self, run_id: str, path: str) -> tuple[str, int, str | None] | None:
        """(status, execution token, executor): what there is to know after a commit whose answer was lost."""
        with self.database.autocommit() as connection:
            row = connection.execute(
                select(steps.c.status, steps.c.execution_token, steps.c.executor_id).where(
                    steps.c.run_id == run_id, steps.c.path == path
                )
            ).first()
        return None if row is None else (row.status, row.execution_token, row.executor_id)

    def running_on(self, executor: str) -> list[RunningAttempt]:
        with self.database.autocommit() as connection:
            found = connection.execute(RUNNING.where(steps.c.executor_id == executor))
            return [running_of(row) for row in found]
