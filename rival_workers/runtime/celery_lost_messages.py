"""Publishes again what was lost with a killed child of a prefork pool.

Messages are acknowledged early, so one that the parent has given to a child is gone with it. The pool itself reports
such a message ten seconds later. What the child had claimed is taken over as of any dead executor; this is about what
it had not claimed yet. A message that was not lost after all is published twice, which its token makes harmless.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from celery.worker import state

from rival_client.doorbell import Doorbell
from rival_client.message import ATTEMPT_TASK, EVENT_TASK, RUN_TASK, AnyRing
from rival_workers.runtime.untrusted_messages import Garbage, read_call

log = logging.getLogger("rival.worker")

_OURS = (RUN_TASK, ATTEMPT_TASK, EVENT_TASK)


class LostMessages:
    def __init__(self, consumer: Any, doorbell: Doorbell) -> None:
        self._consumer, self._doorbell = consumer, doorbell
        self._children: set[int] = set()

    def republish(self) -> None:
        """To be called in the parent, often."""
        before, self._children = self._children, self._living()
        gone = before - self._children
        if not gone:
            return
        rings = list(_with(gone))
        if rings:
            log.info("%d message(s) may be lost with process %s: published again", len(rings), _listed(gone))
            self._doorbell.ring(rings)

    def _living(self) -> set[int]:
        pool = getattr(self._consumer.pool, "_pool", None)
        return {process.pid for process in getattr(pool, "_pool", [])}


def _with(gone: set[int]) -> Iterator[AnyRing]:
    """Of messages that a child which is gone had begun with, and of those that no child has confirmed yet."""
    for request in list(state.reserved_requests):
        if request.name in _OURS and (request.worker_pid is None or request.worker_pid in gone):
            with suppress(Garbage):
                yield read_call(request.name, [list(request.args), dict(request.kwargs), {}], {})


def _listed(pids: set[int]) -> str:
    return ", ".join(map(str, sorted(pids)))
