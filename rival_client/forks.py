"""Drops connections after a fork. A child process has the connections of its parent; if both used them, they would read
each other's answers. The child drops them without closing them, and opens its own.

So a server that loads its application before it forks, and `multiprocessing`, can use a client that was used before.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable

#: Connections of the parent. They are kept: one that is collected is closed, in the parent as well.
_OF_THE_PARENT: list[object] = []
_METHODS: set[weakref.WeakMethod[Callable[[], None]]] = set()


def call_after_fork(method: Callable[[], None]) -> None:
    """In the child. The method gives the connections of the parent to `leave_open`, and replaces threads and locks,
    since a fork copies no thread."""
    _METHODS.add(weakref.WeakMethod(method, _METHODS.discard))


def leave_open(connections: Iterable[object]) -> None:
    _OF_THE_PARENT.extend(connections)


def _call_all() -> None:
    for method in list(_METHODS):
        if (found := method()) is not None:
            found()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_call_all)
