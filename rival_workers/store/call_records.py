"""Values that attempts exchange with the store about idempotency keys and circuit breakers, which decide whether a
claimed step is called.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rival_client.model.limits.idempotency_records import KeyName
from rival_client.model.payload import Json


@dataclass(frozen=True)
class KeyClaim:
    """The idempotency key that a step asks for. `path`: the path of the step; for a step of a flow, the running row is
    that of the flow. `ttl`: seconds for which its result is kept."""

    name: KeyName
    path: str
    fingerprint: str
    ttl: float


@dataclass(frozen=True)
class KeyAnswer:
    """The answer to a KeyClaim. owned: the step is called. reused: the step gets the stored result. conflict: the key
    belongs to another input. queued: the step waits. `run_id`, `path`: the step that owns the key."""

    state: Literal["owned", "reused", "conflict", "queued"]
    result: Json | None = None
    run_id: str | None = None
    path: str | None = None


@dataclass(frozen=True)
class BreakerAnswer:
    """Whether a step with a circuit breaker may be called."""

    goes: bool
    probes: bool = False
    #: Seconds until the next try; None: an operator has opened the breaker without a time limit.
    seconds: float | None = None
    #: The breaker is closed, and steps wait since it was open: a success calls more of them.
    is_waited_for: bool = False
