"""The list of history entries, the page about them and the entries that the code writes are the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from rival_client.model import history_entries
from rival_client.model.history_entries import ENTRY_NAMES, RUN_ENTRIES, STEP_ENTRIES, EntryType
from rival_client.model.statuses import STEP_STATUSES
from rival_client.model.transitions import RUN_TRANSITIONS, STEP_TRANSITIONS
from tests.architecture.test_imports import FILES, ROOT, name_of, tree_of

PAGE = (ROOT / "docs/reference/history.md").read_text()
LISTS = [("Of a run", RUN_ENTRIES, RUN_TRANSITIONS), ("Of a step", STEP_ENTRIES, STEP_TRANSITIONS)]


def documented(heading: str) -> dict[str, set[str]]:
    """Entry -> the fields of its detail."""
    section = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    code = re.compile(r"`(\w+)`")
    return {name: set(code.findall(detail)) for names, _, detail in rows for name in code.findall(names)}


@pytest.mark.parametrize(("heading", "entries", "transitions"), LISTS, ids=["runs", "steps"])
def test_the_page_has_every_entry_with_its_fields(
    heading: str, entries: tuple[EntryType, ...], transitions: dict[str, object]
) -> None:
    assert documented(heading) == {entry.name: set(entry.fields) for entry in entries}


@pytest.mark.parametrize(("heading", "entries", "transitions"), LISTS, ids=["runs", "steps"])
def test_every_entry_names_a_transition_that_exists(
    heading: str, entries: tuple[EntryType, ...], transitions: dict[str, object]
) -> None:
    assert {entry.transition for entry in entries} - {None} <= set(transitions)
    assert {entry.status for entry in entries} - {None} <= set(STEP_STATUSES)


def written(tree: ast.AST) -> Iterator[ast.expr]:
    """What is given to `HistoryWriter.add` and to `record` as the name of an entry."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called == "record" and len(node.args) > 3:
            yield from _choices(node.args[3])
        elif re.search(r"(writer|told|history)\.add$|(_flow|self)\.record$", called) and node.args:
            yield from _choices(node.args[0])
        elif called.endswith("store.record") and len(node.args) > 2:
            yield from _choices(node.args[2])


def _choices(node: ast.expr) -> Iterator[ast.expr]:
    yield from (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node,)


WRITERS = [
    path
    for path in FILES
    if name_of(path).startswith(
        ("rival_client/api/", "rival_client/sql/", "rival_workers/store/", "rival_workers/runtime/")
    )
]


def test_the_code_writes_entries_by_their_constants() -> None:
    given = [(name_of(path), node) for path in WRITERS for node in written(tree_of(path))]
    texts = {f"{path}: {node.value!r}" for path, node in given if isinstance(node, ast.Constant)}
    assert texts == set(), "use the constants of rival_client.model.history_entries"
    constants = {ast.unparse(node) for _, node in given if ast.unparse(node).startswith("entries.")}
    assert len(constants) > 15


def test_there_is_a_constant_for_every_entry() -> None:
    constants = {
        value for name, value in vars(history_entries).items() if re.match("[A-Z]", name) and isinstance(value, str)
    }
    assert constants == ENTRY_NAMES
    assert all(getattr(history_entries, name.upper()) == name for name in ENTRY_NAMES)
