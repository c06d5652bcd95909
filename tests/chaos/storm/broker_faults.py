"""Faults of the broker: emptied, restarted with and without its data, frozen, paused, cut off."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import redis

from tests.chaos.storm.faults import Fault


class FlushBroker(Fault):
    """FLUSHALL: every message, and the marker by which data loss is noticed, is gone."""

    seconds = (0.0, 0.5)

    def inject(self) -> str:
        with self.servers.redis() as connection:
            connection.flushall()
        return ""


class RestartBrokerEmpty(Fault):
    """Killed and started again without its data."""

    seconds = (0.2, 5.0)

    def inject(self) -> str:
        self.servers.broker.kill()
        return ""

    def heal(self) -> None:
        self.servers.broker.start()


class RestartBrokerWithData(Fault):
    """Shut down with a snapshot and started again from it."""

    seconds = (0.2, 3.0)

    def inject(self) -> str:
        with self.servers.redis() as connection, contextlib.suppress(redis.ConnectionError):
            connection.execute_command("SHUTDOWN", "SAVE")
        self.servers.broker.stop()
        return "saved" if self._snapshot.exists() else "not saved"

    def heal(self) -> None:
        self.servers.broker.start()
        # The next restart without data must not find it.
        self._snapshot.unlink(missing_ok=True)

    @property
    def _snapshot(self):  # type: ignore[no-untyped-def]
        return self.servers.broker.directory / "broker" / "dump.rdb"


class FreezeBroker(Fault):
    """SIGSTOP: connections stay open, and nothing answers."""

    seconds = (1.0, 7.0)

    def inject(self) -> str:
        self.servers.broker.freeze()
        return ""

    def heal(self) -> None:
        self.servers.broker.thaw()


class PauseBroker(Fault):
    """CLIENT PAUSE: commands are accepted and answered later."""

    seconds = (1.0, 5.0)

    def inject(self) -> str:
        return ""

    def hold(self, seconds: float, wait: Callable[[float], object]) -> None:
        # With its length, since a paused server does not hear that it is to go on.
        with self.servers.redis() as connection:
            connection.client_pause(int(seconds * 1000))
        wait(seconds)


class CutBrokerConnections(Fault):
    """CLIENT KILL of all connections, several times."""

    seconds = (1.0, 3.0)

    def inject(self) -> str:
        return ""

    def hold(self, seconds: float, wait: Callable[[float], object]) -> None:
        for _ in range(int(seconds / 0.4) + 1):
            with self.servers.redis() as connection:
                connection.client_kill_filter(_type="normal", skipme=True)
                connection.client_kill_filter(_type="pubsub", skipme=True)
            wait(0.4)


BROKER_FAULTS = (
    FlushBroker,
    RestartBrokerEmpty,
    RestartBrokerWithData,
    FreezeBroker,
    PauseBroker,
    CutBrokerConnections,
)
