"""The order of an operator's verb on many runs, and its outcome for each run. `bulk_runner` applies it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from rival_client.errors import InvalidArgument
from rival_client.model.checks import arguments
from rival_client.model.records import Reopened, Run

Verb = Literal["retry", "rewind", "pause", "resume", "cancel", "skip", "set_result"]
#: Runs per call, unless the caller gives another limit.
LIMIT = 100

#: The arguments that a verb requires beside the runs.
NEEDS: dict[Verb, tuple[str, ...]] = {"rewind": ("step",), "skip": ("step", "reason"), "set_result": ("step", "reason")}


@dataclass(frozen=True)
class BulkOutcome:
    """The outcome for one run; with `dry_run`, the expected outcome. `run`: as it was chosen; None: no run has this id.
    `why`: the reason of a refusal."""

    run_id: str
    run: Run | None
    why: str | None = None
    reopened: Reopened | None = None


@dataclass(frozen=True)
class Bulk:
    """The outcomes for all runs; with `dry_run`, the expected outcomes."""

    verb: Verb
    dry_run: bool
    outcomes: tuple[BulkOutcome, ...]
    #: The filter selects more runs than these: repeat the call, or raise the limit.
    more: bool = False

    @property
    def done(self) -> list[str]:
        return [one.run_id for one in self.outcomes if one.why is None]

    @property
    def refused(self) -> dict[str, str]:
        """Run -> why."""
        return {one.run_id: one.why for one in self.outcomes if one.why is not None}


@dataclass(frozen=True)
class BulkOrder:
    """A verb with its checked arguments."""

    verb: Verb
    step: str | None
    value: Any
    reason: str | None
    by: str
    dry_run: bool

    @classmethod
    def checked(cls, verb: Verb, step: Any, value: Any, reason: Any, by: Any, dry_run: Any) -> BulkOrder:
        verb = arguments.choice("verb", verb, get_args(Verb))
        given = {"step": step, "reason": reason}
        missing = [name for name in NEEDS.get(verb, ()) if given[name] is None]
        if missing:
            raise InvalidArgument(missing[0], f"{verb} needs `{missing[0]}`.")
        unused = [name for name in given if given[name] is not None and name not in NEEDS.get(verb, ())]
        if unused:
            raise InvalidArgument(unused[0], f"{verb} takes no `{unused[0]}`.")
        step, reason = (None if given[name] is None else arguments.text(name, given[name]) for name in given)
        return cls(verb, step, value, reason, arguments.name("by", by), arguments.flag("dry_run", dry_run))
