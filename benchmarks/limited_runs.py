"""Rival alone: what limits cost, how fast a full one passes on its slots, and what very many waiting steps cost."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

import psycopg
from psycopg import sql

from benchmarks.disciplines import LIMIT_S, Warm, Work, fresh_key, steps_per_s
from benchmarks.fleet import wait_until
from benchmarks.lines import emit, progress
from benchmarks.loads import Load
from benchmarks.marks import mark, marks
from benchmarks.waiting_runs import sweeps_ms
from rival_client.model.payload import Json
from rival_client.model.policies.step_config import StepConfig
from rival_workers import limit
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance, EndRun
from rival_workers.store import open_store
from rival_workers.store.claim_records import Claim, Claimed

KEYS = 1_000
#: Kinds of workflows; the first one has no limits.
KINDS = ("noop", "keyed", "keyed_each", "wide", "wide_each")
HOT_RUNS, HOT_WAITING = 3_000, 1_000
COMMIT_DELAY_US = 2_000
TICKETS, CYCLES = 100_000, 500
_QUEUE = limit("queue", 1, key="input.key")


def measure_limited(warm: Warm, load: Load) -> None:
    """Steps per second with and without limits, in turns, and the ratio of each round."""
    _measure_ratios(warm, load, KINDS, "limited")


def measure_limited_slow(warm: Warm, load: Load) -> None:
    """The same with commits of 2 ms, where a step with a limit makes as many commits as one without."""
    _measure_ratios(warm, load, ("noop", "keyed"), "limited_slow")


def _measure_ratios(warm: Warm, load: Load, kinds: Sequence[str], figure: str) -> None:
    system, name = warm.system, warm.system.name
    works = {kind: Work(kind, load.limited_runs, 5, keys=KEYS) for kind in kinds}
    with warm.fleet.released():
        # Makes the gates of all keys.
        for kind in kinds[1:]:
            system.wait_batch(system.start_batch(Work(kind, KEYS, 5, keys=KEYS)))
    for number in range(load.repeats):
        order = [*kinds[number % len(kinds) :], *kinds[: number % len(kinds)]]
        rates = {kind: steps_per_s(warm, works[kind]) for kind in order}
        for kind in kinds:
            emit(name, f"{figure}_steps_per_s/{kind}", [rates[kind]])
            if kind != "noop":
                emit(name, f"{figure}_ratio/{kind}", [rates[kind] / rates["noop"]])


def delay_commits(url: str) -> None:
    """Commits take as long as on a disk of a cloud."""
    with psycopg.connect(url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        for setting, value in (("commit_delay", COMMIT_DELAY_US), ("commit_siblings", 0)):
            change = sql.SQL("ALTER DATABASE {} SET {} = {}")
            connection.execute(change.format(name, sql.Identifier(setting), sql.Literal(value)))


@dataclass(frozen=True)
class HotKey:
    """A limit of 5 at which 1,000 wait, while more come: finishes and arrivals in the same seconds."""

    finishes_per_s: float
    arrivals_per_s: float
    #: Milliseconds for which a slot is idle between two steps: the median, and the 99th percentile.
    idle_ms: tuple[float, float]


def measure_hot_key(warm: Warm, load: Load) -> None:
    """How fast a limit that very many wait for passes on its slots."""
    found, name = hot_key(warm), warm.system.name
    emit(name, "hot_key_finishes_per_s", [found.finishes_per_s])
    emit(name, "hot_key_arrivals_per_s", [found.arrivals_per_s])
    emit(name, "hot_key_idle_ms", [found.idle_ms[0]])
    emit(name, "hot_key_idle_p99_ms", [found.idle_ms[1]])


def measure_held(warm: Warm, load: Load) -> None:
    """The same before and while a transaction keeps an old snapshot, so that no dead row of the queue is removed."""
    before = [hot_key(warm).finishes_per_s for _ in range(2)]
    with psycopg.connect(warm.system.url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM rival_tickets")
        end = time.monotonic() + load.held_s
        while True:
            last = hot_key(warm).finishes_per_s
            progress(warm.system.name, f"{last:.0f} finishes/s beside an old snapshot")
            if time.monotonic() >= end:
                break
    emit(warm.system.name, "hot_key_finishes_per_s/held", [last])
    emit(warm.system.name, "hot_key_held_ratio", [last / statistics.median(before)])


def hot_key(warm: Warm) -> HotKey:
    """One round, on a key of its own."""
    system, key = warm.system, fresh_key("hot")
    with psycopg.connect(system.url, autocommit=True) as connection, warm.fleet.released():
        holding = [system.start("hot_holds", key) for _ in range(5)]
        wait_until(lambda: len(marks("holding", key)) == 5, LIMIT_S, "all slots in use")
        ids = [one.run_id for one in system.producer.run_many("hot", [{"key": key}] * HOT_RUNS)]
        waiting = "SELECT count(*) FROM rival_tickets"
        wait_until(lambda: connection.execute(waiting).fetchone() >= (HOT_WAITING,), LIMIT_S, "many wait", 0.1)
        mark("go", key)
        began = time.time()
        system.wait_batch(ids)
        for handle in holding:
            system.wait(handle)
        arrived = _seconds(connection, "SELECT at FROM rival_history WHERE what = 'queued' AND run_id = ANY(%s)", ids)
        ended = _seconds(
            connection, "SELECT completed_at FROM rival_steps WHERE path = 'work' AND run_id = ANY(%s)", ids
        )
        idle = connection.execute(_IDLE, {"ids": ids}).fetchone()
    assert idle is not None
    seconds = arrived[-1] - began
    return HotKey(
        sum(began <= at <= arrived[-1] for at in ended) / seconds,
        sum(began <= at for at in arrived) / seconds,
        (float(idle[0]), float(idle[1])),
    )


#: Between an end and the start of the one that waited for it, in the order of both.
_IDLE = """
    WITH work AS (SELECT started_at, completed_at FROM rival_steps WHERE path = 'work' AND run_id = ANY(%(ids)s)),
         ends AS (SELECT completed_at AS at, row_number() OVER (ORDER BY completed_at) AS n FROM work),
         starts AS (SELECT started_at AS at, row_number() OVER (ORDER BY started_at) AS n FROM work),
         idle AS (SELECT 1000 * extract(epoch FROM starts.at - ends.at) AS ms
                  FROM ends JOIN starts ON starts.n = ends.n + 5)
    SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY ms), percentile_cont(0.99) WITHIN GROUP (ORDER BY ms) FROM idle
