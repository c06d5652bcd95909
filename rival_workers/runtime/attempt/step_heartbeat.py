"""`ctx.heartbeat()`: an attempt's signs of life on their way to its row, a few per second at the most."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

from rival_client.errors import DatabaseError
from rival_client.model.payload import Json, dump
from rival_client.model.records import Step
from rival_workers.engine.plan import StepConfig, shortest
from rival_workers.errors import StepMovedOn
from rival_workers.runtime.attempt.timers import Timer
from rival_workers.runtime.flow.signals import OutOfReach
from rival_workers.store.interface import Claim, Store

log = logging.getLogger("rival.heartbeats")

#: Seconds between two beats that are written; those in between are remembered.
EVERY = 0.3


class Heartbeat:
    """The beats of one attempt."""

    def __init__(
        self, claim: Claim, config: StepConfig, store: Store, clock: Callable[[], float], max_payload: int,
        before: Callable[[], Step | None] | None = None,
    ) -> None:  # fmt: skip
        """`before` reads the step's row as earlier attempts have left it; None: there were none."""
        self._held, self._config, self._store, self._clock = claim, config, store, clock
        self._max_payload, self._before = max_payload, before
        self._every = shortest(EVERY, None if config.heartbeat is None else config.heartbeat / 3) or EVERY
        self._written_at: float | None = None
        self._progress: Json | None = None
        #: What the attempt's own process keeps its time by.
        self.timer: Timer | None = None

    def beat(self, progress: Any = None) -> None:
        """StepMovedOn when the step does not need this attempt any more."""
        if progress is not None:
            self._progress = dump(progress, what=f"the progress of {self._where}", limit=self._max_payload)
        if self._written_at is None or self._clock() - self._written_at >= self._every:
            self._write()

    @cached_property
    def last_progress(self) -> Any:
        """What the attempt before this one has told last."""
        step = None if self._before is None else self._before()
        return None if step is None else step.progress

    def flush(self) -> None:
        """The attempt is over: what it has told last is not lost."""
        if self._progress is not None:
            try:
                self._write()
            except StepMovedOn:
                log.debug("%s: its last progress came too late", self._where)

    def _write(self) -> None:
        progress = self._progress
        self._written_at = self._clock()
        try:
            # Before it is overwritten.
            _ = self.last_progress
            beaten = self._store.beat_step(self._held, self._config, progress)
        except (DatabaseError, OutOfReach):
            # While the database is away nobody knows better: the attempt goes on, and the next beat tells.
            return
        if beaten is None:
            raise StepMovedOn(
                f"{self._where} has gone on without this attempt: it was cancelled, has timed out, or was taken over"
            )
        self._progress = None if self._progress is progress else self._progress
        if self.timer is not None and beaten.left is not None:
            self.timer.put_off(beaten.left)

    @property
    def _where(self) -> str:
        return f"step {self._held.path!r} of run {self._held.run_id!r}"
