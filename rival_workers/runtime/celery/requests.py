"""How Celery's worker takes Rival's messages: each is read as untrusted and built again before Celery sees it."""

from __future__ import annotations

from typing import Any

from celery.exceptions import InvalidTaskError
from celery.worker.request import Request
from celery.worker.strategy import default as default_strategy

from rival_workers.runtime.celery.untrusted_messages import reason, rebuild, report_garbage


class AttemptRequest(Request):  # type: ignore[misc]
    """A worker's memory of revoked ids must not stop a later attempt with the same id: `RevokeCommands` apply a revoke
    to the attempt that the database shows, and end its process after that.
    """

    def revoked(self) -> bool:
        return False

    def terminate(self, pool: Any, signal: Any = None) -> None:
        pass


def validating_strategy(task: Any, app: Any, consumer: Any, **options: Any) -> Any:
    """A message that Rival has not written would end one worker after another, or set time limits and callbacks of its
    own; here it becomes an invalid task, which Celery throws away.
    """
    handle = default_strategy(task, app, consumer, **options)

    def strategy(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **kwargs: Any) -> Any:
        try:
            rebuild(message, task.name)
        except Exception as error:
            report_garbage(reason(error))
            # Celery's report of an invalid task wants a body that has a length.
            message.body = b""
            raise InvalidTaskError("garbage in the queue") from None
        return handle(message, None, ack, reject, callbacks, **kwargs)

    return strategy
