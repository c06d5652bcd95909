"""`record`: a dataclass for values that are made for each step. Type checkers treat it as frozen.

At run time it is not frozen: a frozen dataclass sets each field through `object.__setattr__`, which takes six times as
long, and a step makes a dozen values. The records that users receive are frozen dataclasses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

__all__ = ["record"]

if TYPE_CHECKING:
    from dataclasses import dataclass as record
else:
    from dataclasses import dataclass

    T = TypeVar("T")

    def record(*, frozen: bool) -> Callable[[type[T]], type[T]]:
        assert frozen, "a record is frozen for type checkers"
        return dataclass(unsafe_hash=True)
