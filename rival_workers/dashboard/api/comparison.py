"""The route that compares two runs: the path that each took, times, attempts, inputs and results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rival_client.model.records import RunState
from rival_client.model.step_records import Step
from rival_client.sql.reads.run_rows import rows_by_id
from rival_client.sql.reads.state_reads import read_state
from rival_workers.dashboard.graph import plan_difference
from rival_workers.dashboard.route import Call, Route
from rival_workers.dashboard.row_views import views_of
from rival_workers.dashboard.values import fields

#: Differences and steps that an answer has.
_MOST = 1000
_FOLD = 20
#: A step that took this many times as long is slower.
_MUCH = 1.5


def compare(call: Call) -> dict[str, Any]:
    board, ids = call.board, [call.names["run_id"], call.names["other"]]
    with board.database.snapshot() as connection:
        left, right = (read_state(connection, run_id, _FOLD) for run_id in ids)
        views = {view["id"]: view for view in views_of(board, connection, rows_by_id(connection, ids))}
    shown = [(board.veil_of(one.workflow, one.version), one) for one in (left, right)]
    inputs, results = ([veil.hidden(getattr(one, name)) for veil, one in shown] for name in ("input", "result"))
    return {
        "left": views[ids[0]],
        "right": views[ids[1]],
        "same_version": (left.workflow, left.version) == (right.workflow, right.version),
        "plan": _plans(call, left, right),
        "input": list(differences(*inputs))[:_MOST],
        "result": list(differences(*results))[:_MOST],
        "steps": _steps(left, right)[:_MOST],
        "folded": sorted({*left.folded, *right.folded}),
    }


def _plans(call: Call, left: RunState, right: RunState) -> dict[str, Any] | None:
    if left.workflow != right.workflow or left.version == right.version:
        return None
    found = [call.board.policies_of(one.workflow, one.version) for one in (left, right)]
    return None if None in found else plan_difference(*found)  # type: ignore[arg-type]


def differences(left: Any, right: Any, pointer: str = "") -> Iterator[dict[str, Any]]:
    """Where two JSON values differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        for name in [*left, *(name for name in right if name not in left)]:
            path = f"{pointer}/{str(name).replace('~', '~0').replace('/', '~1')}"
            yield from _of_part(left, right, name, path)
    elif isinstance(left, list) and isinstance(right, list):
        before, after = dict(enumerate(left)), dict(enumerate(right))
        for index in range(max(len(left), len(right))):
            yield from _of_part(before, after, index, f"{pointer}/{index}")
    elif left != right or type(left) is not type(right):
        yield {"pointer": pointer, "left": left, "right": right, "kind": "changed"}


def _of_part(left: Any, right: Any, name: Any, path: str) -> Iterator[dict[str, Any]]:
    if name not in right:
        yield {"pointer": path, "left": left[name], "right": None, "kind": "left_only"}
    elif name not in left:
        yield {"pointer": path, "left": None, "right": right[name], "kind": "right_only"}
    else:
        yield from differences(left[name], right[name], path)


def _steps(left: RunState, right: RunState) -> list[dict[str, Any]]:
    sides = [{step.path: step for step in one.steps} for one in (left, right)]
    paths = [*sides[0], *(path for path in sides[1] if path not in sides[0])]
    known = [path for path in paths if _is_known(path, left, sides[0]) and _is_known(path, right, sides[1])]
    return [_step(path, sides[0].get(path), sides[1].get(path)) for path in known]


def _is_known(path: str, run: RunState, side: dict[str, Step]) -> bool:
    """Whether it is known if the run has the step: below a folded composite, not all steps are read."""
    return path in side or not any(path.startswith((f"{folded}[", f"{folded}/")) for folded in run.folded)


def _step(path: str, left: Step | None, right: Step | None) -> dict[str, Any]:
    times = [one.duration if one else None for one in (left, right)]
    ratio = times[1] / times[0] if times[0] and times[1] is not None else None
    about = [fields(one, "status duration attempts") if one else None for one in (left, right)]
    change = _change(left, right, ratio)
    return {"path": path, "left": about[0], "right": about[1], "change": change, "ratio": ratio and round(ratio, 2)}


def _change(left: Step | None, right: Step | None, ratio: float | None) -> str:
    if left is None or right is None:
        return "right_only" if left is None else "left_only"
    if left.status != right.status:
        return "status"
    if left.attempts != right.attempts:
        return "attempts"
    if ratio is not None and (ratio > _MUCH or ratio < 1 / _MUCH):
        return "slower" if ratio > 1 else "faster"
    return "same"


ROUTES = (Route("GET", "/runs/{run_id}/diff/{other}", "viewer", compare, "Compare two runs"),)
