"""The rules of the fleet that this process follows. The keeper's first query of a round reads their version; the
children of a prefork pool have no keeper and compare a number in shared memory. No step costs a query.
"""

from __future__ import annotations

import logging
import mmap
import struct
import time
from collections.abc import Callable
from typing import Protocol

from rival_client.errors import DatabaseError
from rival_client.model.policies.rulebook import NO_RULES, Rulebook

log = logging.getLogger("rival.rules")

#: Seconds after a failed read before the next one; meanwhile the process uses the rules that it has.
READ_AGAIN = 1.0


class SharedNumber:
    """Eight bytes of shared memory that a parent sets and its forked children read."""

    def __init__(self) -> None:
        self._bytes = mmap.mmap(-1, 8)

    def set(self, number: int) -> None:
        struct.pack_into("<q", self._bytes, 0, number)

    def get(self) -> int:
        found: int = struct.unpack_from("<q", self._bytes, 0)[0]
        return found


class ReadsRules(Protocol):
    def read_rulebook(self) -> Rulebook: ...


class FleetRules:
    def __init__(self, store: ReadsRules) -> None:
        self._store = store
        self._book = NO_RULES
        #: Set by the worker's process, read by its children.
        self.shared: SharedNumber | None = None
        self.clock: Callable[[], float] = time.monotonic
        self._failed_at: float | None = None

    def current(self) -> Rulebook:
        """Called for each attempt, so it compares a number at most."""
        if self.shared is not None:
            self.follow(self.shared.get())
        return self._book

    def follow(self, number: int) -> None:
        """`number`: the version in the database."""
        if number != self._book.version and not self._has_just_failed():
            self.read()

    def read(self) -> None:
        """Read the rules. If the database is unavailable, the last rules stay."""
        try:
            self._book = self._store.read_rulebook()
            self._failed_at = None
        except DatabaseError as error:
            self._failed_at = self.clock()
            log.warning("cannot read the rules of the fleet; the last ones stay in effect: %s", error)
            return
        log.info("following version %d of the fleet's rules (%d rules)", self._book.version, len(self._book.rules))

    def publish(self) -> None:
        """Pass the version to the children of this process."""
        if self.shared is not None:
            self.shared.set(self._book.version)

    def _has_just_failed(self) -> bool:
        return self._failed_at is not None and self.clock() < self._failed_at + READ_AGAIN
