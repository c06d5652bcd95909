"""Brings what attempts log to the store while they still run: one thread per process, and only while something waits.

A quick step never meets it: its entries are stored in one go at its end, by the attempt's own thread. Nothing here may
cost an attempt its outcome: what cannot be stored is in the process log.
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

#: Entries wait for at most this many seconds, or until there are so many of them.
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
        """Called by a log: its first entry begins to wait, and a whole batch waits no longer."""
        if waiting == 1 or waiting % BATCH == 0:
            self._register(written, urgent=waiting >= BATCH)

    def finish(self, ended: StepLog, outage: OutageRetry) -> None:
        """The last of an attempt, before its outcome is committed."""
        ended.end()
        if not ended.waiting:
            return
        try:
            outage.keep(lambda: ended.store(self._append))
        except Exception:
            log.exception("%d log entries could not be stored", ended.give_up())

    def flush(self) -> None:
        """Store whatever waits, now."""
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
                log.warning("log entries wait for the database: %s", error)
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
        """Called in the middle of a step, which must not fail for it: without the thread, its end stores all."""
        thread = threading.Thread(target=self._run, name="rival-logs", daemon=True)
        with contextlib.suppress(RuntimeError):
            thread.start()
            self._thread = thread

    def _run(self) -> None:
        while self._waited():
            self.flush()

    def _waited(self) -> bool:
        """After the interval, or when a batch is full. False: nothing has come, and the thread may end."""
        with self._changed:
            self._changed.wait_for(lambda: self._urgent, self._interval)
            if not self._waiting:
                self._thread = None
            return self._thread is not None
