"""kombu's Redis transport, but a list entry or a broadcast that is not a message is thrown away instead of ending the
worker. What has an envelope and a task name is `validating_strategy`'s; this is for what does not even get that far.
"""

from __future__ import annotations

from collections.abc import Callable
from queue import Empty
from typing import Any

from kombu.transport import redis

from rival_workers.runtime.celery.untrusted_messages import clean_envelope, reason, report_garbage


class ValidatingChannel(redis.Channel):  # type: ignore[misc]
    def _brpop_read(self, **options: Any) -> Any:
        return self._carefully(lambda: super(ValidatingChannel, self)._brpop_read(**options))

    def _receive(self) -> Any:
        return self._carefully(super()._receive)

    def _carefully(self, read: Callable[[], Any]) -> Any:
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
