"""A store and its rows, without an engine: a test brings rows into any status, reads them, and sets the clock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlalchemy import inspect, select, text

from rival_client.db import metadata
from rival_client.db.database import Database
from rival_client.db.fleet_tables import executors
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import Timestamp
from rival_client.model.payload import Json
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.starts.starts import Start
from rival_client.model.workflow_info import WorkflowInfo
from rival_client.sql import runs as run_statements
from rival_client.sql.run_inserts import insert_runs
from rival_workers.engine.decisions import End, Retry
from rival_workers.engine.effects import Advance, EndRun, FailRun, OpenRow
from rival_workers.engine.interpreter import first
from rival_workers.engine.nodes import StepNode
from rival_workers.engine.plan import Plan
from rival_workers.store.claim_records import Claim, Claimed
from rival_workers.store.sql_store import SqlStore
from tests.support.inline import Clock

ERROR = {"type": "Boom", "message": "boom", "attempt": 1}
PLAN = Plan(nodes=(StepNode(name="a", on_error=True), StepNode(name="b")), on_error=True)
TIMED = Advance((OpenRow("a", "step"),), lambda path: StepConfig(timeout=60))
DONE = End("completed", Json('{"n":1}'), Json('{"description":"done"}'))
SKIPPED = End("skipped", Json("null"))
FAILED = End("failed", error=ERROR, hard=True, outcome="failed")
GOES_ON = Advance((OpenRow("b", "step"),))
COMPLETES = Advance((EndRun("completed"),))
FAILS = Advance((FailRun(), EndRun("failed")))
SOON = Retry(0.0, ERROR, Json('{"page":2}'))


class CountedDown:
    """Equals the seconds that are left of `seconds` soon after they were set: time may have passed since, at most
    `most`, but there can never be more left. So that a longer time is not taken for this one."""

    def __init__(self, seconds: float, most: float = 4.0) -> None:
        self._seconds, self._most = seconds, most

    def __eq__(self, left: object) -> bool:
        # Postgres keeps microseconds, and a float of this century has 2e-7.
        return isinstance(left, int | float) and self._seconds - self._most <= left <= self._seconds + 1e-4

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{self._seconds:g} s, counted down by at most {self._most:g}"


class Stage:
    def __init__(self, store: SqlStore, clock: Clock) -> None:
        self.store, self._clock = store, clock
        self.database = store.database
        self.store.register_workflow("w", PLAN, None, None)

    # -- bringing things about ----------------------------------------------------------------------------

    @property
    def workflow(self) -> WorkflowInfo:
        found = self.store.load_workflow("w", PLAN.version)
        assert found is not None
        return found

    def add_run(self, run_id: str = "r", its_input: str = '{"x":1}', grace: float = 10.0) -> None:
        workflow = self.workflow
        with self.database.transaction() as connection:
            insert_runs(connection, Start(workflow, {run_id: Json(its_input)}), grace)

    def begin(self, run_id: str = "r", executor: str | None = "e1", what: Advance | None = None) -> Claim:
        self.add_run(run_id)
        claimed = self.store.begin_run(run_id, 0, what or first(PLAN), claim_for=executor)
        assert claimed is not None
        return Claim(run_id, "a", 1 if executor else 0)

    def claim(self, claim: Claim, executor: str = "e1") -> Claim:
        claimed = self.store.claim_step(claim, None, executor)
        assert isinstance(claimed, Claimed)
        return Claim(claim.run_id, claim.path, claimed.token)

    def retried(self, run_id: str = "r") -> Claim:
        """A running step whose first attempt failed: its finish is not the happy path's."""
        claim = self.begin(run_id)
        token = self.store.retry_step(claim, SOON, published=True)
        assert token is not None
        return self.claim(Claim(run_id, "a", token), "e2")

    def cancel(self, run_id: str = "r") -> bool | None:
        with self.database.transaction() as connection:
            return run_statements.cancel_run(connection, run_id, "test")

    def force(self, statement: str, **values: Any) -> None:
        with self.database.transaction() as connection:
            connection.execute(text(statement), values)

    def time_passes(self, seconds: float) -> None:
        """The clock goes on; where it cannot be set, everything that has happened is put back instead."""
        if not self.database.is_postgres:
            self._clock.advance(seconds)
            return
        for table in metadata.sorted_tables:
            stamps = [column.name for column in table.columns if isinstance(column.type, Timestamp)]
            changes = ", ".join(f"{name} = {name} - make_interval(secs => :seconds)" for name in stamps)
            if stamps:
                self.force(f"UPDATE {table.name} SET {changes}", seconds=seconds)

    # -- looking ------------------------------------------------------------------------------------------

    def run(self, run_id: str = "r") -> dict[str, Any]:
        with self.database.transaction() as connection:
            return dict(connection.execute(select(runs).where(runs.c.id == run_id)).mappings().one())

    def step(self, path: str = "a", run_id: str = "r") -> dict[str, Any]:
        with self.database.transaction() as connection:
            where = (steps.c.run_id == run_id, steps.c.path == path)
            return dict(connection.execute(select(steps).where(*where)).mappings().one())

    def has_step(self, path: str, run_id: str = "r") -> bool:
        return self.store.read_step(run_id, path) is not None

    def everything(self) -> dict[str, list[tuple[Any, ...]]]:
        """All rows of all tables but executors, which beat by themselves: to see that nothing has changed."""
        return {table: rows for table, rows in every_row(self.database).items() if table != "rival_executors"}

    def now_plus(self, column: str, path: str | None = "a", run_id: str = "r") -> float | None:
        """How many seconds from now a timestamp of a row is, by the database's clock."""
        table, where = (
            ("rival_runs", "id = :run") if path is None else ("rival_steps", "run_id = :run AND path = :path")
        )
        now = "extract(epoch FROM clock_timestamp())" if self.database.is_postgres else "rival_now()"
        then = f"extract(epoch FROM {column})" if self.database.is_postgres else column
        with self.database.transaction() as connection:
            found = connection.scalar(
                text(f"SELECT {then} - {now} FROM {table} WHERE {where}"), {"run": run_id, "path": path}
            )
        return None if found is None else float(found)

    def count(self, table: str) -> int:
        with self.database.transaction() as connection:
            return int(connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0)

    def executor_ids(self) -> set[str]:
        with self.database.transaction() as connection:
            return set(connection.scalars(select(executors.c.id)))

    def tables(self) -> set[str]:
        return set(inspect(self.database.engine).get_table_names())

    # -- every status -------------------------------------------------------------------------------------

    def bring(self, status: str, run_id: str = "r") -> None:
        """A run whose step `a` is in that status."""
        _STATUSES[status](self, run_id)
        assert self.step("a", run_id)["status"] == status


