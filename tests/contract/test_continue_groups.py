"""Flows that continue together do what each does alone; one that does not fit fails alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from rival_client.model.payload import Json
from rival_client.sql.runs import pause_run
from rival_workers.engine.effects import Advance, OpenRow
from rival_workers.engine.replay import CheckpointRef, CheckpointWrite
from rival_workers.store.claim_records import Claim
from rival_workers.store.flow_records import ContinuedFlow, FlowClaim
from rival_workers.store.group_commits import ALONE
from rival_workers.store.postgres import PostgresStore
from rival_workers.store.postgres.flow_groups import ContinueCall, RecordCall, commit_flows
from rival_workers.store.sql_store import SqlStore
from tests.contract.stage import Stage
from tests.support.inline import Clock
from tests.support.shared_database import database_at

FLOW = Advance((OpenRow("a", "flow"),))
RUNS = ("r1", "r2", "r3")
#: Below the flow, and beside it.
PATHS = ("a/pay#0", "a[1]", "a!on_error", "ab", "b", "a.b")
TABLES = {
    "rival_runs": "id, status, parent_run_id, parent_path",
    "rival_steps": "path, kind, status, attempts, lost, execution_token, timeout_token, executor_id, item::text, "
    "state::text, policy::text, rings, due_at IS NULL, ring_at IS NULL, timeout_at IS NULL, slots::text",
    "rival_attempts": "path, token, outcome",
    "rival_logs": "path, message",
    "rival_waits": "path, topic, key",
    "rival_deliveries": "event_id, path",
    "rival_history": "path, what, detail::jsonb::text, actor",
}


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(database_at(postgres_url))
    yield opened
    opened._prepared.close()
    opened._groups.close()


@pytest.fixture
def rows(store: PostgresStore) -> Stage:
    stage = Stage(store, Clock())
    stage.force(_EVENTS)
    for run_id in RUNS:
        stage.add_run(run_id)
        assert store.begin_run(run_id, 0, FLOW, claim_for="e1")
        for statement in _PAST:
            stage.force(statement.format(places=PLACES), run=run_id, paths=[*PATHS, "a"])
    return stage


_EVENTS = """
INSERT INTO rival_events (id, topic, payload, delivery, status, created_at, expires_at)
SELECT id, 't', '1', delivery, 'consumed', now(), now()
FROM (VALUES ('e-one', 'one'), ('e-all', 'all')) AS e (id, delivery)
"""
_PAST = (
    "INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, created_at, completed_at) "
    "SELECT run, path, 'step', 'completed', 1, 2, now(), now() FROM {places} ON CONFLICT DO NOTHING",
    "INSERT INTO rival_attempts (run_id, path, token, attempt, outcome, started_at, ended_at) "
    "SELECT run, path, 7, 1, 'failed', now(), now() FROM {places}",
    "INSERT INTO rival_logs (run_id, path, attempt, level, message, at) "
    "SELECT run, path, 1, 'INFO', path, now() FROM {places}",
    "INSERT INTO rival_waits (run_id, path, topic, key, token, created_at) "
    "SELECT run, path, 't', path, 1, now() FROM {places}",
    "INSERT INTO rival_deliveries (event_id, run_id, path, at) "
    "SELECT CASE path WHEN 'ab' THEN 'e-all' ELSE 'e-one' END, run, 'a/pay#0', now() FROM {places} "
    "WHERE path IN ('ab', 'b')",
    "INSERT INTO rival_history (run_id, path, what, at) "
    "SELECT run, path, what, now() FROM {places}, unnest(ARRAY['completed', 'rewind_run']) AS what",
    "INSERT INTO rival_runs (id, workflow, version, status, parent_run_id, parent_path, input, created_at, "
    "completed_at) SELECT run || path || status, 'w', '1', status, run, path, '1', now(), "
    "CASE status WHEN 'completed' THEN now() END FROM {places}, unnest(ARRAY['completed', 'pending']) AS status",
)
PLACES = "(SELECT CAST(:run AS text) AS run, path FROM unnest(CAST(:paths AS text[])) AS path) AS place"


def call(run_id: str, token: int = 1, state: Json | None = None, by: FlowClaim | None = None) -> ContinueCall:
    by = by or FlowClaim("e1", 60.0, '{"timeout":{"value":1}}')
    return ContinueCall(Claim(run_id, "a", token), Json('{"n": 2}'), state, 10.0, by, "{default}")


def contents(rows: Stage, run_id: str) -> dict[str, Any]:
    """All that is about a run, without its name, times and serial numbers."""
    found = {}
    with rows.database.transaction() as connection:
        for table, columns in TABLES.items():
            which = "id LIKE :run || '%'" if table == "rival_runs" else "run_id = :run"
            asked = connection.execute(text(f"SELECT {columns} FROM {table} WHERE {which}"), {"run": run_id})
            found[table] = sorted(str(tuple(row)).replace(run_id, "r") for row in asked)
    return found


@pytest.mark.parametrize("state", [None, Json('{"x":1}')])
def test_flows_that_continue_together_leave_the_same_rows_as_one_by_one(
    rows: Stage, store: PostgresStore, state: Json | None
) -> None:
    before = contents(rows, "r1")
    answers = commit_flows(store._groups, [call("r3", state=state), call("r1", state=state)])
    assert answers == [ContinuedFlow(2, 2)] * 2
    by = call("r2").claim_by
    assert SqlStore(store.database).continue_flow(Claim("r2", "a", 1), Json('{"n": 2}'), state, by) is not None
    assert contents(rows, "r1") == contents(rows, "r2") == contents(rows, "r3") != before
    with store.database.transaction() as connection:
        transactions = "SELECT count(DISTINCT xmin::text) FROM rival_steps WHERE path = 'a' AND run_id IN ('r1', 'r3')"
        assert connection.scalar(text(transactions)) == 1


def test_checkpoints_and_continues_are_one_transaction(rows: Stage, store: PostgresStore) -> None:
    write = CheckpointWrite(CheckpointRef("a/new#0", "step", 0, begun_after=0), "completed", Json("1"), end_order=0)
    recorded, continued = commit_flows(store._groups, [RecordCall(Claim("r2", "a", 1), write, None), call("r1")])
    assert (isinstance(recorded, float), continued) == (True, ContinuedFlow(2, 2))
    with store.database.transaction() as connection:
        written = "(run_id, path) IN (('r2', 'a/new#0'), ('r1', 'a'))"
        transactions = f"SELECT count(DISTINCT xmin::text) FROM rival_steps WHERE {written}"
        assert connection.scalar(text(transactions)) == 1


@pytest.mark.parametrize("what", ["stale", "paused", "slots", "expired", "another queue", "locked", "not running"])
def test_one_that_does_not_fit_is_left_to_the_single_path(rows: Stage, store: PostgresStore, what: str) -> None:
    changes = {
        "slots": "slots = '{}'",
        "expired": "deadline_at = now()",
        "another queue": "queue = 'other'",
        "not running": "status = 'pending'",
    }
    if what in changes:
        rows.force(f"UPDATE rival_steps SET {changes[what]} WHERE run_id = 'r2' AND path = 'a'")
    if what == "paused":
        with store.database.transaction() as connection:
            pause_run(connection, "r2", "operator")
    before = contents(rows, "r2")
    with store.database.transaction() as other:
        if what == "locked":
            other.execute(text("SELECT pg_advisory_xact_lock_shared(hashtextextended('r2', 726356))"))
        answers = commit_flows(store._groups, [call("r1"), call("r2", token=0 if what == "stale" else 1), call("r3")])
    assert [answer is ALONE for answer in answers] == [False, True, False]
    assert contents(rows, "r2") == before


def test_those_of_another_executor_are_not_continued_in_its_name(rows: Stage, store: PostgresStore) -> None:
    other = call("r2", by=FlowClaim("e2"))
    assert [answer is ALONE for answer in commit_flows(store._groups, [call("r1"), other])] == [False, True]
    assert isinstance(store.continue_flow(other.claim, other.its_input, None, other.claim_by), ContinuedFlow)


def test_an_input_that_cannot_be_stored_leaves_all_to_the_single_path(rows: Stage, store: PostgresStore) -> None:
    bad = replace(call("r2"), its_input=Json("{"))
    before = contents(rows, "r1")
    assert commit_flows(store._groups, [call("r1"), bad]) == [ALONE, ALONE]
    assert contents(rows, "r1") == before
