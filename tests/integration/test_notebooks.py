"""Notebooks: cells are executed again, in any order, in one process. A cell's code has no file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from rival_client.errors import RivalError
from rival_workers import create_workflow, embedded
from rival_workers.definition.registry import Registry
from rival_workers.errors import DefinitionError
from tests.support.output import whole
from tests.support.workers import ROOT

#: Executes cells as ipykernel does: in one namespace called __main__, each under a file name of its own.
KERNEL = """
import sys, json
names = {"__name__": "__main__"}
for number, cell in enumerate(json.loads(sys.argv[1])):
    exec(compile(cell, f"/tmp/ipykernel_123/{number}.py", "exec"), names)
"""

OPEN = "from rival_workers import create_workflow, embedded, flow\nrival = embedded('app.db')"
STEPS = "def {name}():\n    return {result}\ncreate_workflow('counting').step({name}){more}.register()"
FLOW = "@flow('flowing')\ndef flowing(ctx, input):\n    return ctx.step(lambda: {result}, name='value')"
RUN = "print(rival.run('{name}').get(timeout=30))"


def executed(tmp_path: Path, *cells: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", KERNEL, json.dumps([*cells, "rival.close()"])],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_a_cell_that_is_executed_again_replaces_what_it_has_registered(tmp_path: Path) -> None:
    first, second = STEPS.format(name="one", result=1, more=""), STEPS.format(name="one", result=2, more="")
    third = STEPS.format(name="three", result=3, more=".delay(seconds=0)")
    run, flowing = RUN.format(name="counting"), RUN.format(name="flowing")
    cells = [OPEN, first, run, first, run, second, run, third, run]
    cells += [FLOW.format(result=4), flowing, FLOW.format(result=5), flowing]
    assert executed(tmp_path, *cells) == ["1", "1", "2", "None", "4", "5"]


@pytest.mark.slow
def test_a_cell_that_opens_rival_may_be_executed_again(tmp_path: Path) -> None:
    cells = [OPEN, STEPS.format(name="one", result=1, more=""), RUN.format(name="counting"), OPEN]
    assert executed(tmp_path, *cells, RUN.format(name="counting")) == ["1", "1"]


def test_a_program_that_opens_two_gets_an_error_and_the_first_works_on() -> None:
    registry = Registry()
    create_workflow("one").step(lambda: 1, name="one").register(registry)
    with embedded(registry=registry) as rival:
        with pytest.raises(
            RivalError,
            match=whole(
                "This process already has an open embedded Rival: use that one, or close it first (`with embedded() "
                "as rival:` closes it at the end)."
            ),
        ):
            embedded()
        assert rival.run("one").get(timeout=30) == 1
    with embedded(registry=registry) as rival:
        assert rival.run("one").get(timeout=30) == 1


def test_a_program_that_registers_two_of_one_name_is_still_refused() -> None:
    registry = Registry()
    create_workflow("one").step(lambda: 1, name="one").register(registry)
    with pytest.raises(
        DefinitionError, match=whole("…: workflow 'one' is registered already, from …: give one of them another name")
    ):
        create_workflow("one").step(lambda: 1, name="two").register(registry)
