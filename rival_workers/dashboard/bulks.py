"""Verbs on many runs as objects with progress: made in a thread, watched by any viewer. A restart drops them."""

from __future__ import annotations

import datetime as dt
import secrets
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from rival_client.api.bulk import Bulk, BulkOutcome
from rival_client.errors import RivalError
from rival_workers.dashboard.values import moment

#: Bulk actions that are kept.
KEPT = 100
State = Literal["running", "done", "stopped", "failed"]


class _Stopped(Exception):
    pass


@dataclass
class BulkAction:
    """`call` does it: it gets a function that takes each outcome."""

    id: str
    verb: str
    dry_run: bool
    by: str
    commands: dict[str, str]
    order: dict[str, Any]
    preview: str | None = None
    total: int | None = None
    state: State = "running"
    error: str | None = None
    more: bool = False
    outcomes: list[BulkOutcome] = field(default_factory=list)
    started_at: dt.datetime = field(default_factory=lambda: dt.datetime.now(dt.UTC))
    ended_at: dt.datetime | None = None
    is_stopping: bool = False

    def view(self, *, outcomes: bool) -> dict[str, Any]:
        found = {
            "id": self.id,
            "verb": self.verb,
            "dry_run": self.dry_run,
            "state": self.state,
            "error": self.error,
            "total": self.total if self.total is not None else len(self.outcomes),
            "ended": len(self.outcomes),
            "refused": sum(one.why is not None for one in self.outcomes),
            "more": self.more,
            "by": self.by,
            "started_at": moment(self.started_at),
            "ended_at": moment(self.ended_at),
            "preview": self.preview,
            "commands": self.commands,
        }
        return {**found, "outcomes": [_outcome(one) for one in self.outcomes]} if outcomes else found

    @property
    def run_ids(self) -> list[str]:
        """The runs that it would change."""
        return [one.run.run_id for one in self.outcomes if one.why is None]


def _outcome(one: BulkOutcome) -> dict[str, Any]:
    reopened = one.reopened
    return {
        "run": one.run.run_id,
        "workflow": one.run.workflow,
        "status": one.run.status,
        "why": one.why,
        "opened": list(reopened.opened) if reopened else [],
        "runs_again": len(reopened.runs_again) if reopened else 0,
    }


class Bulks:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._actions: dict[str, BulkAction] = {}

    def get(self, action_id: str) -> BulkAction | None:
        return self._actions.get(action_id)

    def newest(self) -> Sequence[BulkAction]:
        with self._lock:
            return list(reversed(self._actions.values()))

    def progress(self, action_id: str) -> dict[str, Any] | None:
        found = self._actions.get(action_id)
        return None if found is None else found.view(outcomes=False)

    def begin(self, action: BulkAction, call: Callable[[Callable[[BulkOutcome], None]], Bulk]) -> BulkAction:
        with self._lock:
            self._actions[action.id] = action
            for old in [one.id for one in self._actions.values() if one.state != "running"][:-KEPT]:
                del self._actions[old]
        threading.Thread(target=_do, args=(action, call), name="rival-bulk", daemon=True).start()
        return action


def new_id() -> str:
    return secrets.token_hex(8)


def _do(action: BulkAction, call: Callable[[Callable[[BulkOutcome], None]], Bulk]) -> None:
    def take(outcome: BulkOutcome) -> None:
        action.outcomes.append(outcome)
        if action.is_stopping:
            raise _Stopped

    try:
        action.more = call(take).more
        action.state = "done"
    except _Stopped:
        action.state = "stopped"
    except RivalError as error:
        action.state, action.error = "failed", str(error)
    except Exception:
        action.state, action.error = "failed", "The dashboard has a defect here; its log has the traceback."
        raise
    finally:
        action.ended_at = dt.datetime.now(dt.UTC)
