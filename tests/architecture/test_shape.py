"""Limits of the code's shape: sizes of functions and files, formatting exceptions, modules split for no reason, names
that two modules share. Migrations are exempt: they are never edited.

A limit only goes down. Where it is above its target, the comment behind it names the target: lower it with the code.
"""

from __future__ import annotations

import ast
import statistics
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from tests.support.workers import ROOT

PACKAGES = ("rival_client", "rival_workers")


@dataclass(frozen=True)
class Limits:
    """Lines: the median, the 90th percentile and the longest."""

    median: float
    most: int
    longest: int


FUNCTIONS = Limits(median=5, most=13, longest=40)
FILES = Limits(median=97, most=209, longest=333)
FORMATTED_BY_HAND = 20
SINGLE_IMPORTERS = 30


@dataclass(frozen=True)
class Sized:
    lines: int
    name: str


# -- sizes ----------------------------------------------------------------------------------------------------------


@cache
def sources() -> dict[Path, str]:
    paths = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {path.relative_to(ROOT): path.read_text() for path in paths if "migrations" not in path.parts}


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(text) for path, text in sources().items()}


def functions() -> Iterator[Sized]:
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield Sized((node.end_lineno or 0) - node.lineno + 1, f"{path}:{node.lineno} {node.name}")


def files() -> Iterator[Sized]:
    yield from (Sized(len(text.splitlines()), str(path)) for path, text in sources().items())


@pytest.mark.parametrize(("find", "limits"), [(functions, FUNCTIONS), (files, FILES)])
def test_most_are_small_and_none_is_large(find: Callable[[], Iterator[Sized]], limits: Limits) -> None:
    ordered = sorted(find(), key=lambda one: one.lines)
    too_long = [one for one in ordered if one.lines > limits.longest]
    assert not too_long, f"more than {limits.longest} lines: {too_long}"
    most = ordered[int(0.9 * len(ordered))].lines
    assert most <= limits.most, f"90th percentile {most}; the longest are {ordered[-20:]}"
    median = statistics.median(one.lines for one in ordered)
    assert median <= limits.median, f"median {median} of {len(ordered)}; limit {limits.median}"


# -- formatting -----------------------------------------------------------------------------------------------------


def test_the_formatter_decides_about_almost_all_lines() -> None:
    """A call that only looks good by hand has too many arguments; a table is data, one entry per line."""
    mark = "# fmt: " + "skip"
    tracked = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=True)
    counts = {name: (ROOT / name).read_text().count(mark) for name in tracked.stdout.split() if (ROOT / name).exists()}
    marked = {name: count for name, count in counts.items() if count}
    assert sum(marked.values()) < FORMATTED_BY_HAND, f"{sum(marked.values())} lines with {mark!r}: {marked}"


# -- modules --------------------------------------------------------------------------------------------------------


def module_of(path: Path) -> str:
    return path.as_posix().removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(tree: ast.Module, modules: set[str]) -> Iterator[str]:
    """All modules of ours that it names in an import, also inside a function and for type checkers only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in modules else node.module


def importers() -> dict[str, set[str]]:
    modules = {module_of(path) for path in trees()}
    found: dict[str, set[str]] = {module: set() for module in modules}
    for path, tree in trees().items():
        for name in set(imported(tree, modules)) & modules:
            found[name].add(module_of(path))
    return found


def test_few_modules_have_a_single_importer() -> None:
    """A module without a concept of its own belongs into the one that imports it, while that stays a small file. The
    `__init__` of a folder is its entry, and has as many importers as the folder has users."""
    folders = {module_of(path) for path in trees() if path.name == "__init__.py"}
    used = {module: names for module, names in importers().items() if module not in folders}
    single = {module: names.copy().pop() for module, names in used.items() if len(names) == 1}
    listed = "\n".join(f"{module} <- {importer}" for module, importer in sorted(single.items()))
    assert len(single) < SINGLE_IMPORTERS, f"{len(single)} modules are imported by a single other one:\n{listed}"


# -- names ----------------------------------------------------------------------------------------------------------

#: Modules of one package that share a name on purpose: name -> (folders, reason).
NAMESAKES: dict[str, dict[str, tuple[set[str], str]]] = {
    "rival_client": {
        "events": ({"api", "sql"}, "methods of the client and their statements"),
        "breakers": ({"api", "model/policies", "sql"}, "methods of the client, data, statements"),
        "dead_letters": ({"api", "model", "sql"}, "methods of the client, data, statements"),
        "external_steps": ({"api", "sql"}, "methods of the client and their statements"),
        "idempotency": ({"api", "model/limits", "sql"}, "methods of the client, data, statements"),
        "limit_records": ({"model/limits", "sql"}, "data and statements"),
        "recovery": ({"model", "sql"}, "data and statements"),
        "schedules": ({"api", "sql"}, "methods of the client and their statements"),
    },
    "rival_workers": {
        "claims": ({"store/sql", "store/postgres"}, "portable statements, fast paths"),
        "breakers": ({"cli", "store/sql"}, "command, statements"),
        "command": ({"cli/demo", "cli/doctor"}, "the command itself, in the folder of each command that has one"),
        "context": ({"runtime/attempt", "runtime/flow"}, "what a step's function gets, and what a flow's gets"),
        "errors": ({".", "dev", "testing"}, "the errors of each part"),
        "events": ({"cli", "store/sql", "store/postgres"}, "command, portable statements, fast paths"),
        "external_steps": ({"cli", "store/sql"}, "command, statements"),
        "flows": ({"definition", "store/sql", "store/postgres"}, "definition, portable statements, fast paths"),
        "operations": ({".", "cli"}, "operators' verbs and their commands"),
        "plan": ({"engine", "cli"}, "the plan, and the command that shows it"),
        "schedules": ({"definition", "cli", "store/sql"}, "definition, command, statements"),
        "step_transitions": ({"runtime/attempt", "store/sql"}, "a worker's transitions and their statements"),
        "steps": ({"definition", "store/postgres"}, "definition and fast paths"),
        "tracebacks": ({"runtime/logs", "cli/display"}, "makes them, and shows them"),
        "worker": ({"runtime/celery", "cli"}, "the worker, and the command that starts it"),
    },
}


@pytest.mark.parametrize("package", PACKAGES)
def test_two_modules_have_the_same_name_only_on_purpose(package: str) -> None:
    folders = defaultdict(set)
    for path in sources():
        if path.parts[0] == package and path.name != "__init__.py":
            folders[path.stem].add(path.parent.relative_to(package).as_posix())
    shared = {name: where for name, where in folders.items() if len(where) > 1}
    known = {name: where for name, (where, _) in NAMESAKES[package].items()}
    assert shared == known, "rename a module, or say in NAMESAKES why they belong together; remove what is gone"
