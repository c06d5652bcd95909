"""Limits as data: how many at once (`limit`), or how many per time (`rate`), for all or for each key. Pure.

A limit has a name. Each of its keys is a gate; a gate whose maximum is large is divided into shards, so that not every
start and end updates the same row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from rival_client.model.limits.key_paths import key_text, value_at
from rival_client.model.limits.limit_shards import shards_of

OnFull = Literal["wait", "skip", "fail"]
MAX_LIMIT = 1_000_000
#: Seconds by which a ticket is placed after the ticket before it of the same `fair` group.
ROUND = 3600.0
#: Seconds by which a priority level moves a ticket.
LEVEL = 60.0
#: A function of the definition makes the key, and is found at `charge!by:tenant_of`: its place is this and its name.
BY_FUNCTION = "!by:"


class Limit(BaseModel):
    """`max` at once, or with `per` so many starts in any `per` seconds."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    max: int = Field(ge=1, le=MAX_LIMIT, strict=True)
    #: None: named after the workflow and the step.
    name: str | None = None
    #: Where its key is: `input.tenant`, or the function that makes it. None: one gate for all.
    key: str | None = None
    #: The key that the function has made for one step.
    made: str | None = Field(default=None, exclude=True)
    #: Where the group is. Groups with waiting steps are served in rotation.
    fair: str | None = None
    per: float | None = Field(default=None, gt=0, strict=True)
    #: How many starts of a rate may come earlier than its even pace after a quiet time; in any `per` beyond `max`.
    burst: int = Field(default=0, ge=0, le=MAX_LIMIT, strict=True)
    on_full: OnFull = "wait"
    #: How many may wait at one gate, those that a rate has called among them; a further step fails.
    max_waiting: int | None = Field(default=None, ge=0, strict=True)

    #: The function itself, as the definition gives it; only its name is stored.
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
        """Whether a function that has not been called yet makes the key."""
        return self.made is None and self.key is not None and self.key.startswith(BY_FUNCTION)

    def key_for(self, values: Mapping[str, Any]) -> str:
        return value_at(self.key, values) if self.made is None else self.made

    def with_key(self, value: Any) -> Limit:
        return self.model_copy(update={"made": key_text(value)})

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


def rank_of(base: float, level: int = 0) -> float:
    """`level`: -1 high, 0 normal, 1 low."""
    return base + LEVEL * level


def fair_base(at: float, first: float | None, last: float | None) -> float:
    """The base of a ticket that arrives at `at`: one round after the last ticket of its group, and at the earliest in
    the middle of the round that is being served. Otherwise a group that comes late, or sends one step after the other,
    would get all the rounds for which it has not waited."""
    rounds = [at]
    if last is not None:
        rounds.append(last + ROUND)
    if first is not None and first > at:
        rounds.append(first + ROUND / 2)
    return max(rounds)
