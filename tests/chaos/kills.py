"""`python -m tests.chaos.kills`: workers are killed under load, again and again. After each kill, all runs that were
open must end within the lease and five seconds; at the end, each run must have the right result, and nothing may be
stuck.

The grace period is so long that no drain can wait for it, and every second kill is one on another machine, whose
executors only the lease can find.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil
from sqlalchemy import select

from rival_client import Rival
from rival_client.db.database import Database
from rival_client.db.run_tables import runs, steps
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.settings import Settings
from rival_workers.dev.broker_server import BrokerServer
from rival_workers.dev.postgres_server import PostgresServer
from rival_workers.store import migrations
from tests.support.chaos import Ledger, Line, assert_nothing_is_stuck, wait_for_all
from tests.support.threads import join_all
from tests.support.workers import ROOT, WorkerProcess, Workers, wait_until, worker_env
from tests.support.zygote import Zygote

LEASE, GRACE = 2.0, 120.0
#: Seconds in which all runs that were open at a kill must have ended.
ALLOWED = LEASE + 5.0
#: Threads or processes of each worker.
POOLS = {"threads": 8, "prefork": 3, "solo": 1}
WORKERS = 3
#: Runs that are open at one time.
OPEN = 60
#: Quick steps, whose outcomes are committed together; and waits for an event, which are delivered together.
WORKFLOWS = """
from rival_workers import create_workflow

quick = create_workflow("quick")
for number in range(5):
    quick.step(work, name=f"s{number}")