def every_row(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    with database.transaction() as connection:
        return {
            table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr)
            for table in metadata.sorted_tables
        }


Bringer = Callable[[Stage, str], object]


def _waiting_retry(stage: Stage, run_id: str) -> None:
    stage.store.retry_step(stage.begin(run_id), SOON, published=True)


def _waiting(stage: Stage, run_id: str) -> None:
    """Nothing leads here yet: a step that suspends is still to come."""
    stage.begin(run_id)
    waits = (
        "UPDATE rival_steps SET status = 'waiting', execution_token = 2, timeout_token = 2, due_at = started_at "
        "WHERE run_id = :run_id"
    )
    stage.force(waits, run_id=run_id)


def _ended(end: End, advance: Advance) -> Bringer:
    def bring(stage: Stage, run_id: str) -> None:
        assert stage.store.finish_step(stage.begin(run_id), end, advance, claim_for=None)

    return bring


def _cancelled(stage: Stage, run_id: str) -> None:
    stage.begin(run_id)
    assert stage.cancel(run_id)


_STATUSES: dict[str, Bringer] = {
    "pending": lambda stage, run_id: stage.begin(run_id, executor=None),
    "running": lambda stage, run_id: stage.begin(run_id),
    "waiting_retry": _waiting_retry,
    "waiting": _waiting,
    "completed": _ended(DONE, GOES_ON),
    "skipped": _ended(SKIPPED, GOES_ON),
    "failed": _ended(FAILED, FAILS),
    "cancelled": _cancelled,
}
