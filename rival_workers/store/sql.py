"""Every operation in portable SQL: small guarded statements in one transaction, the same on Postgres and SQLite.

Lock order within a transaction: a step before its run (see `rival_client.runs.LockedRun`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Row, Update, and_, case, delete, insert, literal, or_, select, true, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite

from rival_client import runs as run_statements
from rival_client.database import Database
from rival_client.records import LogEntry, Step, WorkflowInfo
from rival_client.tables import RUN_TERMINAL, after, attempts, executors, history, logs, now, runs, steps, workflows
from rival_workers.engine.decisions import End, Retry
from rival_workers.engine.interpreter import Advance, Opening, is_handler
from rival_workers.engine.plan import Plan
from rival_workers.engine.transitions import run_sources, step_sources
from rival_workers.store.base import (
    NEVER_RUNG,
    Claimed,
    Due,
    ExecutorRow,
    Held,
    Look,
    NotYet,
    ReleaseReason,
    RunningAttempt,
)

#: A countdown that fires this much early still counts as due.
EARLY = 0.005
#: A far timer is rung this long before it is due, so that a countdown can make it precise.
LEAD = 5.0


class SqlStore:
    """The plain implementation. `PostgresStore` does the hot operations in one round trip each."""

    def __init__(self, database: Database, *, ring_grace: float = 10.0) -> None:
        self.database = database
        self.ring_grace = ring_grace

    def close(self) -> None:
        self.database.dispose()

    # -- definitions --------------------------------------------------------------------------------------

    def register_workflow(
        self, name: str, plan: Plan, input_schema: dict[str, Any] | None, description: str | None
    ) -> None:
        """Store the version once; the version registered last is the one that new runs take."""
        dialect: Any = postgresql if self.database.is_postgres else sqlite
        statement = dialect.insert(workflows).values(
            name=name, version=plan.version, plan=plan.model_dump(mode="json"), input_schema=input_schema,
            description=description, registered_at=now(), activated_at=now(),
        )  # fmt: skip
        changes = {name: statement.excluded[name] for name in ("input_schema", "description", "activated_at")}
        with self.database.transaction() as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=["name", "version"], set_=changes))

    def load_workflow(self, name: str, version: str) -> WorkflowInfo | None:
        with self.database.autocommit() as connection:
            return run_statements.workflow_version(connection, name, version)

    # -- moving a run -------------------------------------------------------------------------------------

    def begin_run(self, run_id: str, token: int, opening: Opening, *, claim_for: str | None) -> Claimed | None:
        """The run starts and its first step opens; without `claim_for`, it is left to be claimed by a message."""
        with self.database.transaction() as connection:
            run = connection.execute(_run_leaves_pending(run_id, token).returning(runs.c.input)).first()
            if run is None:
                return None
            self._open(connection, run_id, opening, claim_for)
            return first_claim(run_id, opening, run.input)

    def claim_step(self, held: Held, timeout: float | None, executor: str) -> Claimed | NotYet | None:
        due = or_(steps.c.due_at.is_(None), steps.c.due_at <= after(EARLY))
        statement = (
            update(steps)
            .where(_guard(held, "claim_step"), due, _run_is_open(held.run_id))
            .values(
                status="running", attempts=steps.c.attempts + 1, executor_id=executor, started_at=now(),
                execution_token=steps.c.execution_token + 1, timeout_token=steps.c.timeout_token + 1,
                timeout_at=_after(timeout), ring_at=_after(timeout), rings=0, parked=None,
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
            select(steps.c.due_at, now().label("now")).where(_guard(held, "claim_step"), steps.c.due_at > now())
        ).first()
        return None if row is None else NotYet((row.due_at - row.now).total_seconds())

    def finish_step(self, held: Held, end: End, advance: Advance, *, claim_for: str | None) -> bool:
        verb = "finish_step" if held.guard == "execution_token" else "time_out_finish"
        with self.database.transaction() as connection:
            step = connection.execute(
                _step_leaves_running(held, verb, end.status)
                .values(result=end.result, state=end.state, error=end.error, completed_at=now(), ring_at=None)
                .returning(*_ATTEMPT_COLUMNS)
            ).first()
            if step is None:
                return False
            if end.status == "failed" or step.attempts > 1:
                _record_attempt(connection, held, step, end.outcome, end.error)
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
            timeout = _after(opening.config.timeout)
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
                _step_leaves_running(held, verb, "waiting_retry")
                .values(
                    state=retry.state, error=retry.error, due_at=after(retry.delay),
                    ring_at=after(retry.delay + (self.ring_grace if rung else -LEAD)), rings=0 if rung else NEVER_RUNG,
                )
                .returning(*_ATTEMPT_COLUMNS)
            ).first()  # fmt: skip
            if step is None:
                return None
            _record_attempt(connection, held, step, retry.outcome, retry.error)
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
                _step_leaves_running(held, "release_step", "pending")
                .values(
                    attempts=steps.c.attempts - 1, lost=steps.c.lost + lost, due_at=None,
                    ring_at=after(self.ring_grace), rings=0,
                )
                .returning(*_ATTEMPT_COLUMNS)
            ).first()  # fmt: skip
            if step is None:
                return None
            _record_attempt(connection, held, step, reason, None, attempt=step.attempts + 1)
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
                .where(_guard(Held(run_id, path, token), "park_step"))
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
            found = connection.execute(_RUNNING.where(steps.c.executor_id == executor))
            return [_running(row) for row in found]

    # -- keeping ------------------------------------------------------------------------------------------

    def due(self, look: Look) -> list[Due]:
        """What must be looked at now. Each row is put off by a backoff at once, so that several keepers share the
        work and a row that nobody can help is not looked at in every round.
        """
        with self.database.transaction() as connection:
            rows = self._due_runs(connection, look) + self._due_steps(connection, look)
        return [_due(row) for row in rows]

    def _due_runs(self, connection: Connection, look: Look) -> list[Row[Any]]:
        due = (
            select(runs.c.id)
            .where(runs.c.ring_at <= now())
            .order_by(runs.c.ring_at)
            .limit(look.limit)
            .with_for_update(skip_locked=True)
        )
        return list(
            connection.execute(
                update(runs)
                .where(runs.c.id.in_(due.scalar_subquery()))
                .values(ring_at=_backed_off(runs.c.rings, look), rings=runs.c.rings + 1)
                .returning(
                    runs.c.id, literal(None).label("path"), runs.c.status, runs.c.token, literal(0).label("timeout"),
                    literal(0).label("attempts"), literal(0).label("lost"), runs.c.rings - 1,
                    runs.c.workflow, runs.c.version, runs.c.failed_step,
                    literal(None).label("due_at"), now().label("now"),
                )
            )
        )  # fmt: skip

    def _due_steps(self, connection: Connection, look: Look) -> list[Row[Any]]:
        due = (
            select(steps.c.run_id, steps.c.path)
            .where(steps.c.ring_at <= now())
            .order_by(steps.c.ring_at)
            .limit(look.limit)
            .with_for_update(skip_locked=True)
        )
        found = connection.execute(
            update(steps)
            .where(tuple_(steps.c.run_id, steps.c.path).in_(due))
            .values(ring_at=_backed_off(steps.c.rings, look), rings=steps.c.rings + 1)
            .returning(steps.c.run_id, steps.c.path)
        ).all()
        columns = (
            steps.c.run_id, steps.c.path, steps.c.status, steps.c.execution_token, steps.c.timeout_token,
            steps.c.attempts, steps.c.lost, steps.c.rings - 1, runs.c.workflow, runs.c.version, runs.c.failed_step,
            steps.c.due_at, now().label("now"),
        )  # fmt: skip
        keys = [(row.run_id, row.path) for row in found]
        joined = select(*columns).join(runs, runs.c.id == steps.c.run_id)
        return list(connection.execute(joined.where(tuple_(steps.c.run_id, steps.c.path).in_(keys)))) if keys else []

    def dead_executors(self) -> list[str]:
        """Those that have not beaten within their lease."""
        with self.database.autocommit() as connection:
            return list(connection.scalars(select(executors.c.id).where(executors.c.expires_at <= now())))

    def lost_attempts(self, dead: Sequence[str], limit: int) -> list[RunningAttempt]:
        """What the given executors were running."""
        with self.database.autocommit() as connection:
            found = connection.execute(_RUNNING.where(steps.c.executor_id.in_(dead)).limit(limit))
            return [_running(row) for row in found]

    def stray_attempts(self, limit: int) -> list[RunningAttempt]:
        """Running attempts of executors that nobody knows any more: a claim that landed after its executor's burial."""
        known = select(executors.c.id).where(executors.c.id == steps.c.executor_id).exists()
        with self.database.autocommit() as connection:
            return [_running(row) for row in connection.execute(_RUNNING.where(~known).limit(limit))]

    def ring_all(self, within: float, limit: int) -> int:
        """The broker forgot everything: make up to `limit` rows due now whose look would come `within` seconds.
        Rows whose time has not come, and parked ones, are left alone. How many were changed.
        """
        # As if nobody had ever rung: any keeper that finds them rings, whatever backlog the others' rings have made.
        forgotten = {"ring_at": now(), "rings": NEVER_RUNG}
        soon = and_(runs.c.ring_at > now(), runs.c.ring_at <= after(within))
        waiting_runs = (
            select(runs.c.id)
            .where(soon, runs.c.status == "pending", runs.c.parked.is_(None))
            .limit(limit)
            .with_for_update(skip_locked=True)
        )
        waiting_steps = (
            select(steps.c.run_id, steps.c.path)
            .where(
                steps.c.ring_at > now(), steps.c.ring_at <= after(within), steps.c.parked.is_(None),
                steps.c.status.in_(("pending", "waiting_retry")),
                or_(steps.c.due_at.is_(None), steps.c.due_at <= now()),
            )
            .limit(limit)
            .with_for_update(skip_locked=True)
        )  # fmt: skip
        with self.database.transaction() as connection:
            changed = connection.execute(
                update(runs).where(runs.c.id.in_(waiting_runs.scalar_subquery())).values(forgotten)
            ).rowcount
            return (
                changed
                + connection.execute(
                    update(steps).where(tuple_(steps.c.run_id, steps.c.path).in_(waiting_steps)).values(forgotten)
                ).rowcount
            )

    def delete_ended_before(self, age: float, limit: int) -> int:
        """Retention: delete up to `limit` runs that ended more than `age` seconds ago, with all that hangs on them."""
        with self.database.transaction() as connection:
            old = list(
                connection.scalars(
                    select(runs.c.id)
                    .where(runs.c.completed_at < after(-age), runs.c.status.in_(RUN_TERMINAL))
                    .order_by(runs.c.completed_at)
                    .limit(limit)
                    .with_for_update(skip_locked=True)
                )
            )
            for table in (logs, history, attempts, steps):
                connection.execute(delete(table).where(table.c.run_id.in_(old)))
            connection.execute(delete(runs).where(runs.c.id.in_(old)))
            return len(old)

    # -- executors ----------------------------------------------------------------------------------------

    def add_executor(self, executor: str, host: str, pid: int, worker: str, lease: float) -> None:
        with self.database.transaction() as connection:
            connection.execute(
                insert(executors).values(
                    id=executor, host=host, pid=pid, worker=worker,
                    started_at=now(), beat_at=now(), expires_at=after(lease),
                )
            )  # fmt: skip

    def beat(self, executor: str, lease: float) -> bool:
        """False: the executor was declared dead in the meantime and must take a new id."""
        with self.database.autocommit() as connection:
            beaten = connection.execute(
                update(executors)
                .where(executors.c.id == executor, executors.c.expires_at > now())
                .values(beat_at=now(), expires_at=after(lease))
            )
            return beaten.rowcount == 1

    def adopt_attempts(self, executor: str, successor: str) -> int:
        """What still runs under an executor's old id goes on under its new one: a database that was away for longer
        than a lease is no reason to start everything again.
        """
        running = select(runs.c.id).where(runs.c.status == "running")
        with self.database.autocommit() as connection:
            return connection.execute(
                update(steps)
                .where(steps.c.run_id.in_(running), steps.c.executor_id == executor, steps.c.status == "running")
                .values(executor_id=successor)
            ).rowcount

    def executors_on(self, host: str) -> list[ExecutorRow]:
        """The executors of one machine that are not known to be dead."""
        statement = select(executors.c.id, executors.c.pid, executors.c.worker).where(
            executors.c.host == host, executors.c.expires_at > now()
        )
        with self.database.autocommit() as connection:
            return [ExecutorRow(row.id, row.pid, row.worker) for row in connection.execute(statement)]

    def expire_executors(self, host: str, pid: int) -> int:
        """The process is known to be dead: don't wait for its lease."""
        with self.database.autocommit() as connection:
            return connection.execute(
                update(executors)
                .where(executors.c.host == host, executors.c.pid == pid, executors.c.expires_at > now())
                .values(expires_at=now())
            ).rowcount

    def forget_executors(self, dead: Sequence[str]) -> None:
        with self.database.autocommit() as connection:
            connection.execute(delete(executors).where(executors.c.id.in_(dead)))

    # -- logs and history ---------------------------------------------------------------------------------

    def append_logs(self, run_id: str, entries: Sequence[LogEntry]) -> None:
        with self.database.transaction() as connection:
            connection.execute(
                insert(logs),
                [
                    {"run_id": run_id, "path": e.path, "attempt": e.attempt, "level": e.level,
                     "message": e.message, "fields": e.fields, "at": e.at}
                    for e in entries
                ],
            )  # fmt: skip

    def record(self, run_id: str, path: str | None, what: str, detail: dict[str, Any]) -> None:
        with self.database.transaction() as connection:
            run_statements.record(connection, run_id, path, what, detail)


