"""Keeps one row that cannot be handled from stopping the keeper's round: its error is logged once, with its run, and it
is tried again less and less often. A database that cannot be used is no row's fault, and ends the round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from rival_client.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable

log = logging.getLogger("rival.keeper")

T = TypeVar("T")

#: Seconds before a failed item is tried again: at first, and at the most.
_FIRST_PAUSE, _LONGEST_PAUSE = 5.0, 600.0
#: Items that are remembered; with more, the oldest are forgotten and logged again.
_MOST = 10_000


class FailingItems:
    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        #: Item -> (when it may be tried again, the pause before that).
        self._failed: dict[tuple[str, ...], tuple[float, float]] = {}
        #: Called when the database has refused a statement.
        self.on_refusal: Callable[[], None] = lambda: None

    def attempt(
        self, what: str, item: tuple[str, ...], operation: Callable[[], T], longest: float = _LONGEST_PAUSE
    ) -> T | None:
        """What the operation gives; None if it fails, or has failed lately. `item`: the run's id, and what of it."""
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
            log.error("keeper: cannot %s %s; everything else goes on", key[0], " ".join(key[1:]), exc_info=error)
        if isinstance(error, DatabaseError):
            self.on_refusal()
        self._failed.pop(key, None)
        self._failed[key] = (self._clock() + pause, pause)
        if len(self._failed) > _MOST:
            del self._failed[next(iter(self._failed))]
