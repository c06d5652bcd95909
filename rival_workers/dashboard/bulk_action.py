"""A verb on many runs with its progress, and the row that keeps it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rival_client.api.bulk import BulkOutcome
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


def action_of(row: Mapping[str, Any]) -> BulkAction:
    is_interrupted = row["state"] == "running" and row["is_silent"]
    names = ("id", "verb", "preview", "total", "error", "ended", "refused", "started_at", "ended_at")
    state, error = ("interrupted", _INTERRUPTED) if is_interrupted else (row["state"], row["error"])
    large = {"commands": row.get("commands") or {}, "order": row.get("given") or {}, "runs": row.get("runs")}
    known = {name: row[name] for name in names}
    return BulkAction(**{**known, **large, "by": row["actor"], "dry_run": False, "state": state, "error": error})
