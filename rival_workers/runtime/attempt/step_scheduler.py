"""Runs the steps of many runs in turn on one thread, and commits their outcomes together when nothing is left to run.

A run in hand is a generator that yields each commit and continues with its answer (`Commits`), on any thread. One
thread resumes whatever is ready; when nothing is, it commits all that waits, in one transaction, which claims what
follows. A lone run is committed at once. A step that is known to be slow, or turns out to be, keeps its thread, and
another thread continues with the other runs: a slow step delays only its own run. There are as many threads as runs in
hand, so one is always free.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any

from rival_client.broker.doorbell import Doorbell
from rival_client.errors import DatabaseError
from rival_workers.engine.paths import place_of
from rival_workers.runtime.attempt.job_queue import Job, JobQueue
from rival_workers.runtime.attempt.runs_in_hand import Commits, Durations, RunInHand
from rival_workers.runtime.failpoints import failpoint
from rival_workers.store.claim_records import BeginResult, Delivered, FinishResult
from rival_workers.store.group_commits import ALONE, Commit, FinishStep
from rival_workers.store.interface import Store

log = logging.getLogger("rival.scheduler")

#: Seconds. Other runs do not wait for a step that has run for longer.
PATIENCE = 0.004
#: The most commits in one transaction.
MAX_GROUP = 64
#: The end of a run. `is_announced`: its run-end notification is published together with others.
_PLAIN_END = FinishResult(run_ended=True)
_ENDED = FinishResult(run_ended=True, is_announced=True)
#: Answers that may contain the next step of the run.
_CLAIMING = (FinishResult, Delivered)


class SchedulerThread:
    """What one thread does now."""

    __slots__ = ("is_slow", "since")

    def __init__(self) -> None:
        #: When it has begun to run a step; None: it does not.
        self.since: float | None = None
        #: Other runs do not wait for it.
        self.is_slow = False


class StepScheduler:
    def __init__(self, store: Store, doorbell: Doorbell, size: int) -> None:
        """`size`: the number of threads, and of runs in hand."""
        self._store, self._doorbell, self.size = store, doorbell, size
        self._ready: deque[RunInHand] = deque()
        self._waiting: deque[RunInHand] = deque()
        #: Other work of the threads. None: look for runs.
        self._jobs = JobQueue()
        self._lock, self._commit_lock = threading.Lock(), threading.Lock()
        #: Threads that look for runs, or run a step that is not slow.
        self._active = 0
        self._durations = Durations()
        self._threads: set[SchedulerThread] = set()
        self._watch_needed = threading.Event()
        self._is_ending, self._over, self._ended = False, 0, threading.Event()
        self.in_hand, self._has_left = 0, False
        #: Called when a run is not in hand any more, or a job is done.
        self.when_free: Job = lambda: None

    # -- taking -------------------------------------------------------------------------------------------

    def add(self, run: RunInHand) -> None:
        """Take a run in hand. The caller has checked that there is room."""
        with self._lock:
            self.in_hand += 1
        self._ready.append(run)
        self._watch()
        self._wake()

    def add_job(self, job: Job) -> None:
        self._jobs.put(job)

    def drop_jobs(self) -> None:
        self._jobs.clear()

    # -- the threads --------------------------------------------------------------------------------------

    def work(self) -> None:
        """The body of each thread."""
        own = SchedulerThread()
        with self._lock:
            self._threads.add(own)
            self._active += 1
        while True:
            run = self._next_ready()
            if run is not None:
                self._resume(run, own)
                continue
            self._report_room()
            if not self._commit() and not self._do_job():
                return

    def _next_ready(self) -> RunInHand | None:
        # User code does not run in this `except`: its tracebacks would begin with the IndexError.
        try:
            return self._ready.popleft()
        except IndexError:
            return None

    def end(self, threads: int, over: int = 0) -> None:
        """The threads end as soon as no run is in hand, except so many whose attempts do not count any more."""
        self._is_ending, self._over = True, over
        for _ in range(threads):
            self._jobs.put(None)

    def _wake(self) -> None:
        """See to it that one thread looks for runs."""
        if self._active <= 0 and self._jobs.is_empty():
            self._jobs.put(None)

    def _do_job(self) -> bool:
        """Wait for a job and do it. False: the thread ends."""
        with self._lock:
            self._active -= 1
        # A run that was added before `_active` became lower has woken no other thread.
        if self._ready or (self._waiting and not self._commit_lock.locked()):
            job = None
        elif self._is_ending and self.in_hand <= self._over:
            self._jobs.put(None)
            return False
        else:
            job = self._jobs.get()
        if job is not None:
            if self._ready or self._waiting:
                self._wake()
            job()
            self.when_free()
        with self._lock:
            self._active += 1
        return True

    # -- running ------------------------------------------------------------------------------------------

    def _resume(self, run: RunInHand, own: SchedulerThread) -> None:
        place, began = run.place, time.monotonic()
        own.since = began
        if self._durations.is_slow(run):
            self._mark_slow(own, began)
        else:
            self._watch()
        try:
            if not self._continue(run, own):
                self._leave()
        finally:
            with self._lock:
                own.since = None
                self._active += own.is_slow
                own.is_slow = False
            self._durations.add(run, place, time.monotonic() - began)

    def _mark_slow(self, thread: SchedulerThread, since: float) -> None:
        """Other runs do not wait for the step that the thread runs since then."""
        with self._lock:
            if thread.is_slow or thread.since != since:
                return
            thread.is_slow = True
            self._active -= 1
        self._report_room()
        if self._ready or self._waiting:
            self._wake()

    def _continue(self, run: RunInHand, own: SchedulerThread) -> bool:
        """Run until the next commit that others can join. False: the run has left."""
        try:
            if run.answer is ALONE and run.commit is not None:
                commit = self._alone(run.commits, run.commit, own)
            elif run.error is not None:
                error, run.error = run.error, None
                commit = run.commits.throw(error)
            else:
                commit = run.commits.send(run.answer)
            while not self._store.can_group(commit):
                commit = self._alone(run.commits, commit, own)
        except StopIteration:
            return False
        except DatabaseError as error:
            log.error("%s was not started, the keeper publishes its message again: %s", run, error)
            return False
        except BaseException:
            log.exception("%s has left without an outcome", run)
            return False
        run.commit = commit
        self._waiting.append(run)
        return True

    def _alone(self, commits: Commits[Any], commit: Commit, own: SchedulerThread) -> Commit:
        # A commit waits for the disk, and other runs do not wait for it: steps with limits make all theirs alone.
        if own.since is not None:
            self._mark_slow(own, own.since)
        try:
            answer = commit.apply(self._store)
        except BaseException as error:
            # Thrown after this `except`, so that the error is not the context of what the next steps raise.
            failed = error
        else:
            return commits.send(answer)
        return commits.throw(failed)

    def _leave(self) -> None:
        with self._lock:
            self.in_hand -= 1
        self._has_left = True

    def _report_room(self) -> None:
        """Once for all runs that have left together: each call wakes the thread that takes messages."""
        if self._has_left:
            self._has_left = False
            self.when_free()

    # -- committing ---------------------------------------------------------------------------------------

    def _commit(self) -> bool:
        """Commit all that waits, if no other thread does so. False: there was nothing to do."""
        if not self._waiting or not self._commit_lock.acquire(blocking=False):
            return False
        try:
            group = self._take_waiting()
            if group:
                self._commit_group(group)
                self._ready.extend(group)
        finally:
            self._commit_lock.release()
        return True

    def _take_waiting(self) -> list[RunInHand]:
        group: list[RunInHand] = []
        with suppress(IndexError):
            while len(group) < MAX_GROUP:
                group.append(self._waiting.popleft())
        return group

    def _commit_group(self, group: list[RunInHand]) -> None:
        commits = [run.commit for run in group if run.commit is not None]
        try:
            # The other runs wait for this commit, so it must not wait for another transaction.
            if len(group) == 1 and not self._store.may_wait(commits[0]):
                answers = [commits[0].apply(self._store)]
            else:
                answers = self._store.commit_group(commits)
        except BaseException as error:
            # Each run finds out by its token whether its own commit was made.
            for run in group:
                run.answer, run.error = None, error
            return
        if any(isinstance(commit, FinishStep) for commit in commits):
            failpoint("after_finish_commit")
        ended = []
        for run, commit, answer in zip(group, commits, answers, strict=True):
            run.answer, run.place = answer, _next_place(answer)
            if isinstance(answer, Delivered) and answer.claimed is not None:
                run.workflow = (answer.workflow, answer.version)
            is_end = isinstance(answer, FinishResult) and answer.run_ended
            if is_end and answer == _PLAIN_END and isinstance(commit, FinishStep):
                run.answer = _ENDED
                ended.append(commit.claim.run_id)
        if ended:
            self._doorbell.publish([], changed=ended)

    # -- the watch ----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Start to look for a slow step, if other runs wait for it. A lone run is not watched, since waking a thread
        costs more than a quick step; the next run that is added starts the watch."""
        if self.in_hand > 1 and not self._watch_needed.is_set():
            self._watch_needed.set()

    def watch(self) -> None:
        """The body of the thread that notices steps that are slower than they used to be."""
        while True:
            self._watch_needed.wait()
            self._watch_needed.clear()
            self._ended.wait(PATIENCE)
            self.look_for_slow(time.monotonic() - PATIENCE)

    def look_for_slow(self, before: float) -> None:
        """Other threads continue with the other runs if a step has run since before that moment."""
        for one in tuple(self._threads):
            since = one.since
            if since is None or one.is_slow:
                continue
            if since < before:
                self._mark_slow(one, since)
            else:
                self._watch()


def _next_place(answer: Any) -> str | None:
    finished = answer.finished if isinstance(answer, BeginResult) else answer
    claimed = finished.claimed if isinstance(finished, _CLAIMING) else None
    return "" if claimed is None else place_of(claimed.path)
