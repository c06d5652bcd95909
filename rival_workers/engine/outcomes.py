"""The outcomes of an attempt, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rival_client.model.history_entries import FAILED
from rival_client.model.payload import Json
from rival_client.model.policies.step_config import Backoff
from rival_client.model.record import record
from rival_workers.errors import Behavior


@record(frozen=True)
class Success:
    result: Json
    state: Json | None = None
    skipped: bool = False
    #: The items of a for_each, when this was the call of its `items`.
    items: tuple[Json, ...] = ()
    #: A fallback function asks for one more attempt of its step with these values.
    overrides: dict[str, Any] | None = None
    #: The step `run/path` that has made the result: the function was not called.
    reused_from: str | None = None


@dataclass(frozen=True)
class Failure:
    """A failed attempt, and what its error asks for."""

    error: dict[str, Any]
    #: What its StepError has chosen. None: any other exception, and a timeout; then the options of the step decide.
    behavior: Behavior | None = None
    max_attempts: int | None = None
    backoff: Backoff | None = None
    state: Json | None = None
    #: How the attempt is listed: failed, timed_out, lost, revoked.
    outcome: str = FAILED
    #: The names of the exception: its class, those that it is made from, and its code.
    kinds: tuple[str, ...] = ()
    #: The step was not called, and is skipped.
    skips: bool = False
    #: Seconds before which another attempt is of no use, as the error says.
    retry_after: float | None = None
    #: When the function has failed, by the clock of the process; None: just now.
    at: float | None = None

    @property
    def is_chosen(self) -> bool:
        return self.behavior is not None
