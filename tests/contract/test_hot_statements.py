"""Whatever a step costs, it costs with 50,000 finished runs in the tables too, and with 50,000 sleeping ones that
Postgres has no statistics of yet: every statement on the way of a run goes through an index."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, text
from starlette.testclient import TestClient

from rival_client import Rival
from rival_client.db.database import Database
from rival_client.db.prepared import BY_INDEX
from rival_client.db.prepared_statement import Statement
from rival_client.model.limits.idempotency_records import KeyName
from rival_client.model.run_entries import LogEntry
from rival_client.model.statuses import RUN_ACTIVE
from rival_client.sql.event_inserts import INSERT_EVENT
from rival_client.sql.idempotency import drop_key
from rival_client.sql.reads import (
    fleet_reads,
    history_changes,
    open_step_rows,
    queue_reads,
    run_counts,
    run_family,
    run_rows,
    step_pages,
    workflow_reads,
)
from rival_client.sql.reads.event_reads import list_events
from rival_client.sql.reads.history_reads import read_history, read_newest
from rival_client.sql.reads.idempotency_reads import list_keys, waited_for
from rival_client.sql.reads.run_cursor import Cursor
from rival_client.sql.reads.run_filter import RunFilter
from rival_client.sql.reads.run_reads import READ_RESULT, READ_STATUS
from rival_client.sql.reads.run_search import list_runs, run_ids
from rival_client.sql.reads.why_reads import read_facts
from rival_client.sql.run_inserts import INSERT_RUN, INSERT_RUNS
from rival_workers.dashboard.api import live, run_list
from rival_workers.dashboard.asgi import application
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.board_options import Options
from rival_workers.dashboard.roles import Identity
from rival_workers.dashboard.routes import TABLE
from rival_workers.dashboard.sessions import Sessions
from rival_workers.dev.stack import Stack, create_database, drop_database
from rival_workers.store import health
from rival_workers.store.call_records import KeyClaim
from rival_workers.store.claim_records import Claim
from rival_workers.store.postgres import statements as postgres_statements
from rival_workers.store.postgres.groups import GROUP_SETTINGS
from rival_workers.store.postgres.statements import load_statements
from rival_workers.store.sql_store import SqlStore
from rival_workers.store.sweep_records import SweepOptions
from tests.contract.stage import COMPLETES, DONE, FAILED, FAILS, GOES_ON, SOON, Stage
from tests.support.inline import Clock

#: A million for a check of what the lists of the dashboard promise: RIVAL_CROWD=1000000 and --timeout 2900.
MANY = int(os.environ.get("RIVAL_CROWD", "50000"))
CROWD = f"generate_series(1, {MANY}) AS n"
TICKETS = f"""
INSERT INTO rival_tickets (run_id, path, token, gate, base, rank, workflow, version, created_at)
SELECT 'old-' || n, 'a', 2, -(n % 1000), n, n, 'w', 'v', now() FROM {CROWD}
"""
FINISHED = (
    f"""
INSERT INTO rival_runs (id, workflow, version, status, token, input, result, created_at, started_at, completed_at)
SELECT 'old-' || n, 'w', 'v', 'completed', 2, '[1]', '1', now() - n * interval '1 second', now(), now() FROM {CROWD}
""",
    f"""
INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id, result,
                         created_at, started_at, completed_at)
SELECT 'old-' || n, path, 'step', 'completed', 1, 2, 2, 'e' || n % 50, '1', now(), now(), now()
FROM {CROWD}, unnest(ARRAY['a', 'b']) AS path
""",
    f"""
INSERT INTO rival_labels (run_id, name, value, created_at)
SELECT 'old-' || n, label.name, label.value, now() - n * interval '1 second'
FROM {CROWD}, LATERAL (VALUES ('tenant', 't' || n % 100), ('tier', 'gold')) AS label (name, value)
""",
    f"""
INSERT INTO rival_idempotency_keys (digest, key, workflow, step, run_id, path, holder, fingerprint, ttl, result,
                                    created_at, completed_at, expires_at)
