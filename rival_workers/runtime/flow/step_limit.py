"""The time limit of one step of a flow: its timeout, and the time since its last heartbeat."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rival_client.model.step_config import StepConfig, shortest
from rival_workers.engine.heartbeat_limits import HeartbeatState, timeout_error
from rival_workers.runtime.attempt.timers import Timer

_current: ContextVar[FlowStepLimit | None] = ContextVar("rival_flow_step_limit", default=None)


class FlowStepLimit:
    """A flow's step has no row while it runs, so its heartbeats are kept here."""

    def __init__(self, config: StepConfig, clock: Callable[[], float]) -> None:
        self.config, self._clock = config, clock
        self._began = self._last = clock()
        self.timer: Timer | None = None

    @contextmanager
    def is_current(self) -> Iterator[None]:
        """Heartbeats within the block are those of this step."""
        before = _current.set(self)
        try:
            yield
        finally:
            _current.reset(before)

    def beat(self) -> None:
        self._last = self._clock()
        if self.timer is not None and self.config.heartbeat is not None:
            self.timer.put_off(self._limit() - self._last)

    def error(self, attempt: int) -> dict[str, Any]:
        """The error of the step when its time is up."""
        return timeout_error(self.config, attempt, self._pulse())

    def _limit(self) -> float:
        config = self.config
        ends = (
            None if config.timeout is None else self._began + config.timeout,
            None if config.heartbeat is None else self._last + config.heartbeat,
        )
        return shortest(*ends) or self._began

    def _pulse(self) -> HeartbeatState:
        now, here = dt.datetime.now(dt.UTC), self._clock()
        last, limit = (now + dt.timedelta(seconds=at - here) for at in (self._last, self._limit()))
        return HeartbeatState(last, limit, now, beaten=self._last > self._began)


def beat() -> None:
    """A heartbeat of the step that runs in this context, if there is one."""
    limit = _current.get()
    if limit is not None:
        limit.beat()
