"""What follows from a step's end, as a list of effects that a store applies in order, in one transaction.

While it does, a store carries an outcome along: the ended step's result or error at first, then that of each composite
that ends with it. Only a join has to look into the tables to know which way it goes, so it brings both ways.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from rival_client.model.kinds import LEAVES, CompositeKind, LeafKind
from rival_workers.engine.plan import StepConfig

_NO_OPTIONS = StepConfig()


@dataclass(frozen=True)
class WaitFor:
    """The event that a step waits for."""

    topic: str
    key: str | None = None
    where: dict[str, Any] | None = None
    timeout: float | None = None


@dataclass(frozen=True)
class OpenRow:
    """A row to be opened: a leaf is claimed at once by whoever finished, or scheduled; a composite waits."""

    path: str
    kind: LeafKind | CompositeKind
    config: StepConfig = _NO_OPTIONS
    #: How many ways a parallel composite has to wait for.
    lanes: int | None = None
    #: Seconds before a leaf may start.
    delay: float = 0.0
    #: It may start when this has come, or when its time is up.
    wait: WaitFor | None = None
    #: What its tokens begin with, if there was a row in its place before; otherwise the run says that.
    token: int | None = None

    @property
    def is_leaf(self) -> bool:
        return self.kind in LEAVES

    @property
    def starts_at_once(self) -> bool:
        return self.is_leaf and not self.delay and self.wait is None

    def at_item(self, of: str, index: int) -> OpenRow:
        """A template of one item's steps, for the item with this index."""
        return replace(self, path=self.path.replace(f"{of}[]", f"{of}[{index}]", 1))


# -- where a composite's result comes from ----------------------------------------------------------------


@dataclass(frozen=True)
class Carried:
    """From what ended just before."""


@dataclass(frozen=True)
class Nothing:
    """There is none."""


@dataclass(frozen=True)
class ResultOf:
    """From another step's row."""

    path: str


@dataclass(frozen=True)
class ResultsOfItems:
    """A list, in the order of the items."""


@dataclass(frozen=True)
class ResultsByName:
    """A mapping: (name, path) of each."""

    of: tuple[tuple[str, str], ...]


ResultSource = Carried | Nothing | ResultOf | ResultsOfItems | ResultsByName


# -- effects ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Close:
    """A composite is over; "failed" with the error that is carried along."""

    path: str
    status: Literal["completed", "skipped", "failed"]
    result: ResultSource = Carried()


@dataclass(frozen=True)
class CancelBelow:
    """Whatever is open below this composite is cancelled."""

    path: str


@dataclass(frozen=True)
class FanOut:
    """The ended step's items become rows, and the first of them are begun."""

    path: str
    concurrency: int
    #: What opens for an item.
    each: tuple[OpenRow, ...]


@dataclass(frozen=True)
class Join:
    """One lane of a composite is over. The next item is begun, or the composite ends when it was the last one."""

    path: str
    #: What opens for the next item; nothing in a parallel composite.
    each: tuple[OpenRow, ...]
    #: The lane failed, and with it the composite will: nothing new begins.
    stops: bool
    completes: tuple[Effect, ...]
    fails: tuple[Effect, ...]


@dataclass(frozen=True)
class ErrorOf:
    """The error that is carried along is that of the step at this path."""

    path: str


@dataclass(frozen=True)
class NewError:
    """The error that is carried along is this one."""

    error: dict[str, Any]
    step: str


@dataclass(frozen=True)
class FailRun:
    """The run is now bound to fail with the error that is carried along; its handlers may come first."""


@dataclass(frozen=True)
class EndRun:
    status: Literal["completed", "failed"]


@dataclass(frozen=True)
class Compensate:
    """What was completed within a scope that has failed is undone, one step after the other, the last one first."""

    #: A workflow that keeps its failure to itself, or the run ("").
    scope: str
    #: The places of what can be undone, and how that is run.
    compensations: Mapping[str, StepConfig]
    #: What comes after it.
    then: tuple[Effect, ...]


@dataclass(frozen=True)
class CompensationEnded:
    """A compensation is over: the next one begins, or what comes after the last."""

    compensations: Mapping[str, StepConfig]
    #: For each unwinding that it can be part of. One of them is under way.
    then: Mapping[str, tuple[Effect, ...]]


Effect = (
    OpenRow
    | Close
    | CancelBelow
    | FanOut
    | Join
    | ErrorOf
    | NewError
    | FailRun
    | EndRun
    | Compensate
    | CompensationEnded
)


@dataclass(frozen=True)
class Advance:
    """What follows from a step's end."""

    effects: tuple[Effect, ...]

    @cached_property
    def next_leaf(self) -> OpenRow | None:
        """The one step that opens, when nothing else follows: the way most steps end."""
        [only, *more] = self.effects
        return only if not more and isinstance(only, OpenRow) and only.starts_at_once else None

    @cached_property
    def completes_run(self) -> bool:
        return self.effects == (EndRun("completed"),)
