"""A queue of 100,000 steps at one gate costs a claim, a finish and a new arrival nothing: each statement reads a few
rows of tickets and gates, whatever waits there."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from typing import Any

import psycopg
import pytest
from psycopg import sql

from rival_client.db.database import Database
from rival_client.db.database_urls import libpq_url
from rival_client.db.prepared_statement import Statement
from rival_client.model.payload import Json
from rival_client.model.policies.step_config import StepConfig
from rival_workers import limit, rate
from rival_workers.dev.stack import Stack, create_database, drop_database
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance, EndRun, OpenRow
from rival_workers.store.claim_records import Claim, Claimed, Queued
from rival_workers.store.group_commits import BeginRun, Commit, FinishStep
from rival_workers.store.postgres import PostgresStore
from rival_workers.store.postgres.groups import GROUP_SETTINGS, _parts
from rival_workers.store.postgres.limited_groups import Contention

WAITING = 100_000
QUEUE = limit("queue", 1, key="input.key")
FAIR = limit("queue", 1, key="input.key", fair="input.key")
PACE = rate("queue", 1000, per=1, key="input.key")
CROWD = f"generate_series(1, {WAITING}) n"
FILL = (
    "INSERT INTO rival_limits (name, max, shards, updated_at) VALUES ('queue', 1, 1, now())",
    "INSERT INTO rival_gates (name, key, max, used, touched_at) VALUES ('queue', 'k', 1, 1, now())",
    f"INSERT INTO rival_gates (name, key, max, used, touched_at) SELECT 'queue', 'k' || n, 1, 0, now() FROM {CROWD}",
    f"""INSERT INTO rival_runs (id, workflow, version, status, token, input, created_at, started_at)
        SELECT 'r' || n, 'queue', 'v', 'suspended', 1, '{{"key": "k"}}', now(), now() FROM {CROWD}""",
    f"""INSERT INTO rival_steps (run_id, path, kind, status, execution_token, timeout_token, created_at)
        SELECT 'r' || n, 'work', 'step', 'waiting', 1, 0, now() FROM {CROWD}""",
    f"""INSERT INTO rival_tickets (run_id, path, token, gate, base, rank, fair_group, workflow, version, granted_at,
                                   slot, ring_at, created_at)
        SELECT 'r' || n, 'work', 1, gate.id, n, n, 'k', 'queue', 'v', CASE n WHEN 1 THEN now() END,
               CASE n WHEN 1 THEN gate.id END, CASE n WHEN 1 THEN now() END, now()
        FROM {CROWD}, rival_gates gate WHERE gate.name = 'queue' AND gate.key = 'k'""",
    """INSERT INTO rival_runs (id, workflow, version, status, token, input, created_at, started_at)
       VALUES ('late', 'queue', 'v', 'running', 1, '{"key": "k"}', now(), now())""",
    """INSERT INTO rival_steps (run_id, path, kind, status, execution_token, timeout_token, created_at)
       VALUES ('late', 'work', 'step', 'pending', 0, 0, now())""",
    """INSERT INTO rival_runs (id, workflow, version, status, token, input, created_at)
       VALUES ('new', 'queue', 'v', 'pending', 0, '{"key": "k"}', now())""",
)


@pytest.fixture(scope="module", params=[True, False], ids=["analysed", "just come"])
def crowded(stack: Stack, template: str, request: pytest.FixtureRequest) -> Iterator[PostgresStore]:
    name = f"tickets_{uuid.uuid4().hex[:12]}"
    store = PostgresStore(Database(create_database(stack.database_url, name, template=template)))
    with psycopg.connect(libpq_url(store.database.url), autocommit=True) as connection:
        for table in ("rival_tickets", "rival_gates", "rival_runs", "rival_steps"):
            connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        for statement in FILL:
            connection.execute(statement)
        if request.param:
            connection.execute("VACUUM ANALYZE")
    yield store
    store.close()
    drop_database(stack.database_url, name)


class Explaining:
    """Carries out the statements of a store with EXPLAIN ANALYZE in one transaction, and rolls it back."""

    def __init__(self, store: PostgresStore) -> None:
        self.connection = psycopg.connect(libpq_url(store.database.url))
        self.plans: list[Any] = []

    def fetch_in_turn(self, first: Statement, second: Statement, values: Any) -> tuple[str | None, ...] | None:
        self.fetch(first, values)
        return self.fetch(second, values)

    def fetch(self, statement: Statement, values: Any) -> tuple[str | None, ...] | None:
        name, cursor = statement.name.decode(), self.connection.cursor()
        cursor.execute("SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off")
        given = [values[one] for one in statement.parameters]
        literals = [sql.Literal(None if one is None else str(one)).as_string(cursor) for one in given]
        cursor.execute(f"PREPARE {name} AS {statement.sql}".encode())
        call = f"EXECUTE {name}({', '.join(literals)})"
        cursor.execute(f"SAVEPOINT before; EXPLAIN (ANALYZE, FORMAT JSON) {call}".encode())
        cursor.nextset()
        found = cursor.fetchone()
        assert found is not None
        self.plans.append(found[0])
        cursor.execute(f"ROLLBACK TO before; {call}".encode())
        cursor.nextset()
        row = cursor.fetchone()
        cursor.execute(f"DEALLOCATE {name}".encode())
        return None if row is None else tuple(None if one is None else _text(one) for one in row)

    def watch(self, store: PostgresStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(store._prepared, "fetch", self.fetch)
        monkeypatch.setattr(store._prepared, "fetch_in_turn", self.fetch_in_turn)

    def assert_few_rows(self) -> None:
        assert self.plans
        for plan in self.plans:
            assert rows_read(plan, {"rival_tickets"}) <= 8, json.dumps(plan, indent=1)
            assert rows_read(plan, {"rival_gates"}) <= 8, json.dumps(plan, indent=1)
            assert rows_read(plan, {"rival_steps", "rival_runs"}) <= 12, json.dumps(plan, indent=1)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "t" if value else "f"
    return str(value) if isinstance(value, str | Decimal) else json.dumps(value, default=str)


def rows_read(plan: Any, tables: set[str]) -> float:
    """Of these tables, in all parts of the plan."""
    if isinstance(plan, list):
        return sum(rows_read(part, tables) for part in plan)
    own = 0.0
    if plan.get("Relation Name") in tables and "Scan" in plan["Node Type"]:
        own = (plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)) * plan["Actual Loops"]
    return own + rows_read([plan[key] for key in ("Plan",) if key in plan] + plan.get("Plans", []), tables)


def limited(path: str) -> StepConfig:
    return StepConfig(concurrency_limit=(QUEUE,))


def finish(store: PostgresStore, advance: Advance, claim_for: str | None = None) -> Any:
    claimed = store.claim_step(Claim("r1", "work", 1), None, "e1", limits=[QUEUE])
    assert isinstance(claimed, Claimed)
    end = End("completed", Json("1"))
    return store.finish_step(
        Claim("r1", "work", claimed.token), end, advance.with_options(limited), claim_for=claim_for
    )


CALLS: dict[str, Callable[[PostgresStore], Any]] = {
    "an arrival": lambda s: s.claim_step(Claim("late", "work", 0), None, "e1", limits=[QUEUE]),
    "an arrival of a group": lambda s: s.claim_step(Claim("late", "work", 0), None, "e1", limits=[FAIR]),
    "a start": lambda s: s.begin_run(
        "new", 0, Advance((OpenRow("work", "step"),)).with_options(limited), claim_for="e1"
    ),
    "a finish": lambda s: finish(s, Advance((EndRun("completed"),))),
    "a finish, and one follows": lambda s: finish(s, Advance((OpenRow("next", "step"),)), claim_for="e1"),
    "a look again": lambda s: s.look_again([1]),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_queue_of_100000_costs_a_statement_a_few_rows(
    crowded: PostgresStore, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    explaining = Explaining(crowded)
    explaining.watch(crowded, monkeypatch)
    try:
        result = CALLS[call](crowded)
    finally:
        explaining.connection.close()
    explaining.assert_few_rows()
    if call.startswith("an arrival"):
        assert isinstance(result, Queued)
    if call.startswith("a finish"):
        assert [one.run_id for one in result.grants] == ["r2"]


def test_a_queue_of_100000_costs_the_start_of_a_rate_a_few_rows(
    crowded: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    explaining, called = Explaining(crowded), list[str]()
    explaining.connection.execute("UPDATE rival_gates SET gap = 0.001, slack = 0.05 WHERE key = 'k'")
    explaining.watch(crowded, monkeypatch)
    monkeypatch.setattr(crowded, "on_grants", lambda grants: called.extend(one.run_id for one in grants))
    try:
        started = crowded.claim_step(Claim("r1", "work", 1), None, "e1", limits=[PACE])
    finally:
        explaining.connection.close()
    explaining.assert_few_rows()
    assert isinstance(started, Claimed)
    assert called == ["r2"]


GROUPED = limit("queue", 3, key="input.key")


def of_group(path: str) -> StepConfig:
    return StepConfig(concurrency_limit=(GROUPED,))


def fair_group(path: str) -> StepConfig:
    return StepConfig(concurrency_limit=(FAIR,))


def in_a_group(
    connection: psycopg.Connection[Any], commits: Sequence[Commit], queued: Sequence[int] = ()
) -> tuple[Any, int]:
    """The plan of the group's last statement, and how many commits it makes. All of it is rolled back."""
    *_, part = [part for part in _parts(commits, range(len(commits)), Contention(), queued) if part.numbers]
    statement, columns = part.call(commits, "e1")
    cursor = connection.cursor()
    cursor.execute(GROUP_SETTINGS.encode())
    cursor.execute(f"PREPARE grouped AS {statement.sql}".encode())
    given = [columns[name] for name in statement.parameters]
    literals = [sql.Literal([*one] if isinstance(one, tuple) else one).as_string(cursor) for one in given]
    typed = [
        f"{text}::{statement.column_types[name]}[]" if name in statement.column_types else text
        for name, text in zip(statement.parameters, literals, strict=True)
    ]
    call = f"EXECUTE grouped({', '.join(typed)})"
    plan = cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) {call}".encode()).fetchone()
    connection.rollback()
    cursor.execute(GROUP_SETTINGS.encode())
    made = len(cursor.execute(call.encode()).fetchall())
    connection.rollback()
    cursor.execute("DEALLOCATE grouped")
    assert plan is not None
    return plan[0], made


