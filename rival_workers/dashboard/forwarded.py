"""Reads the headers in which a proxy describes the browser's request: host, scheme, path and address. They count only
if the request comes from an address of the proxy. `sessions.Proxy` reads who the user is.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rival_workers.dashboard.problem_json import Refused

HOST, SCHEME, PREFIX, FOR = "x-forwarded-host", "x-forwarded-proto", "x-forwarded-prefix", "x-forwarded-for"
_PREFIX = re.compile(r"(?:/[A-Za-z0-9._~-]+)*/?", re.ASCII)
HOST_PATTERN = re.compile(r"[A-Za-z0-9.-]+(?::\d{1,5})?|\[[0-9A-Fa-f:.]+\](?::\d{1,5})?", re.ASCII)


@dataclass(frozen=True)
class Forwarded:
    """`private`: headers with which the proxy says who the user is. From other addresses they are refused."""

    networks: tuple[str, ...]
    private: tuple[str, ...] = ()

    def applied(self, scope: Any) -> Any:
        """The scope as the browser's own request would have it; Refused if the headers are not what a proxy sends."""
        headers = [(name.decode("latin-1").lower(), text.decode("latin-1")) for name, text in scope["headers"]]
        given = Counter(name for name, _ in headers)
        if not is_within((scope.get("client") or ("", 0))[0], self.networks):
            forged = [name for name in self.private if given[name]]
            if forged:
                raise Refused(403, "ProxyNotTrusted", f"Only a trusted proxy may send the header {forged[0]}.")
            return scope
        repeated = [name for name in (HOST, SCHEME, PREFIX, *self.private) if given[name] > 1]
        if repeated:
            raise Refused(400, "BadRequest", f"The header {repeated[0]} is there twice: let the proxy replace it.")
        return self._believed(scope, dict(headers), [text for name, text in headers if name == FOR])

    def _believed(self, scope: Any, said: dict[str, str], hops: list[str]) -> Any:
        for name, pattern in ((HOST, HOST_PATTERN), (SCHEME, re.compile("https?")), (PREFIX, _PREFIX)):
            if not pattern.fullmatch(said.get(name, "http" if name == SCHEME else "/" if name == PREFIX else "a")):
                raise Refused(400, "BadRequest", f"The proxy sends a header {name} that is not valid.")
        changed = {**scope, "scheme": said.get(SCHEME, scope["scheme"])}
        if HOST in said:
            others = [(name, text) for name, text in scope["headers"] if name.lower() != b"host"]
            changed["headers"] = [*others, (b"host", said[HOST].encode("latin-1"))]
        if PREFIX in said:
            changed["root_path"] = said[PREFIX].rstrip("/")
        return {**changed, "rival.client": self._browser(hops)}

    def _browser(self, hops: list[str]) -> str:
        """The last address that is not one of the proxy's own; what is before it can be invented."""
        addresses = [one.strip() for hop in hops for one in hop.split(",")]
        return next((one for one in reversed(addresses) if not is_within(one, self.networks)), "")


def is_within(address: str, networks: Iterable[str]) -> bool:
    try:
        found = ipaddress.ip_address(address)
        mapped = getattr(found, "ipv4_mapped", None) or found
        return any(mapped in ipaddress.ip_network(one) for one in networks)
    except ValueError:
        return False
