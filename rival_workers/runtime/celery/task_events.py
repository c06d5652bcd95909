"""Sends Celery task events (Flower, `celery events`) for attempts that run in place, as if each were a task."""

from __future__ import annotations

import mmap
import time
from collections.abc import Callable
from typing import Any

from celery import Celery

from rival_client.broker.message import attempt_id, step_label
from rival_client.broker.outages import Cooldown
from rival_workers.runtime.attempt.telemetry import Report, no_report

Send = Callable[..., None]

#: Seconds without events after one that could not be sent: each would wait for the broker's timeout.
BREAK_SECONDS = 10.0


class SharedSwitch:
    """One byte of shared memory that a parent sets and its forked children read."""

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)

    def set(self, on: bool) -> None:
        self._byte[0] = 1 if on else 0

    def __bool__(self) -> bool:
        return self._byte[0] == 1


class ConsumerEvents:
    """Sends through the worker's dispatcher in the same process (threads and solo pools)."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    @property
    def wanted(self) -> bool:
        dispatcher = self._consumer.event_dispatcher
        return dispatcher is not None and bool(dispatcher.enabled)

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
