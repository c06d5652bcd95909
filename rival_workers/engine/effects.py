"""The effects of a step's end: a list that a store applies in order, in one transaction.

While it applies them, a store carries an outcome: first the ended step's result or error, then that of each composite
that ends with it. Only a join reads the tables to decide how it continues, so it has the effects of both cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rival_client.model import statuses
from rival_client.model.kinds import LEAVES, CompositeKind, LeafKind
from rival_client.model.lazy import lazy
from rival_client.model.limits.limits import Limit
from rival_client.model.policies.policy_rules import DEFAULTS
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.record import record
from rival_client.model.starts.queues import Route

#: The options of the step at a path.
ConfigOf = Callable[[str], StepConfig]
#: What rules of the run or of the fleet have changed there, as JSON; None: nothing.
PolicyOf = Callable[[str], str | None]


def no_options(path: str) -> StepConfig:
    return DEFAULTS


def no_policy(path: str) -> str | None:
    return None


@dataclass(frozen=True)
class WaitFor:
    """The event that a step waits for."""

    topic: str
    key: str | None = None
    where: dict[str, Any] | None = None
    timeout: float | None = None


@record(frozen=True)
class OpenRow:
    """A row to open. The attempt that has ended claims a leaf at once, or the leaf is scheduled; a composite waits."""

    path: str
    kind: LeafKind | CompositeKind
    #: The number of branches that a parallel composite waits for.
    lanes: int | None = None
    #: Seconds before a leaf may start.
    delay: float = 0.0
    #: The leaf starts when this event has come, or when its time is up.
    wait: WaitFor | None = None
    #: Its first token, if its path had a row before; otherwise the run has it.
    token: int | None = None
    #: Where its message goes, if the store has opened it with options of its own.
    route: Route | None = field(default=None, compare=False, repr=False)

    @property
    def is_leaf(self) -> bool:
        return self.kind in LEAVES

    @property
    def starts_at_once(self) -> bool:
        return self.is_leaf and not self.delay and self.wait is None

    def at_item(self, of: str, index: int) -> OpenRow:
        """The row for the item with this index, made from the template for all items."""
        path = self.path.replace(f"{of}[]", f"{of}[{index}]", 1)
        return OpenRow(path, self.kind, self.lanes, self.delay, self.wait, self.token, self.route)


# -- sources of a composite's result       ----------------------------------------------------------------


@dataclass(frozen=True)
class Carried:
    """The result that the store carries."""


@dataclass(frozen=True)
class Nothing:
    """No result."""


@dataclass(frozen=True)
class ResultOf:
    """The result of another step."""

    path: str


@dataclass(frozen=True)
class ResultsOfItems:
    """The list of the items' results, in the order of the items."""


@dataclass(frozen=True)
class ResultsByName:
    """A mapping of names to results; `of` has (name, path) of each."""

    of: tuple[tuple[str, str], ...]


ResultSource = Carried | Nothing | ResultOf | ResultsOfItems | ResultsByName


@record(frozen=True)
class Close:
    """A composite ends; a "failed" one with the error that the store carries."""

    path: str
    status: Literal["completed", "skipped", "failed"]
    result: ResultSource = Carried()


@dataclass(frozen=True)
class EndFallback:
    """A step that has waited for its fallback function ends: with the result that the store carries or, if that is an
    error, with its own, which the store then carries."""

    path: str
    status: Literal["completed", "skipped", "failed"]


@dataclass(frozen=True)
class RetryWith:
    """The fallback function asks for one more attempt of its step with these values."""

    row: OpenRow
    overrides: dict[str, Any]


@dataclass(frozen=True)
class DeadLetter:
    """The step at this path has failed, with the error that the store carries, and an operator has to look at it."""

    path: str


@dataclass(frozen=True)
class CancelBelow:
    """Cancels all open rows below this composite."""

    path: str


@dataclass(frozen=True)
class FanOut:
    """Makes a row for each item of the ended step, and begins the first of them."""

    path: str
    concurrency: int
    #: The rows that open for one item.
    each: tuple[OpenRow, ...]


@dataclass(frozen=True)
class Join:
    """One lane of a composite has ended. Begins the next item, or ends the composite after the last lane."""

    path: str
    #: The rows that open for the next item; none in a parallel composite.
    each: tuple[OpenRow, ...]
    #: The lane has failed, and the composite will fail: no other item begins.
    stops: bool
    completes: tuple[Effect, ...]
    fails: tuple[Effect, ...]


@dataclass(frozen=True)
class ErrorOf:
    """Carry the error of the step at this path."""

    path: str


@dataclass(frozen=True)
class NewError:
    """Carry this error."""

    error: dict[str, Any]
    step: str


@dataclass(frozen=True)
class FailRun:
    """The run will fail with the error that the store carries; its handlers may run first."""


