"""Statuses are data: programs use the constants and properties of `model/statuses.py`, not names in quotes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

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
TAKE_A_STATUS = {"End", "EndRun", "Close", "CheckpointWrite", "step_leaves_running", "leave_running", "in_status"}


def literals(node: ast.AST) -> Iterator[str]:
    parts: list[ast.AST] = [node]
    match node:
        case ast.Tuple() | ast.List() | ast.Set():
            parts = list(node.elts)
        case ast.IfExp():
            parts = [node.body, node.orelse]
    yield from (part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str))


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
                named = (
                    value for key, value in zip(keys, values, strict=True) if ast.unparse(key or node) == "'status'"
                )
                yield from (name for value in named for name in literals(value))
            case ast.Assign(targets=[target], value=value) if is_status(target):
                yield from literals(value)
            case ast.Match(subject=subject, cases=cases) if is_status(subject):
                yield from (name for case in cases for part in ast.walk(case.pattern) for name in literals(part))


def test_no_module_has_a_status_in_quotes() -> None:
    found = {
        f"{name_of(path)}: {name!r}"
        for path in FILES
        if "migrations" not in path.parts and name_of(path) not in DATA
        for name in quoted(tree_of(path))
        if name in STATUSES
    }
    assert found == set(), "use the constants and properties of rival_client.model.statuses"


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
