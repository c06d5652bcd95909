"""Executes verbs on many runs in threads, with progress that any viewer can watch.

Previews are in memory. Actions that change runs are in the database, with each outcome as it comes: another process
shows them, and takes them over if this one ends (see `rival_client.sql.bulk_records`).
"""

from __future__ import annotations

import datetime as dt
import logging
import os
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rival_client.api.bulk import Bulk, BulkOutcome
from rival_client.api.client import Rival
from rival_client.db.database import Database
from rival_client.errors import DatabaseBusy, DatabaseUnavailable, RivalError
from rival_client.sql import bulk_records
from rival_client.sql.audit import write_audit
from rival_workers.dashboard.bulk_action import SHOWN, BulkAction, State, action_of, as_record, found_record

_log = logging.getLogger(__name__)
#: Seconds between two looks for actions to take over.
EVERY = 5.0
#: Seconds that `close` waits for the runs that its actions are at.
_PATIENCE = 5.0


class _Stopped(Exception):
    """The action is to stop."""


class _Lost(Exception):
    """Another process executes the action, or is to do so."""


class _Fenced(Database):
    """The same database. Each transaction begins with a check; what it raises rolls the transaction back."""

    def __init__(self, database: Database, check: Callable[[Any], None]) -> None:
        vars(self).update(vars(database))
        self._check = check

    @contextmanager
    def transaction(self) -> Iterator[Any]:
        with super().transaction() as connection:
            self._check(connection)
            yield connection


