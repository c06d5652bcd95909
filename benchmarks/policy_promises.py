"""Rival alone: whether policies hold while workers are killed: rates, fairness, slots, rules of the fleet, breakers."""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg

from benchmarks.disciplines import LIMIT_S, Warm, fresh_key
from benchmarks.fleet import wait_until
from benchmarks.lines import emit
from benchmarks.loads import Load
from benchmarks.marks import marks
from rival_client.model.policies.breakers import Breaker
from rival_workers.store import open_store
from rival_workers.store.claim_records import Claim

RATE = 50
_LEASE_AND_MORE_S = 3.0
TENANTS, FAIR_S = 20, 5.0
RULES = 15
ROUNDS, CLAIMS = 100, 20
#: Also those of attempts that were lost with their worker: a step keeps the start of its last one.
STARTS = """
    SELECT extract(epoch FROM started_at) FROM (
        SELECT run_id, started_at FROM rival_steps UNION SELECT run_id, started_at FROM rival_attempts
    ) AS attempt WHERE run_id = ANY(%s) AND started_at IS NOT NULL
"""


def measure_pace(warm: Warm, load: Load) -> None:
    """Starts of a rate of 50 in a second, while one of three workers is killed in the middle and not replaced; and how
    long other runs take meanwhile, which find their workers' threads free although hundreds of steps wait."""
    system, name, seconds = warm.system, warm.system.name, load.paced_s
    with warm.fleet.released():
        emit(name, "pace_other_run_ms/alone", _others_ms(warm, 3.0))
        ids = [one.run_id for one in system.producer.run_many("paced", [{"key": "paced"}] * int(RATE * (seconds + 5)))]
        time.sleep(seconds / 2)
        warm.fleet.kill_owner(warm.fleet.pids()[0])
        began = time.monotonic()
        # Later: what the killed worker had taken comes back with the lease.
        time.sleep(_LEASE_AND_MORE_S)
        emit(name, "pace_other_run_ms/beside", _others_ms(warm, began + seconds / 2 - time.monotonic()))
    with psycopg.connect(system.url, autocommit=True) as connection:
        starts = sorted(float(row[0]) for row in connection.execute(STARTS, [ids]))
    used = [at for at in starts if at <= starts[0] + seconds - 1]
    emit(name, "pace_worst_second", [max(sum(at <= other < at + 1 for other in starts) for at in starts)])
    emit(name, "pace_used", [len(used) / (RATE * (seconds - 1))])


def _others_ms(warm: Warm, seconds: float) -> list[float]:
    """Milliseconds of one-step runs, one after the other."""
    end, found = time.monotonic() + seconds, []
    while time.monotonic() < end:
        began = time.monotonic()
        warm.system.wait(warm.system.start("pids", fresh_key("other")))
        found.append((time.monotonic() - began) * 1000)
        time.sleep(0.05)
    return found


def measure_fairness(warm: Warm, load: Load) -> None:
    """Jain's index of what 20 tenants have completed by the time that all of them still have steps that wait, and the
    longest wait of the smallest one, in rounds of all."""
    system = warm.system
    inputs = [{"key": "fair", "tenant": f"t{tenant}"} for tenant in range(TENANTS) for _ in range(15 * (tenant + 1))]
    # Those of the largest tenant come first.
    inputs.reverse()
    system.producer.run_many("fair", inputs)
    ended = (
        "SELECT run.input ->> 'tenant', count(step.completed_at) FROM rival_runs run LEFT JOIN rival_steps step "
        "ON step.run_id = run.id WHERE run.workflow = 'fair' AND (step.completed_at > %s OR step.completed_at IS NULL) "
        "GROUP BY 1"
    )
    queued = "SELECT count(*) FROM rival_tickets WHERE granted_at IS NULL"
    with psycopg.connect(system.url, autocommit=True) as connection, warm.fleet.released():
        wait_until(lambda: _number(connection, queued) >= len(inputs) * 0.9, LIMIT_S, "all wait", pause_s=0.2)
        since = connection.execute("SELECT now()").fetchone()
        assert since is not None
        time.sleep(FAIR_S)
        counts = [row[1] for row in connection.execute(ended, [since[0]])]
        tenants = [row[0] for row in connection.execute(_STARTED_BY, [since[0]])]
    emit(system.name, "fairness_jain", [sum(counts) ** 2 / (TENANTS * sum(one * one for one in counts))])
    emit(system.name, "fairness_longest_wait_turns", [_longest_wait(tenants, "t0") / TENANTS])


def _longest_wait(tenants: list[str], tenant: str) -> int:
    """The most starts from one of the tenant to its next one."""
    own = [-1, *(number for number, one in enumerate(tenants) if one == tenant), len(tenants)]
    return max(after - before for before, after in itertools.pairwise(own))


