"""Celery's remote commands `revoke` and `terminate` for Rival's tasks. A thread applies them to the database, since the
consumer's loop must not wait for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal as signals
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from celery import platforms
from celery.worker.control import Panel

from rival_client.errors import DatabaseError
from rival_workers.runtime.attempt.revokes import Revocations

log = logging.getLogger("rival.revoke")

#: The number of ids of one command that are applied.
MAX_IDS = 10_000

Order = tuple[str, bool, int]


class RevokeCommands:
    """`kills`: the pool runs one attempt per process, which `terminate` ends. `send_event` sends Celery events. `only`:
    the worker has no other tasks than Rival's.
    """

    def __init__(self, revocations: Revocations, send_event: Callable[..., None], *, kills: bool, only: bool) -> None:
        self._revocations, self._send_event, self._kills = revocations, send_event, kills
        self._orders: SimpleQueue[Order] = SimpleQueue()
        self._thread: threading.Thread | None = None
        #: Celery's own commands, for other tasks of the worker.
        self._others = {} if only else {name: Panel.data[name] for name in ("revoke", "terminate")}

    def install(self) -> None:
        """Replaces the commands of this process, which has one worker."""
        Panel.data["revoke"], Panel.data["terminate"] = self.revoke, self.terminate

    def revoke(self, state: Any, task_id: Any, terminate: bool = False, signal: Any = None, **kwargs: Any) -> Any:
        self._take(task_id, bool(terminate), signal)
        if "revoke" in self._others:
            return self._others["revoke"](state, task_id, terminate=terminate, signal=signal, **kwargs)
        return {"ok": "revoked, if it is an attempt that waits or runs: see the run's history"}

    def terminate(self, state: Any, signal: Any, task_id: Any, **kwargs: Any) -> Any:
        return self.revoke(state, task_id, terminate=True, signal=signal, **kwargs)

    def _take(self, task_id: Any, terminate: bool, signal: Any) -> None:
        number = _signal_number(signal)
        ids = task_id if isinstance(task_id, list | tuple | set) else [task_id]
        for one in list(ids)[:MAX_IDS]:
            if isinstance(one, str) and 0 < len(one) < 10_000 and "\x00" not in one:
                self._orders.put((one, terminate, number))
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="rival-revoke", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            order = self._orders.get()
            try:
                self._apply(*order)
            except DatabaseError as error:
                log.error("the revoke of task %s could not be applied, send it again: %s", order[0], error)
            except Exception:
                log.exception("the revoke of task %s could not be applied", order[0])

    def _apply(self, task_id: str, terminate: bool, number: int) -> None:
        done = self._revocations.revoke(task_id, terminate=terminate)
        if done is None:
            return
        if self._kills and done.pid is not None and done.pid != os.getpid():
            with contextlib.suppress(ProcessLookupError):
                os.kill(done.pid, number)
        with contextlib.suppress(Exception):
            self._send_event("task-revoked", uuid=task_id, terminated=terminate, signum=number, expired=False)


def _signal_number(name: Any) -> int:
    try:
        return int(platforms.signals.signum(name or "TERM"))
    except (AttributeError, TypeError, ValueError):
        return int(signals.SIGTERM)
