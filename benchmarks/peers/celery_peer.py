"""Celery canvas chains under test: the better of one prefork worker with two children and two solo workers."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence

from celery import chain
from celery.canvas import Signature
from celery.result import AsyncResult

from benchmarks import disciplines
from benchmarks.disciplines import Done
from benchmarks.driver import Surroundings, run_driver
from benchmarks.lines import emit, progress
from benchmarks.loads import Load
from benchmarks.peers.celery_app import app, count_down, counters, fail_once, leave_pid, nothing, tell_end

NAME = "celery_chain"
LIMIT_S = 120


class CelerySystem:
    """Chains over the broker; nothing is durable beyond the broker's memory."""

    name = NAME
    pollings: Sequence[float | None] = (None,)
    polling: float | None = None

    def fleets(self) -> Mapping[str, Sequence[Sequence[str]]]:
        return {
            "prefork -c 2": [worker("fork", "prefork", 2)],
            "two solo": [worker("one", "solo", 1), worker("two", "solo", 1)],
        }

    def env(self) -> Mapping[str, str]:
        return {}

    def start(self, workflow: str, key: str, steps: int = 1) -> AsyncResult[float]:
        return signatures(workflow, key, steps).apply_async()

    def wait(self, handle: AsyncResult[float]) -> Done:
        ended = handle.get(timeout=LIMIT_S)
        handle.forget()
        return Done(lambda: ended)

    def start_batch(self, count: int, steps: int) -> str:
        batch = disciplines.fresh_key("batch")
        counters.delete(f"{batch}:ended")
        counters.set(f"{batch}:open", count)
        chained = chain(*[nothing.si() for _ in range(steps - 1)], count_down.si(batch))
        for _ in range(count):
            chained.apply_async()
        return batch

    def wait_batch(self, batch: str) -> float:
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            ended = counters.blpop([f"{batch}:ended"], timeout=1)  # below redis-py's own socket timeout
            if ended is not None:
                return float(ended[1])
        raise TimeoutError(f"{counters.get(f'{batch}:open')!r} chains still open after {LIMIT_S} s")


def signatures(workflow: str, key: str, steps: int) -> Signature[float]:
    """The chain that stands for a workflow."""
    if workflow == "pids":
        return leave_pid.si(key)
    if workflow == "flaky":
        return fail_once.si(key)
    return chain(*[nothing.si() for _ in range(steps - 1)], tell_end.si())


def worker(name: str, pool: str, concurrency: int) -> list[str]:
    """A worker without the chatter that only costs time here."""
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel=ERROR"]
    program = [sys.executable, "-m", "celery", "--app=benchmarks.peers.celery_app", "worker"]
    return [*program, f"--pool={pool}", f"--concurrency={concurrency}", f"--hostname={name}@bench", *quiet]


class UnwaitedChains(CelerySystem):
    """Chains whose results are not read: the cheapest way to start them."""

    def start(self, workflow: str, key: str, steps: int = 1) -> AsyncResult[float]:
        return chain(*[nothing.si() for _ in range(steps)]).apply_async()


def measure(load: Load, surroundings: Surroundings) -> None:
    """All disciplines that chains have."""
    progress(NAME, "starts")
    emit(NAME, "starts_per_s", disciplines.starts_per_s(UnwaitedChains(), load))
    app.control.purge()
    disciplines.measure_fleets(CelerySystem(), load, surroundings.log)
    emit(NAME, "commits_per_step", note="no database")
    late = "with acks_late a lost task comes back after the broker's visibility timeout (1 h by default)"
    emit(NAME, "takeover_s", note=late)


if __name__ == "__main__":
    run_driver(measure)
