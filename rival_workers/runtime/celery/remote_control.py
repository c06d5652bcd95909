"""Celery's monitoring and remote control of attempts, as if each were a task: sends task events (Flower, `celery
events`), and applies the remote commands `revoke` and `terminate`. A thread applies them to the database, since the
consumer's loop must not wait for it.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import signal as signals
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from celery import Celery, platforms
from celery.worker.control import Panel

from rival_client.broker.message import attempt_id, step_label
from rival_client.broker.outages import Cooldown
from rival_client.errors import DatabaseError
from rival_workers.runtime.attempt.revokes import Revocations
from rival_workers.runtime.attempt.telemetry import Report, no_report

log = logging.getLogger("rival.revoke")

Send = Callable[..., None]
Order = tuple[str, bool, int]

#: Seconds without events after one that could not be sent: each would wait for the broker's timeout.
BREAK_SECONDS = 10.0
#: The number of ids of one command that are applied.
MAX_IDS = 10_000


class SharedSwitch:
    """One byte of shared memory that a parent sets and its forked children read."""

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    def set(self, on: bool) -> None:
        self._byte[0] = 1 if on else 0

    def __bool__(self) -> bool:
        return self._byte[0] == 1


def are_task_events_wanted(dispatcher: Any) -> bool:
    """Without `--events`, a dispatcher sends the heartbeats of its worker alone, until Flower or `celery control
    enable_events` asks for more. No groups means all."""
    is_enabled = dispatcher is not None and bool(dispatcher.enabled)
    return is_enabled and (not dispatcher.groups or "task" in dispatcher.groups)


class ConsumerEvents:
    """Sends through the worker's dispatcher in the same process (threads and solo pools)."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    @property
    def wanted(self) -> bool:
        return are_task_events_wanted(self._consumer.event_dispatcher)

    def send(self, kind: str, **fields: Any) -> None:
        dispatcher = self._consumer.event_dispatcher
        if dispatcher is not None:
            dispatcher.send(kind, **fields)


class ChildEvents:
    """Sends through a dispatcher of a prefork child, while its parent's switch says that events are wanted."""

    def __init__(self, app: Celery, hostname: str, switch: SharedSwitch) -> None:
        self._app, self._hostname, self._switch = app, hostname, switch
        self._dispatcher: Any = None

    @property
    def wanted(self) -> bool:
        return bool(self._switch)

    def send(self, kind: str, **fields: Any) -> None:
        if self._dispatcher is None:
            self._dispatcher = self._app.events.Dispatcher(
                self._app.connection_for_write(), hostname=self._hostname, buffer_while_offline=False
            )
        self._dispatcher.send(kind, **fields)


class AttemptEvents:
    """An AttemptObserver that sends Celery events."""

    def __init__(self, sink: ConsumerEvents | ChildEvents) -> None:
        self._sink = sink
        self._cooldown = Cooldown(BREAK_SECONDS)

    def attempt(self, workflow: str, run_id: str, path: str, attempt: int, lost: int) -> Report:
        if not self._sink.wanted or not self._cooldown.allows():
            return no_report
        task_id = attempt_id(run_id, path, attempt, lost)
        started = time.monotonic()
        arguments = {"args": f"(run={run_id!r}, step={path!r}, attempt={attempt})", "kwargs": "{}"}
        ids = {"uuid": task_id, "root_id": run_id, "parent_id": run_id}
        about = {"name": step_label(workflow, path), "retries": attempt - 1, "eta": None, "expires": None}
        self._send("task-received", **ids, **about, **arguments)
        self._send("task-started", uuid=task_id)

        def report(what: str, error: dict[str, Any] | None) -> None:
            runtime = time.monotonic() - started
            text = f"{error['type']}: {error['message']}" if error else what
            if what in ("completed", "skipped", "suspended"):
                self._send("task-succeeded", uuid=task_id, result=repr(what), runtime=runtime)
            elif what == "retried":
                self._send("task-retried", uuid=task_id, exception=text, traceback="")
            else:
                self._send("task-failed", uuid=task_id, exception=text, traceback=(error or {}).get("traceback", ""))

        return report

    def _send(self, kind: str, **fields: Any) -> None:
        if not self._cooldown.allows():
            return
        try:
            self._sink.send(kind, **fields)
        except Exception:
            # Events are only for monitoring: an error here must not affect the attempt.
            self._cooldown.failed()


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
