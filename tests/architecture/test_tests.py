"""Rules for tests: a wait that gives up says so."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.support.workers import ROOT

#: Not tests: the load and the faults of `make chaos` run for a given time, and its report judges the outcome.
EXEMPT = "tests/chaos/storm/"


def silent_waits(tree: ast.Module) -> list[int]:
    """Lines of waits after whose time the test just goes on:

    - loops such as `while not condition and time.monotonic() < end`;
    - loops such as `while time.monotonic() < end` that a condition leaves, without an error behind them;
    - `for _ in range(100)` that breaks, without an `else`;
    - `thread.join(10)`: `tests.support.threads.join_all` looks whether the thread has ended;
    - `event.wait(10)` without an `assert`, where the file makes the event.
    """
    events = set(_events(tree))
    found = [one.lineno for one in _loops(tree)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and _gives_up(node.value, events):
            found.append(node.lineno)
    return sorted(found)


def _loops(tree: ast.Module) -> Iterator[ast.stmt]:
    for node in ast.walk(tree):
        for body in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
            for number, one in enumerate(body if isinstance(body, list) else []):
                if _ends_at_a_deadline(one, body[number + 1 :]) or _ends_after_some_tries(one):
                    yield one


def _ends_at_a_deadline(node: ast.stmt, behind: list[ast.stmt]) -> bool:
    if not isinstance(node, ast.While) or "monotonic()" not in ast.unparse(node.test):
        return False
    leaves = any(isinstance(one, ast.Return | ast.Break) for one in ast.walk(node))
    complains = any(isinstance(one, ast.Raise | ast.Assert) for one in [*node.orelse, *behind])
    return isinstance(node.test, ast.BoolOp) or (leaves and not complains)


def _ends_after_some_tries(node: ast.stmt) -> bool:
    if not isinstance(node, ast.For) or node.orelse or ast.unparse(node.target) != "_":
        return False
    is_number = isinstance(node.iter, ast.Call) and all(isinstance(one, ast.Constant) for one in node.iter.args)
    return is_number and any(isinstance(one, ast.Break) for one in ast.walk(node))


def _events(tree: ast.Module) -> Iterator[str]:
    """The names that get an event of `threading`: of variables and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            pairs = zip(targets, [node.value], strict=False)
            if isinstance(targets[0], ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(targets[0].elts, node.value.elts, strict=True)
            yield from (_last_name(name) for name, value in pairs if ast.unparse(value) == "threading.Event()")


def _gives_up(call: ast.Call, events: set[str]) -> bool:
    if not isinstance(call.func, ast.Attribute) or not (call.args or call.keywords):
        return False
    return call.func.attr == "join" or (call.func.attr == "wait" and _last_name(call.func.value) in events)


def _last_name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else ast.unparse(node)


def test_no_wait_gives_up_silently() -> None:
    names = {path: path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("*.py")}
    found = {
        name: lines
        for path, name in names.items()
        if not name.startswith((EXEMPT, "tests/support/threads.py"))
        and (lines := silent_waits(ast.parse(path.read_text())))
    }
    assert not found, f"assert that the deadline has not passed, or use wait_until or join_all: {found}"


SILENT = {
    "a condition and a deadline": "while not done() and time.monotonic() < end:\n    look()",
    "a condition inside": "while time.monotonic() < end:\n    if done():\n        break\nlook()",
    "tries": "for _ in range(9):\n    if done():\n        break",
    "a thread": "thread.join(timeout=10)",
    "an event": "over = threading.Event()\nover.wait(10)",
    "an event of several": "self.began, self.over = Seen(), threading.Event()\nself.over.wait(10)",
}
LOUD = {
    "an error behind": "while time.monotonic() < end:\n    if done():\n        break\nraise AssertionError(end)",
    "an error inside": "while not done():\n    assert time.monotonic() < end",
    "a load of some seconds": "while time.monotonic() < end:\n    look()",
    "an assert": "over = threading.Event()\nassert over.wait(10)",
    "without end": "over = threading.Event()\nover.wait()\nthread.join()",
    "a process, which raises": "process.wait(10)",
}


@pytest.mark.parametrize("code", SILENT.values(), ids=SILENT)
def test_a_silent_wait_is_found(code: str) -> None:
    assert len(silent_waits(ast.parse(code))) == 1


@pytest.mark.parametrize("code", LOUD.values(), ids=LOUD)
def test_a_loud_wait_is_not_reported(code: str) -> None:
    assert silent_waits(ast.parse(code)) == []