"""


def _seconds(connection: psycopg.Connection, query: str, ids: Sequence[str]) -> list[float]:
    found = connection.execute(f"SELECT extract(epoch FROM at) FROM ({query}) AS found (at) ORDER BY 1", [list(ids)])
    return [float(row[0]) for row in found]


# -- very many tickets ----------------------------------------------------------------------------------------------


def measure_tickets(warm: Warm, load: Load) -> None:
    """Claim and finish of steps that wait for a slot, one after the other: at a short queue and at a very long one, in
    turns; and a keeper's looks before and after."""
    system = warm.system
    before = sweeps_ms({"none": system}, 50)["none"]
    for key, count in (("none", CYCLES + 10), ("many", TICKETS)):
        _fill_queue(system.url, key, count)
    progress(system.name, f"{TICKETS:,} steps wait")
    times = _cycles_ms(system.url)
    after = sweeps_ms({"many": system}, 50)["many"]
    for size, sweeps in (("none", before), ("many", after)):
        emit(system.name, f"tickets_ms/{size}", [statistics.median(times[size])])
        emit(system.name, f"tickets_sweep_ms/{size}", [statistics.median(sweeps)])
    emit(system.name, "tickets_ratio", [statistics.median(times["many"]) / statistics.median(times["none"])])


def _fill_queue(url: str, key: str, count: int) -> None:
    """Copies of a step that waits at the gate of the key; the first one has the slot."""
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in _FILL:
            connection.execute(statement, {"key": key, "count": count})


_FILL = (
    """INSERT INTO rival_limits (name, max, shards, updated_at) VALUES ('queue', 1, 1, now()) ON CONFLICT DO NOTHING""",
    """INSERT INTO rival_gates (name, key, max, used, touched_at) VALUES ('queue', %(key)s, 1, 1, now())""",
    """INSERT INTO rival_runs (id, workflow, version, status, token, input, created_at, started_at)
       SELECT %(key)s || n, 'queue', 'v', 'suspended', 1, json_build_object('key', %(key)s::text), now(), now()
       FROM generate_series(1, %(count)s) n""",
    """INSERT INTO rival_steps (run_id, path, kind, status, execution_token, timeout_token, created_at)
       SELECT %(key)s || n, 'work', 'step', 'waiting', 1, 0, now() FROM generate_series(1, %(count)s) n""",
    """INSERT INTO rival_tickets (run_id, path, token, gate, base, rank, workflow, version, granted_at, slot, ring_at,
                                  created_at)
       SELECT %(key)s || n, 'work', 1, gate.id, n, n, 'queue', 'v', CASE n WHEN 1 THEN now() END,
              CASE n WHEN 1 THEN gate.id END, CASE n WHEN 1 THEN now() + interval '1 hour' END, now()
       FROM generate_series(1, %(count)s) n, rival_gates gate WHERE gate.name = 'queue' AND gate.key = %(key)s""",
    "ANALYZE rival_tickets, rival_steps, rival_runs",
)


def _cycles_ms(url: str) -> dict[str, list[float]]:
    """Milliseconds from the claim of a step to the end of its finish, which lets the next one of the queue through."""
    times: dict[str, list[float]] = {"none": [], "many": []}
    first = {key: f"{key}1" for key in times}
    with closing(open_store(url)) as store:
        for _ in range(CYCLES):
            for key, run_id in first.items():
                began = time.perf_counter()
                claimed = store.claim_step(Claim(run_id, "work", 1), None, "bench", limits=[_QUEUE])
                assert isinstance(claimed, Claimed), claimed
                claim = Claim(run_id, "work", claimed.token)
                finished = store.finish_step(claim, End("completed", Json("null")), _COMPLETES, claim_for=None)
                times[key].append((time.perf_counter() - began) * 1000)
                assert finished is not None
                [granted] = finished.grants
                first[key] = granted.run_id
    return {key: values[CYCLES // 10 :] for key, values in times.items()}


def _limited(path: str) -> StepConfig:
    return StepConfig(concurrency_limit=(_QUEUE,))


_COMPLETES = Advance((EndRun("completed"),)).with_options(_limited)
