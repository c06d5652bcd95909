"""The workers: two or three per pool, one of which publishes a message for every attempt. What a fault has killed is
started again; what ends by itself is a defect, which the verdict reports.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from rival_client.settings import Settings
from tests.chaos.storm import ledger, load
from tests.support.workers import ROOT, WorkerProcess, Workers, worker_env
from tests.support.zygote import Zygote

LEASE = 5.0
#: Options of each worker.
SHAPES: dict[str, tuple[dict[str, object], ...]] = {
    "threads": ({"concurrency": 4}, {"concurrency": 4, "continuation_budget": 0}),
    "prefork": ({"concurrency": 3}, {"concurrency": 2, "continuation_budget": 0}),
    "solo": ({"concurrency": 1}, {"concurrency": 1}, {"concurrency": 1, "continuation_budget": 0}),
}
#: A step that loses its executor again and again must not fail for it here: the faults do that to any step.
SETTINGS = {"lease": LEASE, "ring_grace": 3, "max_lost": 1000, "shutdown_grace": 4}


@dataclass
class Place:
    """A worker's place in the fleet; its process changes when it is killed."""

    number: int
    options: dict[str, object]
    worker: WorkerProcess
    #: Whether a fault has killed it and will start it again.
    is_down: bool = False


@dataclass
class Fleet:
    pool: str
    settings: Settings
    ledger_directory: Path
    places: list[Place] = field(default_factory=list)
    #: Workers that ended although no fault had killed them: name, exit code, end of the log.
    deserters: list[str] = field(default_factory=list)
    restarts: int = 0

    def __post_init__(self) -> None:
        self._zygote = Zygote(ROOT)
        env = worker_env(self.settings) | {ledger.VARIABLE: str(self.ledger_directory)}
        self._workers = Workers(env, self._zygote)
        self._lock = threading.RLock()

    def start(self) -> None:
        for number, options in enumerate(SHAPES[self.pool]):
            self.places.append(Place(number, options, self._started(options)))
        for place in self.places:
            place.worker.wait_ready(90)

    def _started(self, options: dict[str, object]) -> WorkerProcess:
        options = {"pool": self.pool, **SETTINGS, **options}
        [worker] = self._workers.start(load.__file__, wait=False, **options)  # type: ignore[arg-type]
        return worker

    # -- what faults do ---------------------------------------------------------------------------------------

    def choose(self, choice: random.Random) -> Place:
        return choice.choice(self.places)

    def wait_until_busy(self, places: Sequence[Place], seconds: float = 3.0) -> None:
        """Until one of them has just begun an execution: a fault is to find something to break."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not any(map(self._is_busy, places)):
            time.sleep(0.01)

    def _is_busy(self, place: Place) -> bool:
        """The ledger has a file per process."""
        files = [self.ledger_directory / "effects" / str(pid) for pid in self.pids(place)]
        return any(time.time() - file.stat().st_mtime < 0.03 for file in files if file.exists())

    def kill(self, place: Place) -> None:
        with self._lock:
            place.is_down = True
            place.worker.kill()

    def terminate(self, place: Place) -> None:
        """SIGTERM, as at a deployment; killed if it does not leave."""
        with self._lock:
            place.is_down = True
        try:
            place.worker.terminate(20)
        except Exception:
            self.deserters.append(f"{place.worker.name} did not leave within 20 s of SIGTERM")
            place.worker.kill()

    def restart(self, place: Place) -> None:
        with self._lock:
            place.worker = self._started(place.options)
            place.is_down = False
            self.restarts += 1

    def child_of(self, place: Place, choice: random.Random) -> int | None:
        """A prefork child."""
        with contextlib.suppress(psutil.Error, IndexError):
            return choice.choice(sorted(place.worker.children(), key=lambda child: child.pid)).pid
        return None

    # -- what the verdict asks ----------------------------------------------------------------------------------

    def look_for_deserters(self) -> None:
        """A worker that has ended by itself is noted, and started again as a supervisor would."""
        with self._lock:
            for place in self.places:
                if not place.is_down and (code := place.worker.process.poll()) is not None:
                    self.deserters.append(f"{place.worker.name} ended with {code}: {place.worker.log[-2000:]}")
                    self.restart(place)

    def pids(self, place: Place) -> set[int]:
        with contextlib.suppress(psutil.Error):
            return {place.worker.pid, *(child.pid for child in place.worker.children())}
        return {place.worker.pid}

    def logs(self) -> dict[str, str]:
        """Of all workers that there ever were."""
        return {worker.name: worker.log for worker in self._workers.all}

    def close(self) -> None:
        self._workers.clean_up()
        self._zygote.close()
