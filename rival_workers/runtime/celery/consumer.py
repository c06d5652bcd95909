"""Celery's consumer, but no message can end its loop: what cannot be handled is logged in one line and thrown away.

Celery's own lets unexpected errors through to the loop, which ends the worker with the message unacknowledged, and
reports garbage with its whole contents.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from celery import signals
from celery.worker.consumer import Consumer

from rival_workers.runtime.celery.untrusted_messages import reason, report_garbage


class ValidatingConsumer(Consumer):  # type: ignore[misc]
    def create_task_handler(self, **kwargs: Any) -> Callable[[Any], None]:
        handle = super().create_task_handler(**kwargs)

        def on_task_received(message: Any) -> None:
            try:
                handle(message)
            except self.connection_errors:
                raise
            except Exception as error:
                report_garbage(reason(error))
                self.discard(message, error)

        return on_task_received

    def update_strategies(self) -> None:
        """An app of Rival's own takes Rival's messages only, and not those for Celery's built-in tasks or for shared
        tasks that a workflow file has brought along.
        """
        super().update_strategies()
        own = getattr(self.app, "only_tasks", self.strategies)
        for name in self.strategies.keys() - own:
            del self.strategies[name]

    def on_unknown_message(self, body: Any, message: Any) -> None:
        report_garbage("a message without a task")
        self.discard(message)

    def on_unknown_task(self, body: Any, message: Any, exc: BaseException) -> None:
        report_garbage(f"an unknown task {str(message.headers.get('task'))[:100]!r}")
        self.discard(message, exc)

    def on_invalid_task(self, body: Any, message: Any, exc: BaseException) -> None:
        """The strategy has logged it."""
        self.discard(message, exc)

    def on_decode_error(self, message: Any, exc: BaseException) -> None:
        report_garbage(reason(exc))
        self.discard(message, exc)

    def discard(self, message: Any, error: BaseException | None = None) -> None:
        """Unless it is acknowledged or rejected it counts as being worked on, and enough of them silence a worker."""
        with suppress(*self.connection_errors):
            if not message.acknowledged:
                message.reject()
        signals.task_rejected.send(sender=self, message=message, exc=error)


class FastReconnectConsumer(ValidatingConsumer):
    """Comes back to a returning broker within half a second, where Celery's own steps go 2, 4, 6 … 30 s."""

    def ensure_connected(self, conn: Any) -> Any:
        conn.ensure_connection = partial(
            conn.ensure_connection, interval_start=0.5, interval_step=0.5, interval_max=2.0
        )
        return super().ensure_connected(conn)
