"""The route that shows a run as it was at an entry of its history."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import pairwise
from typing import Any

from pydantic import Field

from rival_client.model.kinds import BRANCH, FLOW
from rival_client.model.rebuild import rebuild
from rival_client.model.rebuilt_records import RebuiltStep
from rival_client.model.run_entries import HistoryEntry
from rival_client.model.statuses import COMPLETED, FAILED
from rival_client.sql.reads.history_columns import ITEM_COUNT
from rival_client.sql.reads.history_reads import read_history
from rival_client.sql.reads.run_reads import read_run_head
from rival_workers.dashboard.graph import addressed, taken
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Call, Form, Route
from rival_workers.dashboard.status_changes import MOST, changed_statuses
from rival_workers.dashboard.values import fields, moment, moments
from rival_workers.dashboard.veil import Veil
from rival_workers.dashboard.views import error_view
from rival_workers.engine.plan import Plan

#: Of many iterations, so many of the first, of the last and of the failed ones are shown.
_SHOWN = 10
_INDEX = re.compile(r"\[\d+\]")


def as_it_was(entries: Sequence[HistoryEntry], veil: Veil, plan: Plan | None) -> dict[str, Any]:
    """The run after these entries."""
    rebuilt = rebuild(replace(entry, detail=_with_items(entry.detail)) for entry in entries)
    run = {
        **fields(rebuilt, "status workflow version failed_step paused"),
        **moments(rebuilt, "started_at completed_at"),
        "error": error_view(rebuilt.error, veil),
    }
    shown, folded = _fold(rebuilt.steps)
    begun = _begun(entries)
    views = [_rebuilt(path, rebuilt.steps[path], veil) | {"created_at": moment(begun.get(path))} for path in shown]
    for view in views:
        if view["kind"] == BRANCH:
            view["taken"] = taken(rebuilt.steps, view["path"], plan)
    return {"run": run, "steps": views, "folded": folded}


def _begun(entries: Sequence[HistoryEntry]) -> dict[str, dt.datetime]:
    """Path -> when the step got its row. Composites have no attempt whose start would say it."""
    found: dict[str, dt.datetime] = {}
    for entry in entries:
        for path, _ in changed_statuses(entry):
            found.setdefault(path, entry.at)
        for path in entry.detail.get("deleted", ()):
            found.pop(path, None)
    return found


def _fold(steps: Mapping[str, RebuiltStep]) -> tuple[list[str], dict[str, dict[str, int]]]:
    """The paths to show, and what is left out: of many items, iterations or checkpoints the first, the last and some
    that failed are shown; the others are counted by status, below the step that has them."""
    flows = {path for path, one in steps.items() if one.kind == FLOW}
    within = {path: list(_iterations(path, flows)) for path in steps}
    found: dict[str, dict[str, str]] = {}
    for path, its in within.items():
        for owner, iteration in its:
            # An iteration of a loop has no row of its own.
            found.setdefault(owner, {}).setdefault(iteration, COMPLETED)
            if path == iteration:
                found[owner][iteration] = steps[path].status
    folded: dict[str, dict[str, int]] = {}
    left_out: set[str] = set()
    for owner, iterations in found.items():
        if len(iterations) > 2 * _SHOWN:
            names = list(iterations)
            failed = [name for name in names if iterations[name] == FAILED]
            gone = iterations.keys() - {*names[:_SHOWN], *names[-_SHOWN:], *failed[:_SHOWN]}
            left_out |= gone
            folded[owner] = dict(Counter(iterations[name] for name in gone))
    shown = [path for path, its in within.items() if not any(one in left_out for _, one in its)]
    return shown, folded


def _iterations(path: str, flows: Set[str]) -> Iterator[tuple[str, str]]:
    """(composite, iteration or checkpoint) for each that the path is in, or is."""
    whole = path.partition("!")[0]
    for found in _INDEX.finditer(whole):
        yield whole[: found.start()], whole[: found.end()]
    ends = [at for at, sign in enumerate(whole) if sign == "/"]
    for at, end in pairwise([*ends, len(whole)]):
        if whole[:at] in flows:
            yield whole[:at], whole[:end]


def _with_items(detail: dict[str, Any]) -> dict[str, Any]:
    return {**detail, "items": [None] * detail[ITEM_COUNT]} if ITEM_COUNT in detail else detail


def _rebuilt(path: str, step: RebuiltStep, veil: Veil) -> dict[str, Any]:
    return {
        "path": path,
        **addressed(path),
        **fields(step, "kind status attempts lost executor"),
        **moments(step, "started_at completed_at"),
        "error": error_view(step.error, veil),
    }


class PastQuery(Form):
    id: int = Field(ge=0, le=2**62)


def past(call: Call) -> dict[str, Any]:
    run_id = call.names["run_id"]
    with call.board.database.snapshot() as connection:
        run = read_run_head(connection, run_id)
        until = read_history(connection, run_id, until=call.query.id, limit=MOST, slim=True)
    if not until:
        raise Refused(404, "NotFound", f"The history of run {run_id!r} has no entry up to {call.query.id}.")
    policies = call.board.policies_of(run.workflow, run.version)
    plan = None if policies is None else policies.plan
    found = as_it_was(until, call.board.veil_of(run.workflow, run.version), plan)
    return {**found, "as_of": {"id": until[-1].id, "at": moment(until[-1].at)}}


ROUTES = (Route("GET", "/runs/{run_id}/past", "viewer", past, "Read the run as it was at an entry", query=PastQuery),)
