"""DBOS under test: a queue, two processes of 8 threads, 10 ms polling; a client enqueues and waits."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing

import sqlalchemy as sa
from dbos import DBOS, DBOSClient, WorkflowHandle

from benchmarks import databases, disciplines
from benchmarks.disciplines import Done, Work
from benchmarks.driver import Repetition, Surroundings, serve
from benchmarks.lines import emit
from benchmarks.loads import Load
from benchmarks.peers import dbos_app

NAME = "dbos"
DRAINED = """
    SELECT count(*) FILTER (WHERE completed_at IS NULL), max(completed_at) / 1000.0
    FROM dbos.workflow_status WHERE workflow_uuid = ANY(%s)
"""
COMPLETED_AT = sa.text("SELECT completed_at / 1000.0 FROM dbos.workflow_status WHERE workflow_uuid = :id")


class DbosSystem:
    """One DBOS system database with a client of it."""

    name = NAME
    pollings: Sequence[float | None] = (0.002, 0.005)
    polling: float | None = 0.005
    drained_query = DRAINED

    def __init__(self, admin_url: str, database: str) -> None:
        self.url = databases.fresh_database(admin_url, database)
        self.database = database
        create_schema(self.url)
        driver_url = self.url.replace("postgresql://", "postgresql+psycopg://", 1)
        self._engine = sa.create_engine(driver_url, pool_size=5, **dbos_app.engine_options())
        self._client = DBOSClient(system_database_engine=self._engine, application_name="bench")

    def fleet(self) -> Sequence[Sequence[str]]:
        worker = [sys.executable, "-m", "benchmarks.peers.dbos_app"]
        return [[*worker, "first"], [*worker, "second"]]

    def env(self) -> Mapping[str, str]:
        return {"BENCH_DBOS_URL": self.url}

    def start(self, workflow: str, key: str, steps: int = 1) -> WorkflowHandle[object]:
        return self._client.enqueue({"queue_name": dbos_app.QUEUE, "workflow_name": workflow}, key, steps)

    def wait(self, handle: WorkflowHandle[object]) -> Done:
        handle.get_result(polling_interval_sec=self.polling or 1.0)
        return Done(lambda: self._completed_at(handle.get_workflow_id()))

    def start_batch(self, work: Work) -> list[str]:
        key = disciplines.fresh_key("batch")
        return [self.start(work.kind, key, work.steps).get_workflow_id() for _ in range(work.runs)]

    def wait_batch(self, batch: Sequence[str]) -> float:
        return databases.wait_drained(self.url, DRAINED, batch).at

    def close(self) -> None:
        """Disconnect; only fleets use the database from now on."""
        self._client.destroy()
        self._engine.dispose()

    def _completed_at(self, run_id: str) -> float:
        with self._engine.connect() as connection:
            return float(connection.execute(COMPLETED_AT, {"id": run_id}).scalar_one())


def create_schema(url: str) -> None:
    """A client never migrates, so an application is launched once."""
    DBOS(config=dbos_app.config(url, "setup"))
    DBOS.launch()
    DBOS.register_queue(
        dbos_app.QUEUE,
        worker_concurrency=dbos_app.WORKER_CONCURRENCY,
        polling_interval_sec=dbos_app.POLLING_S,
    )
    DBOS.destroy(workflow_completion_timeout_sec=0)


def prepare(load: Load, surroundings: Surroundings, stack: ExitStack) -> Mapping[str, Repetition]:
    """Databases, a client and a warm fleet."""
    idle = stack.enter_context(closing(DbosSystem(surroundings.database_url, "bench_dbos_starts")))
    main = stack.enter_context(closing(DbosSystem(surroundings.database_url, "bench_dbos")))
    warm = disciplines.open_warm(main, load, surroundings.log, stack)

    def commits() -> None:
        counted = DbosSystem(surroundings.database_url, "bench_dbos_commits")
        emit(NAME, "commits_per_step", [disciplines.commits_per_step(counted, load, surroundings)])

    def wal() -> None:
        for kind, runs in (("noop", load.runs), ("kb10", load.payload_runs), ("kb100", 30)):
            figure = disciplines.wal_per_step(main, warm.fleet, Work(kind, runs, load.steps))
            emit(NAME, f"wal_bytes_per_step/{kind}", [figure])

    return {**disciplines.shared_by([warm], idle, load), "commits": commits, "wal": wal, "takeover": no_takeover}


def no_takeover() -> None:
    """It recovers its own runs at a restart."""
    note = "no takeover by another live process without DBOS Conductor; it recovers when the same executor restarts"
    emit(NAME, "takeover_s", note=note)


if __name__ == "__main__":
    serve(prepare)
