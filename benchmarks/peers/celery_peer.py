"""Celery canvas chains under test: the better of one prefork worker with two children and two solo workers."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

from celery import chain
from celery.canvas import Signature
from celery.result import AsyncResult

from benchmarks import disciplines
from benchmarks.disciplines import Done, Work
from benchmarks.driver import Repetition, Surroundings, serve
from benchmarks.lines import emit
from benchmarks.loads import Load
from benchmarks.peers.celery_app import (
    app,
    count_down,
    counters,
    fail_once,
    leave_pid,
    nothing,
    payload,
    record_end,
    with_context,
)

NAME = "celery_chain"
LIMIT_S = 120


class CelerySystem:
    """Chains over the broker; nothing is durable beyond the broker's memory. A queue of its own per configuration."""

    name = NAME
    pollings: Sequence[float | None] = (None,)
    polling: float | None = None

    def __init__(self, pool: str, workers: int, concurrency: int) -> None:
        self._pool = pool
        self._workers = workers
        self._concurrency = concurrency
        self.queue = f"bench-{pool}"

    def fleet(self) -> Sequence[Sequence[str]]:
        return [self._worker(f"{self._pool}{number}") for number in range(self._workers)]

    def env(self) -> Mapping[str, str]:
        return {}

    def start(self, workflow: str, key: str, steps: int = 1) -> AsyncResult[float]:
        return self._signatures(workflow, key, steps).apply_async()

    def wait(self, handle: AsyncResult[float]) -> Done:
        ended = handle.get(timeout=LIMIT_S)
        handle.forget()
        return Done(lambda: ended)

    def start_batch(self, work: Work) -> str:
        batch = disciplines.fresh_key("batch")
        counters.delete(f"{batch}:ended")
        counters.set(f"{batch}:open", work.runs)
        chained = chain(*self._here(tasks_of(work)), *self._here([count_down.si(batch)]))
        for _ in range(work.runs):
            chained.apply_async()
        return batch

    def wait_batch(self, batch: str) -> float:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            ended = counters.blpop([f"{batch}:ended"], timeout=1)  # below redis-py's own socket timeout
            if ended is not None:
                return float(ended[1])
        raise TimeoutError(f"{counters.get(f'{batch}:open')!r} chains still open after {LIMIT_S} s")

    def _here(self, tasks: Sequence[Signature[float]]) -> list[Signature[float]]:
        return [task.set(queue=self.queue) for task in tasks]

    def _signatures(self, workflow: str, key: str, steps: int) -> Signature[float]:
        """The chain that stands for a workflow."""
        if workflow == "pids":
            return self._here([leave_pid.si(key)])[0]
        if workflow == "flaky":
            return self._here([fail_once.si(key)])[0]
        return chain(*self._here([*(nothing.si() for _ in range(steps - 1)), record_end.si()]))

    def _worker(self, name: str) -> list[str]:
        """A worker without the chatter that only costs time here."""
        quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
        program = [sys.executable, "-m", "celery", "--app=benchmarks.peers.celery_app", "worker"]
        size = [f"--pool={self._pool}", f"--concurrency={self._concurrency}"]
        return [*program, *size, f"--hostname={name}@bench", f"--queues={self.queue}", *quiet]


def tasks_of(work: Work) -> list[Signature[float]]:
    """All tasks of a chain but the last one, which counts."""
    count = work.steps - 1
    if work.kind == "context":
        return [with_context.s(None, "batch"), *(with_context.s("batch") for _ in range(count - 1))]
    if work.kind in ("kb10", "kb100"):
        return [payload.si(int(work.kind.removeprefix("kb")) * 1_000) for _ in range(count)]
    return [nothing.si() for _ in range(count)]


class UnwaitedChains(CelerySystem):
    """Chains whose results are not read: the cheapest way to start them."""

    def start(self, workflow: str, key: str, steps: int = 1) -> AsyncResult[float]:
        return chain(*self._here([nothing.si() for _ in range(steps)])).apply_async()


def prepare(load: Load, surroundings: Surroundings, stack: ExitStack) -> Mapping[str, Repetition]:
    """Both configurations, warm."""
    systems = {"prefork -c 2": CelerySystem("prefork", 1, 2), "two solo": CelerySystem("solo", 2, 1)}
    fleets = [
        disciplines.open_warm(system, load, surroundings.log, stack, configuration)
        for configuration, system in systems.items()
    ]
    idle = UnwaitedChains("idle", 1, 1)
    shared = disciplines.shared_by(fleets, idle, load)

    def starts() -> None:
        shared["starts"]()
        app.backend.client.delete(idle.queue)

    return {**shared, "starts": starts, "commits": no_commits, "takeover": no_takeover}


def no_commits() -> None:
    """Chains have no database."""
    emit(NAME, "commits_per_step", note="no database")


def no_takeover() -> None:
    """A lost task comes back late."""
    late = "with acks_late a lost task comes back after the broker's visibility timeout (1 h by default)"
    emit(NAME, "takeover_s", note=late)


if __name__ == "__main__":
    serve(prepare)