_STARTED_BY = """
    SELECT run.input ->> 'tenant' FROM rival_steps step JOIN rival_runs run ON run.id = step.run_id
    WHERE run.workflow = 'fair' AND step.started_at > %s ORDER BY step.started_at
"""


def _number(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query).fetchone()
    return int(row[0]) if row else 0


def measure_slots(warm: Warm, load: Load) -> None:
    """Seconds from the kill of the worker that has the only slot to the start of the next step."""
    seconds = []
    with warm.fleet.released():
        for _ in range(load.takeovers):
            key = fresh_key("slot")
            holder = warm.system.start("holds", key)
            wait_until(lambda key=key: len(marks("holds", key)) == 1, LIMIT_S, "the holder's start")
            waiting = warm.system.start("takes", key)
            time.sleep(0.5)
            killed = warm.fleet.kill_owner(marks("holds", key)[0].pid)
            wait_until(lambda key=key: len(marks("slot", key)) == 1, LIMIT_S, "the start of the next one")
            seconds.append(marks("slot", key)[0].at - killed)
            warm.fleet.replace_dead()
            for handle in (waiting, holder):
                warm.system.wait(handle)
    emit(warm.system.name, "slot_returned_s", seconds)


def measure_rules(warm: Warm, load: Load) -> None:
    """Seconds after which no process starts a step without a new rule, among steady short steps in all processes."""
    system = warm.system
    stop = threading.Event()

    def feed() -> None:
        while not stop.is_set():
            system.producer.run_many("ruled", [{"key": "ruled"}] * 20)
            time.sleep(0.1)

    late = "SELECT coalesce(max(extract(epoch FROM started_at - %s)), 0) FROM rival_steps WHERE path = 'work' " + (
        "AND started_at > %s AND policy IS NULL"
    )
    lags = []
    with psycopg.connect(system.url, autocommit=True) as connection, warm.fleet.released():
        feeding = threading.Thread(target=feed)
        feeding.start()
        time.sleep(1.0)
        for number in range(RULES):
            rule = system.producer.set_policy("work", {"timeout": 100 + number}, workflow="ruled")
            row = connection.execute("SELECT clock_timestamp()").fetchone()
            assert row is not None
            time.sleep(1.3)
            found = connection.execute(late, [row[0], row[0]]).fetchone()
            lags.append(float(found[0]) if found else 0.0)
            system.producer.remove_policy(rule.id)
            time.sleep(1.0)
        stop.set()
        feeding.join()
    emit(system.name, "rule_effective_p99_s", [statistics.quantiles(lags, n=100)[98]])


def measure_probes(warm: Warm, load: Load) -> None:
    """A breaker that becomes half-open before 20 claims at once: how many of them probe, in all rounds together. And in
    how many rounds the next claim of another process is refused, after one has opened it."""
    probes = refused = 0
    of = Breaker(name="probed", failures=1, window=60, reset=60, successes=1)
    with (
        closing(open_store(warm.system.url)) as store,
        closing(open_store(warm.system.url)) as other,
        ThreadPoolExecutor(CLAIMS) as pool,
    ):
        barrier = threading.Barrier(CLAIMS)

        def ask(claim: Claim) -> bool:
            barrier.wait()
            return store.ask_breaker(of, claim, "bench").probes

        with psycopg.connect(warm.system.url, autocommit=True) as connection:
            for number in range(ROUNDS):
                ids = [f"probe-{number}-{n}" for n in range(CLAIMS)]
                connection.execute(_RUNNING, [ids])
                connection.execute("DELETE FROM rival_breakers")
                store.breaker_failed(of, Claim(ids[0], "work", 1), "bench")
                refused += not other.ask_breaker(of, Claim(ids[1], "work", 1), "bench").goes
                connection.execute("UPDATE rival_breakers SET state = 'open', until = now(), probe_run = NULL")
                asked = [Claim(one, "work", 1) for one in ids]
                found = list(pool.map(ask, asked))
                probes += sum(found)
    emit(warm.system.name, "probes_in_100_rounds", [float(probes)])
    emit(warm.system.name, "refused_elsewhere_in_100_rounds", [float(refused)])


_RUNNING = """
    WITH ids AS (SELECT unnest(%s::text[]) AS id),
         run AS (INSERT INTO rival_runs (id, workflow, version, status, token, created_at, started_at)
                 SELECT id, 'probed', 'v', 'running', 1, now(), now() FROM ids)
    INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at)
    SELECT id, 'work', 'step', 'running', 1, 1, 1, 'bench', now(), now() FROM ids
"""
