"""A type checker sees what steps are given: right code passes strict mypy, wrong code is reported where it is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.workers import ROOT

WORKFLOW = """
from pydantic import BaseModel

from rival_workers import (
    Context, Results, RunInfo, StepLog, StepOf, StepState, Steps, StepView, create_workflow, step,
)


class Tree(BaseModel):
    tree_id: str


class Pieces(BaseModel):
    count: int


class TreeResults(Results):
    find_tree: StepOf[Tree]
    chop_tree: StepOf[Pieces]


def find_tree(ctx: Context, log: StepLog, run: RunInfo) -> Tree:
    log.info("searching", attempt=run.attempt)
    return Tree(tree_id=ctx.run.run_id)


@step(timeout=60)
def chop_tree(steps: TreeResults, state: StepState) -> Pieces:
    state.description = steps.find_tree.result.tree_id.upper()
    return Pieces(count=len(steps.find_tree.result.tree_id))


def stack(steps: TreeResults, last_step: StepView[Pieces]) -> int:
    found = steps["find_tree"].status if "find_tree" in steps else "none"
    return steps.chop_tree.result.count + last_step.result.count + len(found)


def untyped(steps: Steps, last_step: StepView) -> str:
    return str(steps.find_tree.result["anything"]) + str(last_step.result.anything)


steps = [find_tree, step(chop_tree, max_attempts=3), stack, untyped]
results = TreeResults
built = create_workflow("trees").step(find_tree).results(TreeResults).build()
"""

#: What is wrong -> what is said about it.
MISTAKES = {
    "steps.find_tree.result.height": '"Tree" has no attribute "height"',
    "steps.find_tee.result": '"TreeResults" has no attribute "find_tee"',
    "steps.chop_tree.result.count.upper()": '"int" has no attribute "upper"',
    "steps.chop_tree.outcome": '"StepView[Pieces]" has no attribute "outcome"',
    "steps.find_tree.status + 1": "Unsupported operand types for +",
    "ctx.nothing": '"Context" has no attribute "nothing"',
    "log.shout('x')": '"StepLog" has no attribute "shout"',
}


@pytest.mark.slow
def test_types_of_results_are_real_for_strict_mypy(tmp_path: Path) -> None:
    (tmp_path / "right.py").write_text(WORKFLOW)
    lines = [f"def wrong_{n}(ctx: Context, steps: TreeResults, log: StepLog) -> None: {mistake}"
             for n, mistake in enumerate(MISTAKES)]  # fmt: skip
    (tmp_path / "wrong.py").write_text("\n".join([WORKFLOW, *lines, ""]))
    first = WORKFLOW.count("\n") + 2
    said = mypy(tmp_path, "right.py", "wrong.py")
    assert "right.py" not in said, said
    reported = {int(line): text for line, text in re.findall(r"^wrong\.py:(\d+): error: (.*)$", said, re.MULTILINE)}
    assert sorted(reported) == list(range(first, first + len(MISTAKES))), said
    for line, expected in zip(sorted(reported), MISTAKES.values(), strict=True):
        assert expected in reported[line]


def mypy(directory: Path, *files: str) -> str:
    """With the cache of the checkout: what is checked besides these files has been already, most of the time."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file", os.devnull]
    command += ["--follow-imports=silent", "--cache-dir", str(ROOT / ".mypy_cache" / "for_users"), *files]
    env = {**os.environ, "MYPYPATH": str(ROOT)}
    done = subprocess.run(command, cwd=directory, env=env, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout
