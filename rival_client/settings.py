"""The settings of a producer, from arguments or the environment. No other client module reads the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from rival_client.errors import ConfigurationError, InvalidArgument, did_you_mean
from rival_client.model.masking import masked as masked
from rival_client.model.payload import DEFAULT_LIMIT
from rival_client.setting_rules import Flag, Seconds, Whole, Words, check, read, setting
from rival_client.url_rules import BROKER_URL, DATABASE_URL

_DAY = 86_400.0
#: Bytes of one value that Postgres can store.
_MOST_BYTES = 2**30 - 1
#: Environment names per setting, first one set wins.
_NAMES = {
    "database_url": ("RIVAL_DATABASE_URL", "DATABASE_URL"),
    "broker_url": ("RIVAL_BROKER_URL", "CELERY_BROKER_URL"),
}


@dataclass(frozen=True)
class Settings:
    """Every field can be given as RIVAL_<FIELD> in the environment."""

    # Not in the repr, which ends up in logs: a URL may have a password.
    database_url: str | None = setting(None, DATABASE_URL, repr=False)
    broker_url: str | None = setting(None, BROKER_URL, repr=False)
    #: The Celery queue of steps that name none: that of the whole fleet.
    queue: str = setting("rival", Words(may_be_blank=False))
    #: Whether messages in Redis go to a list for each priority. False: for workers of a Celery app that read one list.
    priorities: bool = setting(True, Flag())
    #: What the broker's keys begin with: the `global_keyprefix` of a Celery app that it is shared with.
    key_prefix: str = setting("", Words())
    #: Bytes of one input or result.
    max_payload: int = setting(DEFAULT_LIMIT, Whole(1, _MOST_BYTES, " of bytes"))
    #: Seconds after which a message counts as lost and the keeper looks at the row.
    ring_grace: float = setting(10.0, Seconds(0.001, _DAY))
    #: Seconds for which an event that no run waits for is kept, unless its sender gives another time.
    event_retention: float = setting(7 * _DAY, Seconds())
    #: How many undelivered events a topic may keep; further ones are refused. 0: any number.
    max_events_per_topic: int = setting(10_000, Whole())

    @classmethod
    def from_env(cls, environ: Mapping[str, str] | None = None, **given: Any) -> Self:
        """Settings from the environment, with the arguments that are not None on top. InvalidSetting names the
        variable whose value cannot be used; a variable that an argument replaces is not read."""
        env = os.environ if environ is None else environ
        values = {name: value for name, value in given.items() if value is not None}
        for one in fields(cls):
            variable = _first(env, _NAMES.get(one.name, (f"RIVAL_{one.name.upper()}",)))
            if variable is not None and one.name not in values:
                values[one.name] = read(variable, env[variable], one.metadata["rule"])
        return cls(**values)

    @classmethod
    def of_rival_variables(cls) -> Self:
        """Settings from the environment without DATABASE_URL and CELERY_BROKER_URL, which other programs read, too."""
        return cls.from_env({name: value for name, value in os.environ.items() if name.startswith("RIVAL_")})

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Self:
        """Settings that a user has given as arguments of something else; InvalidArgument names an unknown one."""
        known = [one.name for one in fields(cls)]
        for name in given:
            if name not in known:
                raise InvalidArgument(name, f"unknown setting{did_you_mean(name, known)}; known are {', '.join(known)}")
        return cls(**given)

    def __post_init__(self) -> None:
        for one in fields(self):
            check(one.name, getattr(self, one.name), one.metadata["rule"])

    def with_(self, **changes: Any) -> Self:
        return replace(self, **changes)

    def require_database(self) -> str:
        if not self.database_url:
            raise ConfigurationError(
                "No database is given. Set RIVAL_DATABASE_URL (postgresql://…), or pass database_url=…; "
                "`rival dev` brings its own and prints both URLs."
            )
        return self.database_url


def variable_of(setting: str) -> str | None:
    """The variable of the environment that gives this setting; None if none does."""
    return _first(os.environ, _NAMES[setting])


def _first(env: Mapping[str, str], names: tuple[str, ...]) -> str | None:
    return next((name for name in names if env.get(name)), None)
