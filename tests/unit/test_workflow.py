"""A whole workflow: builder and list make the same definition, and all problems are reported at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, Field

from rival_workers import DefinitionError, create_workflow, step
from rival_workers.definition.default_registry import default_registry
from rival_workers.definition.define import define_workflow
from rival_workers.definition.files import register_paths
from rival_workers.definition.registry import Registry
from tests.support.output import as_expected, whole


class Tree(BaseModel):
    kind: str
    height: float = Field(gt=0)


@dataclass
class Plank:
    length: int


def find(input: Any) -> Any:
    return input


def chop(last_step: Any) -> Any:
    return last_step


def report(error: Any) -> None: ...


def test_the_builder_and_the_list_make_the_same_workflow() -> None:
    built = create_workflow("tree").input(Tree).step(find).step(chop, timeout=60).on_error(report).build()
    listed = define_workflow("tree", [find, step(chop, timeout=60)], input=Tree, on_error=report)
    assert built.plan == listed.plan
    assert (built.name, built.version, built.input_schema) == (listed.name, listed.version, listed.input_schema)


def test_the_builder_takes_several_steps_at_once() -> None:
    assert [node.name for node in create_workflow("t").steps([find, chop]).build().body] == ["find", "chop"]


def test_register_uses_the_given_registry_or_else_the_one_that_workers_use() -> None:
    own = Registry()
    registered = create_workflow("unit-test-own").step(find).register(own)
    assert own.find("unit-test-own", registered.version) is registered
    assert "unit-test-own" not in default_registry
    create_workflow("unit-test-default").step(find).register()
    assert "unit-test-default" in default_registry


def test_all_problems_of_a_workflow_come_at_once_each_naming_workflow_step_and_cure() -> None:
    with pytest.raises(DefinitionError) as caught:
        define_workflow(
            "broken",
            [step(find, timeuot=1), 7, chop, chop, step(lambda a, b: 1, name="two")],
            input="Tree",
            on_error=lambda axe, tree: None,
            source="workflows/broken.py",
        )
    problems = caught.value.problems
    broken = "workflows/broken.py: workflow 'broken': "
    expected = [
        f"{broken}steps[0]: unknown option 'timeuot' (did you mean 'timeout'?); known are name, …",
        f"{broken}steps[1]: 7 is not a step: give a function, step(function, …) or {{'fn': function, …}}",
        f"{broken}steps[3]: step 'chop' appears twice: give one of them another name, step(…, name=…) (…)",
        f"{broken}steps[4]: two: cannot inject parameters 'a', 'b': …",
        f"{broken}on_error: cannot inject parameters 'axe', 'tree': …",
        f"{broken}input: the input must be a type (a pydantic model, a dataclass, dict, …), not 'Tree'",
    ]
    assert as_expected(expected, problems) == expected
    assert str(caught.value) == "\n".join(problems)


@pytest.mark.parametrize("steps", [[], (), None, "find", find])
def test_a_workflow_without_a_list_of_steps_is_refused(steps: Any) -> None:
    with pytest.raises(
        DefinitionError, match=whole("workflow 'empty': a workflow needs at least one step: steps = [first, second, …]")
    ):
        define_workflow("empty", steps)


@pytest.mark.parametrize("name", ["", None, 3])
def test_a_workflow_without_a_name_is_refused(name: Any) -> None:
    with pytest.raises(DefinitionError, match=whole("workflow …: name: the name must be a non-empty string, not …")):
        define_workflow(name, [find])


@pytest.mark.parametrize("on_error", [3, "report"])
def test_a_handler_that_is_not_a_function_is_refused(on_error: Any) -> None:
    with pytest.raises(DefinitionError, match=whole("workflow 'w': on_error: … is not a function")):
        define_workflow("w", [find], on_error=on_error)


@pytest.mark.parametrize(
    ("model", "good", "bad"),
    [
        (Tree, {"kind": "oak", "height": 3.0}, {"kind": 1, "height": -3}),
        (Plank, {"length": 3}, {"length": "long"}),
        (dict[str, int], {"a": 1}, {"a": "x"}),
        (int, 3, "x"),
    ],
)
def test_the_stored_input_is_read_back_as_the_type_it_was_declared_as(model: Any, good: Any, bad: Any) -> None:
    workflow = define_workflow("w", [find], input=model)
    assert workflow.input_schema is not None
    read = workflow.read_input(good)
    assert isinstance(read, model if isinstance(model, type) else dict)
    with pytest.raises(ValueError):
        workflow.read_input(bad)


def test_all_problems_of_an_input_are_named() -> None:
    workflow = define_workflow("w", [find], input=Tree)
    with pytest.raises(ValueError) as caught:
        workflow.read_input({"height": -1})
    assert str(caught.value) == "kind: Field required; height: Input should be greater than 0"


def test_without_an_input_type_anything_goes_through_as_it_is() -> None:
    workflow = define_workflow("w", [find])
    assert workflow.input_schema is None
    assert workflow.read_input([1, {"a": None}]) == [1, {"a": None}]


def test_a_path_leads_to_the_step_or_handler_and_an_unknown_one_to_nothing() -> None:
    workflow = define_workflow("w", [step(find, on_error=report), chop], on_error=report)
    for path in ("find", "chop", "find!on_error", "!on_error"):
        assert workflow.call_at(path) is not None, path
    for path in ("chop!on_error", "nobody", ""):
        assert workflow.call_at(path) is None, path


def test_the_registry_refuses_the_same_name_with_other_steps_and_takes_the_same_again() -> None:
    registry = Registry()
    first = registry.add(define_workflow("w", [find]))
    registry.add(define_workflow("w", [find]))
    with pytest.raises(
        DefinitionError,
        match=whole("workflow 'w' is registered already, with other steps: give one of them another name"),
    ):
        registry.add(define_workflow("w", [find, chop]))
    assert len(registry) == 1
    assert registry.find("w", first.version) is not None
    assert registry.find("w", "another") is None
    assert registry.find("v", first.version) is None


def test_two_files_cannot_bring_the_same_workflow(tmp_path: Path) -> None:
    text = "name = 'same'\ndef only():\n    return 1\nsteps = [only]\n"
    (tmp_path / "one.py").write_text(text)
    (tmp_path / "two.py").write_text(text)
    with pytest.raises(
        DefinitionError,
        match=whole("…two.py: workflow 'same' is registered already, from …one.py: give one of them another name"),
    ):
        register_paths([tmp_path], Registry())


def test_builders_that_contain_one_another_are_refused() -> None:
    one, other = create_workflow("one"), create_workflow("other")
    one.step(find).workflow(other)
    other.step(find).step(one)
    with pytest.raises(
        DefinitionError,
        match=whole("…: workflow 'other': steps[1]: workflows contain one another: one → other → one (…)"),
    ):
        one.register(Registry())
    own = create_workflow("own")
    own.workflow(own)
    with pytest.raises(
        DefinitionError, match=whole("…: workflow 'own': steps[0]: workflows contain one another: own → own (…)")
    ):
        own.build()


def test_a_builders_problems_have_the_place_where_it_was_made() -> None:
    with pytest.raises(DefinitionError) as caught:
        create_workflow("w").step(find, timeuot=3).parallel("both", [find, []]).loop("turns", do=[chop]).build()
    line = test_a_builders_problems_have_the_place_where_it_was_made.__code__.co_firstlineno + 2
    place = f"{__file__}:{line}"
    expected = [
        f"{place}: workflow 'w': steps[0]: unknown option 'timeuot' (did you mean 'timeout'?); known are name, …",
        f"{place}: workflow 'w': steps[1] 'both': [1] is empty: give at least one step ({place})",
        f"{place}: workflow 'w': steps[2] 'turns': …has no end…",
    ]
    assert as_expected(expected, caught.value.problems) == expected


def test_older_versions_are_found_and_new_runs_take_the_newest() -> None:
    registry = Registry()
    old = registry.add(define_workflow("w", [find]))
    new = registry.renew(define_workflow("w", [find, chop]))
    assert (registry.find("w", old.version), registry.find("w", new.version)) == (old, new)
    assert (registry.newest("w"), list(registry), len(registry)) == (new, [new], 1)
