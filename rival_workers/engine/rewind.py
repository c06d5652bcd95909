"""Plans an operator's rewind: deletes the rows after a step, and is a retry from there. So other branches that a
failure has cancelled continue, too. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rival_client.errors import listed
from rival_client.model.kinds import FLOW, ITEM
from rival_workers.engine import paths
from rival_workers.engine.nodes import ForEachNode, LoopNode
from rival_workers.engine.plan import Plan
from rival_workers.engine.retry import has_begun, plan_from
from rival_workers.engine.rewind_flows import kept_by_rewind
from rival_workers.engine.rewind_records import NotPossible, RewindPlan, Row


def rewind(plan: Plan, rows: Iterable[Row], path: str) -> RewindPlan:
    """Continue with the step at this path, whether or not it has ended. The path may be that of an item or iteration
    (`f[1]`), which begins with its first step, or that of a checkpoint of a flow."""
    all_rows = {row.path: row for row in rows}
    flow = _flow_of(plan, all_rows, path)
    if flow is not None:
        if "!" in path:
            raise NotPossible(f"{path!r} is not a checkpoint: rewind to {paths.role_of(path)[0]!r} instead")
        return plan_from(plan, all_rows, flow, kept=kept_by_rewind(flow, all_rows, path).paths)
    step = _first_of_item(plan, path)
    _check_target(plan, all_rows, step)
    return plan_from(plan, all_rows, step)


def _first_of_item(plan: Plan, path: str) -> str:
    above, number = paths.iteration_of(path)
    place = plan.places.get(paths.place_of(above))
    if number is None or place is None or not isinstance(place.node, ForEachNode | LoopNode):
        return path
    return f"{path}/{place.node.do[0].name}"


def _flow_of(plan: Plan, rows: Mapping[str, Row], path: str) -> str | None:
    """The flow whose checkpoint the path is. The name of a checkpoint can contain slashes."""
    parts = path.split("/")
    above = ("/".join(parts[:count]) for count in range(1, len(parts)))
    return next((one for one in above if path in rows and one in rows and rows[one].kind == FLOW), None)


def _check_target(plan: Plan, rows: Mapping[str, Row], path: str) -> None:
    if "!" in path:
        base = paths.role_of(path)[0]
        raise NotPossible(f"{path!r} is not a step: rewind to {repr(base) if base else 'the step itself'} instead")
    if paths.place_of(path) not in plan.places or not has_begun(rows, path):
        known = listed([row.path for row in rows.values() if "!" not in row.path and row.kind != ITEM])
        raise NotPossible(f"no step {path!r} has begun (known: {known or 'none yet'})")
