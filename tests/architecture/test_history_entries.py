"""The list of history entries, the page about them and the entries that the code writes are the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

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


def written(tree: ast.AST) -> Iterator[str]:
    """The names that are given to `HistoryWriter.add` and to `record`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        if called == "record" and len(node.args) > 3:
            yield from _text(node.args[3])
        elif re.search(r"(writer|told|history)\.add$|(_flow|self)\.record$", called) and node.args:
            yield from _text(node.args[0])


def _text(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def test_the_code_writes_only_entries_of_the_list() -> None:
    store = [path for path in FILES if name_of(path).startswith(("rival_client/sql/", "rival_workers/store/"))]
    found = {name for path in store for name in written(tree_of(path))}
    assert len(found) > 15
    assert found <= ENTRY_NAMES
