"""The circuit breaker of a step, as data: when it opens, for how long, and what its steps do meanwhile."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from rival_client.model.policies.error_names import dotted_name, matching

OnOpen = Literal["fail", "skip", "fallback", "wait"]
BreakerState = Literal["closed", "open", "half_open"]
#: The longest time that a breaker stays open, as a multiple of its `reset`: it doubles with each probe that fails.
MAX_DOUBLINGS = 6


class Breaker(BaseModel):
    """The option `circuit_breaker`. Steps with the same name share one breaker, in the whole fleet."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)]
    failures: int = Field(default=5, ge=1, strict=True)
    window: float = Field(default=60.0, gt=0, le=86_400, strict=True)
    reset: float = Field(default=30.0, gt=0, le=86_400, strict=True)
    successes: int = Field(default=1, ge=1, strict=True)
    on_open: OnOpen = "fail"
    counts: tuple[str, ...] = ()

    def open_for(self, opened: int) -> float:
        """Seconds until the next probe, after so many probes that have failed in a row."""
        return float(self.reset * 2.0 ** min(opened, MAX_DOUBLINGS))

    def counts_error(self, names: Iterable[str]) -> bool:
        """Whether an error with these names counts; without `counts`, every error does."""
        return not self.counts or matching(self.counts, names) is not None


@dataclass(frozen=True)
class BreakerRecord:
    """A circuit breaker that has counted a failure."""

    name: str
    state: BreakerState
    #: When the next attempt may probe; None: it is closed, or an operator has opened it for good.
    until: dt.datetime | None
    #: How often in a row it was opened.
    opened: int
    #: Probes that have succeeded since it is half open.
    successes: int
    #: The step that probes.
    probe_run: str | None
    probe_path: str | None
    #: Failures that are counted, in the buckets of the last window.
    failures: int
    changed_at: dt.datetime
    #: The executor or operator that changed it last.
    changed_by: str


def breaker(
    name: str,
    *,
    failures: int = 5,
    window: float | dt.timedelta = 60.0,
    reset: float | dt.timedelta = 30.0,
    successes: int = 1,
    on_open: OnOpen = "fail",
    counts: Any = (),
) -> Mapping[str, Any]:
    """`circuit_breaker=breaker("openai", failures=5, window=60, reset=30)`: after 5 failures within 60 seconds, on any
    worker, no step with this breaker is called for 30 seconds. Then one of them probes.

    `on_open`: what the steps do meanwhile. `counts`: the errors that count: classes, or names with wildcards.
    """
    several = counts if isinstance(counts, list | tuple | set | frozenset) else (counts,)
    return {
        "name": name,
        "failures": failures,
        "window": _seconds(window),
        "reset": _seconds(reset),
        "successes": successes,
        "on_open": on_open,
        "counts": [dotted_name(one) if _is_error(one) else one for one in several],
    }


def _seconds(value: Any) -> Any:
    return value.total_seconds() if isinstance(value, dt.timedelta) else value


def _is_error(one: Any) -> bool:
    return isinstance(one, type) and issubclass(one, BaseException)
