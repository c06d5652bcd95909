"""What a process runs, as it knows it itself, and which rows of the table are strays: running there and not here.

The order of events makes one look enough. A claim is in flight before its row can be running, and its attempt is held
before the claim ceases to be in flight. A row that was read as running before this process looked at what it holds is
a stray if it is not held, and no claim is left that was in flight when the row was first seen.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rival_workers.store.interface import Claim, RunningAttempt


class RunningAttempts:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._local = threading.local()
        #: What each message that is being carried out holds.
        self._messages: dict[object, set[Claim]] = {}
        self._claims: set[object] = set()
        #: Rows that are not held, with the claims that may be theirs.
        self._suspects: dict[Claim, set[object]] = {}

    @contextmanager
    def message(self) -> Iterator[None]:
        """What is held within the block is let go at its end at the latest, whatever happens."""
        mine, before = object(), getattr(self._local, "message", None)
        with self._lock:
            self._messages[mine] = set()
        self._local.message = mine
        try:
            yield
        finally:
            self._local.message = before
            with self._lock:
                del self._messages[mine]

    def hold(self, claim: Claim) -> None:
        """Within a message: from now on, until its outcome is committed or handed back, this process runs it."""
        with self._lock:
            self._messages[self._local.message].add(claim)

    def let_go(self, claim: Claim) -> None:
        with self._lock:
            self._messages[self._local.message].discard(claim)

    @contextmanager
    def claim_in_flight(self) -> Iterator[None]:
        mark = object()
        with self._lock:
            self._claims.add(mark)
        try:
            yield
        finally:
            with self._lock:
                self._claims.discard(mark)

    @property
    def claims(self) -> int:
        """How many claims are in flight."""
        return len(self._claims)

    @property
    def all(self) -> set[Claim]:
        with self._lock:
            return set().union(*self._messages.values())

    def strays(self, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        """Those of the rows (just read) that this process does not run."""
        with self._lock:
            claim = set().union(*self._messages.values())
            unknown = {one.claim: one for one in running if one.claim not in claim}
            claims = set(self._claims)
            self._suspects = {one: self._suspects.get(one, claims) & claims for one in unknown}
            return [one for where, one in unknown.items() if not self._suspects[where]]
