"""The subscription of a viewer to live updates, and an event that it receives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Watch:
    """What a viewer looks at."""

    runs: frozenset[str] = frozenset()
    rows: frozenset[str] = frozenset()
    logs: frozenset[str] = frozenset()
    lists: frozenset[str] = frozenset()
    bulks: frozenset[str] = frozenset()
    counts: bool = False
    fleet: bool = False

    def topics(self) -> set[tuple[str, str]]:
        """The topics that the hub must poll: (kind, name)."""
        several = {"run": self.runs, "row": self.rows, "log": self.logs, "list": self.lists, "bulk": self.bulks}
        flags = {"counts": self.counts, "fleet": self.fleet}
        found = {(kind, one) for kind, names in several.items() for one in names}
        return found | {(kind, "") for kind, is_wanted in flags.items() if is_wanted}

    def wants(self, event: Event) -> bool:
        match event.kind:
            case "steps" | "progress" | "reset":
                return event.about in self.runs
            case "run":
                return event.about in self.runs or event.about in self.rows
            case "logs":
                return event.about in self.logs
            case "list":
                return event.about in self.lists
            case "bulk":
                return event.about in self.bulks
            case "counts":
                return self.counts
            case "fleet":
                return self.fleet
        return True


@dataclass(frozen=True)
class Event:
    number: int
    kind: str
    about: str
    data: dict[str, Any] = field(compare=False)
