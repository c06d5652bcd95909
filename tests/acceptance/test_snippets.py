"""Every Python block of the documentation runs, as a reader would run it; the marks are explained in `documents`."""

from __future__ import annotations

import ast
import os
import re
import signal
from pathlib import Path

import pytest

import rival_client
import rival_workers
from rival_workers import Registry, dashboard, driver, register_workflows_from_directory, signals, testing
from tests.support.documents import Block, Page, pages
from tests.support.output import is_printed
from tests.support.workers import ROOT, Workers
from tests.support.zygote import Zygote

PAGES = pages()
TIMEOUT = 60


def runs_as(how: str) -> list[Page]:
    return [page for page in PAGES if any(block.run == how for block in page.blocks())]


def write_files(page: Page, directory: Path) -> None:
    for block in page.blocks():
        if block.file:
            target = directory / block.file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(block.text)


def run_blocks(page: Page, how: str, directory: Path, env: dict[str, str], zygote: Zygote) -> None:
    """In the page's order, each in an interpreter of its own; what a page says is printed must be."""
    last, printed = None, ""
    for block in page.blocks():
        if block.run:
            last = block.run
        if block.run == how:
            printed = run(page, block, directory, env, zygote)
        elif block.mark == "prints" and last == how:
            shown = block.text.splitlines()
            assert is_printed(shown, printed.splitlines()), f"{page.name}:{block.line}: not what is printed:\n{printed}"


def run(page: Page, block: Block, directory: Path, env: dict[str, str], zygote: Zygote) -> str:
    script = directory / "snippet.py"
    script.write_text(block.text)
    code, out, err = zygote.run([str(script)], directory, env, be="script", timeout=TIMEOUT)
    assert code != -signal.SIGALRM, f"{page.name}:{block.line} did not end within {TIMEOUT} s:\n{out}\n{err}"
    assert code == 0, f"{page.name}:{block.line} failed:\n{out}\n{err}"
    return out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_says_how_it_is_run(page: Page) -> None:
    for block in page.blocks():
        if block.language == "python":
            known = block.file or block.run in ("library", "producer", "no")
            assert known, f"{page.name}:{block.line}: mark it, see tests/support/documents.py"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_python_block_compiles(page: Page) -> None:
    for block in page.blocks():
        if block.language == "python":
            compile(block.text, f"{page.name}:{block.line}", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_block_uses_of_rival_it_takes_by_name(page: Page) -> None:
    """The process that blocks are forked from has imported every module: `rival_workers.testing` would be found in it
    also by a block that imports `rival_workers` only."""
    for block in page.blocks():
        assert not re.search(r"^\s*import rival", block.text, re.MULTILINE), (
            f"{page.name}:{block.line}: from … import …"
        )


PUBLIC = {
    "rival_client": rival_client,
    "rival_workers": rival_workers,
    "rival_workers.dashboard": dashboard,
    "rival_workers.driver": driver,
    "rival_workers.signals": signals,
    "rival_workers.testing": testing,
}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_import_public_names_only(page: Page) -> None:
    for block in page.blocks():
        if block.language != "python":
            continue
        for node in ast.walk(ast.parse(block.text)):
            if isinstance(node, ast.ImportFrom) and str(node.module).partition(".")[0] in PUBLIC:
                names = {alias.name for alias in node.names}
                public = set(PUBLIC[str(node.module)].__all__) if node.module in PUBLIC else set()
                assert names <= public, f"{page.name}:{block.line}: {node.module} does not export {names - public}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_for_users_name_no_inner_module(page: Page) -> None:
    if page.path.parent.name in ("explanation", "decisions"):
        return
    for name in re.findall(r"`(rival_(?:client|workers)(?:\.\w+)+)", page.prose):
        top = next(one for one in sorted(PUBLIC, key=len, reverse=True) if f"{name}.".startswith(f"{one}."))
        inner = name.removeprefix(top).strip(".")
        assert inner in ("", "__version__", *PUBLIC[top].__all__), f"{page.name}: {name} is not public; export it"


@pytest.mark.parametrize("page", [page for page in PAGES if any(b.file for b in page.blocks())], ids=lambda p: p.name)
def test_every_workflow_file_that_is_shown_can_be_registered(page: Page, tmp_path: Path) -> None:
    write_files(page, tmp_path)
    assert register_workflows_from_directory(tmp_path / "workflows", Registry())


@pytest.mark.parametrize("page", runs_as("library"), ids=lambda page: page.name)
def test_library_snippets_run(page: Page, tmp_path: Path, zygote: Zygote) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("RIVAL_", "CELERY_"))}
    write_files(page, tmp_path)
    run_blocks(page, "library", tmp_path, {**env, "PYTHONPATH": str(ROOT)}, zygote)


@pytest.mark.slow
@pytest.mark.parametrize("page", runs_as("producer"), ids=lambda page: page.name)
def test_producer_snippets_run(page: Page, tmp_path: Path, workers: Workers, zygote: Zygote) -> None:
    write_files(page, tmp_path)
    [worker] = workers.start(tmp_path / "workflows")
    try:
        run_blocks(page, "producer", tmp_path, workers.env, zygote)
    finally:
        print(worker.log)  # shown when it fails
