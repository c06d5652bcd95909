"""Reads a plan: which rows open first, and which open or end when a step has ended. Pure: no store, no Celery.

Each function of a user is a row of its own: the handler of a step or workflow (`charge!on_error`, `!on_error`), and the
functions of a composite (`valid?!when`, `lines!items`, `pages[2]!until`, `payment!input`).

A failure goes up from composite to composite until one of them absorbs it or it reaches the run; at each level its
handler runs first. Where the failure ends, the compensations of the completed steps run first (`charge!compensate`).
"""

from __future__ import annotations

from typing import Any, Literal

from rival_client.model import kinds, statuses
from rival_client.model.payload import load
from rival_client.model.policies.step_config import FailureAction
from rival_workers.engine import paths
from rival_workers.engine.decisions import End, FallBack
from rival_workers.engine.effects import (
    Advance,
    CancelBelow,
    Close,
    Compensate,
    CompensationEnded,
    DeadLetter,
    Effect,
    EndFallback,
    EndRun,
    ErrorOf,
    FailRun,
    FanOut,
    IfCancelled,
    Join,
    NewError,
    Nothing,
    OpenRow,
    ResultOf,
    ResultsByName,
    ResultsOfItems,
    RetryWith,
)
from rival_workers.engine.nodes import BranchNode, ForEachNode, LoopNode, ParallelNode, WaitNode, WorkflowNode
from rival_workers.engine.openings import begin_iteration, open_body, open_node, waiting
from rival_workers.engine.paths import CANCEL, COMPENSATION, FALLBACK, HANDLER
from rival_workers.engine.plan import Place, Plan

Effects = tuple[Effect, ...]


def first(plan: Plan) -> Advance:
    return Advance(open_body(plan.nodes, ""))


def advance(
    plan: Plan,
    path: str,
    end: End | FallBack,
    kind: str,
    *,
    on_failure: FailureAction = "halt",
    undo_cancelled: bool = False,
) -> Advance:
    """`kind`: the handler of a hard failure, or of a soft one, which does not stop the run. `on_failure`: what follows
    if this is a fallback function and has failed. `undo_cancelled`: a run that was cancelled is compensated.
    """
    if isinstance(end, FallBack):
        return Advance((OpenRow(path + FALLBACK, kinds.FALLBACK),))
    base, role = paths.role_of(path)
    reading = _Reading(plan)
    if role == "fallback":
        return Advance(reading.fallen_back(base, end, on_failure))
    if role == "on_error":
        return Advance(reading.handled(base, hard=kind == kinds.HANDLER))
    if role == "compensate":
        return Advance(reading.compensated(base))
    if path == CANCEL:
        return Advance(reading.cancelled(undo=undo_cancelled))
    if role:
        return Advance(reading.answered(base, role, end))
    return Advance(reading.ended(path, end))


def expired(plan: Plan) -> Advance:
    """The deadline of the run has passed: what follows once its open steps are cancelled."""
    reading = _Reading(plan)
    return Advance((FailRun(), *reading.failed_as_a_whole()))


def absorbing(plan: Plan, path: str) -> list[str]:
    """The workflows around a step that keep their failures to themselves, the innermost first."""
    return [paths.enclosing(path, one.path) for one in plan.place(path).lineage() if _absorbs(one)]


