"""Celery's prefork pool, except that a child that dies while the worker starts is replaced.

Celery ends a worker of which any child has died before the first connection to the broker: it takes that for a child
that cannot start. A child that was killed, e.g. for its memory, is not a reason to end the others. Children that die
again and again still end the worker: billiard limits how often it starts them.
"""

from __future__ import annotations

from celery.concurrency.prefork import TaskPool


class ReplacingPreforkPool(TaskPool):  # type: ignore[misc]
    def did_start_ok(self) -> bool:
        """The event loop sees the end of a child, and starts another."""
        return True
