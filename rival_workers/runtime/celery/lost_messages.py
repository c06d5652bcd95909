"""Publishes again at once what was lost with a killed child of a prefork pool.

Messages are acknowledged early, so one that a child has taken is gone with it. What the child had claimed is taken over
as of any dead executor; this is about what it had not claimed yet, which would wait for the keeper. A message that was
not lost after all is published twice, which its token makes harmless.
"""

from __future__ import annotations

import logging
from typing import Any

from billiard.exceptions import WorkerLostError
from celery import signals

from rival_client.broker.doorbell import Doorbell
from rival_client.broker.message import ATTEMPT_TASK, EVENT_TASK, RUN_TASK
from rival_workers.runtime.celery.untrusted_messages import Garbage, read_call

log = logging.getLogger("rival.worker")

_OURS = (RUN_TASK, ATTEMPT_TASK, EVENT_TASK)


class LostMessages:
    """In the parent, which learns of a child's death from the pool."""

    def __init__(self, doorbell: Doorbell) -> None:
        self._doorbell = doorbell

    def watch(self) -> None:
        signals.task_failure.connect(self._on_failure, weak=False)

    def _on_failure(self, sender: Any, exception: Any, args: Any = (), kwargs: Any = None, **_: Any) -> None:
        if not isinstance(exception, WorkerLostError) or sender.name not in _OURS:
            return
        try:
            message = read_call(sender.name, [list(args), dict(kwargs or {}), {}], {})
        except Garbage:
            return
        log.info("a process was killed before the end of %s: its message is published again", sender.name)
        self._doorbell.publish([message])
