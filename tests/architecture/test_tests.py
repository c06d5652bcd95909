"""Rules for tests: a wait that gives up says so."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.workers import ROOT

#: Not tests: the load and the faults of `make chaos` run for a given time, and its report judges the outcome.
EXEMPT = "tests/chaos/storm/"


def silent_waits(path: Path) -> list[int]:
    """Lines of loops that just end when they have waited long enough: `while not condition and time.monotonic() < end`,
    and `for _ in range(100)` that breaks, without an `else`."""
    nodes = ast.walk(ast.parse(path.read_text()))
    return [node.lineno for node in nodes if _ends_at_a_deadline(node) or _ends_after_some_tries(node)]


def _ends_at_a_deadline(node: ast.AST) -> bool:
    return isinstance(node, ast.While) and isinstance(node.test, ast.BoolOp) and "monotonic()" in ast.unparse(node.test)


def _ends_after_some_tries(node: ast.AST) -> bool:
    if not isinstance(node, ast.For) or node.orelse or ast.unparse(node.target) != "_":
        return False
    is_number = isinstance(node.iter, ast.Call) and all(isinstance(one, ast.Constant) for one in node.iter.args)
    return is_number and any(isinstance(one, ast.Break) for one in ast.walk(node))


def test_no_wait_gives_up_silently() -> None:
    names = {path: path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    found = {
        name: lines for path, name in names.items() if not name.startswith(EXEMPT) and (lines := silent_waits(path))
    }
    assert not found, f"assert inside the loop that the deadline has not passed, or use wait_until: {found}"
