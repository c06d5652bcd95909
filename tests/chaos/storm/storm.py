"""One storm: servers, fleet and producers for one pool, faults for some minutes, then quiet, then the verdict."""

from __future__ import annotations

import bisect
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from rival_client import Rival
from rival_client.db.database import Database
from rival_client.settings import Settings
from tests.chaos.storm.broker_faults import BROKER_FAULTS
from tests.chaos.storm.database_faults import DATABASE_FAULTS
from tests.chaos.storm.faults import Fault, Lane
from tests.chaos.storm.fleet import SETTINGS, Fleet
from tests.chaos.storm.ledger import Ledger
from tests.chaos.storm.producer import Producer
from tests.chaos.storm.report import Report
from tests.chaos.storm.servers import Servers
from tests.chaos.storm.verdict import Judge
from tests.chaos.storm.worker_faults import WORKER_FAULTS

LANES: dict[str, tuple[type[Fault], ...]] = {
    "workers": WORKER_FAULTS,
    "broker": BROKER_FAULTS,
    "database": DATABASE_FAULTS,
}
#: Seconds between two faults of a lane. After faults of the broker a fleet needs some time to connect again; without
#: it, hardly anything would run for the other faults to meet.
GAPS = {"workers": (2.0, 8.0), "broker": (6.0, 14.0), "database": (3.0, 9.0)}
#: Seconds in which runs must end after the last fault, as long as their number goes down.
SETTLE, SETTLE_AT_MOST = 60.0, 300.0


@dataclass(frozen=True)
class Options:
    pool: str
    seed: int
    minutes: float = 5.0
    #: Runs that are started in a second, at most, and that are open at one time, at most.
    rate: float = 6.0
    limit: int = 60
    #: How close together the faults are; 1 is for a storm of minutes.
    density: float = 1.0


