"""What an operator does to a run: the part of `Rival` that cancels, opens again, pauses and settles by hand."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from sqlalchemy import Connection

from rival_client.api.operator_port import Operator, open_operator
from rival_client.broker.doorbell import Doorbell
from rival_client.db.database import Database
from rival_client.model import arguments
from rival_client.model.records import Reopened
from rival_client.settings import Settings
from rival_client.sql import orphans, pausing, runs
from rival_client.sql.recovery import Recovery, recover
from rival_client.sql.wake import ReadyStep, wake_parent

#: Children that are cancelled at once with their parent; of more, the workers cancel the rest.
_CHILDREN_AT_ONCE = 1000


class RunOperations:
    database: Database
    settings: Settings
    _doorbell: Doorbell

    def cancel(self, run_id: str, *, by: str = "client") -> bool:
        """Cancel the run, all its open steps and its children. False when it had ended already.

        Of very many children, and if this process dies before it comes to them, the workers cancel the rest.
        """
        run_id, by = arguments.run_id(run_id), arguments.name("by", by)
        cancelled, ready = self.database.transact(lambda connection: self._cancel(connection, run_id, by))
        if cancelled:
            self._doorbell.publish([] if ready is None else [ready.message], changed=[run_id])
            self._cancel_children(run_id, by)
        return cancelled

    def _cancel(self, connection: Connection, run_id: str, by: str) -> tuple[bool, ReadyStep | None]:
        cancelled = runs.end_as_cancelled(connection, run_id, by)
        ready = wake_parent(connection, run_id, self.settings.ring_grace) if cancelled else None
        runs.leave_orphans(connection, run_id, by, cancelled)
        return cancelled, ready

    def _cancel_children(self, run_id: str, by: str) -> None:
        """Each in a transaction of its own: locks go from child to parent, never back."""
        with self.database.autocommit() as connection:
            children = orphans.orphans_of(connection, run_id, _CHILDREN_AT_ONCE)
        for child, _ in children:
            self.cancel(child, by=by)

    def retry(self, run_id: str, *, dry_run: bool = False, by: str = "client") -> Reopened:
        """A failed or cancelled run goes on where it has stopped: that step begins anew, with all its attempts."""
        run_id, by = arguments.run_id(run_id), arguments.name("by", by)
        return self._operator.retry(run_id, by, arguments.flag("dry_run", dry_run))

    def rewind(self, run_id: str, step: str, *, dry_run: bool = False, by: str = "client") -> Reopened:
        """The run goes on from that step again, whatever has become of it: what came after it is undone. With
        `dry_run` it only says what would run again.
        """
        run_id, step, by = arguments.run_id(run_id), arguments.step(step), arguments.name("by", by)
        return self._operator.rewind(run_id, step, by, arguments.flag("dry_run", dry_run))

    def skip(self, run_id: str, step: str, *, reason: str, dry_run: bool = False, by: str = "client") -> None:
        """An open step, or the one that the run has stopped at, ends as skipped, and the run goes on behind it. With
        `dry_run` it only says, by raising NotPossible, whether it could.
        """
        run_id, step, by = arguments.run_id(run_id), arguments.step(step), arguments.name("by", by)
        reason, dry_run = arguments.text("reason", reason, may_be_blank=True), arguments.flag("dry_run", dry_run)
        self._operator.skip(run_id, step, reason, by, dry_run)

    def set_result(
        self, run_id: str, step: str, result: Any, *, reason: str, dry_run: bool = False, by: str = "client"
    ) -> None:
        """As `skip`, but the step is completed with this result. It is not checked against the step's type."""
        run_id, step, by = arguments.run_id(run_id), arguments.step(step), arguments.name("by", by)
        reason, dry_run = arguments.text("reason", reason, may_be_blank=True), arguments.flag("dry_run", dry_run)
        self._operator.set_result(run_id, step, result, reason, by, dry_run)

    @cached_property
    def _operator(self) -> Operator:
        return open_operator(self.database, self._doorbell, self.settings)

    def pause(self, run_id: str, *, by: str = "client") -> bool:
        """Let the run start nothing new; what is running ends as it does. False: it has ended, or is paused already."""
        run_id, by = arguments.run_id(run_id), arguments.name("by", by)
        return self.database.transact(lambda connection: pausing.pause_run(connection, run_id, by))

    def resume(self, run_id: str, *, by: str = "client") -> bool:
        """Let a paused run go on with all that has become due. False: it is not paused."""
        run_id, by, grace = arguments.run_id(run_id), arguments.name("by", by), self.settings.ring_grace
        messages = self.database.transact(lambda connection: pausing.resume_run(connection, run_id, by, grace))
        if messages is None:
            return False
        self._doorbell.publish(messages, changed=[run_id])
        return True

    def recover(self) -> Recovery:
        """Have all that waits for a worker rung for anew, and tell what there is to recover.

        Safe at any time: it is the live workers that do the work.
        """
        return recover(self.database)
