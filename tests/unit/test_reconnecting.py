"""How a worker's consumer reconnects to a broker that was away."""

from __future__ import annotations

from typing import Any

from rival_workers.runtime.celery.app import make_app
from rival_workers.runtime.celery.consumer import FastReconnectConsumer
from rival_workers.settings import WorkerSettings


class Away:
    """A connection whose broker is away."""

    pauses: dict[str, float]

    def ensure_connection(self, *_: Any, callback: Any = None, **pauses: float) -> str:
        self.pauses = pauses
        return "connected"


def test_tries_to_reconnect_are_never_more_than_two_seconds_apart() -> None:
    consumer = FastReconnectConsumer.__new__(FastReconnectConsumer)
    consumer.app = make_app(WorkerSettings(broker_url="memory://"))
    consumer.first_connection_attempt = False
    away = Away()
    assert consumer.ensure_connected(away) == "connected"
    assert away.pauses == {"interval_start": 0.5, "interval_step": 0.5, "interval_max": 2.0}
