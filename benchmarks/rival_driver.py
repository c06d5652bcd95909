"""Rival under test: its own client as the producer, workers started with its own command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import psycopg
import redis

from benchmarks import big_runs, continuing, databases, disciplines, finished_runs, flows, waiting_runs
from benchmarks.disciplines import Done
from benchmarks.driver import Surroundings, run_driver
from benchmarks.fleet import Fleet, wait_until
from benchmarks.lines import emit, progress
from benchmarks.loads import Load
from rival_client import Rival
from rival_client.settings import Settings

NAME = "rival"
LEASE_S = 2.0
COMMAND = str(Path(sys.executable).with_name("rival"))
WORKFLOWS = str(Path(__file__).with_name("rival_workflows.py"))
#: One worker with one process; a fleet has two, so that one can be killed whole and the other lives.
WORKER = [COMMAND, "worker", "--workflows", WORKFLOWS, "--processes", "1", "--concurrency", "4"]
NAMES = {"noop-5", "noop-10", "noop-1000", "items", "waits", "sleeps", "turns", "pids", "flaky", "slow"}
SEED = "bench_rival_seed"
DRAINED = """
    SELECT count(*) FILTER (WHERE completed_at IS NULL), extract(epoch FROM max(completed_at))
    FROM rival_runs WHERE id = ANY(%s)
"""
COMPLETED_AT = "SELECT extract(epoch FROM completed_at) FROM rival_runs WHERE id = %s"


class RivalSystem:
    """One database with Rival's tables, and a producer."""

    name = NAME
    pollings: Sequence[float | None] = (None,)
    polling: float | None = None

    def __init__(self, url: str, surroundings: Surroundings, lease_s: float | None = None) -> None:
        self.url = url
        self.database = databases.name_of(url)
        self._broker_url = surroundings.broker_url
        self._lease_s = lease_s
        # A queue of its own per database, so that several fleets can be up at once.
        self.producer = Rival(
            settings=Settings(database_url=url, broker_url=surroundings.broker_url, queue=self.database)
        )
        self._referee = psycopg.connect(url, autocommit=True)

    def fleets(self) -> Mapping[str, Sequence[Sequence[str]]]:
        return {"two workers": [WORKER, WORKER]}

    def env(self) -> Mapping[str, str]:
        env = {
            "RIVAL_DATABASE_URL": self.url,
            "RIVAL_BROKER_URL": self._broker_url,
            "RIVAL_QUEUE": self.database,
            "PYTHONPATH": os.getcwd(),
        }
        return env if self._lease_s is None else {**env, "RIVAL_LEASE": str(self._lease_s)}

    def start(self, workflow: str, key: str, steps: int = 1) -> tuple[str, str]:
        name = f"noop-{steps}" if workflow == "noop" else workflow
        return name, self.producer.run(name, {"key": key}).run_id

    def wait(self, handle: tuple[str, str]) -> Done:
        result = self.producer.wait(*handle, timeout=disciplines.LIMIT_S)
        if result.status != "completed":
            raise RuntimeError(f"run {handle[1]} of {handle[0]} ended {result.status}: {result.error}")
        return Done(lambda: self._completed_at(handle[1]))

    def start_batch(self, count: int, steps: int) -> list[str]:
        inputs = [{"key": "batch"}] * count
        return [started.run_id for started in self.producer.run_many(f"noop-{steps}", inputs)]

    def wait_batch(self, batch: Sequence[str]) -> float:
        return databases.wait_drained(self.url, DRAINED, batch).at

    def close(self) -> None:
        """Disconnect; only fleets use the database from now on."""
        self.producer.close()
        self._referee.close()

    def _completed_at(self, run_id: str) -> float:
        row = self._referee.execute(COMPLETED_AT, [run_id]).fetchone()
        assert row is not None
        return float(row[0])


def prepare_seed(surroundings: Surroundings) -> str:
    """The database all others are copied from: migrated, workflows registered, one run finished; the run's id."""
    url = databases.fresh_database(surroundings.database_url, SEED)
    subprocess.run(
        [COMMAND, "db", "upgrade"],
        env={**os.environ, "RIVAL_DATABASE_URL": url},
        check=True,
        timeout=60,
        stdout=sys.stderr,
    )
    with closing(RivalSystem(url, surroundings)) as system:
        with disciplines.open_fleet(system, "two workers", surroundings.log) as fleet:

            def registered() -> bool:
                fleet.check_alive()
                return {info.name for info in system.producer.workflows()} >= NAMES

            wait_until(registered, disciplines.LIMIT_S, "registered workflows", pause_s=0.1)
            (run_id,) = system.start_batch(1, 5)
            system.wait_batch([run_id])
        return run_id


def open_copy(name: str, surroundings: Surroundings, lease_s: float | None = None) -> RivalSystem:
    """A system on a fresh copy of the seed."""
    url = databases.fresh_database(surroundings.database_url, f"bench_rival_{name}", template=SEED)
    return RivalSystem(url, surroundings, lease_s)


def measure_starts(load: Load, surroundings: Surroundings) -> None:
    """One by one, and many at once."""
    with closing(open_copy("starts", surroundings)) as system:
        emit(NAME, "starts_per_s", disciplines.starts_per_s(system, load))

        def start_many() -> None:
            system.start_batch(load.bulk_starts, load.steps)

        start_many()
        emit(
            "rival_run_many",
            "starts_per_s",
            [disciplines.rate(load.bulk_starts, start_many) for _ in range(load.repeats)],
        )
    drop_messages(surroundings)


