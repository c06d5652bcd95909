"""kombu's Redis transport, with two differences.

A list entry or a broadcast that is not a message is discarded and does not end the worker; `validating_strategy` checks
messages that have an envelope and a task name. With a `RunIntake`, a worker pops several messages per round trip if it
has room for them, and starts of runs do not go through Celery.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from functools import partial
from queue import Empty
from time import monotonic
from typing import Any

from kombu.transport import redis, virtual
from redis.exceptions import ResponseError

from rival_workers.runtime.celery.run_intake import RunIntake
from rival_workers.runtime.celery.untrusted_messages import clean_envelope, reason, report_garbage

log = logging.getLogger("rival.celery")


class RoomQoS(virtual.QoS):  # type: ignore[misc]
    """Takes messages while the process has room for them."""

    def can_consume(self) -> bool:
        return self.channel.intake.room > 0 and bool(super().can_consume())


class ValidatingChannel(redis.Channel):  # type: ignore[misc]
    from_transport_options = (*redis.Channel.from_transport_options, "intake")
    intake: RunIntake | None = None
    #: False once the broker has rejected BLMPOP, which Redis has since version 7.
    _can_pop_many = True
    #: The command that waits for its answer is BLMPOP.
    _pops_many = False
    #: How many messages its last answer had.
    _count = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self.intake is not None:
            # kombu has put its own on the instance: a class attribute would have no effect.
            self.QoS = RoomQoS

    def _brpop_start(self, timeout: Any = None) -> None:
        self._pops_many = self.intake is not None and self._can_pop_many
        if not self._pops_many or self.intake is None:
            super()._brpop_start(timeout)
            return
        queues = self._queue_cycle.consume(len(self.active_queues))
        if queues:
            names = [self._q_for_pri(queue, level) for level in self.priority_steps for queue in queues]
            keys = [f"{self.global_keyprefix}{name}" for name in names]
            seconds = (self.brpop_timeout if timeout is None else timeout) or 0
            count = self.intake.ask()
            self._in_poll, self._brpop_sent_at = self.client.connection, monotonic()
            self.client.connection.send_command("BLMPOP", seconds, len(keys), *keys, "RIGHT", "COUNT", count)

    def _brpop_read(self, **options: Any) -> Any:
        if not self._pops_many or self.intake is None:
            return self._guarded(lambda: super(ValidatingChannel, self)._brpop_read(**options))
        self._count = 0
        try:
            return self._deliver_popped(options)
        finally:
            self.intake.was_answered(self._count)

    def _deliver_popped(self, options: dict[str, Any]) -> bool:
        try:
            popped = self._popped(options)
        except ResponseError as error:
            log.warning("the broker does not support BLMPOP (%s): messages are popped one by one", error)
            self._can_pop_many = False
            return True
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        if not popped:
            raise Empty
        name = redis.bytes_to_str(popped[0]).removeprefix(self.global_keyprefix).rsplit(self.sep, 1)[0]
        self._queue_cycle.rotate(name)
        self._count = len(popped[1])
        for entry in popped[1]:
            self._guarded(partial(self._deliver_entry, entry, name))
        return True

    def _popped(self, options: dict[str, Any]) -> Any:
        try:
            return self.client.parse_response(self.client.connection, "BLMPOP", **options)
        except self.connection_errors:
            # The next poll connects again.
            self.client.connection.disconnect()
            raise

    def _deliver_entry(self, entry: Any, queue: str) -> None:
        self.connection._deliver(json.loads(redis.bytes_to_str(entry)), queue)

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
        envelope = clean_envelope(message, queue)
        intake: RunIntake | None = self.client.transport_options.get("intake")
        if intake is None or not intake.take(envelope):
            super()._deliver(envelope, queue)
