"""Statuses and entries of the history are data: programs use the constants and properties of `model/statuses.py` and
`model/history_entries.py`, not names in quotes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator

import pytest

from rival_client.model.history_entries import ENTRY_NAMES
from rival_client.model.statuses import RUN_STATUSES, STEP_STATUSES
from tests.architecture.test_imports import FILES, name_of, tree_of

STATUSES = {*RUN_STATUSES, *STEP_STATUSES}
#: Where they are defined.
DATA = {
    "rival_client/model/statuses.py",
    "rival_client/model/transitions.py",
    "rival_client/model/history_entries.py",
}
#: Calls that take a status by position.
TAKE_A_STATUS = {
    *("End", "EndRun", "EndFallback", "Close", "CheckpointWrite", "RebuiltStep", "Row"),
    *("step_leaves_running", "leave_running", "in_status", "land", "_lane_over", "_settle"),
}


def literals(node: ast.AST) -> Iterator[str]:
    parts: list[ast.AST] = [node]
    match node:
        case ast.Tuple() | ast.List() | ast.Set():
            parts = list(node.elts)
        case ast.IfExp():
            parts = [node.body, node.orelse]
    yield from (part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))


def modules_with(find: Callable[[ast.AST], Iterator[str]], names: Collection[str], data: Collection[str]) -> set[str]:
    """Module and name of each of the names that is found outside of `data`."""
    return {
        f"{name_of(path)}: {name!r}"
        for path in FILES
        if "migrations" not in path.parts and name_of(path) not in data
        for name in find(tree_of(path))
        if name in names
    }


def is_status(node: ast.AST) -> bool:
    """`run.status`, `steps.c.status`, `status`, `row["status"]`."""
    return bool(re.search(r"(^|[._])status$|\['status'\]$", ast.unparse(node)))


def quoted(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others) if any(map(is_status, [left, *others])):
                yield from (name for one in [left, *others] for name in literals(one))
            case ast.Call(func=ast.Attribute(value=of, attr="in_" | "not_in"), args=[names]) if is_status(of):
                yield from literals(names)
            case ast.Call(func=called, args=args) if ast.unparse(called).rpartition(".")[2] in TAKE_A_STATUS:
                yield from (name for one in args for name in literals(one))
            case ast.keyword(arg="status", value=value):
                yield from literals(value)
            case ast.Dict(keys=keys, values=values):
                pairs = zip(keys, values, strict=True)
                yield from (
                    name for key, value in pairs if ast.unparse(key or node) == "'status'" for name in literals(value)
                )
                # A table by status.
                names = {name for key in keys if key is not None for name in literals(key)}
                yield from names if len(names) > 2 and names <= STATUSES else ()
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                pairs = zip(targets, values, strict=False)  # one may be starred
                yield from (name for one, value in pairs if is_status(one) for name in literals(value))
            case ast.Assign(targets=[target], value=value) if is_status(target):
                yield from literals(value)
                # SQLAlchemy's case((condition, status), else_=status)
                yield from (name for part in ast.walk(value) for name in literals(part) if isinstance(value, ast.Call))
            case ast.AnnAssign(target=target, value=ast.Constant() as value) if is_status(target):
                yield from literals(value)
            case ast.arguments():
                named = [*node.posonlyargs, *node.args][-len(node.defaults) :] if node.defaults else []
                both = [*zip(named, node.defaults, strict=True), *zip(node.kwonlyargs, node.kw_defaults, strict=True)]
                yield from (name for one, value in both if one.arg == "status" and value for name in literals(value))
            case ast.Match(subject=subject, cases=cases) if is_status(subject):
                yield from (name for case in cases for part in ast.walk(case.pattern) for name in literals(part))


def test_no_module_has_a_status_in_quotes() -> None:
    found = modules_with(quoted, STATUSES, DATA)
    assert found == set(), "use the constants and properties of rival_client.model.statuses"


def is_entry(node: ast.AST) -> bool:
    """`entry.what`, `history.c.what`, `end.outcome`. A `Verdict` is how an attempt ended, for the worker."""
    return bool(re.search(r"\.(what|outcome)$", ast.unparse(node))) and not ast.unparse(node).startswith("verdict")


def quoted_entries(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others) if any(map(is_entry, [left, *others])):
                yield from (name for one in [left, *others] for name in literals(one))
            case ast.keyword(arg="outcome", value=value):
                yield from literals(value)
            case ast.Match(subject=subject, cases=cases) if is_entry(subject):
                yield from (name for case in cases for part in ast.walk(case.pattern) for name in literals(part))


def test_no_module_has_an_entry_of_the_history_in_quotes() -> None:
    found = modules_with(quoted_entries, ENTRY_NAMES, DATA)
    assert found == set(), "use the constants of rival_client.model.history_entries"


def test_a_quoted_entry_is_found() -> None:
    code = """
a = entry.what == "claimed" or history.c.what != "lost" or retry.outcome in ("failed", "revoked")
b = Failure(error, outcome="timed_out")
match entry.what:
    case "started" | "queued": pass
c = verdict.what == "retried" or what == "woken"
"""
    assert set(quoted_entries(ast.parse(code))) == {
        *("claimed", "lost", "failed", "revoked", "timed_out", "started", "queued"),
    }


def test_a_quoted_status_is_found() -> None:
    code = """
a = run.status == "failed" or status != "pending" or "waiting" in status
b = steps.c.status.in_(("running", "suspended"))
c = End("skipped") if row["status"] == "completed" else record(status="cancelled")
d = {"status": "waiting_retry", "kind": "wait"}
run.status = "suspended"
match step.status:
    case "completed" | "failed": pass
e = topic == "running"
"""
    assert set(quoted(ast.parse(code))) == STATUSES


@pytest.mark.parametrize(
    "code",
    [
        'step.status, step.completed_at = "failed", now',
        'status = case((steps.c.kind == "wait", "pending"), else_="failed")',
        'status: StepStatus = "failed"',
        'def view(name, status: StepStatus = "failed"): pass',
        'def view(*, status="failed"): pass',
        'COLOURS = {"failed": "red", "pending": "grey", "running": "blue"}',
    ],
)
def test_a_quoted_status_is_found_in_an_assignment_a_default_and_a_table(code: str) -> None:
    assert "failed" in set(quoted(ast.parse(code)))
