"""Handles outages of the broker: skips it after a failure, and keeps messages that could not be published."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from rival_client.broker.message import AnyMessage
from rival_client.model.masking import masked

log = logging.getLogger("rival.doorbell")

#: After a failed publish, the broker is left alone for this long: a dead one must not slow every commit.
COOLDOWN_SECONDS = 1.0


class Cooldown:
    """Skips the broker for a moment after a failure, so that one dead broker costs one wait, not one per commit."""

    def __init__(self, seconds: float = COOLDOWN_SECONDS) -> None:
        self._seconds = seconds
        self._closed_from = 0.0

    def allows(self) -> bool:
        return time.monotonic() >= self._closed_from

    def failed(self) -> None:
        self._closed_from = time.monotonic() + self._seconds


class Missed:
    """Messages that could not be published, kept until the broker is back. Bounded: the keeper finds the other rows."""

    LIMIT = 1000

    def __init__(self) -> None:
        self._messages: deque[AnyMessage] = deque(maxlen=self.LIMIT)

    def keep(self, messages: Sequence[AnyMessage], url: str | None = None, error: Exception | None = None) -> None:
        """`error`: what the broker at `url` has raised now."""
        if error is not None:
            what = "the broker at %s did not take a message (%s); the keeper publishes it later"
            log.warning(what, masked(url or ""), type(error).__name__)
        # Without the countdown, which has elapsed in part: a worker publishes a message that is early again, for later.
        self._messages.extend(replace(message, countdown=0.0) for message in messages)

    def take(self) -> list[AnyMessage]:
        taken: list[AnyMessage] = []
        with contextlib.suppress(IndexError):
            while True:
                taken.append(self._messages.popleft())
        return taken


def catch_up(publish: Callable[[Sequence[AnyMessage]], bool], missed: Missed, lost_data: bool) -> bool:
    """Publishes what was missed, unless the broker has lost its data: then everything is published again."""
    kept = missed.take()
    if kept and not lost_data:
        publish(kept)
    return lost_data
