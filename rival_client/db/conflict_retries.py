"""Repeats a transaction that has lost against another one: a deadlock, or a serialisation failure."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from functools import wraps
from inspect import isfunction
from typing import Any, TypeVar

from rival_client.errors import DatabaseBusy

T = TypeVar("T")
#: How often a transaction is tried that loses against others, and the longest pause before the next try.
CONFLICT_TRIES = 12
_CONFLICT_PAUSE = 0.4


def repeat_conflicts(operation: Callable[[], T]) -> T:
    """Repeat an operation that lost against another transaction (deadlock, serialization failure, lock timeout). Only
    for an operation that is one transaction: what lost was rolled back as a whole.
    """
    for tried in range(1, CONFLICT_TRIES):
        try:
            return operation()
        except DatabaseBusy:
            time.sleep(random.uniform(0, min(_CONFLICT_PAUSE, 0.01 * 2**tried)))
    return operation()


def repeating_conflicts(store: type[T]) -> type[T]:
    """Each public method is one operation in one transaction: repeat it when it lost against another transaction."""
    for name in dir(store):
        method = getattr(store, name)
        if not name.startswith("_") and isfunction(method):
            setattr(store, name, _repeated(method))
    return store


def _repeated(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def operation(*args: Any, **kwargs: Any) -> Any:
        return repeat_conflicts(lambda: method(*args, **kwargs))

    return operation