@dataclass(frozen=True)
class EndRun:
    status: Literal["completed", "failed", "cancelled"]


@dataclass(frozen=True)
class Compensate:
    """Undo what was completed within a scope that has failed: one step after the other, the last one first."""

    #: A workflow that keeps its failure to itself, or the run ("").
    scope: str
    #: The places of the steps that have compensations.
    compensations: frozenset[str]
    #: The effects after the last compensation.
    then: tuple[Effect, ...]


@dataclass(frozen=True)
class CompensationEnded:
    """A compensation has ended: begin the next one, or continue after the last one."""

    compensations: frozenset[str]
    #: The effects after the last one, for each scope that the compensation can be part of: the rows know which.
    then: Mapping[str, tuple[Effect, ...]]


@dataclass(frozen=True)
class IfCancelled:
    """What follows in a run that is being cancelled, and in one that fails: the rows know which."""

    then: tuple[Effect, ...]
    otherwise: tuple[Effect, ...]


Effect = (
    OpenRow
    | Close
    | EndFallback
    | RetryWith
    | DeadLetter
    | CancelBelow
    | FanOut
    | Join
    | ErrorOf
    | NewError
    | FailRun
    | EndRun
    | Compensate
    | CompensationEnded
    | IfCancelled
)


@record(frozen=True)
class Advance:
    """The effects of a step's end, and the options of the steps that they open."""

    effects: tuple[Effect, ...]
    config_of: ConfigOf = no_options
    #: What rules of the run or of the fleet have changed at a path, as JSON.
    policy_of: PolicyOf = no_policy
    #: The commit only claims a step that is inline: the process has used up its continuation budget.
    only_inline: bool = False

    def with_options(self, config_of: ConfigOf, policy_of: PolicyOf = no_policy) -> Advance:
        return Advance(self.effects, config_of, policy_of)

    @lazy
    def next_leaf(self) -> OpenRow | None:
        """The one step that opens, if nothing else follows, as after most steps."""
        [only, *more] = self.effects
        return only if not more and isinstance(only, OpenRow) and self.opens_plainly(only) else None

    @lazy
    def claims_next(self) -> bool:
        """The commit can claim that step for the executor: it has no limits."""
        return self.next_leaf is not None and self.goes_on(self.next_leaf) and not self.limits_of(self.next_leaf)

    def goes_on(self, opening: OpenRow) -> bool:
        """The executor that ends the step before may run it."""
        return not self.only_inline or self.config_of(opening.path).is_inline

    def limits_of(self, opening: OpenRow) -> tuple[Limit, ...]:
        return self.config_of(opening.path).limits

    @lazy
    def inline(self) -> Advance | None:
        """The same, without claims of steps that are not inline. None: no inline step can open."""
        is_there = any(self.config_of(row.path).is_inline for row in _rows(self.effects))
        return replace(self, only_inline=True) if is_there else None

    @lazy
    def next_values(self) -> tuple[str | None, str | None, float | None, str | None]:
        """Path, kind, time limit and policy of that step."""
        if (leaf := self.next_leaf) is None:
            return None, None, None, None
        return leaf.path, leaf.kind, self.config_of(leaf.path).limit, self.policy_of(leaf.path)

    def opens_plainly(self, opening: OpenRow) -> bool:
        """It starts at once, and its row has no options of its own: what the fast statements open."""
        return opening.starts_at_once and self.config_of(opening.path).opens_plainly

    @lazy
    def lane(self) -> tuple[str, str, OpenRow] | None:
        """The item that ends, its for_each, and the one step that opens for the next item. None: something else."""
        match self.effects:
            case (Close(item, statuses.COMPLETED, Carried()), Join(path=join, stops=False, each=(opening,))):
                return (item, join, opening) if self.opens_plainly(opening) else None
        return None

    def of_item(self, item: str) -> Advance:
        """The same for another item of the for_each."""
        _, join = self.effects
        own = Advance((Close(item, statuses.COMPLETED), join), self.config_of, self.policy_of, self.only_inline)
        own.__dict__.update(lane=self.lane and (item, *self.lane[1:]), next_leaf=None, completes_run=False)
        return own

    @lazy
    def completes_run(self) -> bool:
        return self.effects == (EndRun(statuses.COMPLETED),)


def _rows(effects: Iterable[Effect]) -> Iterator[OpenRow]:
    """All rows that the effects can open."""
    for effect in effects:
        match effect:
            case OpenRow():
                yield effect
            case FanOut():
                yield from effect.each
            case Join():
                yield from (*effect.each, *_rows((*effect.completes, *effect.fails)))
            case Compensate():
                yield from _rows(effect.then)
            case CompensationEnded():
                yield from (row for then in effect.then.values() for row in _rows(then))
            case IfCancelled():
                yield from _rows((*effect.then, *effect.otherwise))
