"""What asks to start under limits, what it wants, and the answers that it can get. Without statements."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rival_client.model.limits.key_paths import value_at
from rival_client.model.limits.limit_shards import home_shard
from rival_client.model.limits.limits import Limit
from rival_client.sql.gates import Gate
from rival_client.sql.grants import Grant


@dataclass(frozen=True)
class Wanted:
    """A limit that applies to a step, with the key and the shard that the step tries first."""

    limit: Limit
    key: str
    group: str | None
    shard: int

    @property
    def of_key(self) -> tuple[str, str]:
        return self.limit.gate_name, self.key

    def places(self, all_shards: bool) -> list[tuple[str, str, int]]:
        shards = range(self.limit.shards) if all_shards else [self.shard]
        return [(*self.of_key, shard) for shard in shards]


@dataclass(frozen=True)
class Applicant:
    """The step or run that asks to start. `path` is "" for a run."""

    run_id: str
    path: str
    #: The token of its row if it must wait.
    token: int
    workflow: str
    version: str
    attempt: int = 1
    lost: int = 0
    #: Its priority: -1 high, 0 normal, 1 low.
    level: int = 0
    #: The queue that its messages go to; None is the fleet's own queue.
    queue: str | None = None
    #: Sorts its ticket by this time instead of its arrival.
    since: dt.datetime | None = None
    #: It has the place of its singleton key, and begins before the runs that are queued for it.
    goes_first: bool = False

    def wants(self, its_limits: Sequence[Limit], values: Mapping[str, Any]) -> list[Wanted]:
        return [
            Wanted(
                limit,
                limit.key_for(values),
                None if limit.fair is None else value_at(limit.fair, values),
                home_shard(self.run_id, self.path, limit.shards),
            )
            for limit in its_limits
        ]


@dataclass(frozen=True)
class Admitted:
    """The applicant may start with these slots. `waited`: seconds since it took its ticket. `at`: its start by the
    clock, because the transaction may be older than the end of the step that used the slot before."""

    slots: list[int]
    grants: list[Grant] = field(default_factory=list)
    waited: float | None = None
    at: dt.datetime | None = None


@dataclass(frozen=True)
class Full:
    """The applicant may not start: this limit is full for this key."""

    wanted: Wanted
    gate: Gate
    grants: list[Grant] = field(default_factory=list)
    #: Set if the applicant does not wait: the function is not called.
    why: str | None = None


@dataclass(frozen=True)
class Early:
    """The rate limit allows the start only after `seconds`."""

    seconds: float
