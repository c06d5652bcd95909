"""Checks the steps that functions read by name (`steps.find_tree`, `steps["find-tree"]`, `ctx.steps.…`): they exist,
and come before. The names are read from the source of the functions, when a workflow is registered.

This finds mistakes early; it proves nothing. A function without source, or that uses names in another way, is checked
only by the run itself.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import lru_cache
from types import CodeType
from typing import TYPE_CHECKING

from rival_workers.definition.inject import Injection
from rival_workers.definition.return_types import written_function
from rival_workers.definition.source_lines import parsed
from rival_workers.engine import paths
from rival_workers.engine.names import NameScope
from rival_workers.engine.nodes import BranchNode, LoopNode
from rival_workers.engine.plan import Place, Plan

if TYPE_CHECKING:
    from rival_workers.definition.function_calls import Call

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Mention:
    name: str
    file: str
    line: int


def mentions_of(injection: Injection) -> list[Mention]:
    """The names that the function reads without a check; `if "x" in steps` is a check."""
    names = _Names.of(injection)
    code = getattr(written_function(injection.function), "__code__", None)
    written = _written(code) if names and isinstance(code, CodeType) else None
    if written is None or code is None:
        return []
    reader = _Reader(names)
    for statement in _body(written):
        reader.visit(statement)
    return [
        Mention(name, code.co_filename, line)
        for name, line in reader.found.items()
        if name not in reader.asked and not (reader.names.rebound & names.all)
    ]


@dataclass
class _Names:
    """The names of the injected values inside the function."""

    steps: set[str]
    contexts: set[str]
    rebound: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, injection: Injection) -> _Names:
        asked = {*injection.positional, *injection.keywords}
        whole = injection.positional == ("ctx",) and not injection.keywords
        contexts = {_only_parameter(injection)} if whole else asked & {"ctx"}
        return cls(asked & {"steps"}, contexts)

    @property
    def all(self) -> set[str]:
        return self.steps | self.contexts

    def __bool__(self) -> bool:
        return bool(self.all)

    def are_steps(self, node: ast.AST) -> bool:
        if isinstance(node, ast.Attribute) and node.attr == "steps":
            return isinstance(node.value, ast.Name) and node.value.id in self.contexts
        return isinstance(node, ast.Name) and node.id in self.steps


def _only_parameter(injection: Injection) -> str:
    parameters = inspect.signature(injection.function).parameters.values()
    return next(p.name for p in parameters if p.default is p.empty)


class _Reader(ast.NodeVisitor):
    def __init__(self, names: _Names) -> None:
        self.names = names
        self.found: dict[str, int] = {}
        self.asked: set[str] = set()

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if self.names.are_steps(node.value) and not node.attr.startswith("_"):
            self.found.setdefault(node.attr, node.lineno)
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if self.names.are_steps(node.value) and _is_text(node.slice):
            self.found.setdefault(ast.literal_eval(node.slice), node.lineno)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        if any(isinstance(op, ast.In | ast.NotIn) for op in node.ops) and _is_text(node.left):
            self.asked.add(ast.literal_eval(node.left))
        self.generic_visit(node)

    def visit_Try(self, node: ast.Try) -> None:
        """A read within `try` may fail: the function handles that."""
        tried = _Reader(self.names)
        for statement in node.body:
            tried.visit(statement)
        if node.handlers:
            self.asked |= tried.found.keys()
        self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self.names.rebound.add(node.id)

    def visit_arg(self, node: ast.arg) -> None:
        """A parameter of an inner function."""
        self.names.rebound.add(node.arg)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _body(written: Function) -> Iterable[ast.AST]:
    return [written.body] if isinstance(written, ast.Lambda) else written.body


def _written(code: CodeType) -> Function | None:
    """The function in its file; None: it cannot be identified."""
    linecache.checkcache(code.co_filename)
    source = "".join(linecache.getlines(code.co_filename))
    found = [one for one in _functions(source).get(code.co_firstlineno, ()) if _is_it(one, code)]
    return found[0] if len(found) == 1 else None


def _is_it(written: Function, code: CodeType) -> bool:
    named = "<lambda>" if isinstance(written, ast.Lambda) else written.name
    parameters = [one.arg for one in (*written.args.posonlyargs, *written.args.args)]
    return named == code.co_name and parameters == list(code.co_varnames[: code.co_argcount])


@lru_cache(maxsize=64)
def _functions(source: str) -> dict[int, list[Function]]:
    """The functions of a file by their first lines, decorators included."""
    found: dict[int, list[Function]] = {}
    try:
        tree = parsed(source)
    except (SyntaxError, ValueError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, Function):
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            found.setdefault(min([node.lineno, *(one.lineno for one in decorators)]), []).append(node)
    return found


@dataclass
class Reading:
    """Problems of the names that functions read."""

    #: Steps that exist, but do not come before.
    out_of_order: list[str] = field(default_factory=list)
    #: Steps that do not exist; an outer workflow may have them.
    unseen: list[str] = field(default_factory=list)


def check_reading(plan: Plan, calls: Mapping[str, Call]) -> Reading:
    reading = Reading()
    for place, call in calls.items():
        # A handler runs at any time: it may read any step, also one that has not run.
        if not paths.is_reaction(place):
            for mention in mentions_of(call.injection):
                _check(plan, place, mention, reading)
    return reading


def _check(plan: Plan, place: str, mention: Mention, reading: Reading) -> None:
    scope = NameScope(plan, place)
    if paths.place_of(mention.name) in plan.places and set("/[") & set(mention.name):
        # A path: only the run knows which iterations there are.
        return
    found = scope.scope_of(mention.name)
    at = f"({mention.file}:{mention.line})"
    if found is None:
        reading.unseen.append(f"step {place!r} reads {_as_written(mention)}, {_not_there(mention.name, scope)} {at}")
        return
    why = _not_before(plan, place, *found)
    if why:
        reading.out_of_order.append(f"step {place!r} reads {_as_written(mention)}, {why} {at}")


def _as_written(mention: Mention) -> str:
    return f"steps.{mention.name}" if mention.name.isidentifier() else f"steps[{mention.name!r}]"


def _not_there(name: str, scope: NameScope) -> str:
    known = list(scope)
    close = get_close_matches(name, known, 1)
    hint = f"did you mean {close[0]!r}?" if close else f"its steps are {', '.join(known)}."
    return (
        f"but no step {name!r} exists: {hint} If a workflow around this one has it, register that one, or check "
        f'`"{name}" in steps` first.'
    )


def _not_before(plan: Plan, place: str, scope: str, below: str) -> str | None:
    """Why a named step does not come before a place; None: it does."""
    if scope and isinstance(plan.place(scope[:-1]).node, LoopNode):
        # It is read of this iteration, or of the one before.
        return None
    here, there = plan.place(place), plan.places[scope + below]
    if here is there:
        # An attempt may read the state that an earlier attempt of the same step has left.
        return None
    return _why(*_neighbours(here, there), there.node.name)


def _neighbours(here: Place, there: Place) -> tuple[Place, Place]:
    """The two nodes of the innermost common composite, or of the top level, that contain the places."""
    for one in (here, *here.lineage()):
        for other in (there, *there.lineage()):
            if one.parent is other.parent:
                return one, other
    raise AssertionError(f"{here.path} and {there.path} are not of one plan")


def _why(one: Place, other: Place, name: str) -> str | None:
    if one is other:
        return f"but {name!r} has not ended by then: one of the two is within the other"
    if one.body is not other.body:
        parent = one.parent
        assert parent is not None, "there is one body at the top"
        if isinstance(parent.node, BranchNode):
            return f"but {name!r} is in the other branch of {parent.node.name!r}: only one of them runs"
        return f"but {name!r} runs at the same time: read it after {parent.node.name!r}"
    if other.position > one.position:
        return f"but {name!r} comes later: move it before this one"
    return None
