"""Connections to Redis that are kept between calls: one that sends commands without waiting for replies, and others
that listen for the ends of runs. Opening a connection, or waiting for a reply, costs as much as a commit.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import redis

from rival_client.forks import call_after_fork, leave_open

#: A frozen broker costs a publisher at most these seconds.
REDIS_BOUNDS: dict[str, Any] = {"socket_timeout": 2, "socket_connect_timeout": 1}
#: Commands whose replies are read later, at most.
_UNREAD = 256
#: Seconds between two looks for replies. A look costs as much as a command.
_LOOK_EVERY = 0.005
T = TypeVar("T")


def is_redis(url: str) -> bool:
    """One Redis: of several, kombu knows which one is up."""
    return ";" not in url and url.partition("://")[0] in ("redis", "rediss", "unix")


class Sender(Generic[T]):
    """Sends commands and reads their replies at a later call. Each command belongs to values, such as messages: those
    whose replies did not come, or were errors, count as lost.
    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._lock = threading.Lock()
        #: The connection, if there is one.
        self._opened: list[Any] = []
        self._looked_at = 0.0
        #: When each command was sent, and its values.
        self._unread: deque[tuple[float, Sequence[T]]] = deque()
        # Also at the end of the process: closing a connection with unread replies discards what was sent last.
        self._finish = weakref.finalize(self, _read_all, self._unread, self._opened)
        call_after_fork(self._drop_connections)

    def _drop_connections(self) -> None:
        self._lock = threading.Lock()
        leave_open(self._opened)
        self._opened.clear()
        self._unread.clear()

    def send(self, commands: Sequence[tuple[tuple[Any, ...], Sequence[T]]]) -> None:
        """RedisError: these commands, or earlier ones, may not have arrived. `take_lost` returns their values."""
        with self._lock:
            now = time.monotonic()
            self._unread += [(now, values) for _, values in commands]
            try:
                connection = self._connection()
                packed = connection.pack_commands([command for command, _ in commands])
                connection.send_packed_command(packed, check_health=False)
                # After sending, so that the receiver does not wait for this read.
                if now - self._looked_at > _LOOK_EVERY or len(self._unread) >= _UNREAD:
                    self._looked_at = now
                    self._read()
            except (redis.RedisError, OSError) as error:
                self._disconnect()
                raise error if isinstance(error, redis.RedisError) else redis.ConnectionError(str(error)) from error

    def take_lost(self) -> list[T]:
        with self._lock:
            values = [value for _, of_one in self._unread for value in of_one]
            self._unread.clear()
            return values

    def _read(self) -> None:
        """Read the replies that have come. One that has not come in time is an error."""
        while self._opened:
            [connection] = self._opened
            if len(self._unread) < _UNREAD and not connection.can_read(0):
                if self._unread and time.monotonic() - self._unread[0][0] > REDIS_BOUNDS["socket_timeout"]:
                    raise redis.TimeoutError("no reply in time")
                return
            if not self._unread:
                self._disconnect()  # the server has closed the idle connection
                return
            connection.read_response()
            self._unread.popleft()

    def _connection(self) -> Any:
        if not self._opened:
            self._opened.append(self._client.connection_pool.get_connection())
        return self._opened[0]

    def _disconnect(self) -> None:
        for connection in self._opened:
            with suppress(redis.RedisError, OSError):
                connection.disconnect()
                self._client.connection_pool.release(connection)
        self._opened.clear()

    def close(self) -> None:
        self._finish()
        with self._lock:
            self._disconnect()


def _read_all(unread: deque[Any], opened: Sequence[Any]) -> None:
    with suppress(redis.RedisError, OSError):
        for connection in opened:
            while unread:
                connection.read_response()
                unread.popleft()


class Subscriptions:
    """Subscriptions to one channel each, on connections that are used again."""

    def __init__(self, url: str) -> None:
        self._redis = redis.Redis.from_url(url, **REDIS_BOUNDS)
        self._idle: deque[redis.client.PubSub] = deque()
        call_after_fork(self._drop_connections)

    def _drop_connections(self) -> None:
        leave_open(self._idle)
        self._idle.clear()

    def open(self, channel: str) -> redis.client.PubSub:
        """Subscribed when it returns: from here on nothing is missed."""
        try:
            pubsub = self._idle.pop()
        except IndexError:
            pubsub = self._redis.pubsub()
        pubsub.subscribe(channel)
        until = time.monotonic() + 1.0
        while (left := until - time.monotonic()) > 0:
            said = pubsub.get_message(timeout=left)
            if said is not None and said["type"] == "subscribe" and is_of(said, channel):
                break
        return pubsub

    def done(self, pubsub: redis.client.PubSub, channel: str) -> None:
        """The reply to it is skipped by the next use."""
        try:
            pubsub.unsubscribe(channel)
        except redis.RedisError:
            discard(pubsub)
        else:
            self._idle.append(pubsub)


def is_of(said: dict[str, Any], channel: str) -> bool:
    return bool(said["channel"] in (channel, channel.encode()))


def discard(pubsub: redis.client.PubSub) -> None:
    with suppress(redis.RedisError):
        pubsub.close()
