"""Applies operator verbs to many runs: the runs that a filter selects, one after another, each in its own transaction.

The verb checks each run at the time of its own transaction. A run that changed since it was selected may be refused;
the other runs are still processed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rival_client.api.bulk import BulkOrder, BulkOutcome, Verb
from rival_client.errors import ConfigurationError, DatabaseError, NotPossible, RivalError, RunNotFound
from rival_client.model import statuses
from rival_client.model.checks import amounts, arguments
from rival_client.model.records import Reopened, Run
from rival_client.model.statuses import RUN_ACTIVE
from rival_client.sql.reads.run_filter import RunFilter
from rival_client.sql.reads.run_reads import read_run
from rival_client.sql.reads.run_search import list_runs

if TYPE_CHECKING:
    from rival_client.api.operations import RunOperations


#: The id of a run, and the run if there is one.
Chosen = tuple[str, Run | None]
#: The runs that a verb applies to when the filter has no status.
MEANT_FOR: dict[Verb, RunFilter] = {
    "cancel": RunFilter(status=RUN_ACTIVE),
    "pause": RunFilter(status=RUN_ACTIVE, paused=False),
    "resume": RunFilter(status=RUN_ACTIVE, paused=True),
}
_STOPPED = RunFilter(status=statuses.FAILED)


@dataclass(frozen=True)
class BulkRunner:
    """Applies a verb to runs through the client's own methods."""

    client: RunOperations
    order: BulkOrder

    def select(self, chosen: RunFilter | Sequence[str], limit: int) -> tuple[list[Chosen], bool]:
        """The runs, and whether the filter selects more than `limit`."""
        limit = amounts.limit(limit)
        if not isinstance(chosen, RunFilter):
            run_ids = arguments.ids("runs", chosen, arguments.id_looked_for)
            return [(run_id, self._find(run_id)) for run_id in dict.fromkeys(run_ids)], False
        chosen = chosen.checked()
        with self.client.database.autocommit() as connection:
            page = list_runs(connection, with_defaults(self.order.verb, chosen), limit=limit)
        return [(run.run_id, run) for run in page], page.next is not None

    def apply(
        self, runs: Iterable[Chosen], on_outcome: Callable[[BulkOutcome], None] | None
    ) -> tuple[BulkOutcome, ...]:
        outcomes = []
        for run_id, run in runs:
            outcomes.append(self._outcome(run_id, run))
            if on_outcome is not None:
                on_outcome(outcomes[-1])
        return tuple(outcomes)

    def _outcome(self, run_id: str, run: Run | None) -> BulkOutcome:
        try:
            if run is None:
                raise RunNotFound(run_id)
            return BulkOutcome(run_id, run, reopened=self._act(run))
        except (DatabaseError, ConfigurationError):
            raise
        except RivalError as error:
            return BulkOutcome(run_id, run, why=str(error))

    def _act(self, run: Run) -> Reopened | None:
        order, client, run_id = self.order, self.client, run.run_id
        step, reason = order.step or "", order.reason or ""
        how: dict[str, Any] = {"dry_run": order.dry_run, "by": order.by}
        match order.verb:
            case "retry":
                return client.retry(run_id, **how)
            case "rewind":
                return client.rewind(run_id, step, **how)
            case "skip":
                client.skip(run_id, step, reason=reason, **how)
            case "set_result":
                client.set_result(run_id, step, order.value, reason=reason, **how)
            case "cancel" | "pause" | "resume":
                self._switch(run)
        return None

    def _switch(self, run: Run) -> None:
        """A verb that returns False where other verbs raise."""
        order = self.order
        if order.dry_run:
            changed = _would_change(run, order.verb)
        else:
            verb: Callable[..., bool] = getattr(self.client, order.verb)
            changed = verb(run.run_id, by=order.by)
        if not changed:
            seen = run if order.dry_run else self._read(run.run_id)
            raise NotPossible(order.verb, run.run_id, why_unchanged(seen))

    def _find(self, run_id: str) -> Run | None:
        try:
            return self._read(run_id)
        except RunNotFound:
            return None

    def _read(self, run_id: str) -> Run:
        with self.client.database.autocommit() as connection:
            return read_run(connection, run_id)


def with_defaults(verb: Verb, chosen: RunFilter) -> RunFilter:
    """The filter, with the defaults of the verb for the fields that it leaves open."""
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


def why_unchanged(run: Run) -> str:
    """Why cancel, pause or resume have returned False."""
    if run.is_terminal:
        return f"it is {run.status}"
    return "it is paused already" if run.is_paused else "it is not paused"
