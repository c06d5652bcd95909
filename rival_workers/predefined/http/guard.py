"""An httpx transport that connects only to addresses it has checked, sends private headers only to the first host, and
keeps a deadline.

Names are resolved here, once per connection: the checked address is the connected one, also after a redirect.
"""

from __future__ import annotations

import ipaddress
import socket
import ssl
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, cast

import httpcore
import httpx

from rival_workers.predefined.http.deadline import Deadline


class Refused(Exception):
    """The request is not allowed; a retry would not change that."""


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
        """One private address is enough to refuse: the owner of a foreign name can point it to any address."""
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError(f"the name cannot be resolved ({type(error).__name__})") from None
        addresses = list(dict.fromkeys(str(where[0]) for *_, where in found))
        if not self._allow_private and any(map(is_private, addresses)):
            raise Refused(
                f"{host} is a private address or resolves to one, and is refused: an input must not reach your "
                "internal network. If this is intended, give http_step(…, allow_private=True)."
            )
        return addresses

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Iterable[Any] | None = None
    ) -> httpcore.NetworkStream:
        raise Refused("unix sockets are refused")


@cache
def _ssl_context() -> ssl.SSLContext:
    """Cached, since loading all certificates takes longer than many requests."""
    return httpx.create_ssl_context()


class _Body(httpx.SyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream

    def close(self) -> None:
        self._stream.close()


class GuardedTransport(httpx.BaseTransport):
    """`private` are the headers that are sent only to the first host (or the same one over TLS)."""

    def __init__(self, first: httpx.URL, private: Iterable[str], deadline: Deadline, allow_private: bool) -> None:
        self._first, self._private = first, tuple(private)
        backend = GuardedBackend(deadline, allow_private)
        self._pool = httpcore.ConnectionPool(ssl_context=_ssl_context(), network_backend=backend)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        url = request.url
        if url.scheme not in ("http", "https"):
            raise Refused(f"{url.scheme}: only http and https are allowed")
        if not _same_origin(self._first, url):
            for name in self._private:
                request.headers.pop(name, None)
        response = self._pool.handle_request(
            httpcore.Request(
                method=request.method,
                url=httpcore.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
                headers=request.headers.raw,
                content=cast("httpx.SyncByteStream", request.stream),
                extensions=request.extensions,
            )
        )
        return httpx.Response(
            response.status, headers=response.headers, stream=_Body(response.stream), extensions=response.extensions
        )

    def close(self) -> None:
        self._pool.close()


def _same_origin(first: httpx.URL, other: httpx.URL) -> bool:
    if first.host != other.host:
        return False
    upgraded = (first.scheme, other.scheme) == ("http", "https") and first.port is other.port is None
    return upgraded or (first.scheme, first.port) == (other.scheme, other.port)


# -- private addresses ------------------------------------------------------------------------------------

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Refused in addition to the addresses that `ipaddress` does not call global. IPv6 forms of IPv4 addresses are all
#: refused, since a gateway decides where they lead.
_REFUSED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "168.63.129.16/32",  # a cloud's internal service at a public address
        "192.0.0.0/24",
        "192.88.99.0/24",
        "198.18.0.0/15",
        "::/96",
        "::ffff:0:0/96",  # IPv4-mapped
        "::ffff:0:0:0/96",
        "64:ff9b::/96",  # NAT64
        "64:ff9b:1::/48",
        "2001::/32",  # Teredo
        "2002::/16",  # 6to4
        "fc00::/7",  # unique local
        "fec0::/10",  # site-local
    )
)


def is_private(address: str) -> bool:
    """True for addresses that only this machine or this network can reach. `address` comes from `getaddrinfo` and may
    have a zone: fe80::1%eth0."""
    found = ipaddress.ip_address(address.partition("%")[0])
    return not found.is_global or _is_special(found) or any(_within(found, network) for network in _REFUSED)


def _is_special(found: Address) -> bool:
    return (
        found.is_private
        or found.is_loopback
        or found.is_link_local
        or found.is_multicast
        or found.is_unspecified
        or found.is_reserved
    )


def _within(found: Address, network: ipaddress.IPv4Network | ipaddress.IPv6Network) -> bool:
    return found.version == network.version and found in network
