"""kombu's Redis transport, but a list entry that is no message is thrown away instead of ending the worker.

What has an envelope and a task name is `careful_strategy`'s; this is for what does not even get that far.
"""

from __future__ import annotations

import logging
from typing import Any

from kombu.transport import redis

from rival_workers.runtime.telemetry import counters

log = logging.getLogger("rival.celery")


class CarefulChannel(redis.Channel):  # type: ignore[misc]
    def _brpop_read(self, **options: Any) -> Any:
        try:
            return super()._brpop_read(**options)
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            counters["garbage"] += 1
            log.error("garbage in the queue, thrown away (%d so far): %r", counters["garbage"], error)
            return True


class CarefulTransport(redis.Transport):  # type: ignore[misc]
    Channel = CarefulChannel