def test_a_queue_of_100000_costs_a_group_a_few_rows(crowded: PostgresStore) -> None:
    """Starts and ends at gates at which nothing waits, and ends at the one at which all wait: those are made alone."""
    begins = Advance((OpenRow("work", "step"),)).with_options(of_group)
    goes_on, ends = Advance((OpenRow("next", "step"),)).with_options(of_group), Advance((EndRun("completed"),))
    done = End("completed", Json("1"))
    with psycopg.connect(libpq_url(crowded.database.url)) as connection:
        for statement in GROUPED_ROWS:
            connection.execute(statement.encode())
        connection.commit()
        plans = [in_a_group(connection, [BeginRun(f"begins{n}", 0, begins, "e1") for n in (1, 2)])]
        for after, run in ((goes_on, "runs"), (ends.with_options(of_group), "runs"), (goes_on, "waited")):
            commits = [FinishStep(Claim(f"{run}{n}", "work", 1), done, after, "e1") for n in (1, 2)]
            plans.append(in_a_group(connection, commits))
        arrivals = Advance((OpenRow("work", "step"),)).with_options(fair_group)
        queued = [BeginRun(f"queued{n}", 0, arrivals, "e1") for n in (1, 2)]
        plans.append(in_a_group(connection, queued, [0, 1]))
        connection.execute("DELETE FROM rival_steps WHERE run_id LIKE 'runs%' OR run_id LIKE 'waited%'")
        connection.execute("DELETE FROM rival_runs WHERE id ~ '^(begins|runs|waited|queued)'")
        connection.execute("UPDATE rival_gates SET used = 0 WHERE key IN ('k11', 'k12')")
        connection.commit()
    assert [made for _, made in plans] == [2, 2, 2, 0, 2]
    for plan, _ in plans:
        for tables, most in (({"rival_tickets"}, 4), ({"rival_gates"}, 14), ({"rival_steps", "rival_runs"}, 14)):
            assert rows_read(plan, tables) <= most, json.dumps(plan, indent=1)


