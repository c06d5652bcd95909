"""Counters of this process, and the observer of attempts that run in place, without a Celery task of their own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Protocol

Report = Callable[[str, dict[str, Any] | None], None]


class AttemptObserver(Protocol):
    def attempt(self, workflow: str, run_id: str, path: str, attempt: int, lost: int) -> Report:
        """One attempt begins; the caller reports its verdict and error."""


def no_report(what: str, error: dict[str, Any] | None) -> None:
    """The observer of attempts that are not observed: it does nothing."""


class NoObserver:
    def attempt(self, workflow: str, run_id: str, path: str, attempt: int, lost: int) -> Report:
        return no_report


#: Counts since the start of this process: messages, garbage, parked, mismatched.
counters: Counter[str] = Counter()
