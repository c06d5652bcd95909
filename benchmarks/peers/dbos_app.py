"""The DBOS application: its workflows, and a worker when run as a program."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from types import FrameType
from typing import Any

from dbos import DBOS, DBOSConfig

from benchmarks import payloads
from benchmarks.marks import mark, seen

QUEUE = "bench"
WORKER_CONCURRENCY = 8
POLLING_S = 0.01


@DBOS.step()
def nothing() -> None:
    """A no-op."""


@DBOS.step()
def with_context(key: str, last: dict[str, str] | None) -> dict[str, str]:
    """Gets the input and the result of the step before, and returns 200 bytes."""
    return {"key": key, "text": "x" * 180}


@DBOS.step()
def payload(size: int) -> str:
    """Returns so many bytes."""
    return payloads.text(size)


@DBOS.step()
def leave_pid(key: str) -> None:
    """Long enough that one process cannot do all of them."""
    mark("pids", key)
    time.sleep(0.05)


@DBOS.step(retries_allowed=True, interval_seconds=1.0, max_attempts=2, backoff_rate=1.0)
def fail_once(key: str) -> None:
    """Fails the first time."""
    if seen("flaky failed", key):
        mark("flaky again", key)
        return
    mark("flaky failed", key)
    raise RuntimeError("once")


@DBOS.workflow(name="noop")
def noop(key: str, steps: int) -> int:
    """So many no-op steps."""
    for _ in range(steps):
        nothing()
    return steps


@DBOS.workflow(name="context")
def context(key: str, steps: int) -> dict[str, str] | None:
    """So many steps that get a value and return one."""
    last = None
    for _ in range(steps):
        last = with_context(key, last)
    return last


@DBOS.workflow(name="kb10")
def kb10(key: str, steps: int) -> str:
    """So many results of 10 KB."""
    return [payload(10_000) for _ in range(steps)][-1]


@DBOS.workflow(name="kb100")
def kb100(key: str, steps: int) -> str:
    """So many results of 100 KB."""
    return [payload(100_000) for _ in range(steps)][-1]


@DBOS.workflow(name="pids")
def pids(key: str, steps: int) -> None:
    """Shows which process works."""
    leave_pid(key)


@DBOS.workflow(name="flaky")
def flaky(key: str, steps: int) -> None:
    """One step that is retried after a second."""
    fail_once(key)


def config(database_url: str, executor_id: str) -> DBOSConfig:
    """Quiet, without telemetry, with more connections than threads."""
    return {
        "name": "bench",
        "system_database_url": database_url,
        "sys_db_pool_size": 24,
        "db_engine_kwargs": engine_options(),
        "log_level": "ERROR",
        "enable_otlp": False,
        "application_version": "bench",
        "executor_id": executor_id,
    }


def engine_options() -> dict[str, Any]:
    """No ping before each use of a connection: a round trip less, in DBOS' favour."""
    return {"pool_pre_ping": False}


def work(database_url: str, executor_id: str) -> None:
    """Take from the queue until SIGTERM."""
    stop = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, on_signal)
    DBOS(config=config(database_url, executor_id))
    DBOS.launch()
    DBOS.register_queue(QUEUE, worker_concurrency=WORKER_CONCURRENCY, polling_interval_sec=POLLING_S)
    stop.wait()
    os._exit(0)


if __name__ == "__main__":
    work(os.environ["BENCH_DBOS_URL"], sys.argv[1])
