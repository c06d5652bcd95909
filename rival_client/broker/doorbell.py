"""The doorbell: publishes Celery messages that say "look at run R, step P, token T", bounded in time.

A message is a hint. The publisher has committed before; a publish that fails is not an error, since the keeper looks at
rows that no worker has claimed. This module does not know what a message causes.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol

from rival_client.broker.kombu_doorbell import KombuDoorbell
from rival_client.broker.message import AnyMessage
from rival_client.broker.redis_connection import is_redis
from rival_client.broker.redis_doorbell import RedisDoorbell
from rival_client.errors import ConfigurationError, InvalidSetting
from rival_client.model.masking import masked, without_secrets
from rival_client.model.starts.queues import USUAL_ROUTE, Route
from rival_client.url_rules import BROKER_URL

log = logging.getLogger("rival.doorbell")


class Doorbell(Protocol):
    #: Whether messages of different levels are in lists of their own.
    has_priorities: bool

    def publish(self, messages: Sequence[AnyMessage], changed: Sequence[str] = ()) -> bool:
        """Publish messages, and notify clients that wait for the `changed` runs; False: the broker is unreachable."""

    def backlog(self, queue: str | None = None) -> int | None:
        """Messages of a queue that no worker has taken yet; None when the broker does not report it."""

    def oldest(self, route: Route = USUAL_ROUTE) -> float:
        """Seconds since the oldest message with this route was published; 0 when there is none or the broker is
        unreachable, infinite when the broker does not report it."""

    def answers(self) -> bool | None:
        """Whether the broker answers now; None: no broker is given."""

    def check_epoch(self) -> bool:
        """Returns True once after the broker lost its data. Otherwise republishes messages that failed earlier."""

    def close(self) -> None: ...


class SilentDoorbell:
    """Publishes nothing, because no broker is given: a keeper finds every run."""

    has_priorities = False

    def publish(self, messages: Sequence[AnyMessage], changed: Sequence[str] = ()) -> bool:
        return False

    def backlog(self, queue: str | None = None) -> int | None:
        return None

    def oldest(self, route: Route = USUAL_ROUTE) -> float:
        return 0.0

    def answers(self) -> bool | None:
        return None

    def check_epoch(self) -> bool:
        return False

    def close(self) -> None:
        pass


def open_doorbell(url: str | None, queue: str, key_prefix: str = "", priorities: bool = True) -> Doorbell:
    """`queue`: the fleet's own. `priorities`: whether its workers read a list per level of priority."""
    if not url:
        return SilentDoorbell()
    if not is_redis(url) and not BROKER_URL.allows(url):
        # kombu would take a text without a scheme as the name of a host.
        raise InvalidSetting("RIVAL_BROKER_URL", BROKER_URL.shown(url), BROKER_URL.expected)
    try:
        if is_redis(url):
            return RedisDoorbell(url, queue, key_prefix, priorities)
        return KombuDoorbell(url, queue, {"global_keyprefix": key_prefix} if key_prefix else None)
    except Exception as error:
        # Nothing is connected yet: redis and kombu have only read the URL, each with errors of its own.
        raise ConfigurationError(
            f"{masked(url)!r} is not a broker URL ({type(error).__name__}: {without_secrets(str(error), url)}). "
            "Give RIVAL_BROKER_URL as in redis://user:password@host:6379/0 or amqp://user:password@host:5672//."
        ) from None
