"""Plans an operator's retry and rewind. A retry goes down from composite to composite to where each sequence has
stopped, and opens that step again. A rewind deletes the rows after a step, and is a retry from there. So other branches
that a failure has cancelled continue, too. Both go back to the steps that compensations have undone. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from rival_client.errors import listed
from rival_client.model import statuses
from rival_client.model.kinds import FLOW, ITEM, SOFT_HANDLER, STEP
from rival_client.model.statuses import DONE, STOPPED
from rival_workers.engine import paths
from rival_workers.engine.effects import OpenRow
from rival_workers.engine.nodes import (
    AnyNode,
    Body,
    BranchNode,
    Composite,
    FlowNode,
    ForEachNode,
    LoopNode,
    ParallelNode,
    WorkflowNode,
    bodies,
)
from rival_workers.engine.openings import open_at
from rival_workers.engine.paths import CANCEL, COMPENSATION, HANDLER
from rival_workers.engine.plan import Plan
from rival_workers.engine.rewind_flows import kept_by_retry, kept_by_rewind
from rival_workers.engine.rewind_plan import Downstream, NotPossible, Revived, RewindPlan, Row, compensated_steps


def retry(plan: Plan, rows: Iterable[Row]) -> RewindPlan:
    """Continue where the run has stopped."""
    return _plan_from(plan, {row.path: row for row in rows})


def rewind(plan: Plan, rows: Iterable[Row], path: str) -> RewindPlan:
    """Continue with the step at this path, whether or not it has ended. The path of an item or iteration
    (`f[1]`) means its first step; the path of a checkpoint of a flow is also valid."""
    all_rows = {row.path: row for row in rows}
    flow = _flow_of(plan, all_rows, path)
    if flow is not None:
        if "!" in path:
            raise NotPossible(f"{path!r} is not a checkpoint: rewind to {paths.role_of(path)[0]!r} instead")
        return _plan_from(plan, all_rows, flow, kept=kept_by_rewind(flow, all_rows, path).paths)
    step = _first_of_item(plan, path)
    _check_target(plan, all_rows, step)
    return _plan_from(plan, all_rows, step)


def _plan_from(plan: Plan, rows: Mapping[str, Row], *targets: str, kept: Collection[str] = ()) -> RewindPlan:
    """Go back to these steps and to those that compensations have undone; then continue where each sequence has
    stopped. `kept`: rows of a flow that stay, although the flow goes back."""
    found = compensated_steps(plan, rows, targets)
    after = Downstream(plan, [*targets, *found.steps])
    deleted = {at for at in rows if at in found.rows or (after.earliest and at in after and at not in kept)}
    left = {at: row for at, row in rows.items() if at not in deleted}
    begin = [path for path in after.earliest if path in targets or not _begins_item(plan, path)]
    stopped = {at: replace(left[at], status=statuses.CANCELLED) for at in {*after.around, *found.stopped} & left.keys()}
    opened = {path: Row(path, STEP, statuses.PENDING) for path in begin}
    planner = _Planner(plan, {**left, **stopped, **opened})
    planner.result.deleted += sorted(deleted)
    planner.result.opens += (one for path in begin for one in open_at(plan, path))
    return planner.run()


def _begins_item(plan: Plan, path: str) -> bool:
    """It is the first step of an item: the item waits again, like those that have not begun."""
    place = plan.place(path)
    return place.position == 0 and place.parent is not None and isinstance(place.parent.node, ForEachNode)


def _has_begun(rows: Mapping[str, Row], path: str) -> bool:
    """A wait whose key is made by a function has no row before the key is known."""
    return path in rows or f"{path}!key" in rows


def _is_below(path: str, scope: str) -> bool:
    return path == scope or path.startswith((f"{scope}/", f"{scope}[", f"{scope}!"))


class _Planner:
    def __init__(self, plan: Plan, rows: dict[str, Row]) -> None:
        self.plan, self.rows, self.result = plan, rows, RewindPlan()

    def run(self) -> RewindPlan:
        for reaction in (HANDLER, CANCEL):
            if reaction in self.rows:
                self._delete(reaction)
        self._sequence(self.plan.nodes, "")
        if not self.result.opens:
            raise NotPossible("none of its steps has stopped: rewind it to the step from which it should run again")
        return self.result

    # -- sequences ----------------------------------------------------------------------------------------

    def _sequence(self, body: Body, scope: str, *, forgives: bool = False) -> bool:
        """Continue a sequence at the last node that has begun. Returns whether something in it is open again. With
        `forgives` a failed node stays failed."""
        reached = [node for node in body if _has_begun(self.rows, scope + node.name)]
        if not reached:
            return False
        return self._go_on(reached[-1], scope + reached[-1].name, forgives)

    def _go_on(self, node: AnyNode, path: str, forgives: bool) -> bool:
        row = self.rows.get(path) or self.rows[f"{path}!key"]
        if row.status == statuses.FAILED and (self._handles(node, path) or self._is_forgiven(node, forgives)):
            return self._handler_again(path)
        if row.status not in STOPPED:
            return row.status not in DONE
        if isinstance(node, Composite):
            self._composite(node, path)
        elif isinstance(node, FlowNode):
            self._flow_again(path)
        else:
            self._again(path)
        return True

    def _handles(self, node: AnyNode, path: str) -> bool:
        """A soft failure: the plan continues after its handler."""
        handler = self.rows.get(path + HANDLER)
        return handler is not None and handler.kind == SOFT_HANDLER

    def _is_forgiven(self, node: AnyNode, forgives: bool) -> bool:
        return forgives or (isinstance(node, WorkflowNode) and not node.propagate_failure)

    def _handler_again(self, path: str) -> bool:
        """The step stays failed; its handler may have been stopped, or compensations still run."""
        if path + COMPENSATION in self.rows and self.rows[path + COMPENSATION].status == statuses.WAITING:
            return True
        handler = self.rows.get(path + HANDLER)
        if handler is None or handler.status != statuses.CANCELLED:
            return handler is not None and handler.status not in (*DONE, statuses.FAILED)
        self._call_again(handler)
        return True

    # -- composites ---------------------------------------------------------------------------------------

    def _composite(self, node: Composite, path: str) -> None:
        if any(row.status in STOPPED for row in self._conditions(path)):
            return self._again(path)
        if path + HANDLER in self.rows:
            self._delete(path + HANDLER)
        match node:
            case ParallelNode():
                self._parallel(node, path)
            case ForEachNode():
                self._for_each(node, path)
            case LoopNode():
                self._loop(node, path)
                self.result.revived.append(Revived(path))
            case BranchNode() | WorkflowNode():
                for body in bodies(node):
                    self._sequence(body, f"{path}/")
                self.result.revived.append(Revived(path))
        return None

    def _conditions(self, path: str) -> Iterable[Row]:
        asked = (self.rows.get(f"{path}!{role}") for role in ("when", "items", "input"))
        return (row for row in asked if row is not None)

    def _parallel(self, node: ParallelNode, path: str) -> None:
        forgives = node.on_failure == "continue"
        left = sum([self._sequence(body, f"{path}/", forgives=forgives) for body in node.branches])
        self._must_be_left(left, path)
        count = len(node.branches)
        self.result.revived.append(Revived(path, count, count, left))

    def _for_each(self, node: ForEachNode, path: str) -> None:
        items = [row for row in self.rows.values() if row.kind == ITEM and paths.iteration_of(row.path)[0] == path]
        first = node.do[0].name
        restarting = {row.path for row in items if self._restarts(node, row)}
        begun = {
            row.path for row in items if row.path not in restarting and _has_begun(self.rows, f"{row.path}/{first}")
        }
        for one in restarting:
            self._delete(f"{one}/{first}")
        lanes = [row.path for row in items if row.path in begun and self._item(node, row)]
        waiting = [row.path for row in items if row.path not in begun]
        # Items begin in the order of their numbers: one before an item that has begun cannot wait.
        reached = 1 + max((_number(one) for one in begun), default=-1)
        late = [one for one in waiting if _number(one) < reached]
        free = max(0, node.concurrency - len(lanes) - len(late))
        starting = [f"{path}[{index}]" for index in range(reached, min(reached + free, len(items)))]
        self._must_be_left(len(lanes) + len(waiting), path)
        self.result.revived += [Revived(one) for one in waiting]
        for one in (*late, *starting):
            self.result.opens += open_at(self.plan, f"{one}/{first}")
        self.result.revived.append(
            Revived(path, len(items), reached + len(starting), len(lanes) + len(waiting)),
        )

    def _restarts(self, node: ForEachNode, item: Row) -> bool:
        """It has stopped at its first step, so it can wait again, like an item that has not begun."""
        first, *others = node.do
        path = f"{item.path}/{first.name}"
        if item.status == statuses.FAILED and node.on_failure == "continue":
            return False
        if isinstance(first, Composite | FlowNode) or any(
            _has_begun(self.rows, f"{item.path}/{n.name}") for n in others
        ):
            return False
        row = self.rows.get(path)
        return row is not None and row.status in STOPPED and not self._handles(first, path)

    def _item(self, node: ForEachNode, row: Row) -> bool:
        """Whether the item is open again. With on_failure="continue" a failed one stays failed."""
        if row.status in DONE or (row.status == statuses.FAILED and node.on_failure == "continue"):
            return False
        is_open = self._sequence(node.do, f"{row.path}/")
        self.result.revived.append(Revived(row.path))
        return is_open

    def _must_be_left(self, lanes: int, path: str) -> None:
        if lanes == 0:
            raise NotPossible(f"{path!r} has failed although all of its parts have ended: rewind it to a step")

    def _loop(self, node: LoopNode, path: str) -> None:
        iteration = max(_iterations(self.rows, path))
        asked = self.rows.get(f"{path}[{iteration}]!until")
        if asked is None and not self._sequence(node.do, f"{path}[{iteration}]/"):
            asked = self.rows.get(f"{path}[{iteration}]!while")
        if asked is not None and asked.status in (*STOPPED, *DONE):
            self._call_again(asked)

    # -- leaves -------------------------------------------------------------------------------------------

    def _again(self, path: str) -> None:
        """From its beginning."""
        self._delete(path)
        self.result.opens += open_at(self.plan, path)

    def _flow_again(self, path: str) -> None:
        """A flow keeps its checkpoints and continues after them. Sleeps and waits keep the time that is left."""
        kept = kept_by_retry(path, self.rows)
        self.result.revived += [Revived(at) for at in sorted(kept.revived)]
        stay = kept.paths | kept.revived
        self.result.deleted += sorted(at for at in self.rows if _is_below(at, path) and at not in stay)
        self.result.opens += open_at(self.plan, path)

    def _call_again(self, row: Row) -> None:
        self._delete(row.path)
        self.result.opens.append(OpenRow(row.path, row.kind))  # type: ignore[arg-type]

    def _delete(self, path: str) -> None:
        self.result.deleted += sorted(at for at in self.rows if _is_below(at, path))


def _number(item: str) -> int:
    return paths.iteration_of(item)[1] or 0


def _iterations(rows: Mapping[str, Row], loop: str) -> Iterable[int]:
    begin = f"{loop}["
    return (int(path[len(begin) :].partition("]")[0]) for path in rows if path.startswith(begin))


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
    if paths.place_of(path) not in plan.places or not _has_begun(rows, path):
        known = listed([row.path for row in rows.values() if "!" not in row.path and row.kind != ITEM])
        raise NotPossible(f"no step {path!r} has begun (known: {known or 'none yet'})")
