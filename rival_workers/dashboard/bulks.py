"""Verbs on many runs as objects with progress: done in a thread, watched by any viewer.

Previews are in memory. What changes runs is also in the database, with each outcome as it comes: another process shows
it, and so does this one after a restart.
"""

from __future__ import annotations

import datetime as dt
import logging
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rival_client.api.bulk import Bulk, BulkOutcome
from rival_client.db.database import Database
from rival_client.errors import RivalError
from rival_client.sql import bulk_records
from rival_workers.dashboard.values import moment

#: Outcomes that an answer has at most.
SHOWN = 1000
#: Steps of one outcome that are kept.
_OPENED = 20
State = Literal["running", "done", "stopped", "failed", "interrupted"]
_INTERRUPTED = (
    "The process of the dashboard that did this has ended. Runs without an outcome are as they were, except perhaps "
    "the one that it was at: look at a preview of the rest, and confirm it."
)
_log = logging.getLogger(__name__)


class _Stopped(Exception):
    pass


@dataclass
class BulkAction:
    """`runs`: those that it is for, if that is known before."""

    id: str
    verb: str
    dry_run: bool
    by: str
    commands: dict[str, str]
    order: dict[str, Any]
    preview: str | None = None
    runs: list[str] | None = None
    total: int | None = None
    state: State = "running"
    error: str | None = None
    more: bool = False
    ended: int = 0
    refused: int = 0
    outcomes: list[dict[str, Any]] = field(default_factory=list)
    started_at: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    ended_at: dt.datetime | None = None
    is_stopping: bool = False
    #: Of a preview: an action has been begun with it.
    is_confirmed: bool = False

    def view(self, *, outcomes: bool) -> dict[str, Any]:
        total = self.total if self.total is not None else self.ended
        found = {
            "id": self.id,
            "verb": self.verb,
            "dry_run": self.dry_run,
            "state": self.state,
            "error": self.error,
            "total": total,
            "ended": self.ended,
            "refused": self.refused,
            "rest": 0 if self.dry_run or self.state == "running" else total - self.ended,
            "more": self.more,
            "by": self.by,
            "started_at": moment(self.started_at),
            "ended_at": moment(self.ended_at),
            "preview": self.preview,
            "confirmed": self.is_confirmed,
            "commands": self.commands,
        }
        return {**found, "outcomes": [_outcome_view(one) for one in self.outcomes[:SHOWN]]} if outcomes else found

    def add(self, outcome: BulkOutcome) -> dict[str, Any]:
        made = _as_record(outcome)
        self.outcomes.append(made)
        self.ended += 1
        self.refused += outcome.why is not None
        return made

    @property
    def run_ids(self) -> list[str]:
        """The runs that it would change."""
        return [one["run_id"] for one in self.outcomes if one["why"] is None]


def _as_record(one: BulkOutcome) -> dict[str, Any]:
    reopened = one.reopened
    return {
        "run_id": one.run.run_id,
        "workflow": one.run.workflow,
        "status": one.run.status,
        "why": one.why,
        "opened": list(reopened.opened[:_OPENED]) if reopened else [],
        "runs_again": len(reopened.runs_again) if reopened else 0,
    }


def _outcome_view(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"run": record["run_id"], **{name: one for name, one in record.items() if name != "run_id"}}


def _from_row(row: Mapping[str, Any]) -> BulkAction:
    is_interrupted = row["state"] == "running" and row["is_silent"]
    names = ("id", "verb", "preview", "total", "error", "ended", "refused", "started_at", "ended_at")
    state, error = ("interrupted", _INTERRUPTED) if is_interrupted else (row["state"], row["error"])
    large = {"commands": row.get("commands") or {}, "order": row.get("given") or {}, "runs": row.get("runs")}
    known = {name: row[name] for name in names}
    return BulkAction(**{**known, **large, "by": row["actor"], "dry_run": False, "state": state, "error": error})


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
            found = _from_row(row)
            found.outcomes = bulk_records.read_outcomes(connection, action_id, SHOWN)
        return found

    def newest(self) -> list[BulkAction]:
        with self._lock:
            own = dict(self._actions)
        with self._database.autocommit() as connection:
            kept = [_from_row(row) for row in bulk_records.newest_bulks(connection) if row["id"] not in own]
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
            action.error = "The dashboard has a defect here; its log has the traceback."
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
