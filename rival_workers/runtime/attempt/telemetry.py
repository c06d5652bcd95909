"""Counters of this process, and the observer of attempts that run in place, without a Celery task of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

Report = Callable[[str, dict[str, Any] | None], None]


class AttemptObserver(Protocol):
    def attempt(self, workflow: str, run_id: str, path: str, attempt: int, lost: int) -> AbstractContextManager[Report]:
        """Wraps one attempt; the body reports its verdict and error."""


class NoObserver:
    @contextmanager
    def attempt(self, workflow: str, run_id: str, path: str, attempt: int, lost: int) -> Iterator[Report]:
        yield lambda what, error: None


#: Counts since the start of this process: messages, garbage, parked, mismatched.
counters: Counter[str] = Counter()
