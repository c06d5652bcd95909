"""Dead letters for operators: the part of both clients that lists, redrives and drops them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rival_client.api.async_base import AsyncClientBase, awaitable
from rival_client.api.base import ClientBase
from rival_client.errors import InvalidArgument, NotPossible, RunNotFound
from rival_client.model.checks import amounts, arguments
from rival_client.model.checks.argument_errors import shown
from rival_client.model.dead_letters import DeadLetter, DeadLetterFilter
from rival_client.model.transitions import run_sources
from rival_client.sql.dead_letters import dead_letters_of, drop_dead_letter, list_dead_letters
from rival_client.sql.reads.run_reads import read_run

#: Dead letters per call, unless the caller gives another limit.
LIMIT = 100
#: Runs per second that a redrive starts again, unless the caller gives another rate.
RATE = 50.0


@dataclass(frozen=True)
class Redriven:
    """The runs that continue, or would with `dry_run`; and those that cannot, with the reason."""

    done: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    dry_run: bool = False
    #: The filter selects more dead letters than these: repeat the call, or raise the limit.
    more: bool = False


class DeadLetterOperations(ClientBase):
    def dead_letters(
        self, chosen: DeadLetterFilter | None = None, *, limit: int = LIMIT, after: DeadLetter | None = None
    ) -> list[DeadLetter]:
        """The steps that failed with `on_failure="dead_letter"` and were not run again since, the newest first.
        `after`: continue behind this one.
        """
        which = DeadLetterFilter() if chosen is None else arguments.instance("chosen", chosen, DeadLetterFilter)
        which, limit = which.checked(), amounts.limit(limit)
        behind = None if after is None else arguments.instance("after", after, DeadLetter)
        with self.database.autocommit() as connection:
            return list_dead_letters(connection, which, limit, behind)

    def redrive(
        self,
        chosen: DeadLetterFilter | Sequence[str],
        *,
        limit: int = LIMIT,
        rate: float = RATE,
        dry_run: bool = False,
        by: str = "client",
        on_outcome: Callable[[str], None] | None = None,
    ) -> Redriven:
        """Retry the runs of dead letters: run ids, or the newest `limit` dead letters of a filter. The steps start at
        most `rate` per second, and behind the limits of the fleet like any other. `on_outcome` is called with the id of
        each run, as soon as it continues or is refused; by `AsyncRival` in another thread.
        """
        by, dry_run = arguments.name("by", by), arguments.flag("dry_run", dry_run)
        rate = amounts.rate("rate", rate, "runs")
        arguments.callback("on_outcome", on_outcome)
        done: list[str] = []
        refused: dict[str, str] = {}
        run_ids, more = self._runs_of(chosen, amounts.limit(limit))
        for run_id in run_ids:
            try:
                self._redrive(run_id, by, dry_run, len(done) / rate)
                done.append(run_id)
            except (NotPossible, RunNotFound) as error:
                refused[run_id] = str(error)
            if on_outcome is not None:
                on_outcome(run_id)
        return Redriven(tuple(done), refused, dry_run, more)

    def drop_dead_letters(
        self, chosen: DeadLetterFilter | Sequence[str], *, limit: int = LIMIT, by: str = "client"
    ) -> int:
        """Remove dead letters: all of these runs, or the newest `limit` of a filter. Their runs stay as they are, and
        retention deletes them in time. Returns how many were removed.
        """
        by = arguments.name("by", by)
        return sum(self._drop(one, by) for one in self._letters(chosen, amounts.limit(limit)))

    def _drop(self, one: DeadLetter, by: str) -> bool:
        return self.database.transact(lambda own: drop_dead_letter(own, one.run_id, one.path, by))

    def _letters(self, chosen: DeadLetterFilter | Sequence[str], limit: int) -> list[DeadLetter]:
        if isinstance(chosen, DeadLetterFilter):
            return self.dead_letters(chosen, limit=limit)
        run_ids = _ids(chosen)
        with self.database.autocommit() as connection:
            return list(dead_letters_of(connection, run_ids))

    def _runs_of(self, chosen: DeadLetterFilter | Sequence[str], limit: int) -> tuple[list[str], bool]:
        """And whether the filter selects dead letters beyond the limit."""
        if not isinstance(chosen, DeadLetterFilter):
            return list(dict.fromkeys(_ids(chosen))), False
        found = self.dead_letters(chosen, limit=limit)
        more = len(found) == limit and bool(self.dead_letters(chosen, limit=1, after=found[-1]))
        return list(dict.fromkeys(one.run_id for one in found)), more

    def _redrive(self, run_id: str, by: str, dry_run: bool, delay: float) -> None:
        with self.database.autocommit() as connection:
            status = read_run(connection, run_id).status
            if not list_dead_letters(connection, DeadLetterFilter(run_id=run_id), 1):
                raise NotPossible("redrive", run_id, "it has no dead letters (`rival dlq ls` lists them)")
        if status not in run_sources("retry_run"):
            why = f"it is {status}, and has continued without the step: rewind it to the step instead"
            raise NotPossible("redrive", run_id, why)
        self._operator.retry(run_id, by, dry_run=dry_run, delay=delay)


def _ids(chosen: Sequence[str]) -> list[str]:
    if isinstance(chosen, str):
        raise InvalidArgument("chosen", f"give a list of run ids, [{shown(chosen)}], or DeadLetterFilter(…).")
    return arguments.ids("chosen", chosen, arguments.id_looked_for)


class AsyncDeadLetterOperations(AsyncClientBase):
    dead_letters = awaitable(DeadLetterOperations.dead_letters)
    redrive = awaitable(DeadLetterOperations.redrive)
    drop_dead_letters = awaitable(DeadLetterOperations.drop_dead_letters)
