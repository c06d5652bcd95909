"""What a producer can set, by argument or by environment. The only module of the client that reads it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Self

from rival_client.errors import ConfigurationError
from rival_client.model.masking import masked as masked
from rival_client.model.payload import DEFAULT_LIMIT

#: Environment names per setting, first one set wins.
_NAMES = {
    "database_url": ("RIVAL_DATABASE_URL", "DATABASE_URL"),
    "broker_url": ("RIVAL_BROKER_URL", "CELERY_BROKER_URL"),
}


@dataclass(frozen=True)
class Settings:
    """Every field can be given as RIVAL_<FIELD> in the environment."""

    # Not in the repr, which ends up in logs: a URL may have a password.
    database_url: str | None = field(default=None, repr=False)
    broker_url: str | None = field(default=None, repr=False)
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
        for one in fields(cls):
            raw = _first(env, _NAMES.get(one.name, (f"RIVAL_{one.name.upper()}",)))
            if raw is not None:
                values[one.name] = _parse(one.name, raw, one.default)
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
