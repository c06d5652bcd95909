"""Verbs on many runs as objects with progress: done in a thread, watched by any viewer.

Previews are in memory. What changes runs is also in the database, with each outcome as it comes: another process shows
it, and so does this one after a restart.
"""

from __future__ import annotations

import datetime as dt
import logging
import secrets
import threading
from collections.abc import Callable
from typing import Any

from rival_client.api.bulk import Bulk, BulkOutcome
from rival_client.db.database import Database
from rival_client.errors import RivalError
from rival_client.sql import bulk_records
from rival_workers.dashboard.bulk_action import SHOWN, BulkAction, State, action_of

_log = logging.getLogger(__name__)


class _Stopped(Exception):
    pass


class Bulks:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._actions: dict[str, BulkAction] = {}

    def own(self, action_id: str) -> BulkAction | None:
        """One of this process."""
        return self._actions.get(action_id)

    def confirm(self, preview: BulkAction) -> bool:
        """False if it was confirmed before: a button that is pressed twice is meant once."""
        with self._lock:
            is_first, preview.is_confirmed = not preview.is_confirmed, True
        return is_first

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
        found = self.own(action_id)
        return None if found is None else found.view(outcomes=False)

    def rest_of(self, action: BulkAction) -> list[str]:
        """The runs that have no outcome."""
        if self.own(action.id) is not None:
            ended = {one["run_id"] for one in action.outcomes}
        else:
            with self._database.autocommit() as connection:
                ended = bulk_records.runs_with_outcome(connection, action.id)
        return [run_id for run_id in action.runs or () if run_id not in ended]

    def begin(self, action: BulkAction, call: Callable[[Callable[[BulkOutcome], None]], Bulk]) -> BulkAction:
        if not action.dry_run:
            about = {name: getattr(action, name) for name in ("runs", "total", "commands", "preview")}
            with self._database.transaction() as connection:
                bulk_records.begin_bulk(connection, action.id, action.verb, action.by, given=action.order, **about)
        with self._lock:
            self._actions[action.id] = action
            for old in [one.id for one in self._actions.values() if one.state != "running"][: -bulk_records.KEPT]:
                del self._actions[old]
        threading.Thread(target=self._do, args=(action, call), name="rival-bulk", daemon=True).start()
        return action

    def _do(self, action: BulkAction, call: Callable[[Callable[[BulkOutcome], None]], Bulk]) -> None:
        def take(outcome: BulkOutcome) -> None:
            made = action.add(outcome)
            if not action.dry_run:
                with self._database.transaction() as connection:
                    bulk_records.add_outcome(connection, action.id, action.ended, made)
            if action.is_stopping:
                raise _Stopped

        state: State = "failed"
        try:
            action.more = call(take).more
            state = "done"
        except _Stopped:
            state = "stopped"
        except RivalError as error:
            action.error = str(error)
        except Exception:
            action.error = "An unexpected error of the dashboard: its log has the traceback."
            raise
        finally:
            self._end(action, state)

    def _end(self, action: BulkAction, state: State) -> None:
        action.ended_at = dt.datetime.now(dt.UTC)
        try:
            if not action.dry_run:
                with self._database.transaction() as connection:
                    bulk_records.end_bulk(connection, action.id, state, action.error)
        except RivalError:
            _log.exception("The end of bulk action %s could not be stored: it will be shown as interrupted.", action.id)
        finally:
            action.state = state


def new_id() -> str:
    return secrets.token_hex(8)
