"""Idempotency keys as stored: the full name of a key, and the record of its owner and result."""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass
from typing import Any, Literal

from rival_client.model.payload import serialise

#: Between which steps a key is shared: the runs of one step, all steps of one workflow, or the whole fleet.
Scope = Literal["step", "workflow", "fleet"]


@dataclass(frozen=True)
class KeyName:
    """Which key: its text, and where it counts. `step`: the step's place in the plan."""

    key: str
    workflow: str | None = None
    step: str | None = None

    @classmethod
    def of(cls, scope: Scope, key: str, workflow: str, step: str) -> KeyName:
        match scope:
            case "fleet":
                return cls(key)
            case "workflow":
                return cls(key, workflow)
            case "step":
                return cls(key, workflow, step)

    @property
    def digest(self) -> str:
        """What the table compares: a key can be longer than an entry of an index."""
        return hashlib.sha256(serialise([self.workflow, self.step, self.key]).encode()).hexdigest()


KeyStatus = Literal["running", "completed", "free"]


@dataclass(frozen=True)
class IdempotencyRecord:
    """A key. `running`: the step `path` of run `run_id` works on it; `completed`: it has a result, until `expires_at`;
    `free`: its step has failed or was cancelled, and the next one with the key is called."""

    key: str
    workflow: str | None
    step: str | None
    status: KeyStatus
    run_id: str | None
    path: str | None
    result: Any
    #: Steps that wait for it.
    waiting: int
    created_at: dt.datetime
    completed_at: dt.datetime | None
    expires_at: dt.datetime | None
