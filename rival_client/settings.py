"""What a producer can set, by argument or by environment. The only module of the client that reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from rival_client.errors import ConfigurationError
from rival_client.payload import DEFAULT_LIMIT

#: Environment names per setting, first one set wins.
_NAMES = {
    "database_url": ("RIVAL_DATABASE_URL", "DATABASE_URL"),
    "broker_url": ("RIVAL_BROKER_URL", "CELERY_BROKER_URL"),
}


@dataclass(frozen=True)
class Settings:
    """Every field can be given as RIVAL_<FIELD> in the environment."""

    database_url: str | None = None
    broker_url: str | None = None
    #: The Celery queue that doorbells go to.
    queue: str = "rival"
    #: What the broker's keys begin with: the `global_keyprefix` of a Celery app that it is shared with.
    key_prefix: str = ""
    #: Bytes of one input or result.
    max_payload: int = DEFAULT_LIMIT
    #: Seconds after which a ring is held to be lost and the keeper looks.
    ring_grace: float = 10.0
    #: Seconds for which an event that nobody waits for is kept, unless its sender says otherwise.
    event_retention: float = 7 * 24 * 3600.0
    #: How many events that nobody waits for a topic may keep; more are refused. 0: any number.
    max_events_per_topic: int = 10_000

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **given: Any) -> Self:
        """Settings from the environment, with the arguments that are not None on top."""
        env = os.environ if environ is None else environ
        values: dict[str, Any] = {}
        for field in fields(cls):
            raw = _first(env, _NAMES.get(field.name, (f"RIVAL_{field.name.upper()}",)))
            if raw is not None:
                values[field.name] = _parse(field.name, raw, field.default)
        values.update({name: value for name, value in given.items() if value is not None})
        return cls(**values)

    def with_(self, **changes: Any) -> Self:
        return replace(self, **changes)

    def require_database(self) -> str:
        if not self.database_url:
            raise ConfigurationError(
                "No database is given. Set RIVAL_DATABASE_URL (postgresql://…), or pass database_url=…; "
                "`rival dev` brings its own and prints both URLs."
            )
        return self.database_url


def _first(env: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((env[name] for name in names if env.get(name)), None)


def _parse(name: str, raw: str, default: Any) -> Any:
    if isinstance(default, bool):
        return raw.strip().lower() in ("1", "true", "yes", "on")
    kind = type(default) if isinstance(default, int | float) else str
    try:
        return kind(raw)
    except ValueError:
        raise ConfigurationError(
            f"RIVAL_{name.upper()}={raw!r} is not a number. Give seconds or bytes, e.g. {default}."
        ) from None


def masked(url: str | None) -> str:
    """The URL without its password, for logs and errors."""
    if not url:
        return "(not set)"
    url = re.sub(r"([?&]password=)[^&]*", r"\1***", url)
    head, at, tail = url.rpartition("@")
    if not at:
        return url
    scheme, sep, userinfo = head.partition("://")
    user, colon, _ = userinfo.partition(":")
    return f"{scheme}{sep}{user}{':***' if colon else ''}@{tail}"