class _Reading:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    # -- what has ended -----------------------------------------------------------------------------------

    def ended(self, path: str, end: End) -> Effects:
        place = self.plan.place(path)
        if end.status == statuses.FAILED and end.hard:
            return *_dead_letter(path, end.dead_letter), *self._fail(place, path)
        if end.status == statuses.FAILED and place.node.on_error:
            return (OpenRow(path + HANDLER, kinds.SOFT_HANDLER),)
        return self._go_on(place, path)

    def handled(self, base: str, *, hard: bool) -> Effects:
        if not base:
            return (EndRun(statuses.FAILED),)
        place = self.plan.place(base)
        return (ErrorOf(base), *self._failed(place, base)) if hard else self._go_on(place, base)

    def compensated(self, base: str) -> Effects:
        """Whether it has completed or failed. The rows know which scope is being compensated."""
        around = absorbing(self.plan, base)
        then = {path + COMPENSATION: (ErrorOf(path), *self._handle(self.plan.place(path), path)) for path in around}
        whole = IfCancelled((EndRun(statuses.CANCELLED),), self._fail_run())
        return (CompensationEnded(self.plan.compensations, {**then, COMPENSATION: (whole,)}),)

    def cancelled(self, *, undo: bool) -> Effects:
        """The run was cancelled, and its open steps with it."""
        end: Effects = (EndRun(statuses.CANCELLED),)
        return self._compensate("", end) if undo else end

    def fallen_back(self, base: str, end: End, on_failure: FailureAction) -> Effects:
        """End a step with the outcome of its fallback function, or with the step's own error if that failed too."""
        place = self.plan.place(base)
        if end.overrides is not None:
            return (RetryWith(open_node(place.node, base)[0], end.overrides),)
        if end.status == statuses.FAILED and on_failure != "skip":
            dead = _dead_letter(base, on_failure == "dead_letter")
            return EndFallback(base, statuses.FAILED), *dead, *self._fail(place, base)
        status = statuses.SKIPPED if end.status == statuses.FAILED else end.status
        return EndFallback(base, status), *self._go_on(place, base)

    def answered(self, base: str, role: str, end: End) -> Effects:
        """The result of a composite's function decides how the composite continues; its failure fails the composite."""
        place = self.plan.place(base)
        path, iteration = paths.iteration_of(base) if role in ("until", "while") else (base, None)
        if isinstance(place.node, WaitNode):
            return self._keyed(place, place.node, path, end)
        if end.status == statuses.FAILED:
            return self._close_failed(place, path)
        match place.node:
            case BranchNode():
                return self._branch(place, place.node, path, bool(load(end.result)))
            case ForEachNode():
                return self._items(place, place.node, path, len(end.items))
            case LoopNode():
                return self._condition(place, place.node, path, iteration or 0, bool(load(end.result)))
            case WorkflowNode():
                return open_body(place.node.body, f"{path}/")
        raise AssertionError(f"{path}: a {place.node.type} has no function")

    # -- continuing ---------------------------------------------------------------------------------------

    def _go_on(self, place: Place, path: str) -> Effects:
        """The node at this path has ended, and the plan continues after it."""
        if place.after is not None:
            return open_node(place.after, paths.scope_of(path) + place.after.name)
        if place.parent is None:
            return (EndRun(statuses.COMPLETED),)
        up, iteration = paths.above(path)
        match place.parent.node:
            case ParallelNode() | ForEachNode():
                return self._lane_over(place.parent, up, iteration, statuses.COMPLETED)
            case LoopNode(mode="until") as loop:
                return (OpenRow(f"{up}[{iteration}]!until", kinds.CONDITION),)
            case LoopNode() as loop:
                return self._next_iteration(place.parent, loop, up, (iteration or 0) + 1)
        return Close(up, statuses.COMPLETED), *self._go_on(place.parent, up)

    def _keyed(self, place: Place, node: WaitNode, path: str, end: End) -> Effects:
        """The wait begins when its key is known; it fails if the function of the key has failed."""
        if end.status == statuses.FAILED:
            return self._fail(place, path)
        return (waiting(node, path, str(load(end.result))),)

    def _branch(self, place: Place, node: BranchNode, path: str, answer: bool) -> Effects:
        body = node.then if answer else node.otherwise
        if body:
            return open_body(body, f"{path}/")
        return Close(path, statuses.SKIPPED, Nothing()), *self._go_on(place, path)

    def _items(self, place: Place, node: ForEachNode, path: str, count: int) -> Effects:
        if count:
            return (FanOut(path, node.concurrency, self._each(node, path)),)
        return Close(path, statuses.COMPLETED, _items_result(node)), *self._go_on(place, path)

    def _each(self, node: Any, path: str) -> tuple[OpenRow, ...]:
        return open_body(node.do, f"{path}[]/") if isinstance(node, ForEachNode) else ()

    # -- loops --------------------------------------------------------------------------------------------

    def _condition(self, place: Place, loop: LoopNode, path: str, iteration: int, answer: bool) -> Effects:
        if loop.mode == "until":
            return (
                self._loop_over(place, loop, path, iteration)
                if answer
                else self._next_iteration(place, loop, path, iteration + 1)
            )
        if not answer:
            return self._loop_over(place, loop, path, iteration - 1)
        if iteration == loop.max_iterations:
            return self._too_many(place, loop, path)
        return open_body(loop.do, f"{path}[{iteration}]/")

    def _next_iteration(self, place: Place, loop: LoopNode, path: str, iteration: int) -> Effects:
        if iteration < loop.max_iterations or loop.mode == "while":
            return begin_iteration(loop, path, iteration)
        if loop.mode == "count":
            return self._loop_over(place, loop, path, iteration - 1)
        return self._too_many(place, loop, path)

    def _loop_over(self, place: Place, loop: LoopNode, path: str, last: int) -> Effects:
        """Its result is that of its last iteration."""
        result = ResultOf(f"{path}[{last}]/{loop.do[-1].name}") if last >= 0 else Nothing()
        return Close(path, statuses.COMPLETED, result), *self._go_on(place, path)

    def _too_many(self, place: Place, loop: LoopNode, path: str) -> Effects:
        message = (
            f"loop {path!r} did not end within {loop.max_iterations} iterations: "
            f"its {loop.mode!r} never ended it. Check the condition, or raise max_iterations."
        )
        return NewError({"type": "LoopLimit", "message": message}, path), *self._close_failed(place, path)

    # -- lanes --------------------------------------------------------------------------------------------

    def _lane_over(
        self, place: Place, path: str, iteration: int | None, status: Literal["completed", "failed"]
    ) -> Effects:
        node = place.node
        assert isinstance(node, ParallelNode | ForEachNode)
        result = _items_result(node) if isinstance(node, ForEachNode) else _results_by_name(node, path)
        join = Join(
            path,
            each=self._each(node, path),
            stops=status == statuses.FAILED and node.on_failure == "wait",
            completes=(Close(path, statuses.COMPLETED, result), *self._go_on(place, path)),
            fails=self._close_failed(place, path),
        )
        return (join,) if iteration is None else (Close(f"{path}[{iteration}]", status), join)

    # -- failing ------------------------------------------------------------------------------------------

    def _close_failed(self, place: Place, path: str) -> Effects:
        return Close(path, statuses.FAILED), *self._fail(place, path)

    def _fail(self, place: Place, path: str) -> Effects:
        """The node at this path has finally failed; where the failure ends, compensations run first."""
        if _absorbs(place):
            return self._compensate(path, self._handle(place, path))
        mark: Effects = (FailRun(),) if place.parent is None else ()
        return *mark, *self._handle(place, path)

    def _handle(self, place: Place, path: str) -> Effects:
        if place.node.on_error:
            return (OpenRow(path + HANDLER, kinds.HANDLER),)
        return self._failed(place, path)

    def _failed(self, place: Place, path: str) -> Effects:
        """After the handler: the failure goes up, or ends here."""
        if _absorbs(place):
            return self._go_on(place, path)
        if place.parent is None:
            return self.failed_as_a_whole()
        up, iteration = paths.above(path)
        match place.parent.node:
            case ParallelNode(on_failure="cancel") | ForEachNode(on_failure="cancel"):
                # Before the other lanes: it is not one of those that are cancelled because of it.
                item = () if iteration is None else (Close(f"{up}[{iteration}]", statuses.FAILED),)
                return *item, CancelBelow(up), *self._close_failed(place.parent, up)
            case ParallelNode() | ForEachNode():
                return self._lane_over(place.parent, up, iteration, statuses.FAILED)
        return self._close_failed(place.parent, up)

    def failed_as_a_whole(self) -> Effects:
        return self._compensate("", self._fail_run())

    def _fail_run(self) -> Effects:
        handler = OpenRow(HANDLER, kinds.HANDLER)
        return (handler,) if self.plan.on_error else (EndRun(statuses.FAILED),)

    def _compensate(self, scope: str, then: Effects) -> Effects:
        """Compensations within a scope run before everything else that follows from its failure."""
        begin = f"{paths.place_of(scope)}/" if scope else ""
        if any(place.startswith(begin) for place in self.plan.compensations):
            return (Compensate(scope, self.plan.compensations, then),)
        return then


def _dead_letter(path: str, dead: bool) -> Effects:
    return (DeadLetter(path),) if dead else ()


def _absorbs(place: Place) -> bool:
    return isinstance(place.node, WorkflowNode) and not place.node.propagate_failure


def _items_result(node: ForEachNode) -> ResultsOfItems | Nothing:
    return ResultsOfItems() if node.collect else Nothing()


def _results_by_name(node: ParallelNode, path: str) -> ResultsByName:
    """The result of each branch is that of its last step, under that step's name."""
    return ResultsByName(tuple((body[-1].name, f"{path}/{body[-1].name}") for body in node.branches))
