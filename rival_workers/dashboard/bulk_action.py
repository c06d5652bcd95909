"""A verb on many runs with its progress, and the row that keeps it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from rival_client.api.bulk import BulkOutcome
from rival_workers.dashboard.values import moment
from rival_workers.engine.paths import is_compensation

#: Outcomes that an answer has at most.
SHOWN = 1000
#: Steps of one outcome that are kept.
_OPENED = 20
State = Literal["running", "done", "stopped", "failed", "interrupted"]
_INTERRUPTED = (
    "The process of the dashboard that executes this has ended, or hangs. The next one that looks takes over, and "
    "continues with the runs that have no outcome. To leave these as they are, stop the action."
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
    #: Of an action that this process executes.
    token: int = 0

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
            "rest": 0 if self.dry_run or self.is_open else total - self.ended,
            "more": self.more,
            "by": self.by,
            "started_at": moment(self.started_at),
            "ended_at": moment(self.ended_at),
            "preview": self.preview,
            "confirmed": self.is_confirmed,
            "commands": self.commands,
        }
        return {**found, "outcomes": [_outcome_view(one) for one in self.outcomes[:SHOWN]]} if outcomes else found

    def add(self, outcome: dict[str, Any]) -> None:
        self.outcomes.append(outcome)
        self.ended += 1
        self.refused += outcome["why"] is not None

    @property
    def is_open(self) -> bool:
        return self.state in ("running", "interrupted")

    @property
    def run_ids(self) -> list[str]:
        """The runs that it would change."""
        return [one["run_id"] for one in self.outcomes if one["why"] is None]


def as_record(one: BulkOutcome) -> dict[str, Any]:
    reopened = one.reopened
    return {
        "run_id": one.run_id,
        "workflow": one.run.workflow if one.run else "",
        "status": one.run.status if one.run else "",
        "why": one.why,
        "opened": list(reopened.opened[:_OPENED]) if reopened else [],
        "runs_again": len(reopened.runs_again) if reopened else 0,
    }


def found_record(doing: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome of a verb that a process has applied just before it ended, from the entry of the history."""
    opened = entry.get("opened") or []
    begun = [path for path in entry.get("deleted") or [] if not is_compensation(path)]
    again = dict.fromkeys([*begun, *opened])
    known = {name: doing[name] for name in ("run_id", "workflow", "status")}
    return {**known, "why": None, "opened": opened[:_OPENED], "runs_again": len(again)}


def _outcome_view(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"run": record["run_id"], **{name: one for name, one in record.items() if name != "run_id"}}


def action_of(row: Mapping[str, Any]) -> BulkAction:
    is_interrupted = row["state"] == "running" and row["is_silent"]
    names = ("id", "verb", "preview", "total", "error", "ended", "refused", "started_at", "ended_at", "token")
    state, error = ("interrupted", _INTERRUPTED) if is_interrupted else (row["state"], row["error"])
    large = {"commands": row.get("commands") or {}, "order": row.get("given") or {}, "runs": row.get("runs")}
    large["is_stopping"] = row["stopping"]
    known = {name: row[name] for name in names}
    return BulkAction(**{**known, **large, "by": row["actor"], "dry_run": False, "state": state, "error": error})
