"""Which steps a function reads by name, as its source says: `steps.find_tree`, `steps["find-tree"]`, `ctx.steps.…`.

A help, not a proof: what has no source, or uses names in another way, is left to the run itself.
"""

from __future__ import annotations

import ast
import inspect
import linecache
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType

from rival_workers.definition.inject import Injection
from rival_workers.definition.returns import written_function

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True)
class Mention:
    name: str
    file: str
    line: int


def mentions_of(injection: Injection) -> list[Mention]:
    """What the function reads for sure; a name that it asks about first (`if "x" in steps`) is not among them."""
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
    """What the injected things are called inside the function."""

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
        """What is tried may fail: the function says itself what then."""
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
        """A parameter of a function within."""
        self.names.rebound.add(node.arg)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _body(written: Function) -> Iterable[ast.AST]:
    return [written.body] if isinstance(written, ast.Lambda) else written.body


def _written(code: CodeType) -> Function | None:
    """The function in its file; None when there is no telling."""
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
    """The functions of a file by the line that they begin at, decorators included."""
    found: dict[int, list[Function]] = {}
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return found
    for node in ast.walk(tree):
        if isinstance(node, Function):
            decorators = [] if isinstance(node, ast.Lambda) else node.decorator_list
            found.setdefault(min([node.lineno, *(one.lineno for one in decorators)]), []).append(node)
    return found