# -- the guards -------------------------------------------------------------------------------------------

_ATTEMPT_COLUMNS = (
    steps.c.execution_token, steps.c.attempts, steps.c.lost, steps.c.executor_id, steps.c.started_at,
)  # fmt: skip


_RUNNING = (
    select(
        steps.c.run_id, steps.c.path, steps.c.execution_token, steps.c.attempts, steps.c.lost, steps.c.executor_id,
        runs.c.workflow, runs.c.version, runs.c.failed_step,
    )
    .join(runs, runs.c.id == steps.c.run_id)
    .where(runs.c.status == "running", steps.c.status == "running")
)  # fmt: skip


def _running(row: Any) -> RunningAttempt:
    held = Held(row.run_id, row.path, row.execution_token)
    return RunningAttempt(held, row.attempts, row.lost, row.executor_id, row.workflow, row.version, row.failed_step)


def _guard(held: Held, verb: str) -> Any:
    """Token and status, always both."""
    return and_(
        steps.c.run_id == held.run_id,
        steps.c.path == held.path,
        steps.c[held.guard] == held.token,
        steps.c.status.in_(step_sources(verb)),
    )


def _step_leaves_running(held: Held, verb: str, status: str) -> Update:
    return (
        update(steps)
        .where(_guard(held, verb))
        .values(
            status=status, execution_token=steps.c.execution_token + 1, timeout_token=steps.c.timeout_token + 1,
            timeout_at=None,
        )
    )  # fmt: skip


