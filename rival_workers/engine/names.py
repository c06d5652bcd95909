"""Resolves the names that a step can use: which step a name means, the step before it, its item, its input.

Pure: the functions return paths; the callers read the rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rival_client.model.kinds import SOFT_HANDLER
from rival_workers.engine import paths
from rival_workers.engine.nodes import BranchNode, ForEachNode, LoopNode, ParallelNode, WorkflowNode, repeats
from rival_workers.engine.plan import Place, Plan


class NameScope:
    """The names of other steps that a step can use: those of the scopes around it, the nearest first, and within these
    the steps in branches and parallels. In a loop, the name of the step itself, or of a step that has not run in this
    iteration, means the row of the iteration before.
    """

    def __init__(self, plan: Plan, path: str) -> None:
        self._plan, self._path = plan, path

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and bool(self.find(name))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for scope in self._scopes() for name in names_in(self._plan, scope)))

    def find(self, name: str) -> tuple[str, ...]:
        """The paths that a name may mean, the most likely one first; none: the step does not exist."""
        if "/" in name or "[" in name:
            return (name,) if paths.place_of(name) in self._plan.places else ()
        found = self.scope_of(name)
        if not found:
            return ()
        candidates = [begin + found[1] for begin in self._iterations(found[0])]
        # A step that reads its own name in a loop means the iteration before: this one has no result yet.
        return tuple(one for one in candidates if not self._is_around(one)) or tuple(candidates)

    def scope_of(self, name: str) -> tuple[str, str] | None:
        """The nearest scope, as a place, that has the name, and the place that it means there."""
        for scope in self._scopes():
            below = names_in(self._plan, scope).get(name)
            if below is not None:
                return scope, below
        return None

    def _is_around(self, path: str) -> bool:
        """It is the step itself, or a composite that the step is part of."""
        return self._path == path or self._path.startswith((f"{path}/", f"{path}["))

    def _scopes(self) -> Iterator[str]:
        """The scopes around the step as places, the innermost first."""
        place = paths.place_of(self._path)
        base, role = paths.role_of(place)
        if role in ("until", "while"):
            yield f"{base}/"
        while place:
            place = paths.scope_of(place).rstrip("/")
            yield f"{place}/" if place else ""
            if not place:
                return

    def _iterations(self, scope: str) -> Iterator[str]:
        """The scopes with numbers: in a loop, this iteration first, then the iteration before."""
        if not scope:
            yield ""
            return
        here = paths.enclosing(self._path, scope[:-1])
        yield f"{here}/"
        above, iteration = paths.iteration_of(here)
        if iteration and isinstance(self._plan.place(above).node, LoopNode):
            yield f"{above}[{iteration - 1}]/"


def names_in(plan: Plan, scope: str) -> dict[str, str]:
    """What each name means in a scope: the node itself, or one within its branches and parallels."""
    cache: dict[str, dict[str, str]] = plan.__dict__.setdefault("_names_in", {})
    if scope not in cache:
        cache[scope] = _names_in(plan, scope)
    return cache[scope]


def _names_in(plan: Plan, scope: str) -> dict[str, str]:
    own = {name: name for name in plan.scopes.get(scope, {})}
    deeper: dict[str, str] = {}
    ambiguous: set[str] = set()
    for place in plan.scopes.get(scope, {}).values():
        if isinstance(place.node, BranchNode | ParallelNode):
            for name, below in _names_in(plan, place.scope).items():
                ambiguous |= {name} & deeper.keys()
                deeper[name] = f"{place.node.name}/{below}"
    return {name: below for name, below in deeper.items() if name not in ambiguous} | own


def before(plan: Plan, path: str) -> str | None:
    """The step that came before the one at this path."""
    base, role = paths.role_of(path)
    if role in ("until", "while"):
        return _before_condition(plan, base, role)
    place = plan.place(base)
    if place.before is not None:
        return paths.scope_of(base) + place.before.name
    return _before_body(plan, place, base)


def _before_condition(plan: Plan, base: str, role: str) -> str | None:
    loop, iteration = paths.iteration_of(base)
    iteration = (iteration or 0) - (role == "while")
    return before(plan, loop) if iteration < 0 else _last_of_iteration(plan, loop, iteration)


def _before_body(plan: Plan, place: Place, path: str) -> str | None:
    """The first step of a body comes after the step before the composite, or after the iteration before."""
    if place.parent is None:
        return None
    up, iteration = paths.above(path)
    if iteration and isinstance(place.parent.node, LoopNode):
        return _last_of_iteration(plan, up, iteration - 1)
    return before(plan, up)


def _last_of_iteration(plan: Plan, loop: str, iteration: int) -> str:
    node = plan.place(loop).node
    assert isinstance(node, LoopNode)
    return f"{loop}[{iteration}]/{node.do[-1].name}"


def item_of(plan: Plan, path: str) -> str | None:
    """The row of the innermost item that the step belongs to."""
    for place in plan.place(path).lineage():
        if isinstance(place.node, ForEachNode):
            return paths.enclosing(path, f"{place.path}[]")
    return None


def run_continues(plan: Plan, path: str, kind: str) -> bool:
    """Of a handler: whether the run continues although the step has failed, because the failure is soft or because
    something around the step keeps failures to itself.
    """
    base = paths.role_of(path)[0]
    if kind == SOFT_HANDLER or not base:
        return kind == SOFT_HANDLER
    place = plan.place(base)
    return _keeps_failures(place.node, own=True) or any(_keeps_failures(one.node) for one in place.lineage())


def _keeps_failures(node: Any, own: bool = False) -> bool:
    """`own`: the failure is the node's own, not that of a step in it."""
    if isinstance(node, WorkflowNode):
        return not node.propagate_failure
    return not own and isinstance(node, ForEachNode | ParallelNode) and node.on_failure == "continue"


def index_of(plan: Plan, path: str) -> int | None:
    """The number of the innermost iteration of a loop, or of the innermost item of a for_each."""
    base, role = paths.role_of(path)
    if role in ("until", "while"):
        return paths.iteration_of(base)[1]
    for place in plan.place(path).lineage():
        if repeats(place.node):
            return paths.iteration_of(paths.enclosing(path, f"{place.path}[]"))[1]
    return None


def input_of(plan: Plan, path: str) -> str | None:
    """The step whose result is the input at this path; None: the input of the run."""
    # A step at the top, as most are, has no workflow around it.
    if not paths.role_of(path)[0] or path in plan.scopes[""]:
        return None
    place = plan.place(path)
    around = list(place.lineage())
    if paths.is_handler(path):
        # A nested workflow's own handler is part of it.
        around.insert(0, place)
    for one in around:
        if isinstance(one.node, WorkflowNode) and one.node.own_input:
            return paths.enclosing(path, one.path) + "!input"
    return None
