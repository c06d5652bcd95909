"""Rival under test: its own client as the producer, workers started with its own command."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import redis

from benchmarks import (
    big_runs,
    continuing,
    databases,
    disciplines,
    finished_runs,
    flows,
    mixed_load,
    viewers,
    waiting_runs,
)
from benchmarks.catalogue import POLICIES
from benchmarks.disciplines import Done, Warm, Work
from benchmarks.driver import Repetition, Surroundings, serve
from benchmarks.fleet import wait_until
from benchmarks.lines import emit, progress
from benchmarks.loads import Load
from rival_client import Rival
from rival_client.settings import Settings

LEASE_S = 2.0
COMMAND = str(Path(sys.executable).with_name("rival"))
WORKFLOWS = str(Path(__file__).with_name("rival_workflows.py"))
#: One worker with one process and the usual concurrency (16); a fleet has two, so that one can be killed whole and the
#: other lives.
WORKER = [COMMAND, "worker", "--workflows", WORKFLOWS, "--processes", "1"]
#: Those that a fleet registers last: all others are known when these are.
NAMES = {"noop-5", "items", "pids", "flaky", "slow", "second", "turns", "nap", "checkpoints"}
DRAINED = """
    SELECT count(*) FILTER (WHERE completed_at IS NULL), extract(epoch FROM max(completed_at))
    FROM rival_runs WHERE id = ANY(%s)
"""
COMPLETED_AT = "SELECT extract(epoch FROM completed_at) FROM rival_runs WHERE id = %s"


class RivalSystem:
    """One database with Rival's tables, and a producer."""

    pollings: Sequence[float | None] = (None,)
    polling: float | None = None
    drained_query = DRAINED

    def __init__(
        self,
        url: str,
        surroundings: Surroundings,
        lease_s: float | None = None,
        workers: Sequence[Sequence[str]] = (WORKER, WORKER),
    ) -> None:
        self.name = surroundings.side
        self.url = url
        self.database = databases.name_of(url)
        self._broker_url = surroundings.broker_url
        self._lease_s = lease_s
        self._workers = workers
        # A queue of its own per database, so that several fleets can be up at once.
        self.producer = Rival(
            settings=Settings(database_url=url, broker_url=surroundings.broker_url, queue=self.database)
        )
        self._referee = psycopg.connect(url, autocommit=True)

    def fleet(self) -> Sequence[Sequence[str]]:
        return self._workers

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

    def start_batch(self, work: Work) -> list[str]:
        inputs = [{"key": f"batch{number % work.keys}"} for number in range(work.runs)]
        return [started.run_id for started in self.producer.run_many(f"{work.kind}-{work.steps}", inputs)]

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


