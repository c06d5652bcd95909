"""Kinds of rows and transitions are data: programs ask for properties and constants, not for names in quotes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from rival_client.model.kinds import KINDS
from tests.architecture.test_imports import FILES, ROOT, name_of, tree_of
from tests.architecture.test_statuses import literals, modules_with


def is_kind(node: ast.AST) -> bool:
    """`row.kind`, `steps.c.kind`, `kind`, `row["kind"]`."""
    return bool(re.search(r"(^|\.)kind$|\['kind'\]$", ast.unparse(node)))


def quoted_kinds(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Compare(left=left, comparators=others) if is_kind(left):
                yield from (name for other in others for name in literals(other))
            case ast.Call(func=ast.Attribute(value=of, attr="in_" | "not_in"), args=[names]) if is_kind(of):
                yield from literals(names)
            case ast.Call(func=ast.Name(id="OpenRow"), args=[_, kind, *_]):
                yield from literals(kind)
            case ast.keyword(arg="kind", value=value):
                yield from literals(value)
            case ast.Match(subject=subject, cases=cases) if is_kind(subject):
                yield from (name for case in cases for part in ast.walk(case.pattern) for name in literals(part))


def test_no_module_compares_a_kind_with_a_name_in_quotes() -> None:
    found = modules_with(quoted_kinds, KINDS, ())
    assert found == set(), "use the constants and properties of rival_client.model.kinds"


def test_a_quoted_kind_is_found() -> None:
    code = """
a = row.kind == "wait"
b = steps.c.kind.in_(("sleep", "external"))
c = OpenRow(path, "flow")
d = record("opened", path, kind="item")
match row.kind:
    case "child" | "value": pass
e = topic == "wait"
"""
    found = set(quoted_kinds(ast.parse(code)))
    assert found == {"wait", "sleep", "external", "flow", "item", "child", "value"}


# -- guards -------------------------------------------------------------------------------------------------------

GUARDS = {"step_can", "run_can", "step_sources", "run_sources"}
SQL = [path for path in FILES if name_of(path).startswith(("rival_client/sql/", "rival_workers/store/sql/"))]
#: Rows of checkpoints are written only after the row of their flow was locked and checked under its token.
BELOW_A_LOCKED_FLOW = {"rival_workers/store/sql/flow_commits.py:_update"}
GUARDED_HELPERS = ("rival_workers/store/sql/guards.py", "rival_client/sql/wake.py")


def names_in(node: ast.AST) -> set[str]:
    names = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
    return names | {one.attr for one in ast.walk(node) if isinstance(one, ast.Attribute)}


def functions(path: Path) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef)}


def guarded(path: Path) -> set[str]:
    """The functions that take a guard from the transition table, directly or through another one of the module."""
    own = functions(path)
    known = GUARDS | ({"guard", "step_leaves_running", "run_leaves_pending"} if path not in HELPERS else set())
    found: set[str] = set()
    while new := {name for name, node in own.items() if name not in found and names_in(node) & (known | found)}:
        found |= new
    return found


HELPERS = [ROOT / name for name in GUARDED_HELPERS]


def changes_a_status(node: ast.FunctionDef) -> bool:
    """It has an UPDATE of runs or steps, and a value for the column `status`."""
    calls = [ast.unparse(one) for one in ast.walk(node) if isinstance(one, ast.Call)]
    updates = any(call.startswith(("update(runs)", "update(steps)")) for call in calls)
    given = node.args.kwarg is not None  # its callers may give a status
    return updates and (given or any(_sets_status(one) for one in ast.walk(node)))


def _sets_status(node: ast.AST) -> bool:
    if isinstance(node, ast.Dict):
        return any(isinstance(key, ast.Constant) and key.value == "status" for key in node.keys)
    return isinstance(node, ast.keyword) and node.arg == "status"


def test_every_statement_that_changes_a_status_takes_its_guard_from_the_transition_table() -> None:
    changing = {
        f"{name_of(path)}:{name}": name in guarded(path)
        for path in SQL
        for name, node in functions(path).items()
        if changes_a_status(node)
    }
    assert len(changing) > 12
    assert {name for name, is_guarded in changing.items() if not is_guarded} == BELOW_A_LOCKED_FLOW
