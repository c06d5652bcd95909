"""One name is one workflow: a second definition is refused with both places, the same one may be registered again."""

from __future__ import annotations

import functools
import importlib
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rival_workers import DefinitionError, create_workflow, embedded, flow
from rival_workers.definition.files import register_workflow_file
from rival_workers.definition.registry import Registry
from tests.support.inline import Inline
from tests.support.output import whole


def pay(ctx: Any) -> str:
    return "pay"


def refund(ctx: Any) -> str:
    return "refund"


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(ctx: Any) -> Any:
        return function(ctx)

    return wrapper


def as_flow(function: Any) -> Callable[[Registry], Any]:
    return lambda registry: flow("same", registry=registry)(function)


def as_workflow(registry: Registry) -> Any:
    return create_workflow("same").step(lambda: 1, name="same").register(registry)


def as_another_workflow(registry: Registry) -> Any:
    return create_workflow("same").step(lambda: 2, name="same").register(registry)


PAIRS = {
    "two flows": (as_flow(pay), as_flow(refund)),
    "two flows of one decorator": (as_flow(decorated(pay)), as_flow(decorated(refund))),
    "two lambdas": (
        as_flow(lambda ctx: 1),
        as_flow(lambda ctx: 2),
    ),
    "a flow and a workflow": (as_flow(pay), as_workflow),
    "a workflow and a flow": (as_workflow, as_flow(pay)),
    "two workflows with the same names of steps": (as_workflow, as_another_workflow),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_a_second_definition_of_a_name_is_refused_with_both_places_and_the_first_stays(
    inline: Inline, pair: str
) -> None:
    first, second = PAIRS[pair]
    first(inline.registry)
    kept = inline.registry.newest("same")
    with pytest.raises(DefinitionError) as refused:
        second(inline.registry)
    at = re.escape(__file__) + r":\d+"
    expected = f"{at}: workflow 'same' is registered already, from {at}: give one of them another name"
    assert re.fullmatch(expected, str(refused.value)), refused.value
    assert inline.registry.newest("same") is kept
    inline.process.register_workflows()
    inline.rival.run("same", run_id="r")
    inline.drain()
    assert inline.rival.result("r").status == "completed"


def test_the_same_function_in_one_file_twice_is_refused(tmp_path: Path) -> None:
    """The second `def` hides the first, so that only the lines differ."""
    file = tmp_path / "twice.py"
    body = "@flow('same')\ndef same(ctx):\n    return {}\n"
    file.write_text("from rival_workers import flow\n" + body.format(1) + body.format(2))
    with pytest.raises(
        DefinitionError,
        match=whole(
            "…twice.py:5: workflow 'same' is registered already, from …twice.py:2: give one of them another name"
        ),
    ):
        register_workflow_file(file, Registry())


@pytest.mark.parametrize("first", [as_flow(pay), as_flow(lambda ctx: 1), as_workflow])
def test_the_same_definition_may_be_registered_again(first: Callable[[Registry], Any]) -> None:
    registry = Registry()
    first(registry)
    first(registry)
    assert len(registry) == 1


def test_a_file_that_was_changed_may_be_loaded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file, registry = tmp_path / "changing_flow.py", Registry()
    source = "from rival_workers import flow\n{lines}@flow('same', version={version!r})\ndef same(ctx):\n    return 1\n"
    file.write_text(source.format(lines="", version="1"))
    register_workflow_file(file, registry)
    file.write_text(source.format(lines="\n\n", version="2"))
    importlib.invalidate_caches()
    register_workflow_file(file, registry)
    newest = registry.newest("same")
    assert newest is not None
    assert newest.place is not None
    assert newest.place.line == 4


def test_a_program_that_gives_one_name_to_two_flows_gets_an_error_in_library_mode() -> None:
    registry = Registry()
    as_flow(pay)(registry)
    with embedded(registry=registry) as rival:
        with pytest.raises(
            DefinitionError,
            match=whole("…: workflow 'same' is registered already, from …: give one of them another name"),
        ):
            as_flow(refund)(registry)
        assert rival.run("same").get(timeout=30) == "pay"
