"""Finds lines of source code for messages: of a name in a workflow file, of an element of a list."""

from __future__ import annotations

import ast
import re
from pathlib import Path

#: A problem begins with a name: `steps[2]…`, `on_error: …`.
_PLACE = re.compile(r"(?P<name>\w+)(?:\[(?P<index>\d+)\])?")


def with_line(file: str, problem: str) -> str:
    """The file, and the line of the name at the beginning of the problem, if there is one."""
    place = _PLACE.match(problem)
    line = place and _line(file, place["name"], place["index"])
    return f"{file}:{line}" if line else file


def _line(file: str, name: str, index: str | None) -> int | None:
    try:
        tree = parsed(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return None
    for node in reversed(tree.body):
        if name.lower() in (bound.lower() for bound in _bound(node)):
            return _element(node, index) or node.lineno
    return None


def parsed(source: str) -> ast.Module:
    try:
        return ast.parse(source)
    except SystemError:
        # CPython 3.11 counts the depth of all parses together. If an object that is collected meanwhile parses, too, as
        # one does that logs a traceback, it takes that for a mistake (python/cpython#106905).
        return ast.parse(source)


def _bound(node: ast.stmt) -> list[str]:
    match node:
        case ast.Assign():
            return [target.id for target in node.targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
            return [node.name]
        case ast.ImportFrom() | ast.Import():
            return [one.asname or one.name for one in node.names]
    return []


def _element(node: ast.stmt, index: str | None) -> int | None:
    value = getattr(node, "value", None)
    if index is None or not isinstance(value, ast.List | ast.Tuple):
        return None
    before = value.elts[: int(index) + 1]
    return (
        before[-1].lineno if len(before) > int(index) and not any(isinstance(e, ast.Starred) for e in before) else None
    )
