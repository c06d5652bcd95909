"""The route of the steps of one run: pages of items, iterations and checkpoints."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import Field

from rival_client.model.kinds import FLOW, FOR_EACH, ITEM, LOOP
from rival_client.model.records import Run
from rival_client.model.statuses import StepStatus
from rival_client.model.step_records import Step
from rival_client.sql.reads import step_pages
from rival_client.sql.reads.executors import workers_of
from rival_client.sql.reads.run_reads import read_run_head
from rival_client.sql.reads.step_pages import BEGINNING, StepLine
from rival_workers.dashboard.board import Board
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Call, Form, Route
from rival_workers.dashboard.run_parts import reached_step
from rival_workers.dashboard.veil import Veil
from rival_workers.dashboard.views import step_view

_NUMBERED = re.compile(r".*\[\d+\]", re.DOTALL)


class StepsQuery(Form):
    under: str = Field(min_length=1)
    status: StepStatus | None = None
    #: A number, or for the steps of an item or iteration the last path: `next` of the page before.
    start: str | None = Field(default=None, alias="from")
    limit: int = Field(default=50, ge=1, le=200)

    @property
    def number(self) -> int:
        text = self.start or "0"
        if not (text.isascii() and text.isdigit() and len(text) < 16):
            raise Refused(422, "InvalidArgument", "`from` is not a number: give the `next` of the page before.")
        return int(text)


def list_steps(call: Call) -> dict[str, Any]:
    run_id, query = call.names["run_id"], call.query
    with call.board.database.snapshot() as connection:
        run = read_run_head(connection, run_id)
        if _NUMBERED.fullmatch(query.under):
            return _inside(call.board, connection, run, query)
        step = reached_step(connection, run, query.under)
        match step.kind:
            case _ if step.kind == FOR_EACH:
                return _items(call.board, connection, run, step, query)
            case _ if step.kind == LOOP:
                return _iterations(call.board, connection, run, step, query)
            case _ if step.kind == FLOW:
                return _checkpoints(call.board, connection, run, step, query)
        return _inside(call.board, connection, run, query)


def _items(board: Board, connection: Any, run: Run, step: Step, query: StepsQuery) -> dict[str, Any]:
    start, path = query.number, step.path
    if query.status is None:
        found = step_pages.items(connection, run.run_id, path, start, query.limit)
        following = start + query.limit if start + query.limit < (step.total or 0) else None
    else:
        found = step_pages.items_in_status(connection, run.run_id, path, ITEM, query.status, start, query.limit)
        following = _index(found[-1].step.path) + 1 if len(found) == query.limit else None
    counts = step_pages.counts(connection, run.run_id, f"{path}[", ITEM)
    return _page(_parts_of(board, connection, run, found), following, step.total, counts)


def _iterations(board: Board, connection: Any, run: Run, step: Step, query: StepsQuery) -> dict[str, Any]:
    found = step_pages.iterations(connection, run.run_id, step.path, query.number, query.limit)
    items = [
        {"index": number, "path": f"{step.path}[{number}]", "status": _status(its), "steps": len(its)}
        for number, its in found.items()
    ]
    following = query.number + query.limit if len(found) == query.limit else None
    return _page(items, following, step_pages.iteration_count(connection, run.run_id, step.path), {})


def _status(its: Sequence[Step]) -> str:
    statuses = {step.status for step in its}
    if any(step.completed_at is None for step in its):
        return "running"
    return "failed" if "failed" in statuses else "cancelled" if "cancelled" in statuses else "completed"


def _checkpoints(board: Board, connection: Any, run: Run, step: Step, query: StepsQuery) -> dict[str, Any]:
    start = query.number
    found = step_pages.checkpoints(connection, run.run_id, step.path, query.status, start, query.limit)
    counts = step_pages.counts(connection, run.run_id, f"{step.path}/")
    items = [{**view, "index": start + n} for n, view in enumerate(_parts_of(board, connection, run, found))]
    following = start + query.limit if len(found) == query.limit else None
    return _page(items, following, sum(counts.values()), counts)


def _inside(board: Board, connection: Any, run: Run, query: StepsQuery) -> dict[str, Any]:
    found = step_pages.below(connection, run.run_id, query.under, query.start, query.limit)
    following = found[-1].step.path if len(found) == query.limit else None
    return _page(_parts_of(board, connection, run, found), following, None, {})


def _page(items: list[dict[str, Any]], following: Any, total: int | None, counts: dict[str, int]) -> dict[str, Any]:
    return {"items": items, "next": None if following is None else str(following), "total": total, "counts": counts}


def _parts_of(board: Board, connection: Any, run: Run, found: Sequence[StepLine]) -> list[dict[str, Any]]:
    veil = board.veil_of(run.workflow, run.version)
    workers = workers_of(connection, {one.step.executor for one in found if one.step.executor})
    return [
        step_view(one.step, veil, workers)
        | {
            "index": _index(one.step.path) if _NUMBERED.fullmatch(one.step.path) else None,
            "item": _beginning(veil, one.item),
            "result": _beginning(veil, one.result),
        }
        for one in found
    ]


def _beginning(veil: Veil, text: str | None) -> str | None:
    return veil.beginning(text, len(text or "") < BEGINNING)


def _index(path: str) -> int:
    return int(path[path.rindex("[") + 1 : -1])


# -- one step ---------------------------------------------------------------------------------------------


ROUTES = (Route("GET", "/runs/{run_id}/steps", "viewer", list_steps, "Read items or checkpoints", query=StepsQuery),)