quick.register()
asks = create_workflow("asks").step(work, name="s0")
asks.wait_event("answer", "answer", key=lambda run: run.run_id).step(work, name="s2").register()
"""
STEPS = {"quick": 5, "asks": 2}


@dataclass
class Load:
    """Starts runs in a thread of its own, as long as few are open, and answers those that ask."""

    rival: Rival
    #: The workflow of each run.
    started: dict[str, str] = field(default_factory=dict)
    errors: list[Exception] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._produce, daemon=True)
        self._asking: list[str] = []
        self._thread.start()

    def _produce(self) -> None:
        while not self._stop.wait(0.05):
            try:
                self._answer()
                for workflow, part in (("quick", 0.7), ("asks", 0.3)):
                    missing = OPEN - len(open_runs(self.rival))
                    self._start(workflow, int(missing * part))
            except Exception as error:
                self.errors.append(error)

    def _answer(self) -> None:
        """What was started in an earlier round: most of them wait by now."""
        asking, self._asking = self._asking, []
        for run_id in asking:
            self.rival.send_event("answer", {"nonce": f"answer-{run_id}", "count": 1}, key=run_id)

    def _start(self, workflow: str, count: int) -> None:
        ids = [f"{workflow}-{uuid.uuid4().hex[:12]}" for _ in range(max(count, 0))]
        if ids:
            self.started |= dict.fromkeys(ids, workflow)
            self.rival.run_many(workflow, [{}] * len(ids), run_ids=ids)
            self._asking += ids if workflow == "asks" else []

    def finish(self) -> None:
        self._stop.set()
        join_all([self._thread], 60)
        self._answer()


def open_runs(rival: Rival) -> set[str]:
    with rival.database.autocommit() as connection:
        return set(connection.scalars(select(runs.c.id).where(runs.c.status.not_in(RUN_TERMINAL))))


@dataclass
class Killer:
    pool: str
    workers: Workers
    file: Path
    rival: Rival
    dice: random.Random
    say: Callable[[str], None]
    fleet: list[WorkerProcess] = field(default_factory=list)
    #: Seconds from each kill until all runs that were open had ended.
    drains: list[float] = field(default_factory=list)

    def add_worker(self) -> None:
        options = {"pool": self.pool, "concurrency": POOLS[self.pool], "lease": LEASE, "ring_grace": GRACE}
        self.fleet += self.workers.start(self.file, wait=False, max_lost=1000, **options)  # type: ignore[arg-type]

    def wait_ready(self) -> None:
        for worker in self.fleet:
            worker.wait_ready(120)

    def kill(self, number: int) -> None:
        """Kill one, replace it at once, and wait for the end of what was open."""
        victim, elsewhere = self.dice.choice(self.fleet), number % 2 == 1
        if elsewhere:
            with self.rival.database.transaction() as connection:
                connection.exec_driver_sql("UPDATE rival_executors SET host = 'elsewhere'")
        child = self._child(victim)
        if child is None:
            self.fleet.remove(victim)
            victim.kill()
        else:
            child.kill()
        killed, under_way = time.monotonic(), open_runs(self.rival)
        if child is None:
            self.add_worker()
        wait_until(lambda: not under_way & open_runs(self.rival), 90, f"kill {number}: runs that were open end")
        self.drains.append(time.monotonic() - killed)
        what = f"{victim.name}{'' if child is None else ', a child'}{', elsewhere' if elsewhere else ''}"
        self.say(f"kill {number} ({what}): {len(under_way)} open runs ended within {self.drains[-1]:.1f} s")
        self.wait_ready()
        time.sleep(self.dice.uniform(0.0, 0.3))

    def _child(self, victim: WorkerProcess) -> psutil.Process | None:
        """Of a prefork worker, mostly one of its processes."""
        children = victim.children() if self.pool == "prefork" and self.dice.random() < 0.6 else []
        return self.dice.choice(children) if children else None


def assert_all_are_right(rival: Rival, started: dict[str, str], ledger: Ledger) -> None:
    """Each result is that of one execution, and all that came after it saw that one and no other."""
    ran: dict[tuple[str, str], list[Line]] = defaultdict(list)
    for line in ledger.lines():
        ran[line.run_id, line.step].append(line)
    with rival.database.transaction() as connection:
        ended = {row.id: row for row in connection.execute(select(runs.c.id, runs.c.status, runs.c.result))}
        accepted = {(row.run_id, row.path): row for row in connection.execute(select(steps))}
    wrong = {run_id: ended[run_id] for run_id in started if run_id not in ended or ended[run_id].status != "completed"}
    assert wrong == {}
    for run_id, workflow in started.items():
        assert ended[run_id].result["count"] == STEPS[workflow], ended[run_id]
        before = "-"
        for path in [f"s{number}" for number in range(5)] if workflow == "quick" else ["s0", "answer", "s2"]:
            nonce = accepted[run_id, path].result["nonce"]
            if path != "answer":
                assert [line.nonce for line in ran[run_id, path]].count(nonce) == 1, (run_id, path)
                assert {line.saw for line in ran[run_id, path]} == {before}, (run_id, path)
            before = nonce
    assert_nothing_is_stuck(rival)


@contextmanager
def stage(directory: Path) -> Iterator[tuple[Settings, Workers]]:
    """Servers of its own, and workers that are gone at the end."""
    postgres, broker, zygote = PostgresServer(directory / "pg"), BrokerServer(directory / "broker"), Zygote(ROOT)
    postgres.start()
    broker.start()
    database = Database(postgres.url)
    migrations.upgrade(database)
    database.dispose()
    settings = Settings(database_url=postgres.url, broker_url=broker.url, queue="kills", ring_grace=GRACE)
    workers = Workers(worker_env(settings), zygote)
    try:
        yield settings, workers
    finally:
        workers.clean_up()
        zygote.close()
        broker.stop()
        postgres.stop()


def kill_many(pool: str, kills: int, seed: int, directory: Path, say: Callable[[str], None]) -> list[float]:
    """The seconds of each drain. AssertionError: something was lost, or is wrong or stuck."""
    ledger = Ledger(directory / "ledger")
    with stage(directory) as (settings, workers), Rival(settings=settings) as rival:
        killer = Killer(pool, workers, ledger.workflow(WORKFLOWS), rival, random.Random(seed), say)
        for _ in range(WORKERS):
            killer.add_worker()
        killer.wait_ready()
        load = Load(rival)
        wait_until(lambda: len(ledger.lines()) > 50, 60, "a fleet that works")
        for number in range(kills):
            killer.kill(number)
        load.finish()
        wait_for_all(rival, load.started, timeout=90)
        assert load.errors == []
        assert_all_are_right(rival, load.started, ledger)
        say(f"{pool}: {len(load.started):,} runs, all right")
    return killer.drains


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=100, help="of each pool")
    parser.add_argument("--pool", default="all", choices=["all", *POOLS])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    too_slow = 0
    for pool in POOLS if given.pool == "all" else [given.pool]:
        with tempfile.TemporaryDirectory(prefix="kills-", ignore_cleanup_errors=True) as name:
            drains = kill_many(pool, given.kills, given.seed, Path(name), lambda text: print(text, flush=True))
        too_slow += sum(drain > ALLOWED for drain in drains)
        print(
            f"{pool}: {len(drains)} kills, drained within {statistics.median(drains):.1f} s (median) and "
            f"{max(drains):.1f} s (the slowest; {ALLOWED:g} s are allowed)",
            flush=True,
        )
    return 1 if too_slow else 0


if __name__ == "__main__":
    sys.exit(main())
