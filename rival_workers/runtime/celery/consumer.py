"""Celery's consumer, request and task strategy for a worker that reads untrusted messages.

A message that cannot be handled never ends the consumer's loop: it is logged in one line and rejected. Celery's own
consumer lets unexpected errors end the worker with the message unacknowledged, and logs the contents of the message.
`untrusted_messages` has the rules; this module only calls them.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

from celery import signals
from celery.exceptions import InvalidTaskError
from celery.worker.consumer import Consumer
from celery.worker.request import Request
from celery.worker.strategy import default as default_strategy

from rival_workers.runtime.celery.untrusted_messages import reason, rebuild, report_garbage


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
        """Rival's own app accepts only Rival's tasks: not the built-in tasks of Celery, and not shared tasks that a
        workflow file imports.
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
        """Reject the message. Without that it stays unacknowledged, and enough of them fill the prefetch window."""
        with suppress(*self.connection_errors):
            if not message.acknowledged:
                message.reject()
        signals.task_rejected.send(sender=self, message=message, exc=error)


class FastReconnectConsumer(ValidatingConsumer):
    """Tries to reconnect after 0.5 s, then at least every two seconds; Celery's own pauses are 2, 4, 6 … 30 s."""

    def ensure_connected(self, conn: Any) -> Any:
        conn.ensure_connection = partial(
            conn.ensure_connection, interval_start=0.5, interval_step=0.5, interval_max=2.0
        )
        return super().ensure_connected(conn)


class AttemptRequest(Request):  # type: ignore[misc]
    """Ignores Celery's list of revoked ids, which would stop later attempts with the same id. `RevokeCommands` apply a
    revoke to the attempt that the database shows, and end its process after that.
    """

    def revoked(self) -> bool:
        return False

    def terminate(self, pool: Any, signal: Any = None) -> None:
        pass


def validating_strategy(task: Any, app: Any, consumer: Any, **options: Any) -> Any:
    """Builds each message again from its validated parts. A message that Rival has not written could end one worker
    after another, or set time limits and callbacks; here it becomes an invalid task, which the consumer rejects.
    """
    handle = default_strategy(task, app, consumer, **options)

    def strategy(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **kwargs: Any) -> Any:
        try:
            rebuild(message, task.name)
        except Exception as error:
            report_garbage(reason(error))
            # Celery's report of an invalid task needs a body with a length.
            message.body = b""
            raise InvalidTaskError("garbage in the queue") from None
        return handle(message, None, ack, reject, callbacks, **kwargs)

    return strategy
