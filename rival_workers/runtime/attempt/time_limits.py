"""Time limits and heartbeats of the attempts that this process runs: a timer per attempt, which a heartbeat postpones.

A step that exceeds its limit continues without its run. With `kill_on_timeout`, its process is killed instead; this
requires a process that runs one attempt at a time (prefork).
"""

from __future__ import annotations

import faulthandler
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from typing import Any

from rival_client.errors import DatabaseError
from rival_client.model.payload import Json, dump
from rival_client.model.policies.step_config import StepConfig, shortest
from rival_client.model.step_records import Step
from rival_workers.errors import StepMovedOn
from rival_workers.runtime.attempt.timers import AttemptTimers, Timer, Timers
from rival_workers.runtime.flow.stop_signals import OutOfReach
from rival_workers.store.claim_records import Claim
from rival_workers.store.interface import Store

log = logging.getLogger("rival.heartbeats")

#: Seconds after its timeout at which the watchdog ends a process that cannot run its timer.
KILL_SLACK = 2.0
#: Seconds between two heartbeats that are written. Progress in between is kept for the next one.
EVERY = 0.3


class TimeLimits:
    def __init__(self, before_kill: Callable[[], None]) -> None:
        self._before_kill, self._watchdog = before_kill, _Watchdog()
        #: The testing kit replaces the timers and the clocks: a monotonic one, and one of seconds since the epoch.
        self.timers: AttemptTimers = Timers()
        self.clock: Callable[[], float] = time.monotonic
        self.wall_clock: Callable[[], float] = time.time
        #: True if this process runs one attempt at a time, so that `kill_on_timeout` may kill it.
        self.may_kill = False

    @contextmanager
    def kept(self, config: StepConfig, when_over: Callable[[], bool], left: float | None = None) -> Iterator[Timer]:
        """Call `when_over` if the block takes too long. It returns False if the attempt has just ended. `left`: seconds
        until the deadline of the step."""
        kills = self.may_kill and config.kill_on_timeout
        within = config.timeout + KILL_SLACK if kills and config.timeout else None
        with self._limited(shortest(config.limit, left), kills, when_over) as timer, self._watchdog.watching(within):
            yield timer

    def until(
        self, left: float | None, config: StepConfig, when_over: Callable[[], bool]
    ) -> AbstractContextManager[Timer | None]:
        """Call `when_over` when the deadline of the run passes in the block. No time `left`: it has none."""
        if left is None:
            return nullcontext()
        return self._limited(left, self.may_kill and config.kill_on_timeout, when_over)

    @contextmanager
    def _limited(self, seconds: float | None, kills: bool, when_over: Callable[[], bool]) -> Iterator[Timer]:
        kill = _Kill(when_over, self._before_kill)
        over = kill.over if kills else lambda: _ignored(when_over())
        with self.timers.after(seconds, over) as timer:
            try:
                yield timer
            finally:
                kill.end()


def _ignored(_: bool) -> None:
    """Without a kill, it does not matter whether the timeout was applied."""


class _Kill:
    """Kills a process whose attempt takes too long, after the timeout is committed and published. An attempt that ends
    meanwhile waits for the kill: its process must not take another message that would be lost with it.
    """

    def __init__(self, when_over: Callable[[], bool], before_kill: Callable[[], None]) -> None:
        self._when_over, self._before_kill = when_over, before_kill
        self._lock = threading.Lock()
        self._ended = False

    def over(self) -> None:
        with self._lock:
            if not self._ended and self._when_over():
                self._before_kill()
                os.kill(os.getpid(), signal.SIGKILL)

    def end(self) -> None:
        with self._lock:
            self._ended = True


class _Watchdog:
    """Ends a process whose timers cannot run because a step holds the GIL. faulthandler's timer is written in C; a
    process has only one, so it is set to the earliest limit.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[object, float] = {}

    @contextmanager
    def watching(self, seconds: float | None) -> Iterator[None]:
        if seconds is None:
            yield
            return
        mine = object()
        self._set(mine, time.monotonic() + seconds)
        try:
            yield
        finally:
            self._set(mine, None)

    def _set(self, key: object, end: float | None) -> None:
        with self._lock:
            self._ends.pop(key, None)
            if end is not None:
                self._ends[key] = end
            if self._ends:
                faulthandler.dump_traceback_later(max(0.001, min(self._ends.values()) - time.monotonic()), exit=True)
            else:
                faulthandler.cancel_dump_traceback_later()


class Heartbeat:
    """`ctx.heartbeat()` of one attempt. It writes to the step's row a few times per second at most."""

    def __init__(
        self,
        claim: Claim,
        config: StepConfig,
        store: Store,
        clock: Callable[[], float],
        max_payload: int,
        before: Callable[[], Step | None] | None = None,
        *,
        has_row: bool = True,
    ) -> None:
        """`before` reads the step's row as earlier attempts have left it; None if there were none. Without a row of its
        own, as for an inline step after another one, progress is not written."""
        self._claim, self._config, self._store, self._clock = claim, config, store, clock
        self._max_payload, self._before, self._has_row = max_payload, before, has_row
        self._every = shortest(EVERY, None if config.heartbeat is None else config.heartbeat / 3) or EVERY
        self._written_at: float | None = None
        self._progress: Json | None = None
        #: The timer of the attempt's limit in this process.
        self.timer: Timer | None = None

    def beat(self, progress: Any = None) -> None:
        """Raises StepMovedOn when the step does not need this attempt any more."""
        if progress is not None:
            self._progress = dump(progress, what=f"the progress of {self._where}", limit=self._max_payload)
        if self._written_at is None or self._clock() - self._written_at >= self._every:
            self._write()

    @cached_property
    def last_progress(self) -> Any:
        """The last progress that the attempt before this one has reported."""
        step = None if self._before is None else self._before()
        return None if step is None else step.progress

    def flush(self) -> None:
        """At the end of the attempt: write progress that is not written yet."""
        if self._progress is not None:
            try:
                self._write()
            except StepMovedOn:
                log.debug("%s: its last progress came too late", self._where)

    def _write(self) -> None:
        progress = self._progress
        self._written_at = self._clock()
        if not self._has_row:
            return
        try:
            # Read it before it is overwritten.
            _ = self.last_progress
            beaten = self._store.beat_step(self._claim, self._config, progress)
        except (DatabaseError, OutOfReach):
            # During an outage the attempt continues; the next beat finds out whether the step has moved on.
            return
        if beaten is None:
            raise StepMovedOn(
                f"{self._where} has continued without this attempt: it was cancelled, has timed out, or was taken over"
            )
        self._progress = None if self._progress is progress else self._progress
        if self.timer is not None and beaten.left is not None:
            self.timer.put_off(beaten.left)

    @property
    def _where(self) -> str:
        return f"step {self._claim.path!r} of run {self._claim.run_id!r}"
