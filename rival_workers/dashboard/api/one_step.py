"""The route of one step with its attempts."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.model.records import Run
from rival_client.sql.reads.executors import workers_of
from rival_client.sql.reads.logs import read_last_logs
from rival_client.sql.reads.run_family import children_started_by
from rival_client.sql.reads.run_reads import read_attempts, read_run_head
from rival_client.sql.reads.waits import waits_of
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.entry_views import log_view
from rival_workers.dashboard.route import Call, Form, Route
from rival_workers.dashboard.run_parts import reached_step
from rival_workers.dashboard.usual import usual, usual_place
from rival_workers.dashboard.views import attempt_view, step_view
from rival_workers.engine.paths import place_of, role_of

_ATTEMPTS, _LOGS, _CHILDREN = 200, 20, 50


class StepQuery(Form):
    step: str = Field(min_length=1)


def one_step(call: Call) -> dict[str, Any]:
    run_id, path, board = call.names["run_id"], call.query.step, call.board
    with board.database.snapshot() as connection:
        run = read_run_head(connection, run_id)
        step = reached_step(connection, run, path)
        tried = read_attempts(connection, run_id, path, _ATTEMPTS)
        lines = read_last_logs(connection, run_id, step=path, limit=_LOGS)
        children = children_started_by(connection, run_id, path, _CHILDREN)
        workers = workers_of(connection, {one for one in (step.executor, *(a.executor for a in tried)) if one})
        wait = waits_of(connection, run_id).get(path)
    veil = board.veil_of(run.workflow, run.version)
    view = step_view(step, veil, workers)
    if wait is not None:
        view["wait"] = {"topic": wait.topic, "key": wait.key, "filter": veil.hidden(wait.filter)}
    return {
        "step": view,
        "attempts": [attempt_view(one, run_id, veil, traceback=True) for one in tried],
        "result": None if step.completed_at is None else veil.value(step.result),
        "item": None if step.item is None else veil.value(step.item),
        "state": veil.value(step.state) if step.state else None,
        "logs": [log_view(line, veil) for line in lines],
        "options": veil.within(_options(board, run, path)),
        "usual": usual(board, run.workflow)["steps"].get(usual_place(path)),
        "children": list(children),
    }


def _options(board: Board, run: Run, path: str) -> dict[str, Any]:
    policies = board.policies_of(run.workflow, run.version)
    place = place_of(role_of(path)[0]).removesuffix("[]")
    return {} if policies is None else dict(policies.shown().get(place, {}))


ROUTES = (
    Route(
        "GET",
        "/runs/{run_id}/step",
        "viewer",
        one_step,
        "Read one step with its attempts",
        query=StepQuery,
        does="dlq show",
    ),
)