#: Two runs that begin, two that begin where all wait, two whose steps run at gates of their own, and two at the gate
#: with the queue.
GROUPED_ROWS = (
    """INSERT INTO rival_runs (id, workflow, version, status, token, input, created_at, started_at)
       SELECT kind || n, 'queue', 'v', CASE WHEN begins THEN 'pending' ELSE 'running' END, (NOT begins)::int,
              json_build_object('key', CASE kind WHEN 'begins' THEN 'k' || n WHEN 'runs' THEN 'k1' || n ELSE 'k' END),
              now(), CASE WHEN NOT begins THEN now() END
       FROM generate_series(1, 2) n, unnest('{begins,queued,runs,waited}'::text[]) kind,
            LATERAL (SELECT kind IN ('begins', 'queued') AS begins) AS its""",
    """INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id,
                                created_at, started_at, slots)
       SELECT run.id, 'work', 'step', 'running', 1, 1, 1, 'e1', now(), now(), ARRAY[gate.id]
       FROM rival_runs run JOIN rival_gates gate ON gate.name = 'queue' AND gate.key = run.input ->> 'key'
       WHERE run.id ~ '^(runs|waited)'""",
    "UPDATE rival_gates SET used = 1 WHERE key IN ('k11', 'k12')",
)


def test_the_sweep_of_a_long_queue_looks_at_its_head_only(crowded: PostgresStore) -> None:
    with crowded.database.autocommit() as connection:
        connection.exec_driver_sql(
            "UPDATE rival_tickets SET ring_at = now() + interval '1 hour' WHERE ring_at IS NOT NULL"
        )
    assert crowded.sweep_gates(100) == []


def test_a_plan_of_the_hot_statements_reads_no_table_from_end_to_end(crowded: PostgresStore) -> None:
    """Whatever was in the table when it was made."""
    assert crowded._prepared.fetch(Statement.of("shown", "SHOW enable_seqscan"), {}) == ("off",)
