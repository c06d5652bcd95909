"""Rival alone: very many runs that wait. How fast events wake them, and what they cost other runs.

The waiting runs are copies of one run, made in the database: starting each would take longer than the measurement.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack, closing

import psycopg
from psycopg import sql

from benchmarks.big_runs import Rivals
from benchmarks.fleet import wait_until
from benchmarks.lines import emit, progress
from rival_workers.store import open_store
from rival_workers.store.interface import Store

LIMIT_S = 900.0
#: Each poll counts very many rows: seldom enough that it does not affect what is measured.
_POLL_S = 1.0
_LIMIT = 100
_EVENT_COLUMNS = (
    *("id", "topic", "key", "payload", "delivery"),
    *("status", "ring_at", "rings", "created_at", "expires_at"),
)

#: The end of the last run, by the server's clock.
ENDED = "SELECT extract(epoch FROM max(completed_at)) FROM rival_runs WHERE id LIKE 'w%'"


def measure_events(system: Rivals, count: int, workflow: str = "waits", figure: str = "events_per_s") -> None:
    """Runs per second from the first of as many events to the last run's end; each event is for one of them."""
    seed = _suspended(system, workflow)
    with psycopg.connect(system.url, autocommit=True) as connection:
        _copy(connection, seed, "w", count)
        connection.execute(
            "INSERT INTO rival_waits (run_id, path, topic, key, token, created_at) "
            "SELECT 'w' || n, path, topic, 'w' || n, token, now() FROM rival_waits, generate_series(1, %s) n "
            "WHERE run_id = %s",
            [count, seed],
        )
        connection.execute("ANALYZE rival_runs, rival_steps, rival_waits")
        progress(system.name, f"{count:,} runs wait for an event")
        began = time.time()
        connection.execute(
            sql.SQL(
                "INSERT INTO rival_events ({columns}) "
                "SELECT 'e' || n, 'go', 'w' || n, to_json(n), 'one', 'sent', now(), -1, now(), now() + interval '1 d' "
                "FROM generate_series(1, %s) n"
            ).format(columns=sql.SQL(", ").join(map(sql.Identifier, _EVENT_COLUMNS))),
            [count],
        )
        wait_until(lambda: _open(connection, "w") == 0, LIMIT_S, "all runs woken", pause_s=_POLL_S)
        ended = connection.execute(ENDED).fetchone()
        assert ended is not None
        emit(system.name, figure, [count / (float(ended[0]) - began)])
        wrong = connection.execute(
            "SELECT count(*) FROM rival_runs WHERE id LIKE 'w%' "
            "AND (status, result::text) <> ('completed', substr(id, 2))"
        ).fetchone()
        assert wrong == (0,), f"{wrong} runs got a wrong event"
        twice = connection.execute(
            "SELECT count(*) - count(DISTINCT event_id), count(*) - count(DISTINCT run_id) FROM rival_deliveries "
            "WHERE run_id LIKE 'w%'"
        ).fetchone()
        assert twice == (0, 0), f"{twice} events or runs had more than one delivery"
        progress(system.name, f"all {count:,} runs were resumed, none twice")


def fill_sleeping(system: Rivals, count: int) -> None:
    """Inserts runs that sleep for a year. Postgres has no statistics of them before a call of `analyse`."""
    seed = _suspended(system, "sleeps")
    with psycopg.connect(system.url, autocommit=True) as connection:
        for table in ("rival_runs", "rival_steps"):
            connection.execute(f"ALTER TABLE {table} SET (autovacuum_enabled = false)")
        _copy(connection, seed, "s", count)
    progress(system.name, f"{count:,} runs sleep")


def analyse(system: Rivals) -> None:
    with psycopg.connect(system.url, autocommit=True) as connection:
        for table in ("rival_runs", "rival_steps"):
            connection.execute(f"ALTER TABLE {table} RESET (autovacuum_enabled)")
        connection.execute("ANALYZE rival_runs, rival_steps")


def sweeps_ms(systems: Mapping[str, Rivals], looks: int = 200) -> dict[str, list[float]]:
    """How long a keeper looks, for all that it looks for. The systems take turns, look by look, so that whatever else
    the machine does hits all of them."""
    found: dict[str, list[float]] = {name: [] for name in systems}
    with ExitStack() as stack:
        stores = {name: stack.enter_context(closing(open_store(one.url))) for name, one in systems.items()}
        for _ in range(looks):
            for name, store in stores.items():
                began = time.perf_counter()
                _look(store)
                found[name].append((time.perf_counter() - began) * 1000)
    # The first one opens the connection.
    return {name: times[1:] for name, times in found.items()}


def _look(store: Store) -> None:
    from rival_workers.store.sweep_records import SweepOptions  # an earlier commit has it elsewhere

    sweep = SweepOptions(_LIMIT, backoff=10.0, backoff_max=600.0)
    store.executors_on("this machine")
    store.fire_schedules(_LIMIT)
    store.due(sweep)
    store.due_events(sweep)
    store.dead_executors()
    store.stray_attempts(_LIMIT)
    store.orphans(_LIMIT)
    store.next_look()


def _suspended(system: Rivals, workflow: str) -> str:
    run_id = system.producer.run(workflow, {"key": "seed"}).run_id
    wait_until(lambda: system.producer.state(run_id).status == "suspended", LIMIT_S, f"a run of {workflow} that waits")
    return run_id


def _copy(connection: psycopg.Connection, seed: str, prefix: str, count: int) -> None:
    for table, key in (("rival_runs", "id"), ("rival_steps", "run_id")):
        columns = [
            row[0]
            for row in connection.execute(
                "SELECT column_name FROM information_schema.columns WHERE table_name = %s AND column_name <> %s",
                [table, key],
            )
        ]
        names = sql.SQL(", ").join(map(sql.Identifier, columns))
        connection.execute(
            sql.SQL(
                "INSERT INTO {table} ({key}, {names}) SELECT {prefix} || n, {names} FROM {table}, "
                "generate_series(1, {count}) n WHERE {key} = {seed}"
            ).format(
                table=sql.Identifier(table),
                key=sql.Identifier(key),
                names=names,
                prefix=sql.Literal(prefix),
                count=sql.Literal(count),
                seed=sql.Literal(seed),
            )
        )


def _open(connection: psycopg.Connection, prefix: str) -> int:
    row = connection.execute(
        "SELECT count(*) FROM rival_runs WHERE status IN ('pending', 'running', 'suspended') AND id LIKE %s",
        [f"{prefix}%"],
    ).fetchone()
    assert row is not None
    return int(row[0])
