"""Checkpoints that several flows record together do what each does alone; one that does not fit fails alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from rival_client.model import statuses
from rival_client.model.payload import Json
from rival_client.sql.runs import pause_run
from rival_workers.engine.effects import Advance, OpenRow
from rival_workers.engine.replay import CheckpointRef, CheckpointWrite
from rival_workers.store.claim_records import Claim
from rival_workers.store.group_commits import ALONE
from rival_workers.store.postgres import PostgresStore
from rival_workers.store.postgres.flow_groups import RecordCall, commit_flows
from rival_workers.store.sql_store import SqlStore
from tests.contract.stage import Stage
from tests.support.inline import Clock
from tests.support.locks import until_blocked
from tests.support.shared_database import database_at
from tests.support.workers import wait_until

FLOW = Advance((OpenRow("a", "flow"),))
RUNS = ("r1", "r2", "r3")


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(database_at(postgres_url))
    yield opened
    opened._prepared.close()
    opened._groups.close()


@pytest.fixture
def rows(store: PostgresStore) -> Stage:
    stage = Stage(store, Clock())
    for run_id in RUNS:
        begin(stage, run_id)
    return stage


def begin(stage: Stage, run_id: str) -> None:
    stage.add_run(run_id)
    assert stage.store.begin_run(run_id, 0, FLOW, claim_for="e1")


def call(run_id: str, name: str = "a/pay", state: Json | None = None, **write: Any) -> RecordCall:
    ref = CheckpointRef(name, "step", 0, begun_after=0)
    ended = CheckpointWrite(ref, statuses.COMPLETED, Json('{"n": 1}'), end_order=0)
    return RecordCall(Claim(run_id, "a", 1), replace(ended, **write), state)


def calls() -> list[RecordCall]:
    failed = {"status": statuses.FAILED, "result": None, "error": {"type": "E", "message": "é\\"}, "attempts": 2}
    return [call("r3", state=Json('{"x": 1}')), call("r1"), call("r2", "a/ship", **failed)]


def test_checkpoints_of_several_flows_are_one_transaction(rows: Stage, store: PostgresStore) -> None:
    recorded = commit_flows(store._groups, calls())
    assert all(isinstance(one, float) for one in recorded)
    with store.database.transaction() as connection:
        transactions = "SELECT count(DISTINCT xmin::text) FROM rival_steps WHERE path LIKE 'a/%'"
        assert connection.scalar(text(transactions)) == 1


def test_they_leave_the_same_rows_as_one_after_the_other_on_the_portable_path(
    rows: Stage, store: PostgresStore
) -> None:
    commit_flows(store._groups, calls())
    together = contents(rows)
    with store.database.transaction() as connection:
        connection.execute(text("TRUNCATE rival_runs, rival_steps, rival_history"))
    for run_id in RUNS:
        begin(rows, run_id)
    portable = SqlStore(store.database)
    for one in calls():
        assert portable.record_checkpoint(one.claim, one.write, one.state) is not None
    assert contents(rows) == together


def contents(rows: Stage) -> dict[str, Any]:
    """All but times and serial numbers."""
    ask = {
        "steps": "SELECT run_id, path, kind, status, opened, begun_after, end_order, result::text, error::text, "
        "attempts, execution_token, state::text, completed_at IS NULL FROM rival_steps ORDER BY run_id, path",
        "history": "SELECT run_id, path, what, detail::text, actor FROM rival_history ORDER BY run_id, id",
    }
    with rows.database.transaction() as connection:
        return {name: [tuple(row) for row in connection.execute(text(sql))] for name, sql in ask.items()}


@pytest.mark.parametrize("what", ["stale", "paused", "recorded before", "locked by an operator"])
def test_one_that_does_not_fit_is_left_to_the_single_path(rows: Stage, store: PostgresStore, what: str) -> None:
    misfit = call("r2")
    if what == "stale":
        misfit = replace(misfit, claim=replace(misfit.claim, token=0))
    elif what == "paused":
        with store.database.transaction() as connection:
            pause_run(connection, "r2", "operator")
    elif what == "recorded before":
        assert store.record_checkpoint(misfit.claim, misfit.write) is not None
    group = [call("r1"), misfit, call("r3")]
    with store.database.transaction() as connection:
        if what == "locked by an operator":
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('r2', 726356))"))
        first, second, third = commit_flows(store._groups, group)
    assert isinstance(first, float)
    assert isinstance(third, float)
    assert second is ALONE


def test_a_value_that_cannot_be_stored_leaves_all_to_the_single_path(rows: Stage, store: PostgresStore) -> None:
    bad = call("r2", result=Json("{"))
    assert commit_flows(store._groups, [call("r1"), bad]) == [ALONE, ALONE]
    assert rows.count("rival_steps") == len(RUNS)


def test_checkpoints_that_come_during_a_commit_are_recorded_together(rows: Stage, store: PostgresStore) -> None:
    groups: list[int] = []

    def counted(some: Sequence[Any]) -> Sequence[Any]:
        groups.append(len(some))
        return make(some)

    make, store._joined._make = store._commit_together, counted
    with ThreadPoolExecutor(3) as threads:
        with store.database.transaction() as connection:
            # It holds up the first commit.
            connection.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('r1', 726356))"))
            recorded = [threads.submit(store.record_checkpoint, call("r1").claim, call("r1").write)]
            until_blocked(store.database)
            for run_id in ("r2", "r3"):
                recorded.append(threads.submit(store.record_checkpoint, call(run_id).claim, call(run_id).write))
            wait_until(lambda: len(store._joined._waiting) == 2)
        assert all(isinstance(one.result(20), float) for one in recorded)
    assert groups == [1, 2]
