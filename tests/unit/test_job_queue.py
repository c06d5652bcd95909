"""The queue of a pool's threads: each job wakes one thread, and none is left behind."""

from __future__ import annotations

import threading
from typing import Any

from rival_workers.runtime.attempt.job_queue import Job, JobQueue
from tests.support.effort import examples
from tests.support.threads import join_all
from tests.support.workers import wait_until


class Threads:
    """Threads that do jobs until they get None."""

    def __init__(self, count: int) -> None:
        self.queue, self.did = JobQueue(), list[str]()
        self._threads = [threading.Thread(target=self._work, name=f"t{number}") for number in range(count)]
        for thread in self._threads:
            thread.start()

    def _work(self) -> None:
        while (job := self.queue.get()) is not None:
            self.did.append(threading.current_thread().name)
            job()

    def wait_idle(self, count: int) -> None:
        wait_until(lambda: len(self.queue._idle) == count, 10, f"{count} idle threads")

    def end(self) -> None:
        for _ in self._threads:
            self.queue.put(None)
        join_all(self._threads)


def nothing() -> None:
    pass


def test_a_job_wakes_only_the_thread_that_was_busy_last() -> None:
    threads = Threads(4)
    for _ in range(5):
        threads.wait_idle(4)
        idle = list(threads.queue._idle)
        threads.queue.put(nothing)
        threads.wait_idle(4)
        # The others still wait for the release of the same locks.
        assert threads.queue._idle[:-1] == idle[:-1]
        assert threads.queue._idle[-1] is not idle[-1]
    assert len(threads.did) == 5
    assert len(set(threads.did)) == 1
    threads.end()


def test_jobs_are_done_at_the_same_time_if_threads_are_idle() -> None:
    together = threading.Barrier(4)
    threads = Threads(4)
    for _ in range(4):
        threads.queue.put(lambda: together.wait(10) and None)
    wait_until(lambda: len(threads.did) == 4, 10, "four jobs")
    threads.end()


def test_a_thread_that_takes_another_job_passes_its_wake_up_on() -> None:
    """A thread is about to wait when two jobs come: it does the first, and the wake-up for the second was its own."""
    queue, goes_on = JobQueue(), threading.Event()
    did: list[str] = []

    def work(name: str) -> None:
        job = queue.get()
        did.append(name)
        if job is not None:
            job()

    idle = threading.Thread(target=work, args=["idle"])
    idle.start()
    wait_until(lambda: len(queue._idle) == 1, 10, "an idle thread")

    class Late(list[Any]):
        """Two jobs come as soon as the second thread is in the list."""

        def append(self, lock: Any) -> None:
            super().append(lock)
            queue._jobs.append(lambda: goes_on.wait(10) and None)  # put before: it has woken no thread
            queue.put(nothing)

    queue._idle = Late(queue._idle)
    busy = threading.Thread(target=work, args=["busy"])
    busy.start()
    wait_until(lambda: len(did) == 2, 10, "the second job, done by the other thread")
    goes_on.set()
    join_all((idle, busy))


def test_no_job_is_left_behind_however_many_come_and_go() -> None:
    threads, count = Threads(3), examples(2000)
    done = threading.Semaphore(0)

    def put() -> None:
        for _ in range(count):
            threads.queue.put(done.release)

    producers = [threading.Thread(target=put) for _ in range(3)]
    for producer in producers:
        producer.start()
    for _ in range(3 * count):
        assert done.acquire(timeout=10)
    join_all(producers)
    threads.wait_idle(3)
    assert threads.queue.is_empty()
    threads.end()


def test_what_was_dropped_is_not_done() -> None:
    queue = JobQueue()
    did: list[int] = []
    job: Job = lambda: did.append(1)  # noqa: E731
    queue.put(job)
    queue.clear()
    queue.put(None)
    assert queue.get() is None
    assert did == []