SELECT 'digest-' || n, 'k' || n, 'w', 'a', 'old-' || n, 'a', 'a', 'f', 86400, '1', now(), now(),
       now() + interval '1 day'
FROM {CROWD}
""",
    TICKETS,
    "VACUUM ANALYZE",
)
SLEEPING = (
    # As it is in the minute after they have come.
    "ALTER TABLE rival_runs SET (autovacuum_enabled = false)",
    "ALTER TABLE rival_steps SET (autovacuum_enabled = false)",
    f"""
INSERT INTO rival_runs (id, workflow, version, status, token, input, created_at, started_at)
SELECT 'old-' || n, 'w', 'v', 'suspended', 2, '[1]', now() - n * interval '1 second', now() FROM {CROWD}
""",
    f"""
INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id, ring_at,
                         due_at, created_at, started_at)
SELECT 'old-' || n, path, 'flow', 'waiting', 1, 2, 2, 'e' || n % 50, at, at, now(), now()
FROM {CROWD}, (VALUES ('a', now() + interval '1 year'), ('a/sleep', NULL)) AS step (path, at)
""",
    "ALTER TABLE rival_idempotency_keys SET (autovacuum_enabled = false)",
    "ALTER TABLE rival_tickets SET (autovacuum_enabled = false)",
    # Each run owns a key, and waits for another one.
    f"""
INSERT INTO rival_idempotency_keys (digest, key, workflow, step, run_id, path, holder, fingerprint, ttl, created_at)
SELECT 'digest-' || n, 'k' || n, 'w', 'a', 'old-' || n, 'a', 'a', 'f', 86400, now() FROM {CROWD}
""",
    TICKETS,
    "ALTER TABLE rival_labels SET (autovacuum_enabled = false)",
    f"""
