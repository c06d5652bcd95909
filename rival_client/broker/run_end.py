"""The run-end notification: wakes a `wait` when its run has ended. Best effort; `wait` polls as well."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Protocol

import redis

from rival_client.broker.redis_connection import REDIS_BOUNDS, Subscriptions, discard, is_of, is_redis
from rival_client.broker.redis_doorbell import CHANGED_CHANNEL


class Listener(Protocol):
    def wait(self, seconds: float) -> None:
        """Return when the run has ended, or after the given time."""


class RunEndNotifier(Protocol):
    @contextmanager
    def listen(self, run_id: str) -> Iterator[Listener]: ...


class Pause:
    """No notification is available: wait for the poll interval."""

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)


class PollingOnly:
    @contextmanager
    def listen(self, run_id: str) -> Iterator[Listener]:
        yield Pause()


class _Subscription:
    def __init__(self, pubsub: redis.client.PubSub, channel: str) -> None:
        self._pubsub, self._channel = pubsub, channel
        self.is_broken = False

    def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                message = self._pubsub.get_message(timeout=left)
            except redis.RedisError:
                self.is_broken = True
                time.sleep(left)
                return
            if message is not None and message["type"] == "message" and is_of(message, self._channel):
                return


class RedisRunEndNotifier:
    def __init__(self, url: str, key_prefix: str = "") -> None:
        self._subscriptions = Subscriptions(url)
        self._channel = key_prefix + CHANGED_CHANNEL

    @contextmanager
    def listen(self, run_id: str) -> Iterator[Listener]:
        channel = self._channel + run_id
        try:
            pubsub = self._subscriptions.open(channel)
        except redis.RedisError:
            yield Pause()
            return
        listener = _Subscription(pubsub, channel)
        try:
            yield listener
        except BaseException:
            discard(pubsub)
            raise
        if listener.is_broken:
            discard(pubsub)
        else:
            self._subscriptions.done(pubsub, channel)


class LocalRunEndNotifier:
    """For a worker in the producer's own process."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[threading.Event]] = {}
        self._lock = threading.Lock()

    def announce(self, run_id: str) -> None:
        with self._lock:
            for event in self._waiting.get(run_id, ()):
                event.set()

    @contextmanager
    def listen(self, run_id: str) -> Iterator[Listener]:
        event = threading.Event()
        with self._lock:
            self._waiting.setdefault(run_id, []).append(event)
        try:
            yield _LocalListener(event)
        finally:
            with self._lock:
                self._waiting[run_id].remove(event)
                if not self._waiting[run_id]:
                    del self._waiting[run_id]


class _LocalListener:
    def __init__(self, event: threading.Event) -> None:
        self._event = event

    def wait(self, seconds: float) -> None:
        self._event.wait(seconds)


def open_run_end_notifier(url: str | None, key_prefix: str = "") -> RunEndNotifier:
    return RedisRunEndNotifier(url, key_prefix) if url and is_redis(url) else PollingOnly()


class AsyncListener(Protocol):
    async def wait(self, seconds: float) -> None: ...


class _AsyncPause:
    async def wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _AsyncSubscription:
    def __init__(self, pubsub: Any) -> None:
        self._pubsub = pubsub

    async def wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                message = await self._pubsub.get_message(timeout=left)
            except redis.RedisError:
                await asyncio.sleep(left)
                return
            if message is not None and message["type"] == "message":
                return


class AsyncRunEndNotifier:
    """The same for an event loop. A redis client belongs to one loop, so each wait has its own."""

    def __init__(self, url: str | None, key_prefix: str = "") -> None:
        self._url = url if url and is_redis(url) else None
        self._channel = key_prefix + CHANGED_CHANNEL

    @asynccontextmanager
    async def listen(self, run_id: str) -> AsyncIterator[AsyncListener]:
        if self._url is None:
            yield _AsyncPause()
            return
        import redis.asyncio  # half of redis-py's import time, and only event loops need it

        client = redis.asyncio.Redis.from_url(self._url, **REDIS_BOUNDS)
        pubsub = client.pubsub()
        try:
            try:
                await pubsub.subscribe(self._channel + run_id)
                await pubsub.get_message(timeout=1)
            except redis.RedisError:
                yield _AsyncPause()
                return
            yield _AsyncSubscription(pubsub)
        finally:
            with contextlib.suppress(redis.RedisError, OSError):
                await pubsub.aclose()
                await client.aclose()
