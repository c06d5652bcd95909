"""A client call that outlasts faults, as a careful user writes it: again until it is accepted, with the same ids."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from rival_client import NotPossible, RivalError, RunConflict, RunNotFound

T = TypeVar("T")

#: Answers, not faults: to ask again would not change them.
ANSWERS = (NotPossible, RunConflict, RunNotFound)


class PersistentCalls:
    """Counts what clients were refused, and every exception that is not of Rival's hierarchy."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        #: Exceptions that a client must not see, with an example of each.
        self.raw: Counter[str] = Counter()
        self.examples: dict[str, str] = {}
        self._lock = threading.Lock()

    def call(self, operation: Callable[[], T]) -> T:
        while True:
            try:
                return operation()
            except ANSWERS:
                raise
            except Exception as error:
                self._note(error)
            time.sleep(0.3)

    def _note(self, error: Exception) -> None:
        name = type(error).__name__
        with self._lock:
            if isinstance(error, RivalError):
                self.refused[name] += 1
            else:
                self.raw[name] += 1
                self.examples.setdefault(name, str(error)[:400])
