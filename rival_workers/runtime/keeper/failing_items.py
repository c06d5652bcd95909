"""Isolates failures of single rows in a keeper's round. The first error of a row is logged with its run; the row is
tried again with growing pauses. An unavailable database is not a failure of a row: it ends the round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from rival_client.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable

log = logging.getLogger("rival.keeper")

T = TypeVar("T")

#: The first and the longest pause, in seconds, before a failed item is tried again.
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 600.0
#: The number of failed items that are kept. Beyond it, the oldest is dropped, and logged again when it fails again.
_MOST = 10_000


class FailingItems:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: Item -> (earliest time of the next try, the pause before it).
        self._failed: dict[tuple[str, ...], tuple[float, float]] = {}
        #: Called when the database refuses a statement.
        self.on_refusal: Callable[[], None] = lambda: None

    def attempt(
        self, what: str, item: tuple[str, ...], operation: Callable[[], T], longest: float = _LONGEST_PAUSE
    ) -> T | None:
        """Returns the operation's result, or None if it fails or is paused. `item`: the run id and path."""
        key = (what, *item)
        again_at, pause = self._failed.get(key, (0.0, 0.0))
        if self._clock() < again_at:
            return None
        try:
            done = operation()
        except (DatabaseUnavailable, DatabaseBusy):
            raise
        except Exception as error:
            self._note(key, min(max(_FIRST_PAUSE, pause * 2), longest), pause == 0, error)
            return None
        self._failed.pop(key, None)
        return done

    def _note(self, key: tuple[str, ...], pause: float, is_first: bool, error: Exception) -> None:
        if is_first:
            log.error("keeper: cannot %s %s; other items continue", key[0], " ".join(key[1:]), exc_info=error)
        if isinstance(error, DatabaseError):
            self.on_refusal()
        self._failed.pop(key, None)
        self._failed[key] = (self._clock() + pause, pause)
        if len(self._failed) > _MOST:
            del self._failed[next(iter(self._failed))]
