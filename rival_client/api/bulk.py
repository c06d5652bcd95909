"""An operator's verbs on many runs: those that a filter chooses, one after the other, each in a transaction of its own.

A run that has changed since it was chosen is judged as it is then, by the verb itself: it may be refused, and the
others are done all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from rival_client.api.operations import RunOperations
from rival_client.api.reads import RunReads
from rival_client.db.tables import RUN_ACTIVE
from rival_client.errors import ConfigurationError, DatabaseError, InvalidArgument, NotPossible, RivalError
from rival_client.model import arguments
from rival_client.model.records import Reopened, Run
from rival_client.sql.run_reads import read_run
from rival_client.sql.run_search import RunFilter, list_runs

Verb = Literal["retry", "rewind", "pause", "resume", "cancel", "skip", "set_result"]
#: So many runs at once, unless more are asked for.
LIMIT = 100

#: What a verb needs to be told beside the runs.
NEEDS: dict[Verb, tuple[str, ...]] = {"rewind": ("step",), "skip": ("step", "reason"), "set_result": ("step", "reason")}
#: The runs that a verb is meant for, when the filter does not say.
MEANT_FOR: dict[Verb, RunFilter] = {
    "cancel": RunFilter(status=RUN_ACTIVE),
    "pause": RunFilter(status=RUN_ACTIVE, paused=False),
    "resume": RunFilter(status=RUN_ACTIVE, paused=True),
}
_STOPPED = RunFilter(status="failed")


@dataclass(frozen=True)
class BulkOutcome:
    """What became of one run, or would. `why`: it was refused."""

    run: Run
    why: str | None = None
    reopened: Reopened | None = None


@dataclass(frozen=True)
class Bulk:
    """What became of all of them. With `dry_run`: what would."""

    verb: Verb
    dry_run: bool
    outcomes: tuple[BulkOutcome, ...]
    #: The filter chooses more than these: do it again, or raise the limit.
    more: bool = False

    @property
    def done(self) -> list[str]:
        return [one.run.run_id for one in self.outcomes if one.why is None]

    @property
    def refused(self) -> dict[str, str]:
        """Run -> why."""
        return {one.run.run_id: one.why for one in self.outcomes if one.why is not None}


@dataclass(frozen=True)
class _Order:
    verb: Verb
    step: str | None
    value: Any
    reason: str | None
    by: str
    dry_run: bool

    @classmethod
    def checked(cls, verb: Verb, step: Any, value: Any, reason: Any, by: Any, dry_run: Any) -> _Order:
        verb = arguments.choice("verb", verb, get_args(Verb))
        given = {"step": step, "reason": reason}
        missing = [name for name in NEEDS.get(verb, ()) if given[name] is None]
        if missing:
            raise InvalidArgument(missing[0], f"{verb} needs `{missing[0]}`.")
        step, reason = (None if given[name] is None else arguments.text(name, given[name]) for name in given)
        return cls(verb, step, value, reason, arguments.name("by", by), arguments.flag("dry_run", dry_run))


class BulkOperations(RunReads, RunOperations):
    def bulk(
        self, verb: Verb, runs: RunFilter | Sequence[str], *, step: str | None = None, value: Any = None,
        reason: str | None = None, limit: int = LIMIT, dry_run: bool = False, by: str = "client",
        on_outcome: Callable[[BulkOutcome], None] | None = None,
    ) -> Bulk:  # fmt: skip
        """Do to many runs what `retry`, `rewind`, `pause`, `resume`, `cancel`, `skip` or `set_result` does to one.

        `runs`: a filter, of which the newest `limit` runs are taken, or run ids. A filter without a status takes those
        that the verb is meant for. With `dry_run` it only says what would be done. `on_outcome` is called for each run.
        """
        order = _Order.checked(verb, step, value, reason, by, dry_run)
        arguments.callback("on_outcome", on_outcome)
        found, more = self._found(verb, runs, limit)
        outcomes = []
        for run in found:
            outcomes.append(self._outcome(run, order))
            if on_outcome is not None:
                on_outcome(outcomes[-1])
        return Bulk(verb, dry_run, tuple(outcomes), more)

    def _found(self, verb: Verb, chosen: RunFilter | Sequence[str], limit: int) -> tuple[Iterable[Run], bool]:
        limit = arguments.limit(limit)
        if not isinstance(chosen, RunFilter):
            run_ids = arguments.ids("runs", chosen, arguments.id_looked_for)
            return [self._read(run_id) for run_id in run_ids], False
        chosen = chosen.checked()
        with self.database.autocommit() as connection:
            page = list_runs(connection, meant(verb, chosen), limit=limit)
        return page, page.next is not None

    def _outcome(self, run: Run, order: _Order) -> BulkOutcome:
        try:
            return BulkOutcome(run, reopened=self._act(run, order))
        except (DatabaseError, ConfigurationError):
            raise
        except RivalError as error:
            return BulkOutcome(run, why=str(error))

    def _act(self, run: Run, order: _Order) -> Reopened | None:
        run_id, step, reason = run.run_id, order.step or "", order.reason or ""
        how: dict[str, Any] = {"dry_run": order.dry_run, "by": order.by}
        match order.verb:
            case "retry":
                return self.retry(run_id, **how)
            case "rewind":
                return self.rewind(run_id, step, **how)
            case "skip":
                self.skip(run_id, step, reason=reason, **how)
            case "set_result":
                self.set_result(run_id, step, order.value, reason=reason, **how)
            case "cancel" | "pause" | "resume":
                self._switch(run, order)
        return None

    def _switch(self, run: Run, order: _Order) -> None:
        """A verb that says False where others raise."""
        if order.dry_run:
            changed = _would_change(run, order.verb)
        else:
            verb: Callable[..., bool] = getattr(self, order.verb)
            changed = verb(run.run_id, by=order.by)
        if not changed:
            seen = run if order.dry_run else self._read(run.run_id)
            raise NotPossible(order.verb, run.run_id, _as_it_is(seen))

    def _read(self, run_id: str) -> Run:
        with self.database.autocommit() as connection:
            return read_run(connection, run_id)


def meant(verb: Verb, chosen: RunFilter) -> RunFilter:
    """The filter, with what the verb is meant for where it says nothing of it."""
    default = MEANT_FOR.get(verb, _STOPPED)
    return replace(
        chosen,
        status=default.status if chosen.status is None else chosen.status,
        paused=default.paused if chosen.paused is None else chosen.paused,
    )


def _would_change(run: Run, verb: Verb) -> bool:
    match verb:
        case "resume":
            return run.is_paused
        case "pause":
            return not run.is_terminal and not run.is_paused
        case _:
            return not run.is_terminal


def _as_it_is(run: Run) -> str:
    if run.is_terminal:
        return f"it is {run.status}"
    return "it is paused already" if run.is_paused else "it is not paused"
