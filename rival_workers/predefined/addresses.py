"""Which addresses a step may not talk to unless it says so: those that only this machine or this network can reach."""

from __future__ import annotations

import ipaddress

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Beyond what `ipaddress` calls not global. Ways to write or reach an IPv4 address in IPv6 are refused altogether:
#: where they lead is decided by a gateway.
_REFUSED = tuple(
    ipaddress.ip_network(network)
    for network in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # carrier-grade NAT
        "168.63.129.16/32",  # a cloud's own machine, at a public address
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
    """`address` as `getaddrinfo` gives it, perhaps with a zone: fe80::1%eth0."""
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
