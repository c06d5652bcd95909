"""URLs of databases for SQLAlchemy and for libpq, and the bounds of a connection."""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from rival_client.errors import ConfigurationError
from rival_client.model.masking import masked

CONNECT_TIMEOUT = 5
#: libpq gives up on a silent peer after this, so that nothing hangs on a cut cable.
LIBPQ_OPTIONS: dict[str, Any] = {
    "connect_timeout": CONNECT_TIMEOUT,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}


def sqlalchemy_url(url: str) -> str:
    """The URL with the driver that Rival uses; `postgres://` and plain `postgresql://` are fine."""
    scheme, sep, rest = url.partition("://")
    if scheme.split("+")[0] in ("postgres", "postgresql"):
        return f"postgresql+psycopg{sep}{rest}"
    if scheme.split("+")[0] == "sqlite":
        return f"sqlite{sep}{rest}"
    raise ConfigurationError(
        f"{masked(url)!r} is neither Postgres nor SQLite. Give postgresql://… or sqlite:///file.db."
    )


def libpq_url(url: str) -> str:
    """The same for psycopg itself."""
    return "postgresql" + sqlalchemy_url(url).removeprefix("postgresql+psycopg")


def parsed_url(url: str) -> URL:
    """ConfigurationError if it is not the URL of a database that Rival can use."""
    try:
        return make_url(sqlalchemy_url(url))
    except (ArgumentError, ValueError):
        raise ConfigurationError(
            f"{masked(url)!r} is not a database URL. Give postgresql://user:password@host:5432/name."
        ) from None
