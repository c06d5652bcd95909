"""The Celery application: the tasks that chains are made of. No result backend except for results that are read."""

from __future__ import annotations

import os
import time
from typing import Any

import redis
from celery import Celery, Task

from benchmarks import payloads
from benchmarks.marks import mark, seen

URL = os.environ["BENCH_BROKER_URL"]

app = Celery("bench", broker=URL, backend=URL)
app.conf.update(
    task_ignore_result=True,
    task_serializer="json",
    worker_prefetch_multiplier=8,
    worker_send_task_events=False,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    result_expires=600,
)
counters = redis.Redis.from_url(URL)


@app.task(name="nothing")
def nothing() -> None:
    """A no-op."""


@app.task(name="with_context")
def with_context(last: dict[str, str] | None, key: str) -> dict[str, str]:
    """Gets the input and the result of the task before, and returns 200 bytes."""
    return {"key": key, "text": "x" * 180}


@app.task(name="payload")
def payload(size: int) -> str:
    """Returns so many bytes."""
    return payloads.text(size)


@app.task(name="count_down")
def count_down(batch: str) -> None:
    """A batch's last task of a chain: a no-op that counts, so that the end is known without a result backend."""
    if counters.decr(f"{batch}:open") == 0:
        counters.rpush(f"{batch}:ended", time.time())


@app.task(name="record_end", ignore_result=False)
def record_end() -> float:
    """A chain's last task when the producer waits: its result is the time at which it ended."""
    return time.time()


@app.task(name="leave_pid", ignore_result=False)
def leave_pid(key: str) -> float:
    """Long enough that one process cannot do all of them."""
    mark("pids", key)
    time.sleep(0.05)
    return time.time()


@app.task(name="fail_once", bind=True, max_retries=1, ignore_result=False)
def fail_once(self: Task[Any, Any], key: str) -> float:
    """Fails the first time."""
    if seen("flaky failed", key):
        mark("flaky again", key)
        return time.time()
    mark("flaky failed", key)
    raise self.retry(countdown=1.0)