def drop_messages(surroundings: Surroundings) -> None:
    """Deletes the messages about runs of a database that is no longer used."""
    redis.Redis.from_url(surroundings.broker_url).flushdb()


def measure_takeover(load: Load, surroundings: Surroundings) -> None:
    """With the shortest lease, so that the repetitions do not take minutes."""
    emit(NAME, "lease_s", [LEASE_S])
    with (
        closing(open_copy("takeover", surroundings, LEASE_S)) as system,
        disciplines.open_fleet(system, "two workers", surroundings.log) as fleet,
    ):
        disciplines.warm_up(system, fleet, load)
        emit(NAME, "takeover_s", disciplines.takeovers(system, fleet, load))


def measure_big_runs(load: Load, surroundings: Surroundings) -> None:
    """One run with many items, one with many steps, one that continues often; flows with many steps; sleeps."""
    with (
        closing(open_copy("big_runs", surroundings)) as system,
        disciplines.open_fleet(system, "two workers", surroundings.log) as fleet,
    ):
        disciplines.warm_up(system, fleet, load)
        big_runs.measure_items(system, fleet, load)
        big_runs.measure_steps(system, load)
        continuing.measure_continuations(system.producer, load.continuations)
        flows.measure_checkpoints(system.producer, load.checkpoints, load.repeats)
        flows.measure_naps(system.producer)


def measure_waiting_runs(load: Load, surroundings: Surroundings) -> None:
    """Very many runs that wait for events; and the usual load beside very many that sleep."""
    with (
        closing(open_copy("waiting", surroundings)) as system,
        disciplines.open_fleet(system, "two workers", surroundings.log) as fleet,
    ):
        disciplines.warm_up(system, fleet, load)
        waiting_runs.measure_events(system, load.waiting)
    with (
        closing(open_copy("none_asleep", surroundings)) as alone,
        closing(open_copy("sleeping", surroundings)) as beside,
        disciplines.open_fleet(alone, "two workers", surroundings.log) as first,
        disciplines.open_fleet(beside, "two workers", surroundings.log) as second,
    ):
        disciplines.warm_up(alone, first, load)
        disciplines.warm_up(beside, second, load)
        waiting_runs.fill_sleeping(beside, load.sleeping)
        systems = {"none": alone, "many": beside}
        new = waiting_runs.sweeps_ms(systems)
        waiting_runs.analyse(beside)
        rates: dict[str, list[float]] = {"none": [], "many": []}
        for _ in range(load.rounds):
            for size, system, fleet in (("none", alone, first), ("many", beside, second)):
                rates[size].append(disciplines.steps_per_s(system, fleet, load))
        sweeps = waiting_runs.sweeps_ms(systems)
        for size in rates:
            emit(NAME, f"steps_per_s_beside_sleeping/{size}", rates[size])
            emit(NAME, f"sweep_ms_beside_new_sleeping/{size}", new[size])
            emit(NAME, f"sweep_ms_beside_sleeping/{size}", sweeps[size])


def measure_by_finished_runs(load: Load, surroundings: Surroundings, finished_run: str) -> None:
    """The same load on tables of different sizes, in alternation: a slow minute must not affect only one of them."""
    systems = {size: open_copy(f"finished_{size}", surroundings) for size in load.finished_runs}
    for size, system in systems.items():
        finished_runs.fill(system.url, finished_run, size)
    rates: dict[int, list[float]] = {size: [] for size in systems}
    with ExitStack() as stack:
        fleets = {size: stack.enter_context(warm_fleet(system, load, surroundings)) for size, system in systems.items()}
        for number in range(load.rounds):
            for size, system in systems.items():
                rates[size].append(disciplines.steps_per_s(system, fleets[size], load))
                fleets[size].hold()
            shown = ", ".join(f"{size:,}: {one[-1]:.0f}" for size, one in rates.items())
            progress(NAME, f"steps/s by finished runs, round {number + 1} of {load.rounds}: {shown}")
    for size, system in systems.items():
        emit(NAME, f"steps_per_s_by_finished_runs/{size}", rates[size])
        system.close()


@contextmanager
def warm_fleet(system: RivalSystem, load: Load, surroundings: Surroundings) -> Iterator[Fleet]:
    """Two workers that have worked, held until their turn."""
    with disciplines.open_fleet(system, "two workers", surroundings.log) as fleet:
        disciplines.warm_up(system, fleet, load)
        fleet.hold()
        yield fleet


def measure(load: Load, surroundings: Surroundings) -> None:
    """All disciplines."""
    progress(NAME, "preparing")
    finished_run = prepare_seed(surroundings)
    measure_starts(load, surroundings)
    with closing(open_copy("main", surroundings)) as system:
        disciplines.measure_fleets(system, load, surroundings.log)
    counted = open_copy("commits", surroundings)
    emit(NAME, "commits_per_step", [disciplines.commits_per_step(counted, DRAINED, load, surroundings)])
    measure_takeover(load, surroundings)
    measure_big_runs(load, surroundings)
    measure_waiting_runs(load, surroundings)
    measure_by_finished_runs(load, surroundings, finished_run)


if __name__ == "__main__":
    run_driver(measure)
