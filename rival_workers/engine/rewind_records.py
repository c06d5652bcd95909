"""What a retry or rewind is planned from and its plan: the rows of a run, and which are deleted, wait again or open."""

from __future__ import annotations

from dataclasses import dataclass, field

from rival_workers.engine import paths
from rival_workers.engine.effects import OpenRow


class NotPossible(Exception):
    """The reason why a run cannot be opened again in this way."""


@dataclass(frozen=True)
class Row:
    """What the plan needs of a step's row."""

    path: str
    kind: str
    status: str
    #: An attempt has claimed it.
    started: bool = True
    #: Of a flow's checkpoint: the position of its end among those that the flow received, and how many of them the
    #: flow had received when it reached the checkpoint.
    end_order: int | None = None
    begun_after: int | None = None
    #: Its number in its lane.
    number: int | None = None
    #: Of a flow that has failed: the paths of the checkpoints whose failures its error names.
    culprits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Revived:
    """A composite or item that waits again; with counts, if it has lanes."""

    path: str
    total: int | None = None
    opened: int | None = None
    remaining: int | None = None


@dataclass
class RewindPlan:
    #: Paths of the rows that are deleted.
    deleted: list[str] = field(default_factory=list)
    revived: list[Revived] = field(default_factory=list)
    opens: list[OpenRow] = field(default_factory=list)

    @property
    def runs_again(self) -> tuple[str, ...]:
        """Steps that had begun, and those that begin now; not the compensations, which are only deleted."""
        begun = [path for path in self.deleted if not paths.is_compensation(path)]
        return tuple(dict.fromkeys([*begun, *(one.path for one in self.opens)]))