class Bulks:
    def __init__(self, rival: Rival, *, may_act: bool = True) -> None:
        self._rival, self._database, self._may_act = rival, rival.database, may_act
        self._lock = threading.Lock()
        self._actions: dict[str, BulkAction] = {}
        self._closing = threading.Event()
        self._workers: list[threading.Thread] = []
        #: The process that looks for actions to take over; a fork copies no thread.
        self._watching: int | None = None

    # -- reading ------------------------------------------------------------------------------------------

    def own(self, action_id: str) -> BulkAction | None:
        """One of this process."""
        return self._actions.get(action_id)

    def get(self, action_id: str) -> BulkAction | None:
        """One of this process, or one that is kept, with its first outcomes."""
        own = self.own(action_id)
        if own is not None:
            return own
        with self._database.autocommit() as connection:
            row = bulk_records.read_bulk(connection, action_id)
            if row is None:
                return None
            found = action_of(row)
            found.outcomes = bulk_records.read_outcomes(connection, action_id, SHOWN)
        return found

    def newest(self) -> list[BulkAction]:
        with self._lock:
            own = dict(self._actions)
        with self._database.autocommit() as connection:
            kept = [action_of(row) for row in bulk_records.newest_bulks(connection) if row["id"] not in own]
        return sorted([*own.values(), *kept], key=lambda one: one.started_at, reverse=True)

    def progress(self, action_id: str) -> dict[str, Any] | None:
        """Of one of this process. Each poll asks for it, with names that viewers give: never from the database."""
        found = self.own(action_id)
        return None if found is None else found.view(outcomes=False)

    def rest_of(self, action: BulkAction) -> list[str]:
        """The runs that have no outcome."""
        with self._database.autocommit() as connection:
            ended = bulk_records.runs_with_outcome(connection, action.id)
        return [run_id for run_id in dict.fromkeys(action.runs or ()) if run_id not in ended]

    # -- orders -------------------------------------------------------------------------------------------

    def confirm(self, preview: BulkAction) -> bool:
        """False if it was confirmed before: a button that is pressed twice is meant once."""
        with self._lock:
            is_first, preview.is_confirmed = not preview.is_confirmed, True
        return is_first

    def preview(self, action: BulkAction, call: Callable[[Callable[[BulkOutcome], None]], Bulk]) -> BulkAction:
        def take(outcome: BulkOutcome) -> None:
            action.add(as_record(outcome))
            if action.is_stopping or self._closing.is_set():
                raise _Stopped

        def work() -> State:
            action.more = call(take).more
            return "done"

        return self._begun(action, work)

    def begin(self, action: BulkAction) -> BulkAction:
        about = {name: getattr(action, name) for name in ("runs", "total", "commands", "preview")}
        with self._database.transaction() as connection:
            action.token = bulk_records.begin_bulk(
                connection, action.id, action.verb, action.by, given=action.order, **about
            )
        return self._begun(action, lambda: self._execute(action))

    def stop(self, action: BulkAction) -> None:
        action.is_stopping = True
        if not action.dry_run:
            with self._database.transaction() as connection:
                bulk_records.stop_bulk(connection, action.id)

    # -- taking over --------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Take over actions whose process has ended, from now until `close`."""
        with self._lock:
            if not self._may_act or self._watching == os.getpid() or self._closing.is_set():
                return
            self._watching = os.getpid()
        threading.Thread(target=self._look_again, name="rival-bulks", daemon=True).start()

    def _look_again(self) -> None:
        while True:
            try:
                self.take_over()
            except RivalError as error:
                _log.warning("Bulk actions of processes that have ended cannot be taken over now: %s", error)
            if self._closing.wait(EVERY):
                return

    def take_over(self) -> None:
        """One look."""
        with self._database.transaction() as connection:
            taken = bulk_records.take_over(connection)
        for action_id in taken:
            with self._lock:
                self._actions.pop(action_id, None)
            action = self.get(action_id)
            if action is not None:
                action.state, action.error = "running", None
                self._begun(action, lambda action=action: self._execute(action))  # type: ignore[misc]

    def close(self) -> None:
        """Another process, or the next one, continues at once."""
        self._closing.set()
        for worker in self._workers:
            worker.join(_PATIENCE)

    # -- executing ----------------------------------------------------------------------------------------

    def _begun(self, action: BulkAction, work: Callable[[], State]) -> BulkAction:
        thread = threading.Thread(target=self._do, args=(action, work), name="rival-bulk", daemon=True)
        with self._lock:
            self._actions[action.id] = action
            for old in [one.id for one in self._actions.values() if one.state != "running"][: -bulk_records.KEPT]:
                del self._actions[old]
            self._workers = [*(one for one in self._workers if one.is_alive()), thread]
        thread.start()
        return action

    def _do(self, action: BulkAction, work: Callable[[], State]) -> None:
        state: State = "failed"
        try:
            state = work()
        except _Stopped:
            state = "stopped"
        except (_Lost, DatabaseUnavailable, DatabaseBusy) as error:
            if not action.dry_run:
                self._leave(action)
                return
            action.error = str(error)
        except RivalError as error:
            action.error = str(error)
        except Exception:
            action.error = "An unexpected error of the dashboard: its log has the traceback."
            _log.exception("Bulk action %s has failed.", action.id)
        self._end(action, state)

    def _execute(self, action: BulkAction) -> State:
        """Apply the verb to the runs that have no outcome, one after another."""
        fenced = _Fenced(self._database, lambda connection: self._check(connection, action))
        rival = Rival(settings=self._rival.settings, database=fenced, doorbell=self._rival._doorbell)
        order = action.order
        how = {"step": order["step"], "value": order["result"], "reason": order["reason"], "by": action.by}
        self._conclude_last(action)
        for run_id in self.rest_of(action):
            self._begin_run(action, run_id)
            self._add(action, as_record(rival.bulk(action.verb, [run_id], **how).outcomes[0]))  # type: ignore[arg-type]
        return "done"

    def _conclude_last(self, action: BulkAction) -> None:
        """The process before may have applied the verb to a run, and not stored the outcome."""
        with self._database.autocommit() as connection:
            row = bulk_records.read_bulk(connection, action.id)
            entry = bulk_records.applied(connection, row) if row is not None and row["doing"] else None
        if row is not None and entry is not None:
            self._add(action, found_record(row["doing"], entry))

    def _check(self, connection: Any, action: BulkAction) -> None:
        if not bulk_records.holds(connection, action.id, action.token):
            raise _Lost

    def _begin_run(self, action: BulkAction, run_id: str) -> None:
        if self._closing.is_set():
            raise _Lost
        with self._database.transaction() as connection:
            if bulk_records.begin_run(connection, action.id, action.token, run_id):
                return
            self._check(connection, action)
        raise _Stopped

    def _add(self, action: BulkAction, outcome: dict[str, Any]) -> None:
        with self._database.transaction() as connection:
            if not bulk_records.add_outcome(connection, action.id, action.token, action.ended + 1, outcome):
                raise _Lost
        action.add(outcome)

    def _leave(self, action: BulkAction) -> None:
        """To another process, or to the next look of this one."""
        with self._lock:
            self._actions.pop(action.id, None)
        try:
            with self._database.transaction() as connection:
                bulk_records.hand_back(connection, action.id, action.token)
        except RivalError as error:
            _log.warning("Bulk action %s continues in %d s at the earliest: %s", action.id, bulk_records.SILENT, error)

    def _end(self, action: BulkAction, state: State) -> None:
        action.ended_at = dt.datetime.now(dt.UTC)
        try:
            if action.dry_run or self._store_end(action, state):
                action.state = state
            else:
                self._leave(action)
        except RivalError:
            self._leave(action)

    def _store_end(self, action: BulkAction, state: State) -> bool:
        with self._database.transaction() as connection:
            is_own = bulk_records.end_bulk(connection, action.id, action.token, state, action.error)
            if is_own:
                _audit(connection, action)
        return is_own


def _audit(connection: Any, action: BulkAction) -> None:
    """Stays longer than the action; the history of each run has its part."""
    changed = action.ended - action.refused
    # Without values of users, which nothing would hide there.
    chosen = {name: one for name, one in (action.order["filter"] or {}).items() if name not in ("input", "result")}
    about = {"verb": action.verb, "filter": chosen or None, "reason": action.order["reason"]}
    counts = {"changed": changed, "refused": action.refused, "of": action.total}
    write_audit(connection, action.by, "bulk", f"bulk:{action.id}", **about, **counts)


def new_id() -> str:
    return secrets.token_hex(8)
