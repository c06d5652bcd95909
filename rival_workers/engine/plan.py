"""The plan: what a workflow does, as pure data. Stored once per version; its hash is the version."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from rival_workers.errors import Backoff


class StepConfig(BaseModel):
    """How one step is run. Durations are seconds."""

    # An infinite duration is no interval in any database.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    timeout: float | None = Field(default=None, gt=0)
    on_timeout: Literal["stop", "retry"] = "stop"
    #: Kill the process that is still at it after its timeout (prefork only).
    kill_on_timeout: bool = False
    max_attempts: int | None = Field(default=None, ge=1)
    backoff: Backoff | None = None
    base_delay: float = Field(default=0.5, ge=0)
    max_delay: float = Field(default=30.0, ge=0)


class StepNode(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    type: Literal["step"] = "step"
    name: str
    config: StepConfig = StepConfig()
    on_error: bool = False


class Plan(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    nodes: tuple[StepNode, ...]
    on_error: bool = False

    @cached_property
    def version(self) -> str:
        canonical = json.dumps(self.model_dump(mode="json", exclude_defaults=True), sort_keys=True)
        return hashlib.sha256(canonical.encode()).hexdigest()[:12]

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {node.name: index for index, node in enumerate(self.nodes)}

    @property
    def names(self) -> Mapping[str, int]:
        """Step names and their positions, in order."""
        return self._positions

    def before(self, name: str) -> str | None:
        """The step before this one."""
        position = self._positions[name]
        return self.nodes[position - 1].name if position else None

    def position(self, name: str) -> int:
        return self._positions[name]

    def node(self, name: str) -> StepNode:
        return self.nodes[self._positions[name]]

    @classmethod
    def load(cls, data: dict[str, Any]) -> Plan:
        return cls.model_validate(data)
