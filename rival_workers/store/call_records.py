"""Idempotency keys and circuit breakers decide whether a claimed step is called: the values that attempts exchange with
the store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rival_client.model.idempotency_records import KeyName
from rival_client.model.payload import Json


@dataclass(frozen=True)
class KeyClaim:
    """The idempotency key that a step asks for. `path`: of the step; the row that runs is that of its flow, if it has
    one. `ttl`: seconds for which its result is kept."""

    name: KeyName
    path: str
    fingerprint: str
    ttl: float


@dataclass(frozen=True)
class KeyAnswer:
    """Owned: the step is called. Reused: the result is the step's, too. Conflict: the key belongs to another input.
    Queued: the step waits. `run_id`, `path`: the step that has the key."""

    state: Literal["owned", "reused", "conflict", "queued"]
    result: Json | None = None
    run_id: str | None = None
    path: str | None = None


@dataclass(frozen=True)
class BreakerAnswer:
    """Whether a step with a circuit breaker may be called."""

    goes: bool
    probes: bool = False
    #: Seconds until it is worth asking again; None: an operator has opened it for good.
    seconds: float | None = None
