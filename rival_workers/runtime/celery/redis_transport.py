"""kombu's Redis transport, except that a list entry or a broadcast that is not a message is discarded and does not end
the worker. `consumer.validating_strategy` checks messages that have an envelope and a task name.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty
from typing import Any

from kombu.transport import redis

from rival_workers.runtime.celery.untrusted_messages import clean_envelope, reason, report_garbage


class ValidatingChannel(redis.Channel):  # type: ignore[misc]
    def _brpop_read(self, **options: Any) -> Any:
        return self._guarded(lambda: super(ValidatingChannel, self)._brpop_read(**options))

    def _receive(self) -> Any:
        return self._guarded(super()._receive)

    def _guarded(self, read: Callable[[], Any]) -> Any:
        try:
            return read()
        except (Empty, *self.connection_errors, *self.connection.channel_errors):
            raise
        except Exception as error:
            report_garbage(reason(error))
            return True


class ValidatingTransport(redis.Transport):  # type: ignore[misc]
    Channel = ValidatingChannel

    def _deliver(self, message: Any, queue: str) -> None:
        super()._deliver(clean_envelope(message, queue), queue)