class Databases:
    """The databases of one side: copies of a seed that is migrated, with workflows and one finished run."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._prefix = f"bench_{surroundings.side}"

    def prepare_seed(self) -> str:
        """The id of the finished run."""
        url = databases.fresh_database(self._surroundings.database_url, self._prefix)
        subprocess.run(
            [COMMAND, "db", "upgrade"],
            env={**os.environ, "RIVAL_DATABASE_URL": url},
            check=True,
            timeout=60,
            stdout=sys.stderr,
        )
        with closing(RivalSystem(url, self._surroundings)) as system:
            with disciplines.open_fleet(system, self._surroundings.log) as fleet:

                def registered() -> bool:
                    fleet.check_alive()
                    return {info.name for info in system.producer.workflows()} >= NAMES

                wait_until(registered, disciplines.LIMIT_S, "registered workflows", pause_s=0.1)
                (run_id,) = system.start_batch(Work("noop", 1, 5))
                system.wait_batch([run_id])
            return run_id

    def open_copy(
        self, name: str, lease_s: float | None = None, workers: Sequence[Sequence[str]] = (WORKER, WORKER)
    ) -> RivalSystem:
        """A system on a fresh copy of the seed."""
        admin_url = self._surroundings.database_url
        url = databases.fresh_database(admin_url, f"{self._prefix}_{name}", template=self._prefix)
        return RivalSystem(url, self._surroundings, lease_s, workers)


class RivalSide:
    """All disciplines of Rival, on databases of one side."""

    def __init__(self, load: Load, surroundings: Surroundings, stack: ExitStack) -> None:
        self._load = load
        self._surroundings = surroundings
        self._name = surroundings.side
        self._databases = Databases(surroundings)
        progress(self._name, "preparing")
        self._finished_run = self._databases.prepare_seed()
        self._idle = stack.enter_context(closing(self._databases.open_copy("starts")))
        main = stack.enter_context(closing(self._databases.open_copy("main")))
        self._main = main
        self._warm = disciplines.open_warm(main, load, surroundings.log, stack)

    def repetitions(self) -> dict[str, Repetition]:
        """By the names that the harness asks for."""
        return {
            **disciplines.shared_by([self._warm], self._idle, self._load),
            "bare_commits": self._bare_commits,
            "run_many": self._run_many,
            "commits": self._commits,
            "wal": self._wal,
            "takeover": self._takeover,
            "for_each": self._with_fleet(lambda: big_runs.measure_items(self._main, self._warm.fleet, self._load)),
            "long_run": self._with_fleet(lambda: big_runs.measure_steps(self._main, self._load)),
            "continuations": self._with_fleet(
                lambda: continuing.measure_continuations(self._main.producer, self._load.continuations, self._name)
            ),
            "checkpoints": self._with_fleet(self._checkpoints),
            "sleeps": self._with_fleet(lambda: flows.measure_naps(self._main.producer, self._name)),
            "mixed": self._with_fleet(lambda: mixed_load.measure_mixed(self._main, self._load)),
            "events": self._events,
            "sleeping": self._beside_sleeping,
            "finished": self._by_finished_runs,
            "viewers": self._beside_viewers,
            **{name: self._policy(name) for name in POLICIES},
        }

    def _checkpoints(self) -> None:
        flows.measure_checkpoints(self._main.producer, self._load.checkpoints, self._name)
        flows.measure_checkpoints_together(self._main.producer, self._load.checkpoints, self._name)

    def _with_fleet(self, measure: Repetition) -> Repetition:
        def repetition() -> None:
            with self._warm.fleet.released():
                measure()

        return repetition

    def _own_fleet(self, name: str, stack: ExitStack, lease_s: float | None = None) -> Warm:
        """A database and a warm, held fleet for one discipline."""
        system = stack.enter_context(closing(self._databases.open_copy(name, lease_s)))
        return disciplines.open_warm(system, self._load, self._surroundings.log, stack)

    def _policy(self, name: str) -> Repetition:
        """Measured with a fleet that has the workflows with policies."""

        def repetition() -> None:
            from benchmarks import policies  # an earlier commit has none, and is measured in all other disciplines

            workers = policies.fleet(name, COMMAND, WORKFLOWS)
            with ExitStack() as stack:
                system = self._databases.open_copy(f"policies_{name}", policies.LEASE_S, workers)
                stack.enter_context(closing(system))
                policies.prepare(name, system.url)
                warm = disciplines.open_warm(system, self._load, self._surroundings.log, stack)
                policies.MEASURED[name](warm, self._load)

        return repetition

    def _bare_commits(self) -> None:
        count = self._load.starts
        rate = disciplines.rate(count, lambda: databases.bare_commits(self._idle.url, count))
        emit(self._name, "bare_commits_per_s", [rate])

    def _run_many(self) -> None:
        work = Work("noop", self._load.bulk_starts, self._load.steps)
        emit(self._name, "run_many_per_s", [disciplines.rate(work.runs, lambda: self._idle.start_batch(work))])
        # No fleet consumes what was published for this database.
        redis.Redis.from_url(self._surroundings.broker_url).delete(self._idle.database)

    def _commits(self) -> None:
        counted = self._databases.open_copy("commits")
        figure = disciplines.commits_per_step(counted, self._load, self._surroundings)
        emit(self._name, "commits_per_step", [figure])

    def _wal(self) -> None:
        for kind, runs in (("noop", self._load.runs), ("kb10", self._load.payload_runs), ("kb100", 30)):
            figure = disciplines.wal_per_step(self._main, self._warm.fleet, Work(kind, runs, self._load.steps))
            emit(self._name, f"wal_bytes_per_step/{kind}", [figure])

    def _takeover(self) -> None:
        """With the shortest lease, so that the repetitions do not take minutes."""
        emit(self._name, "lease_s", [LEASE_S])
        with ExitStack() as stack:
            warm = self._own_fleet("takeover", stack, LEASE_S)
            with warm.fleet.released():
                emit(self._name, "takeover_s", disciplines.takeovers(warm.system, warm.fleet, self._load))

    def _events(self) -> None:
        """Very many runs that wait for events, at a step and in a flow."""
        for workflow, figure in (("waits", "events_per_s"), ("flow-waits", "flow_events_per_s")):
            with ExitStack() as stack:
                warm = self._own_fleet(workflow.replace("-", "_"), stack)
                with warm.fleet.released():
                    waiting_runs.measure_events(warm.system, self._load.waiting, workflow, figure)

    def _beside_sleeping(self) -> None:
        """The usual load beside very many runs that sleep."""
        with ExitStack() as stack:
            warm = {name: self._own_fleet(f"asleep_{name}", stack) for name in ("none", "many")}
            with warm["many"].fleet.released():
                waiting_runs.fill_sleeping(warm["many"].system, self._load.sleeping)
            systems = {name: one.system for name, one in warm.items()}
            new = waiting_runs.sweeps_ms(systems)
            waiting_runs.analyse(systems["many"])
            rates = self._rates_in_turns(warm)
            sweeps = waiting_runs.sweeps_ms(systems)
        for size in rates:
            emit(self._name, f"steps_per_s_beside_sleeping/{size}", rates[size])
            emit(self._name, f"sweep_ms_beside_new_sleeping/{size}", new[size])
            emit(self._name, f"sweep_ms_beside_sleeping/{size}", sweeps[size])

    def _beside_viewers(self) -> None:
        """The same load beside a dashboard that people look at."""
        with ExitStack() as stack:
            warm = self._own_fleet("viewers", stack)
            viewers.measure_viewers(warm, warm.system.env(), self._load, self._surroundings.log)

    def _by_finished_runs(self) -> None:
        """The same load on tables of different sizes."""
        with ExitStack() as stack:
            warm = {str(size): self._own_fleet(f"finished_{size}", stack) for size in self._load.finished_runs}
            for size, one in warm.items():
                finished_runs.fill(one.system.url, self._finished_run, int(size))
            rates = self._rates_in_turns(warm)
        for size, values in rates.items():
            emit(self._name, f"steps_per_s_by_finished_runs/{size}", values)

    def _rates_in_turns(self, warm: Mapping[str, Warm]) -> dict[str, list[float]]:
        """Steps per second of each, in alternation: a slow minute must not affect only one of them."""
        work = Work("noop", self._load.runs, self._load.steps)
        rates: dict[str, list[float]] = {name: [] for name in warm}
        for number in range(self._load.rounds):
            for name, one in warm.items():
                rates[name].append(disciplines.steps_per_s(one, work))
            shown = ", ".join(f"{name}: {values[-1]:.0f}" for name, values in rates.items())
            progress(self._name, f"steps/s, round {number + 1} of {self._load.rounds}: {shown}")
        return rates


def prepare(load: Load, surroundings: Surroundings, stack: ExitStack) -> Mapping[str, Repetition]:
    """Databases, a producer and a warm fleet."""
    return RivalSide(load, surroundings, stack).repetitions()


if __name__ == "__main__":
    serve(prepare)
