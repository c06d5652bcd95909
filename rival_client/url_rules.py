"""Rules for settings that are URLs: they must be parseable. Nothing is connected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from rival_client.errors import ConfigurationError
from rival_client.model.checks.argument_errors import MAX_TEXT, shown
from rival_client.model.checks.arguments import is_unicode
from rival_client.model.masking import masked


@dataclass(frozen=True)
class Url:
    """Of a server. It is only parsed: whether the server answers shows later."""

    expected: str
    parses: Callable[[str], bool]

    def parse(self, raw: str) -> str:
        return raw

    def allows(self, value: Any) -> bool:
        if not isinstance(value, str) or len(value) > MAX_TEXT or "\x00" in value or not is_unicode(value):
            return False
        try:
            return self.parses(value)
        except (ConfigurationError, ValueError):
            return False

    def shown(self, value: Any) -> str:
        return shown(masked(value))


def _is_database(url: str) -> bool:
    from rival_client.db.database_urls import parsed_url  # SQLAlchemy, which takes longer than all of this

    port = parsed_url(url).port
    return port is None or 0 < port < 65_536


def _is_broker(url: str) -> bool:
    """One, or several with semicolons between them."""
    return all(_is_one_broker(one) for one in url.split(";"))


def _is_one_broker(url: str) -> bool:
    from kombu.transport import TRANSPORT_ALIASES

    scheme, separator, _ = url.partition("://")
    # "module:Class" is a transport of the user's own; redis-py takes the path of a socket as unix://.
    known = scheme.partition("+")[0] in TRANSPORT_ALIASES or scheme == "unix" or ":" in scheme or "." in scheme
    # The port is parsed when it is read.
    return bool(separator) and known and (urlsplit(url).port or 1) > 0


def _is_page(url: str) -> bool:
    """Whether it is the URL of a page for browsers: without a password, a query and a fragment."""
    parts = urlsplit(url)
    is_plain = not (parts.query or parts.fragment or parts.username or parts.password)
    return parts.scheme in ("http", "https") and bool(parts.hostname) and is_plain and (parts.port or 1) > 0


DATABASE_URL = Url(
    "a database URL: give postgresql://user:password@host:5432/name or sqlite:///file.db",
    _is_database,
)
BROKER_URL = Url(
    "a broker URL: give redis://user:password@host:6379/0 or amqp://user:password@host:5672//",
    _is_broker,
)
PAGE_URL = Url("the address of a page: give https://flower.example.com, without a password", _is_page)
