"""The rules of the fleet as data, with a version that changes with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rival_client.model.policies.policy_rules import Rule


@dataclass(frozen=True)
class FleetRule:
    """A rule that an operator has set for the whole fleet."""

    id: int
    rule: Rule
    reason: str | None = None
    author: str | None = None
    created_at: Any = None
    expires_at: Any = None


@dataclass(frozen=True)
class Rulebook:
    """The rules of the fleet, the newest first, and the version that a process has read."""

    version: int = 0
    rules: tuple[Rule, ...] = ()
    about: Mapping[int, FleetRule] = field(default_factory=dict)

    @property
    def asks_for_labels(self) -> bool:
        return any(rule.match.asks_for_labels for rule in self.rules)


NO_RULES = Rulebook()
