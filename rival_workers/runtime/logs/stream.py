"""Stores the log entries of running attempts in batches: one thread per process, which runs only while entries wait.

The entries of a quick step are stored at its end by the attempt's own thread. Errors here never change an outcome:
entries that cannot be stored are in the process log.
"""

from __future__ import annotations

import contextlib
import logging
import threading

from rival_client.errors import DatabaseError, DatabaseRefused
from rival_workers.runtime.attempt.outage import OutageRetry
from rival_workers.runtime.logs.redaction import Redaction
from rival_workers.runtime.logs.step_log import Append, StepLog

log = logging.getLogger("rival.logs")

#: Entries are stored after this many seconds, or when BATCH of them wait.
INTERVAL = 1.0
BATCH = 100


class LogStream:
    def __init__(self, append: Append, redaction: Redaction, interval: float = INTERVAL) -> None:
        self._append, self._redaction, self._interval = append, redaction, interval
        self._changed = threading.Condition()
        self._waiting: set[StepLog] = set()
        self._urgent = False
        self._thread: threading.Thread | None = None

    def open(self, run_id: str, workflow: str, path: str, attempt: int) -> StepLog:
        return StepLog(run_id, workflow, path, attempt, redaction=self._redaction, listener=self)

    def written(self, written: StepLog, waiting: int) -> None:
        """Called by a log for each entry. The first waiting entry registers the log; a full batch wakes the thread."""
        if waiting == 1 or waiting % BATCH == 0:
            self._register(written, urgent=waiting >= BATCH)

    def finish(self, ended: StepLog, outage: OutageRetry) -> None:
        """Store the last entries of an attempt, before its outcome is committed."""
        ended.end()
        if not ended.waiting:
            return
        try:
            outage.keep(lambda: ended.store(self._append))
        except Exception:
            log.exception("%d log entries could not be stored", ended.give_up())

    def flush(self) -> None:
        """Store all waiting entries now."""
        with self._changed:
            waiting, self._waiting, self._urgent = self._waiting, set(), False
        for one in waiting:
            self._store(one)

    def _store(self, one: StepLog) -> None:
        try:
            one.store(self._append, wait=False)
        except DatabaseError as error:
            if isinstance(error, DatabaseRefused) and error.about_values:
                log.exception("%d log entries could not be stored", one.give_up())
            else:
                log.warning("log entries are kept until the database is back: %s", error)
        except Exception:
            log.exception("%d log entries could not be stored", one.give_up())
        if one.waiting:
            self._register(one)

    # -- the thread ---------------------------------------------------------------------------------------

    def _register(self, one: StepLog, urgent: bool = False) -> None:
        with self._changed:
            self._waiting.add(one)
            if self._thread is None:
                self._start()
            if urgent:
                self._urgent = True
                self._changed.notify()

    def _start(self) -> None:
        """Called in the middle of a step, which must not fail: without the thread, entries are stored at its end."""
        thread = threading.Thread(target=self._run, name="rival-logs", daemon=True)
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        while self._waited():
            self.flush()

    def _waited(self) -> bool:
        """Waits for the interval, or until a batch is full. Returns False if no entries wait: the thread ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._urgent, self._interval)
            if not self._waiting:
                self._thread = None
            return self._thread is not None