INSERT INTO rival_labels (run_id, name, value, created_at)
SELECT 'old-' || n, label.name, label.value, now() - n * interval '1 second'
FROM {CROWD}, LATERAL (VALUES ('tenant', 't' || n % 100), ('tier', 'gold')) AS label (name, value)
""",
)


@pytest.fixture(scope="module", params=[FINISHED, SLEEPING], ids=["finished", "sleeping"])
def crowded(stack: Stack, template: str, request: pytest.FixtureRequest) -> Iterator[Stage]:
    name = f"crowded_{uuid.uuid4().hex[:12]}"
    store = SqlStore(Database(create_database(stack.database_url, name, template=template)))
    stage = Stage(store, Clock())
    stage.begin("running")
    stage.begin("pending", executor=None)
    stage.retried("again")
    answer = store.own_key(stage.begin("owner"), OTHER)
    assert answer is not None
    assert answer.state == "owned"
    stage.add_run("new")
    stage.store.add_executor("e1", "host", 1, "w", 60)
    with store.database.autocommit() as connection:
        for statement in request.param:
            connection.execute(text(statement))
    yield stage
    store.close()
    drop_database(stack.database_url, name)


def full_scans(plan: Any) -> list[str]:
    """Every table that the plan reads from end to end."""
    if isinstance(plan, list):
        return [table for part in plan for table in full_scans(part)]
    found = [plan["Relation Name"]] if plan.get("Node Type") == "Seq Scan" else []
    return found + full_scans([plan[key] for key in ("Plan",) if key in plan] + plan.get("Plans", []))


BIG = {"rival_runs", "rival_steps", "rival_labels", "rival_idempotency_keys", "rival_tickets"}


#: All files, so that no statement of a new one is left out.
SQL_FILES = sorted(path.name for path in Path(postgres_statements.__file__).parent.glob("*.sql"))
FOR_GROUPS = [file for file in SQL_FILES if file.endswith("groups.sql")]
IN_FILES = [one for file in SQL_FILES if file not in FOR_GROUPS for one in load_statements(file).values()]


@pytest.mark.parametrize(
    "statement",
    [*IN_FILES, READ_STATUS, READ_RESULT, INSERT_RUN, INSERT_RUNS, INSERT_EVENT],
    ids=lambda statement: statement.name.decode(),
)
def test_a_hot_statement_uses_its_index(crowded: Stage, statement: Statement) -> None:
    with crowded.database.transaction() as connection:
        plan = generic_plan(connection.connection.cursor(), statement.sql)
    assert not set(full_scans(plan)) & BIG, json.dumps(plan, indent=1)


def indexes(plan: Any) -> set[str]:
    """Every index that the plan reads."""
    if isinstance(plan, list):
        return {name for part in plan for name in indexes(part)}
    found = {plan["Index Name"]} if "Index Name" in plan else set()
    return found | indexes([plan[key] for key in ("Plan",) if key in plan] + plan.get("Plans", []))


IN_GROUPS = {name: one for file in FOR_GROUPS for name, one in load_statements(file).items()}
#: Runs and steps are found by their ids, children by their parent, events and waits by their id or by topic and key.
BY_KEY = {
    *("rival_runs_pkey", "rival_steps_pkey", "rival_runs_parent"),
    *("rival_events_pkey", "rival_events_by_key", "rival_waits_pkey", "rival_waits_topic"),
}


@pytest.mark.parametrize("name", sorted(IN_GROUPS.keys() - {"rival_group_settings"}))
def test_a_statement_for_a_group_finds_each_row_by_its_primary_key(crowded: Stage, name: str) -> None:
    """Not through an index of unfinished rows, of which it would read all."""
    with crowded.database.transaction() as connection:
        cursor = connection.connection.cursor()
        cursor.execute(IN_GROUPS["rival_group_settings"].sql.replace("false", "true"))  # for this transaction only
        plan = generic_plan(cursor, IN_GROUPS[name].sql)
    assert not set(full_scans(plan)) & BIG, json.dumps(plan, indent=1)
    tables = ("rival_runs", "rival_steps", "rival_events", "rival_waits")
    assert {name for name in indexes(plan) if name.startswith(tables)} <= BY_KEY, json.dumps(plan, indent=1)
    assert not {"Hash Join", "Merge Join"} & set(re.findall(r'"Node Type": "([^"]*)"', json.dumps(plan)))


@pytest.fixture(scope="module")
def empty(stack: Stack, template: str) -> Iterator[Database]:
    """Where the first worker of a new fleet makes its plans. They are kept as long as its connections."""
    name = f"empty_{uuid.uuid4().hex[:12]}"
    database = Database(create_database(stack.database_url, name, template=template))
    yield database
    database.dispose()
    drop_database(stack.database_url, name)


#: What these do, they do to all steps of a run, or to all checkpoints of a flow.
WHOLE_RUNS = {
    *("rival_continue_flow", "rival_continue_flow_and_claim", "rival_read_checkpoints"),
}


@pytest.mark.parametrize(
    "statement",
    [one for one in [*IN_FILES, *IN_GROUPS.values()] if one.name.decode() not in WHOLE_RUNS],
    ids=lambda statement: statement.name.decode(),
)
def test_a_plan_that_is_made_for_empty_tables_reads_no_other_steps_of_the_run(
    empty: Database, statement: Statement
) -> None:
    with empty.transaction() as connection:
        cursor = connection.connection.cursor()
        if statement in IN_GROUPS.values():
            cursor.execute(IN_GROUPS["rival_group_settings"].sql.replace("false", "true"))
        cursor.execute("SET LOCAL enable_seqscan = off")
        plan = generic_plan(cursor, statement.sql)
    for scan in scans_of(plan, "rival_steps"):
        assert "path" in scan.get("Index Cond", ""), json.dumps(plan, indent=1)


@pytest.mark.parametrize(
    "statement",
    [*IN_FILES, *IN_GROUPS.values(), READ_STATUS, READ_RESULT, INSERT_RUN, INSERT_RUNS, INSERT_EVENT],
    ids=lambda statement: statement.name.decode(),
)
def test_a_plan_of_a_hot_statement_has_no_bitmap_scan(empty: Database, statement: Statement) -> None:
    """A bitmap scan reads the index entries of deleted rows again and again: after 1,000 continuations, those of 4,000
    history entries of the flow."""
    settings = GROUP_SETTINGS if statement in IN_GROUPS.values() else BY_INDEX
    with empty.transaction() as connection:
        cursor = connection.connection.cursor()
        cursor.execute(settings.replace("SET ", "SET LOCAL ").replace("false", "true"))
        plan = generic_plan(cursor, statement.sql)
    assert "Bitmap" not in json.dumps(plan), json.dumps(plan, indent=1)


def scans_of(plan: Any, table: str) -> list[dict[str, Any]]:
    if isinstance(plan, list):
        return [scan for part in plan for scan in scans_of(part, table)]
    is_scan = plan.get("Relation Name") == table and plan["Node Type"].endswith("Scan")
    inner = [plan[key] for key in ("Plan",) if key in plan] + plan.get("Plans", [])
    return ([plan] if is_scan else []) + scans_of(inner, table)


def generic_plan(cursor: Any, statement: str) -> Any:
    """The plan for any values, as Postgres has it once a statement has been used some times. `EXPLAIN (GENERIC_PLAN)`
    is missing in Postgres 15."""
    values = ", ".join("NULL" for _ in set(re.findall(r"\$\d+", statement)))
    cursor.execute("SET plan_cache_mode = force_generic_plan")
    cursor.execute(f"PREPARE explained AS {statement}")
    cursor.execute(f"EXPLAIN (FORMAT JSON) EXECUTE explained{f'({values})' if values else ''}")
    [plan] = cursor.fetchone()
    cursor.execute("DEALLOCATE explained")
    cursor.execute("RESET plan_cache_mode")
    return plan


LOOK = SweepOptions(limit=100, backoff=10.0, backoff_max=600.0)
HELD = Claim("running", "a", 1)
#: The run `owner` has it.
OTHER = KeyClaim(KeyName("other"), "a", "f", 60.0)


def with_connection(stage: Stage, act: Callable[[Connection], object]) -> object:
    with stage.database.transaction() as connection:
        return act(connection)


OPERATIONS: dict[str, Callable[[Stage], object]] = {
    "begin_run": lambda s: s.store.begin_run("new", 0, GOES_ON, claim_for="e1"),
    "claim_step": lambda s: s.store.claim_step(Claim("pending", "a", 0), 60.0, "e1"),
    "claim_step too early": lambda s: s.store.claim_step(Claim("pending", "a", 7), 60.0, "e1"),
    "finish_step": lambda s: s.store.finish_step(HELD, DONE, GOES_ON, claim_for="e1"),
    "finish_step, the last": lambda s: s.store.finish_step(HELD, DONE, COMPLETES, claim_for=None),
    "finish_step, failed": lambda s: s.store.finish_step(HELD, FAILED, FAILS, claim_for=None),
    "retry_step": lambda s: s.store.retry_step(HELD, SOON, published=True),
    "take_over_step": lambda s: s.store.take_over_step(HELD),
    "park a step": lambda s: s.store.park_step(Claim("pending", "a", 0), "unknown", 15.0),
    "park a run": lambda s: s.store.park_run("new", 0, "unknown", 15.0),
    "read_step": lambda s: s.store.read_step("running", "a"),
    "token_of": lambda s: s.store.token_of("running", "a"),
    "running_on": lambda s: s.store.running_on("e1"),
    "due": lambda s: s.store.due(LOOK),
    "next_look": lambda s: s.store.next_look(),
    "due_events": lambda s: s.store.due_events(LOOK),
    "fire_schedules": lambda s: s.store.fire_schedules(500),
    "orphans": lambda s: s.store.orphans(500),
    "delete_expired_events": lambda s: s.store.delete_expired_events(500),
    "retentions": lambda s: s.store.retentions(60.0),
    "delete_ended_before": lambda s: s.store.delete_ended_before(age=3600, limit=500, workflow="w"),
    "lost_attempts": lambda s: s.store.lost_attempts(["e1"], 500),
    "stray_attempts": lambda s: s.store.stray_attempts(500),
    "adopt_attempts": lambda s: s.store.adopt_attempts("e1", "e2"),
    "dead_executors": lambda s: s.store.dead_executors(),
    "executors_on": lambda s: s.store.executors_on("host"),
    "beat": lambda s: s.store.beat("e1", 60),
    "make_all_due": lambda s: s.store.make_all_due(600, 500),
    "append_logs": lambda s: s.store.append_logs(
        "running", [LogEntry(dt.datetime.now(dt.UTC), "info", "a", 1, "", {})]
    ),
    "cancel_run": lambda s: s.cancel("running"),
    "own_key, a new one": lambda s: s.store.own_key(HELD, KeyClaim(KeyName("new"), "a", "f", 60.0)),
    "own_key, another attempt": lambda s: s.store.own_key(
        Claim("again", "a", 3), KeyClaim(KeyName("new"), "a", "f", 60.0)
    ),
    "own_key of another step": lambda s: s.store.own_key(HELD, OTHER),
    "finish_step of an owner": lambda s: s.store.finish_step(Claim("owner", "a", 1), DONE, COMPLETES, claim_for=None),
    "drop a key": lambda s: with_connection(s, lambda own: drop_key(own, KeyName("unknown"), "me")),
    "why a step waits for a key": lambda s: with_connection(s, lambda own: waited_for(own, "old-7", 10)),
    "list_keys": lambda s: with_connection(s, lambda own: list_keys(own, 100)),
    "delete_expired_keys": lambda s: s.store.delete_expired_keys(500),
    "sweep_gates": lambda s: s.store.sweep_gates(20),
    "read_state": lambda s: s.run("running"),
}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_an_operation_on_the_way_of_a_run_reads_no_big_table_from_end_to_end(crowded: Stage, operation: str) -> None:
    with explained(crowded.database.engine) as plans:
        OPERATIONS[operation](crowded)
    assert plans
    for statement, plan in plans:
        assert not set(full_scans(plan)) & BIG, f"{statement}\n{json.dumps(plan, indent=1)}"


class explained:
    """Explains every statement just before it is executed, and undoes what the block does."""

    def __init__(self, engine: Engine, *, analyze: bool = False) -> None:
        self._engine = engine
        self._explain_first = "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " if analyze else "EXPLAIN (FORMAT JSON) "
        self._plans: list[tuple[str, Any]] = []

    def __enter__(self) -> list[tuple[str, Any]]:
        event.listen(self._engine, "before_cursor_execute", self._explain)
        event.listen(self._engine, "commit", self._undo)
        return self._plans

    def __exit__(self, *_: object) -> None:
        event.remove(self._engine, "before_cursor_execute", self._explain)
        event.remove(self._engine, "commit", self._undo)

    def _explain(self, connection: Any, cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "UPDATE", "INSERT", "DELETE", "WITH")):
            one = parameters[0] if isinstance(parameters, list) else parameters
            cursor.execute(self._explain_first + statement, one)
            self._plans.append((statement, cursor.fetchone()[0]))
            # And as it will be for any values, once it has been used some times.
            anyhow = generic_plan(cursor, Statement.of("", statement).sql.replace("%%", "%"))
            self._plans.append((statement, anyhow))

    def _undo(self, connection: Any) -> None:
        connection.connection.rollback()


def test_listing_the_newest_runs_does_not_sort_them_all(crowded: Stage) -> None:
    with explained(crowded.database.engine) as plans, crowded.database.transaction() as connection:
        list_runs(connection, limit=50)
        list_runs(connection, RunFilter(workflow="w"), limit=50)
        list_runs(connection, RunFilter(status="failed"), limit=50)
        list_runs(connection, RunFilter(status=RUN_ACTIVE), limit=50)
        list_runs(connection, RunFilter(workflow="w", status=RUN_ACTIVE), limit=50)
        list_runs(connection, RunFilter(error="no such card"), limit=50)
        list_runs(connection, RunFilter(parent="old-1"), limit=50)
        list_runs(connection, RunFilter(labels={"tenant": "t7"}), limit=50)
        list_runs(connection, RunFilter(labels={"tenant": "t7", "tier": "gold"}, workflow="w"), limit=50)
        list_runs(connection, RunFilter(labels={"tier": "gold"}, status=RUN_ACTIVE), limit=50)
        run_ids(connection, "", limit=50)
        run_ids(connection, "old-1", limit=50)
        list_runs(connection, RunFilter(workflow="w"), behind=Cursor(dt.datetime.now(dt.UTC), "x"), limit=50)
    for statement, plan in plans:
        assert not set(full_scans(plan)) & BIG, f"{statement}\n{json.dumps(plan, indent=1)}"


def test_what_the_dashboard_reads_goes_through_an_index(crowded: Stage) -> None:
    now = dt.datetime.now(dt.UTC)
    with explained(crowded.database.engine) as plans, crowded.database.transaction() as connection:
        for chosen in (RunFilter(), RunFilter(workflow="w"), RunFilter(status=RUN_ACTIVE), RunFilter(parent="old-1")):
            run_rows.list_rows(connection, chosen, limit=50)
            run_counts.count_newer(connection, chosen, now, "x")
        run_rows.rows_beginning(connection, "old-1", 50)
        run_rows.rows_by_id(connection, ["old-1", "old-2"])
        open_step_rows.open_steps(connection, ["old-1", "old-2"])
        run_family.children_of(connection, "old-1")
        step_pages.items(connection, "old-1", "a", 0, 50)
        step_pages.checkpoints(connection, "old-1", "a", None, 0, 50)
        read_newest(connection, "old-1", limit=50)
        read_history(connection, "old-1", limit=50, slim=True)
        history_changes.entries_since(connection, {"old-1": 0, "old-2": 0})
        history_changes.history_floor(connection, now)
        list(step_pages.progress_of(connection, ["old-1"], 50))
        read_facts(connection, "old-1")
        fleet_reads.parked_runs(connection)
        fleet_reads.overdue(connection)
        fleet_reads.running_attempts(connection)
        fleet_reads.running_attempts(connection, of_oldest=True)
        queue_reads.waiting_by_queue(connection)
        queue_reads.waiting_at_limits(connection)
        list_events(connection, limit=50)
        workflow_reads.ended_runs(connection, "w", 50)
        list(workflow_reads.step_times(connection, ["old-1", "old-2"]))
    for statement, plan in plans:
        assert not set(full_scans(plan)) & BIG, f"{statement}\n{json.dumps(plan, indent=1)}"


def test_what_the_doctor_reads_goes_through_an_index(crowded: Stage) -> None:
    reads = {name: read for name, read in vars(health).items() if name.startswith("read_")}
    assert len(reads) > 5
    for name, read in reads.items():
        with explained(crowded.database.engine) as plans:
            read(crowded.database)
        for statement, plan in plans:
            assert not set(full_scans(plan)) & BIG, f"{name}: {statement}\n{json.dumps(plan, indent=1)}"


#: Where the routes of lists and of one run are asked; what another route needs.
ASKED = {
    "run_id": "old-1",
    "other": "old-2",
    "workflow": "w",
    "topic": "t",
    "event_id": "e",
    "limit": "l",
    "bulk_id": "b",
}
LISTS: list[dict[str, str]] = [
    {},
    {"workflow": "w"},
    {"status": "failed"},
    {"status": "running,suspended"},
    {"paused": "true"},
    {"parent": "old-1"},
    {"labels": '{"tenant": "t1"}'},
    {"since": "1h", "error": "no"},
    {"q": "old-1"},
    {"first": "old-40000"},
]
#: No index finds them: they are looked for in windows of runs, for two seconds.
SEARCHES = [
    {"ended_since": "1h", "workflow": "w"},
    {"workflow": "nothing", "status": "suspended,failed"},
    {"paused": "false", "workflow": "w"},
    {"input": '{"none": 1}'},
]
QUERIES = {
    "/runs": [*LISTS, *SEARCHES],
    "/runs/export": [{"limit": "200"}],
    "/runs/{run_id}/steps": [{"under": "a"}],
    "/runs/{run_id}/step": [{"step": "a"}],
    "/runs/{run_id}/policy": [{"step": "a"}],
    "/runs/{run_id}/past": [{"id": "1"}],
    "/updates": [{"run": "old-1", "rows": "old-2", "logs": "old-1", "list": "workflow=w", "counts": "1", "fleet": "1"}],
}
#: They read no runs, or end only with their reader.
NOT_ASKED = {"/stream", "/openapi.json", "/me", "/shares/{token}"}


@pytest.fixture
def board(crowded: Stage) -> Iterator[Board]:
    rival = Rival(crowded.database.url)
    sessions = Sessions(b"k" * 32, authorize=lambda scope: Identity("a", "admin"))
    opened = Board(rival, sessions, Options(hosts=None))
    yield opened
    opened.close()
    rival.close()


@pytest.fixture
def client(board: Board) -> Iterator[TestClient]:
    app = application(board, TABLE)
    with TestClient(app, "http://127.0.0.1", headers={"sec-fetch-site": "same-origin"}) as opened:
        yield opened


def rows_read(plan: Any) -> int:
    """Rows of big tables that the plan has read, those included that a condition left out."""
    if isinstance(plan, list):
        return sum(rows_read(part) for part in plan)
    own = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0) if plan.get("Relation Name") in BIG else 0
    return int(own * plan.get("Actual Loops", 1)) + rows_read(
        [plan[key] for key in ("Plan",) if key in plan] + plan.get("Plans", [])
    )


#: Rows that one statement of the dashboard may read, with any number of runs.
MOST_ROWS = 20_500


def test_every_route_that_reads_goes_through_an_index_and_reads_few_rows(
    board: Board, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is added later."""
    # Each statement is executed and planned once more; of a search, one window shows the plan.
    monkeypatch.setattr(live, "_PATIENCE", 60.0)
    monkeypatch.setattr(run_list, "SEARCH_SECONDS", 0.0)
    # One listener for all: the hub polls in a thread of its own from the first question on.
    with explained(board.database.engine, analyze=True) as plans:
        for route in [one for one in TABLE if not one.writes and one.path not in NOT_ASKED]:
            path = "/api/v1" + re.sub(r"\{(\w+)\}", lambda found: ASKED.get(found[1], "1"), route.path)
            for query in QUERIES.get(route.path, [{}]):
                plans.clear()
                assert client.get(path, params=query).status_code < 500, (path, query)
                for statement, plan in [*plans]:
                    said = f"{path} {query}\n{statement}\n{json.dumps(plan, indent=1)}"
                    assert not set(full_scans(plan)) & BIG, said
                    assert "Execution Time" not in plan[0] or rows_read(plan) <= MOST_ROWS, said
        board.close()


def test_the_first_page_of_a_list_takes_less_than_a_tenth_of_a_second(client: TestClient) -> None:
    """Of the dashboard's own work; what the database does is counted in rows above. RIVAL_QUIET=1: of the clock."""
    clock = time.perf_counter if os.environ.get("RIVAL_QUIET") else time.process_time
    for query in LISTS:
        times = []
        for _ in range(5):
            began = clock()
            assert client.get("/api/v1/runs", params=query).status_code == 200
            times.append(clock() - began)
        assert statistics.median(times) < 0.1, (query, times)


def test_a_full_scan_would_be_seen(crowded: Stage) -> None:
    with explained(crowded.database.engine) as plans:
        crowded.force("UPDATE rival_steps SET parked = NULL WHERE executor_id = 'e1' AND run_id <> 'x'")
    assert full_scans(plans[0][1]) == ["rival_steps"]
