"""Operator verbs: the part of both clients that cancels, pauses, retries, rewinds and settles runs, one or many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection

from rival_client.api.async_base import AsyncClientBase, awaitable
from rival_client.api.base import ClientBase
from rival_client.api.bulk import LIMIT, Bulk, BulkOrder, BulkOutcome, Verb
from rival_client.api.bulk_runner import BulkRunner
from rival_client.broker.message import StepMessage
from rival_client.model.checks import amounts, arguments
from rival_client.model.records import Reopened
from rival_client.model.recovery import Recovery
from rival_client.sql import orphans, runs
from rival_client.sql.checkpoint_ends import wake_parent
from rival_client.sql.reads.run_filter import RunFilter
from rival_client.sql.recovery import recover

#: Children that are cancelled together with their parent; if there are more, workers cancel the rest.
_CHILDREN_AT_ONCE = 1000
#: The id of an entry of a history.
Entry = int | None


class RunOperations(ClientBase):
    def cancel(self, run_id: str, *, by: str = "client", if_entry: Entry = None) -> bool:
        """Cancel the run, all its open steps and its children. False when it had ended already.

        If the run has very many children, or this process dies before it cancels them, workers cancel the rest.
        `if_entry`, here and below: RunHasMoved unless the history of the run still ends with the entry of this id.
        """
        run_id, by, entry = arguments.run_id(run_id), arguments.name("by", by), amounts.entry(if_entry)
        cancelled, message = self.database.transact(lambda connection: self._cancel(connection, run_id, by, entry))
        if cancelled:
            self._after_cancel(run_id, by, message)
        return cancelled

    def _after_cancel(self, run_id: str, by: str, message: StepMessage | None) -> None:
        self._doorbell.publish([] if message is None else [message], changed=[run_id])
        self._cancel_children(run_id, by)

    def _cancel(
        self, connection: Connection, run_id: str, by: str, if_entry: Entry = None
    ) -> tuple[bool, StepMessage | None]:
        """Whether it was cancelled, and the message for a worker: to end it, or for the flow that has waited for it."""
        grace = self.settings.ring_grace
        begun = runs.begin_cancel(connection, run_id, by, grace, if_entry)
        if begun is not None:
            runs.conclude_cancel(connection, run_id, by, begun[0])
            return True, begun[1]
        slots = runs.end_as_cancelled(connection, run_id, by, if_entry)
        cancelled = slots is not None
        ready = wake_parent(connection, run_id, grace) if cancelled else None
        runs.conclude_cancel(connection, run_id, by, slots)
        return cancelled, None if ready is None else ready.message

    def _cancel_children(self, run_id: str, by: str) -> None:
        """Cancel each child in its own transaction: locks go from child to parent, never back."""
        with self.database.autocommit() as connection:
            children = orphans.orphans_of(connection, run_id, _CHILDREN_AT_ONCE)
        for child, _ in children:
            self.cancel(child, by=by)

    def retry(self, run_id: str, *, dry_run: bool = False, by: str = "client", if_entry: Entry = None) -> Reopened:
        """Continue a failed or cancelled run where it stopped: that step starts again, with all its attempts."""
        run_id, by = arguments.run_id(run_id), arguments.name("by", by)
        return self._operator.retry(run_id, by, **_how(dry_run, if_entry))

    def rewind(
        self, run_id: str, step: str, *, dry_run: bool = False, by: str = "client", if_entry: Entry = None
    ) -> Reopened:
        """Continue the run from that step again, in any status of the run: later steps are deleted and run again. With
        `dry_run`, only return what would run again.
        """
        run_id, step, by = arguments.run_id(run_id), arguments.step(step), arguments.name("by", by)
        return self._operator.rewind(run_id, step, by, **_how(dry_run, if_entry))

    def skip(
        self, run_id: str, step: str, *, reason: str, dry_run: bool = False, by: str = "client", if_entry: Entry = None
    ) -> None:
        """End an open step, or the step at which the run stopped, as skipped; the run continues after it. With
        `dry_run`, only raise NotPossible if it cannot be skipped.
        """
        run_id, step, by = arguments.run_id(run_id), arguments.step(step), arguments.name("by", by)
        reason = arguments.text("reason", reason)
        self._operator.skip(run_id, step, reason, by, **_how(dry_run, if_entry))

    def set_result(
        self,
        run_id: str,
        step: str,
        result: Any,
        *,
        reason: str,
        dry_run: bool = False,
        by: str = "client",
        if_entry: Entry = None,
    ) -> None:
        """As `skip`, but the step is completed with this result. It is not checked against the step's type."""
        run_id, step, by = arguments.run_id(run_id), arguments.step(step), arguments.name("by", by)
        reason = arguments.text("reason", reason)
        self._operator.set_result(run_id, step, result, reason, by, **_how(dry_run, if_entry))

    def pause(self, run_id: str, *, by: str = "client", if_entry: Entry = None) -> bool:
        """Start nothing new in the run; running steps finish. False: it has ended, or is paused already."""
        run_id, by, entry = arguments.run_id(run_id), arguments.name("by", by), amounts.entry(if_entry)
        return self.database.transact(lambda connection: runs.pause_run(connection, run_id, by, entry))

    def resume(self, run_id: str, *, by: str = "client", if_entry: Entry = None) -> bool:
        """Let a paused run continue with everything that is due. False: it is not paused."""
        run_id, by, entry = arguments.run_id(run_id), arguments.name("by", by), amounts.entry(if_entry)
        grace = self.settings.ring_grace
        messages = self.database.transact(lambda own: runs.resume_run(own, run_id, by, grace, entry))
        if messages is None:
            return False
        self._doorbell.publish(messages, changed=[run_id])
        return True

    def bulk(
        self,
        verb: Verb,
        runs: RunFilter | Sequence[str],
        *,
        step: str | None = None,
        value: Any = None,
        reason: str | None = None,
        limit: int = LIMIT,
        dry_run: bool = False,
        by: str = "client",
        on_outcome: Callable[[BulkOutcome], None] | None = None,
    ) -> Bulk:
        """Apply `retry`, `rewind`, `pause`, `resume`, `cancel`, `skip` or `set_result` to many runs.

        `runs`: run ids, or a filter, which selects the newest `limit` runs. A filter without a status selects the runs
        that the verb applies to. With `dry_run`, only return what would happen. `on_outcome` is called for each run, by
        `AsyncRival` in another thread.
        """
        runner = BulkRunner(self, BulkOrder.checked(verb, step, value, reason, by, dry_run))
        arguments.callback("on_outcome", on_outcome)
        found, more = runner.select(runs, limit)
        return Bulk(verb, dry_run, runner.apply(found, on_outcome), more)

    def recover(self, *, on_batch: Callable[[int], None] | None = None) -> Recovery:
        """Have everything that waits for a worker published again, and count what there is to recover.

        Safe at any time: the live workers do the work. `on_batch` is called with the number of rows so far.
        """
        arguments.callback("on_batch", on_batch)
        return recover(self.database, on_batch)


def _how(dry_run: bool, if_entry: Entry) -> dict[str, Any]:
    return {"dry_run": arguments.flag("dry_run", dry_run), "if_entry": amounts.entry(if_entry)}


class AsyncRunOperations(AsyncClientBase):
    cancel = awaitable(RunOperations.cancel)
    retry = awaitable(RunOperations.retry)
    rewind = awaitable(RunOperations.rewind)
    skip = awaitable(RunOperations.skip)
    set_result = awaitable(RunOperations.set_result)
    pause = awaitable(RunOperations.pause)
    resume = awaitable(RunOperations.resume)
    bulk = awaitable(RunOperations.bulk)
    recover = awaitable(RunOperations.recover)
