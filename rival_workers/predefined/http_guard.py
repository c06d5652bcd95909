"""A transport that connects to the very address it has checked, hands secrets to nobody else, and ends in time.

Names are resolved here, once per connection: what was checked is what is connected to, also after a redirect.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, cast

import httpcore
import httpx

from rival_workers.predefined.addresses import is_private


class Refused(Exception):
    """The guard does not let this through; trying again would change nothing."""


class OutOfTime(Exception):
    """The whole exchange took longer than it may."""


class Deadline:
    """Ends connections when the time is over, whatever they are at: a peer that sends a byte at a time keeps every
    single read short.
    """

    def __init__(self, seconds: float) -> None:
        self._at = time.monotonic() + seconds
        self._sockets: list[socket.socket] = []
        self._timer = threading.Timer(seconds, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        for watched in self._sockets:
            watched.close()

    @property
    def left(self) -> float:
        return max(0.001, self._at - time.monotonic())

    def check(self) -> None:
        """What was cut may look like a regular end."""
        if time.monotonic() >= self._at:
            raise OutOfTime

    def watch(self, connected: socket.socket) -> None:
        # Another handle of the same connection: the first one is taken over when TLS begins.
        self._sockets.append(connected.dup())
        self.check()

    def _cut(self) -> None:
        for watched in self._sockets:
            with contextlib.suppress(OSError):
                watched.shutdown(socket.SHUT_RDWR)


class GuardedBackend(httpcore.NetworkBackend):
    def __init__(self, deadline: Deadline, allow_private: bool) -> None:
        self._deadline, self._allow_private = deadline, allow_private
        self._plain = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        failed: Exception = httpcore.ConnectError("the name has no address")
        for address in self._addresses(host, port):
            self._deadline.check()
            try:
                stream = self._plain.connect_tcp(address, port, self._deadline.left, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failed = error
                continue
            self._deadline.watch(stream.get_extra_info("socket"))
            return stream
        raise failed

    def _addresses(self, host: str, port: int) -> list[str]:
        """One private address among them is enough to refuse: a name of somebody else's may point anywhere."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the name cannot be resolved ({type(error).__name__})") from None
        addresses = list(dict.fromkeys(str(where[0]) for *_, where in found))
        if not self._allow_private and any(map(is_private, addresses)):
            raise Refused(
                f"{host} is a private address, or leads to one: this is refused, so that nobody can reach into "
                "your network with a value of theirs. If it is meant, give http_step(…, allow_private=True)."
            )
        return addresses

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        raise Refused("unix sockets are refused")


@cache
def _ssl_context() -> ssl.SSLContext:
    """Reading all the certificates takes longer than many a request."""
    return httpx.create_ssl_context()


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream

    def close(self) -> None:
        self._stream.close()


class GuardedTransport(httpx.BaseTransport):
    """`private` are the headers that only the first host (or the same one, over TLS) gets to see."""

    def __init__(self, first: httpx.URL, private: Iterable[str], deadline: Deadline, allow_private: bool) -> None:
        self._first, self._private = first, tuple(private)
        backend = GuardedBackend(deadline, allow_private)
        self._pool = httpcore.ConnectionPool(ssl_context=_ssl_context(), network_backend=backend)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        if url.scheme not in ("http", "https"):
            raise Refused(f"{url.scheme}: only http and https are spoken")
        if not _same_place(self._first, url):
            for name in self._private:
                request.headers.pop(name, None)
        answer = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=cast("httpx.SyncByteStream", request.stream),
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            answer.status, headers=answer.headers, stream=_Body(answer.stream), extensions=answer.extensions
        )

    def close(self) -> None:
        self._pool.close()


def _same_place(first: httpx.URL, other: httpx.URL) -> bool:
    if first.host != other.host:
        return False
    upgraded = (first.scheme, other.scheme) == ("http", "https") and first.port is other.port is None
    return upgraded or (first.scheme, first.port) == (other.scheme, other.port)
