"""The transport of library mode alone: plain Celery tasks per second through the in-process worker, and how late their
countdowns are, on each pool.

`python -m benchmarks.inproc_tasks 20000` needs no server.
"""

from __future__ import annotations

import sys
import threading
import time
import uuid
from typing import Literal

from celery import Celery

from benchmarks.lines import emit
from rival_workers.library import inproc_transport
from rival_workers.library.inproc_worker import InprocWorker

NAME = "rival"
LIMIT_S = 300.0


def tasks_per_second(pool: Literal["threads", "solo"], count: int) -> float:
    """All are published before the worker starts."""
    inproc_transport.register()
    name = uuid.uuid4().hex
    app = Celery(name, broker=f"rival-inproc://{name}/", set_as_current=False)
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=1)
    done, over, lock = [0], threading.Event(), threading.Lock()

    def note() -> None:
        with lock:
            done[0] += 1
            if done[0] == count:
                over.set()

    task = app.task(name="note", shared=False)(note)
    for _ in range(count):
        task.delay()
    worker = InprocWorker(app, pool=pool)
    began = time.monotonic()
    worker.start()
    assert over.wait(LIMIT_S), f"only {done[0]} of {count} tasks in {LIMIT_S:g} s"
    took = time.monotonic() - began
    worker.stop()
    return count / took


def countdown_errors(pool: Literal["threads", "solo"], count: int = 30) -> list[float]:
    """Milliseconds between the time at which a task was due and its start."""
    inproc_transport.register()
    name = uuid.uuid4().hex
    app = Celery(name, broker=f"rival-inproc://{name}/", set_as_current=False)
    app.conf.update(task_ignore_result=True, worker_prefetch_multiplier=1)
    late: list[float] = []
    over = threading.Event()

    def note(due: float) -> None:
        late.append((time.time() - due) * 1000)
        if len(late) == count:
            over.set()

    task = app.task(name="note", shared=False)(note)
    worker = InprocWorker(app, pool=pool)
    worker.start()
    for number in range(count):
        countdown = 0.05 + number * 0.02
        task.apply_async(args=[time.time() + countdown], countdown=countdown)
    assert over.wait(LIMIT_S), f"only {len(late)} of {count} countdowns in {LIMIT_S:g} s"
    worker.stop()
    return late


if __name__ == "__main__":
    for pool in ("threads", "solo"):
        emit(NAME, f"inproc_tasks_per_s_{pool}", [tasks_per_second(pool, int(sys.argv[1]))])  # type: ignore[arg-type]
        emit(NAME, f"inproc_countdown_error_ms_{pool}", countdown_errors(pool))  # type: ignore[arg-type]
