"""Limits as data: how many at once (`limit`), or how many per time (`rate`), for all or for each key. Pure.

A limit has a name. Each of its keys is a gate; a gate whose maximum is large is divided into shards, so that not every
start and end updates the same row.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

OnFull = Literal["wait", "skip", "fail"]
MAX_LIMIT = 1_000_000
#: From this maximum on, a gate has shards: one for each so many, up to so many.
SHARDED_FROM, PER_SHARD, MAX_SHARDS = 16, 8, 16
#: The first part of a key: where its value is.
SOURCES = ("input", "item", "labels", "run")
#: A ticket of a group of its `fair` comes so many seconds after the one before it of the same group.
TURN = 3600.0
#: Seconds by which a priority level moves a ticket.
LEVEL = 60.0
#: How many starts of a rate are called in advance: those of so many seconds, and at least so many.
CALLED_SECONDS, CALLED_LEAST = 0.25, 2
_MAX_KEY = 500
#: A function of the definition makes the key, and is found at `charge!by:tenant_of`: its place is this and its name.
BY_FUNCTION = "!by:"


class Limit(BaseModel):
    """`max` at once, or with `per` so many starts in any `per` seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    max: int = Field(ge=1, le=MAX_LIMIT)
    #: None: named after the workflow and the step.
    name: str | None = None
    #: Where its key is: `input.tenant`, or the function that makes it. None: one gate for all.
    key: str | None = None
    #: The key that the function has made for one step.
    made: str | None = Field(default=None, exclude=True)
    #: Where the group is between which it is fair.
    fair: str | None = None
    per: float | None = Field(default=None, gt=0)
    #: How many starts of a rate may come at once after a quiet time, beyond `max`.
    burst: int = Field(default=0, ge=0, le=MAX_LIMIT)
    on_full: OnFull = "wait"
    #: So many wait at one gate; a step that comes then fails.
    max_waiting: int | None = Field(default=None, ge=0)

    #: As the definition gives it. It is not data: what is stored has its name.
    _function: Callable[..., Any] | None = PrivateAttr(default=None)

    @classmethod
    def by(cls, function: Callable[..., Any], **fields: Any) -> Limit:
        found = cls(key=BY_FUNCTION + getattr(function, "__name__", type(function).__name__), **fields)
        found._function = function
        return found

    @property
    def function(self) -> Callable[..., Any] | None:
        return self._function

    @property
    def needs_function(self) -> bool:
        """Its key is not known before its function was called."""
        return self.made is None and self.key is not None and self.key.startswith(BY_FUNCTION)

    def key_for(self, values: Mapping[str, Any]) -> str:
        return value_at(self.key, values) if self.made is None else self.made

    def with_key(self, value: Any) -> Limit:
        return self.model_copy(update={"made": _as_text(value)})

    @property
    def is_rate(self) -> bool:
        return self.per is not None

    @property
    def gate_name(self) -> str:
        assert self.name is not None, "a limit is named before it is used"
        return self.name

    @property
    def shards(self) -> int:
        return shards_of(self.max) if self.per is None else 1

    def named(self, workflow: str, place: str) -> Limit:
        """Under the name of workflow and step, if it has none of its own."""
        if self.name is not None:
            return self
        what = f"{workflow}/{place}" if place else workflow
        kind = "!rate" if self.is_rate else ""
        by = f"[{self.key.removeprefix(BY_FUNCTION)}]" if self.key else ""
        return self.model_copy(update={"name": what + kind + by})


def shards_of(max: int) -> int:
    return min(MAX_SHARDS, max // PER_SHARD) if max >= SHARDED_FROM else 1


def share(max: int, shards: int, shard: int) -> int:
    """The part of the maximum that one shard has: the parts add up to the maximum."""
    if shard >= shards:
        return 0
    return max // shards + (shard < max % shards)


def home_shard(run_id: str, path: str, shards: int) -> int:
    """The shard at which a step looks first, and at which it waits."""
    return zlib.crc32(f"{run_id}\x1f{path}".encode()) % shards if shards > 1 else 0


@dataclass(frozen=True)
class Pace:
    """A rate as a gate has it: seconds between two starts, and how far ahead of that a start may be.

    Never more than `max` (plus `burst`) starts in any `per` seconds. A twentieth of them may come early, so that a
    message that is a little late costs nothing.
    """

    gap: float
    slack: float


def pace(max: int, per: float, burst: int = 0) -> Pace:
    early = max // 20
    gap = per / (max - early)
    return Pace(gap, (early + burst) * gap)


def called_ahead(gap: float) -> int:
    return int(min(1000, max(CALLED_LEAST, CALLED_SECONDS / gap)))


def problem_of_key(key: Any) -> str | None:
    """Why the text cannot be a key; None: it can."""
    if not isinstance(key, str) or not key:
        return f"give the place of a value, such as 'input.tenant', not {key!r}"
    first, *rest = key.split(".")
    if first not in SOURCES or not all(rest) or (first == "run" and rest != ["id"]):
        return f"{key!r} is not the place of a value: begin with {', '.join(SOURCES[:-1])} or give 'run.id'"
    if first in ("input", "labels") and not rest:
        return f"{key!r} is a whole {first}: give a field of it, such as '{first}.tenant'"
    return None


def value_at(place: str | None, values: Mapping[str, Any]) -> str:
    """The key that a step has: the text of the value at this place. "": there is none."""
    if place is None:
        return ""
    first, *fields = place.split(".")
    found = values.get(first)
    for field in fields:
        found = _field(found, field)
    return _as_text(found)


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name)
    if isinstance(value, Sequence) and not isinstance(value, str) and name.isdigit():
        return value[int(name)] if int(name) < len(value) else None
    return None


def _as_text(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
    text = text.replace("\x00", "\\0").encode("utf-8", "replace").decode()
    return text if len(text) <= _MAX_KEY else f"{text[:_MAX_KEY]}~{zlib.crc32(text.encode()):08x}"


def rank_of(base: float, level: int = 0) -> float:
    """`level`: -1 high, 0 normal, 1 low."""
    return base + LEVEL * level
