"""Parts of a run that several routes return: the whole run, one value, one step."""

from __future__ import annotations

import zlib
from typing import Any

from rival_client.db.locks import newest_entry
from rival_client.db.log_tables import history, logs
from rival_client.model.history_entries import REQUESTED
from rival_client.model.kinds import BRANCH
from rival_client.model.records import Run, RunState
from rival_client.model.run_entries import HistoryEntry
from rival_client.model.step_records import Step
from rival_client.sql.reads.capped_counts import count_of_run
from rival_client.sql.reads.executors import workers_of
from rival_client.sql.reads.history_reads import newest_ids, read_history
from rival_client.sql.reads.run_family import children_of
from rival_client.sql.reads.run_reads import read_step
from rival_client.sql.reads.state_reads import read_state
from rival_client.sql.reads.waits import waits_of
from rival_client.sql.reads.why_reads import read_facts
from rival_client.sql.workflows import current_workflow
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.entry_views import entry_view, why_view
from rival_workers.dashboard.graph import graph, taken
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.veil import Veil
from rival_workers.dashboard.views import attempt_view, count_view, run_view, step_view
from rival_workers.engine.plan import Plan

#: Entries of the history that a shared run has.
_HISTORY = 500
#: Entries of a history whose ids say whether it has changed.
_MARKED = 50
FOLD = 20


def mark_of(connection: Any, run_id: str) -> str:
    """Another one when the history has changed."""
    ids = newest_ids(connection, run_id, _MARKED)
    return f"{ids[0] if ids else 0}-{zlib.crc32(repr(ids).encode()):08x}"


def whole_run(board: Board, connection: Any, state: RunState) -> dict[str, Any]:
    """The answer for one run, from one snapshot."""
    veil, policies = board.veil_of(state.workflow, state.version), board.policies_of(state.workflow, state.version)
    plan = None if policies is None else policies.plan
    current = current_workflow(connection, state.workflow)
    beginnings = {entry.what: entry for entry in read_history(connection, state.run_id, limit=3, slim=True)}
    run = run_view(state, veil) | {
        "started_by": _by(beginnings.get(REQUESTED)),
        "description": board.description_of(state.workflow, state.version),
    }
    return {
        "run": run,
        "steps": _steps(connection, state, plan, veil),
        "folded": state.folded,
        "attempts": [attempt_view(one, state.run_id, veil) for one in state.attempts],
        "graph": None if policies is None else graph(policies, veil),
        "current_version": None if current is None else current.version,
        "history_id": newest_entry(connection, state.run_id),
        "mark": mark_of(connection, state.run_id),
        "children": count_view(children_of(connection, state.run_id)),
        "counts": {
            name: count_view(count_of_run(connection, state.run_id, table))
            for name, table in (("history", history), ("logs", logs))
        },
    }


def _by(entry: HistoryEntry | None) -> str | None:
    return None if entry is None else entry.by


def _steps(connection: Any, state: RunState, plan: Plan | None, veil: Veil) -> list[dict[str, Any]]:
    workers = workers_of(connection, {step.executor for step in state.steps if step.executor})
    waits = waits_of(connection, state.run_id)
    views = [step_view(step, veil, workers) for step in state.steps]
    for step, view in zip(state.steps, views, strict=True):
        wait = waits.get(step.path)
        if wait is not None:
            view["wait"] = {"topic": wait.topic, "key": wait.key, "filter": veil.hidden(wait.filter)}
        if step.kind == BRANCH:
            view["taken"] = taken((one.path for one in state.steps), step.path, plan)
    return views


def value_of(connection: Any, run: Any, of: str, path: str | None) -> Any:
    if of in ("input", "result", "error"):
        return getattr(run, of)
    step = reached_step(connection, run, path or "")
    return step.result if of == "step-result" else step.item


def reached_step(connection: Any, run: Run, path: str) -> Step:
    step = read_step(connection, run.run_id, path)
    if step is None:
        raise Refused(404, "NotFound", f"Run {run.run_id!r} has not reached a step {path!r}.")
    return step


def everything(board: Board, run_id: str) -> dict[str, Any]:
    with board.database.snapshot() as connection:
        run = whole_run(board, connection, read_state(connection, run_id, FOLD))
        entries = read_history(connection, run_id, limit=_HISTORY, slim=True)
        facts = read_facts(connection, run_id)
    veil = board.veil_of(facts.workflow, facts.version)
    history = [entry_view(entry, veil) for entry in entries]
    return {"run": run, "history": history, "why": why_view(board.reader._explained(facts), veil)}