class Storm:
    def __init__(self, options: Options, directory: Path, say: Callable[[str], None]) -> None:
        self._options, self._say = options, say
        self._began = time.monotonic()
        self._servers = Servers(directory)
        self._ledger = Ledger(directory / "ledger")
        servers = self._servers
        self._settings = Settings(
            database_url=servers.database_url,
            broker_url=servers.broker_url,
            queue="storm",
            ring_grace=float(SETTINGS["ring_grace"]),
        )
        self._fleet = Fleet(options.pool, self._settings, self._ledger.directory)
        self._stop = threading.Event()
        self._skipped: dict[str, str] = {}
        self.logs: dict[str, str] = {}

    def keep_logs(self, directory: Path) -> None:
        """What is needed to find out what went wrong."""
        directory.mkdir(parents=True, exist_ok=True)
        for name, log in self.logs.items():
            (directory / f"{name}.log").write_text(log)

    def run(self) -> Report:
        try:
            self._fleet.start()
            with Rival(settings=self._settings) as rival:
                return self._carry_out(rival)
        finally:
            self.logs = self._fleet.logs() | {"postgres": self._servers.postgres.log_tail(20_000)}
            self._fleet.close()
            self._servers.close()

    def _carry_out(self, rival: Rival) -> Report:
        options = self._options
        producer = Producer(rival, self._ledger, options.seed, options.rate, options.limit)
        lanes = [self._lane(name, kinds) for name, kinds in LANES.items()]
        producer.start()
        self._let_faults_happen(lanes)
        healed = time.monotonic()
        self._print("healed; waiting for the runs to end")
        producer.finish()
        settled = self._settle(producer)
        workers = self._check_workers(producer)
        producer.close()
        return self._report(producer, lanes, workers, None if settled is None else settled - healed)

    # -- faults -------------------------------------------------------------------------------------------------

    def _lane(self, name: str, kinds: tuple[type[Fault], ...]) -> Lane:
        reasons = {kind: kind.is_possible(self._servers, self._fleet) for kind in kinds}
        self._skipped |= {kind.__name__: why for kind, why in reasons.items() if why is not None}
        possible = [kind for kind in kinds if reasons[kind] is None]
        random = Random(f"{self._options.seed}:{name}")
        gap = (GAPS[name][0] / self._options.density, GAPS[name][1] / self._options.density)
        return Lane(name, possible, random, self._servers, self._fleet, self._stop, self._print, gap)

    def _let_faults_happen(self, lanes: list[Lane]) -> None:
        threads = [threading.Thread(target=lane.run, daemon=True) for lane in lanes]
        for thread in threads:
            thread.start()
        until = time.monotonic() + self._options.minutes * 60
        while time.monotonic() < until:
            self._fleet.look_for_deserters()
            time.sleep(0.5)
        self._stop.set()
        for thread, lane in zip(threads, lanes, strict=True):
            thread.join(120)
            if thread.is_alive():
                lane.broken.append("a fault does not end")

    # -- quiet --------------------------------------------------------------------------------------------------

    def _settle(self, producer: Producer) -> float | None:
        """When the last run had ended; None if some do not end."""
        began = changed = time.monotonic()
        before = -1
        while time.monotonic() - changed < SETTLE and time.monotonic() - began < SETTLE_AT_MOST:
            self._fleet.look_for_deserters()
            left = producer.patience.call(producer.open_runs) + producer.patience.call(producer.undelivered)
            if left == 0:
                return time.monotonic()
            if left != before:
                before, changed = left, time.monotonic()
            time.sleep(0.3)
        self._print(f"{before} runs or events are left")
        return None

    def _check_workers(self, producer: Producer) -> list[str]:
        """Every worker must take part in what is started now."""
        began, missing = time.time(), list(self._fleet.places)
        while missing and time.time() - began < 60:
            producer.rival.run_many("child", [{"n": n} for n in range(30)])
            time.sleep(1.0)
            active = {one.pid for one in self._ledger.executions() if one.at > began}
            missing = [place for place in missing if not self._fleet.pids(place) & active]
        stalled = [f"{place.worker.name} takes no messages: {place.worker.log[-1500:]}" for place in missing]
        unfinished = self._settle_probe(producer)
        return [*self._fleet.deserters, *stalled, *unfinished]

    def _settle_probe(self, producer: Producer) -> list[str]:
        until = time.monotonic() + 60
        while (left := producer.open_runs()) > 0:
            if time.monotonic() > until:
                return [f"{left} of the last runs do not end"]
            time.sleep(0.2)
        return []

    # -- the report ---------------------------------------------------------------------------------------------

    def _report(self, producer: Producer, lanes: list[Lane], workers: list[str], settled: float | None) -> Report:
        database = Database(self._servers.postgres.url)
        verdict = Judge(database, self._ledger).judge(producer.accepted)
        database.dispose()
        faults = sorted((one for lane in lanes for one in lane.happened), key=lambda one: one.began)
        raw = {
            name: f"{count} times, e.g. {producer.patience.examples[name]}"
            for name, count in producer.patience.raw.items()
        }
        ended = max((one.healed for one in faults), default=0.0)
        verdict.effects.during_faults = sum(one.at < ended for one in self._ledger.executions())
        return Report(
            self._options.pool,
            self._options.seed,
            self._options.minutes,
            verdict,
            faults,
            self._skipped,
            settled,
            self._slowest_recovery([one.healed for one in faults]),
            self._fleet.restarts,
            workers,
            producer.patience.refused,
            raw,
            [text for lane in lanes for text in lane.broken] + producer.errors,
            self._tracebacks(),
        )

    def _slowest_recovery(self, healed: list[float]) -> float:
        times = [one.at for one in self._ledger.executions()]
        after = ((at, bisect.bisect_right(times, at)) for at in healed)
        return max((times[index] - at for at, index in after if index < len(times)), default=0.0)

    def _tracebacks(self) -> Counter[str]:
        """The last lines of tracebacks in the workers' logs, without numbers and ids."""
        ends = (end for log in self._fleet.logs().values() for end in _EXCEPTION.findall(log))
        return Counter(re.sub(r"[0-9a-f]{6,}|\d+", "#", end)[:160] for end in ends)

    def _print(self, text: str) -> None:
        self._say(f"{time.monotonic() - self._began:6.1f} {text}")


#: The line that ends a traceback: not indented, after indented ones.
_EXCEPTION = re.compile(r"^Traceback.*\n(?:[ ].*\n)+(\S.*)$", re.MULTILINE)
