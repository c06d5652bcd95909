"""Rules for tests: a wait that gives up says so."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.workers import ROOT

#: Not tests: the load and the faults of `make chaos` run for a given time, and its report judges the outcome.
EXEMPT = "tests/chaos/storm/"


def silent_waits(path: Path) -> list[int]:
    """Lines of `while not condition and time.monotonic() < end`: at the deadline such a loop just ends."""
    text = path.read_text()
    return [
        node.lineno
        for node in (ast.walk(ast.parse(text)) if "monotonic()" in text else ())
        if isinstance(node, ast.While) and isinstance(node.test, ast.BoolOp) and "monotonic()" in ast.unparse(node.test)
    ]


def test_no_wait_gives_up_silently() -> None:
    names = {path: path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    found = {
        name: lines for path, name in names.items() if not name.startswith(EXEMPT) and (lines := silent_waits(path))
    }
    assert not found, f"assert inside the loop that the deadline has not passed, or use wait_until: {found}"
