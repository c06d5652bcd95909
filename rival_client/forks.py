"""A child of a fork has the connections of its parent: if both used them, they would read each other's answers. So the
child drops them, without closing them, and opens its own. A server that loads its application before it forks, and
`multiprocessing`, can so use a client that was used before.
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class HasConnections(Protocol):
    def drop_connections(self) -> None:
        """In the child: leave the parent's connections alone, and its threads and locks, which are not there."""


_ALL: weakref.WeakSet[HasConnections] = weakref.WeakSet()


def drop_after_fork(owner: HasConnections) -> None:
    _ALL.add(owner)


def _drop_all() -> None:
    for owner in list(_ALL):
        owner.drop_connections()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_drop_all)
