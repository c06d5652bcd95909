"""Who watches attempts: Celery's task events, for those that went on in place and so are no task of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

Report = Callable[[str, dict[str, Any] | None], None]


class AttemptObserver(Protocol):
    def attempt(self, workflow: str, run_id: str, path: str, attempt: int, lost: int) -> AbstractContextManager[Report]:
        """Around one attempt; the body reports its verdict and error."""


class NoObserver:
    @contextmanager
    def attempt(self, workflow: str, run_id: str, path: str, attempt: int, lost: int) -> Iterator[Report]:
        yield lambda what, error: None


#: What happened in this process since it started: messages, garbage, parked.
counters: Counter[str] = Counter()