def _run_leaves_pending(run_id: str, token: int) -> Update:
    return (
        update(runs)
        .where(runs.c.id == run_id, runs.c.token == token, runs.c.status.in_(run_sources("begin_run")))
        .values(status="running", started_at=now(), token=runs.c.token + 1, ring_at=None, rings=0, parked=None)
    )


def _run_is_open(run_id: str) -> Any:
    return select(true()).where(runs.c.id == run_id, runs.c.status.not_in(RUN_TERMINAL)).exists()


def _after(seconds: float | None) -> Any:
    return None if seconds is None else after(seconds)


def _due(row: Row[Any]) -> Due:
    due_in = 0.0 if row.due_at is None else (row.due_at - row.now).total_seconds()
    fields: tuple[Any, ...] = (*tuple(row)[:-2], due_in)
    return Due(*fields)


def _backed_off(rings: Any, look: Look) -> Any:
    """Doubling, up to the maximum; 2 ** rings as a CASE since SQLite may lack power()."""
    delays = [min(look.backoff * 2.0**n, look.backoff_max) for n in range(12)]
    steps_up = ((rings <= n, after(literal(delay))) for n, delay in enumerate(delays))
    return case(*steps_up, else_=after(literal(look.backoff_max)))


def _record_attempt(
    connection: Connection, held: Held, step: Row[Any], outcome: str, error: dict[str, Any] | None,
    attempt: int | None = None,
) -> None:  # fmt: skip
    connection.execute(
        insert(attempts).values(
            run_id=held.run_id, path=held.path, token=step.execution_token - 1, attempt=attempt or step.attempts,
            outcome=outcome, error=error, executor_id=step.executor_id, started_at=step.started_at, ended_at=now(),
        )
    )  # fmt: skip


def first_claim(run_id: str, opening: Opening, its_input: Any) -> Claimed:
    """A step's first attempt, as an insert leaves it."""
    return Claimed(run_id, opening.path, token=1, timeout_token=1, attempt=1, lost=0, input=its_input)
