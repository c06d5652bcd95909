"""Typed results: checked when a step ends, restored when they are read, by annotation or by `Results`."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pydantic import BaseModel, ConfigDict, Field, SecretStr, computed_field

from rival_workers import (
    DefinitionError,
    InvalidResult,
    Results,
    StepOf,
    StepView,
    create_workflow,
    for_each,
    loop,
    parallel,
    step,
    workflow,
)
from rival_workers.definition.return_types import returns_of
from rival_workers.definition.returns import Returns
from tests.support.inline import Inline, opened
from tests.support.output import whole

if TYPE_CHECKING:
    from nowhere import Unknown  # type: ignore[import-not-found]


class Tree(BaseModel):
    tree_id: str
    height: float = Field(default=1.0, gt=0)


@dataclass
class Plank:
    length: int


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")

    when: dt.date = Field(alias="at")
    sizes: tuple[int, ...]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def count(self) -> int:
        return len(self.sizes)


@pytest.fixture
def inline(sqlite_url: str) -> Iterator[Inline]:
    with opened(lambda: Inline(sqlite_url)) as made:
        yield made


def run(inline: Inline, name: str) -> Any:
    run_id = inline.rival.run(name).run_id
    inline.drain()
    return inline.rival.state(run_id)


def find_tree() -> Tree:
    return Tree(tree_id="oak-1")


seen: list[Any] = []


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


def look(last_step: StepView) -> None:
    seen.append(last_step.result)


# -- which annotations are types of results -------------------------------------------------------------------


class Chopper:
    def method(self) -> Tree: ...  # type: ignore[empty-body]
    async def __call__(self) -> Tree: ...  # type: ignore[empty-body]


async def later() -> list[Tree]: ...  # type: ignore[empty-body]


def coroutine() -> Coroutine[Any, Any, Tree | None]: ...  # type: ignore[empty-body]
def planks() -> dict[str, Plank]: ...  # type: ignore[empty-body]
def plain() -> dict[str, Any]: ...  # type: ignore[empty-body]
def unresolvable() -> Unknown: ...
def undescribable() -> list[Tree] | Iterator[Inline]: ...  # type: ignore[empty-body]
def nothing(): ...  # type: ignore[no-untyped-def]
def unresolvable_parameter(steps: Unknown) -> Tree: ...  # type: ignore[empty-body]


@functools.wraps(find_tree)
def wrapped(*args: Any) -> Any: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (find_tree, Tree),
        (later, list[Tree]),
        (coroutine, Tree | None),
        (planks, dict[str, Plank]),
        (Chopper().method, Tree),
        (Chopper(), Tree),
        (functools.partial(find_tree), Tree),
        (wrapped, Tree),
        (unresolvable_parameter, Tree),
        (plain, None),
        (unresolvable, None),
        (undescribable, None),
        (nothing, None),
        (lambda: 1, None),
        (dict, None),
    ],
)
def test_a_model_or_a_dataclass_in_the_annotation_makes_it_a_type(function: Any, expected: Any) -> None:
    found = returns_of(function)
    assert (found.type if found else None) == expected


# -- storing and restoring ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (Tree, Tree(tree_id="oak")),
        (list[Tree], [Tree(tree_id="a"), Tree(tree_id="b")]),
        (Tree | None, None),
        (dict[str, Tree], {"a": Tree(tree_id="a")}),
        (Plank, Plank(3)),
        (dict[dt.date, set[int]], {dt.date(2024, 2, 29): {1}}),
        (Strict, Strict(at=dt.date(2024, 2, 29), sizes=(1, 2))),
        (tuple[int, Tree], (1, Tree(tree_id="a"))),
    ],
)
def test_what_is_stored_is_restored_as_it_was(type_: Any, value: Any) -> None:
    returns = Returns(type_)
    assert returns.restored(returns.stored(value, "x"), "x") == value


def test_a_dict_that_fits_will_do() -> None:
    assert Returns(Tree).stored({"tree_id": "oak"}, "x") == {"tree_id": "oak", "height": 1.0}


def test_a_model_that_was_spoilt_after_it_was_made_does_not_pass() -> None:
    tree = Tree(tree_id="oak")
    tree.height = "high"  # type: ignore[assignment]
    with pytest.raises(
        Exception,
        match=whole(
            "the result of step 'x' is not of type Tree: Pydantic serializer warnings:\n  "
            "PydanticSerializationUnexpectedValue(Expected `float` - serialized value may not be as expected "
            "[field_name='height', input_value='high', input_type=str])"
        ),
    ):
        Returns(Tree).stored(tree, "step 'x'")


# -- in a run -------------------------------------------------------------------------------------------------


class Login(BaseModel):
    password: SecretStr


def test_a_secret_of_which_only_asterisks_would_be_stored_is_refused() -> None:
    for kind, value in ((Login, {"password": "a"}), (list[Login], [Login(password=SecretStr("a"))]), (SecretStr, "a")):
        with pytest.raises(
            InvalidResult,
            match=whole(
                "the result of it cannot be stored: … is a SecretStr, of which only asterisks would be stored. What "
                "is stored is not hidden: declare it as str (or bytes), give its model a field_serializer that "
                "returns the secret value, or pass a dict"
            ),
        ):
            Returns(kind).stored(value, "it")
    assert Returns(Login).stored({"password": ""}, "it") == {"password": ""}


def test_a_result_is_that_type_again_in_every_later_step(inline: Inline) -> None:
    def by_name(steps: Any, last_step: Any) -> None:
        seen.extend([steps.find_tree.result, last_step.result])

    def again(ctx: Any) -> None:
        seen.append(ctx.steps["find_tree"].result)

    inline.define("w", find_tree, by_name, again)
    state = run(inline, "w")
    assert state.status == "completed"
    assert seen == [Tree(tree_id="oak-1")] * 3
    assert state.steps[0].result == {"tree_id": "oak-1", "height": 1.0}


def test_also_when_each_attempt_is_a_message_of_its_own(sqlite_url: str) -> None:
    with opened(lambda: Inline(sqlite_url, continuation_budget=0)) as inline:
        inline.define("w", find_tree, look)
        run(inline, "w")
    assert seen == [Tree(tree_id="oak-1")]


def test_a_result_that_does_not_fit_fails_the_step_naming_it_and_every_problem(inline: Inline) -> None:
    def wrong() -> Tree:
        return {"height": -1}  # type: ignore[return-value]

    inline.define("w", step(wrong, max_attempts=1), look)
    state = run(inline, "w")
    assert (state.status, state.failed_step, state.error["type"]) == ("failed", "wrong", "InvalidResult")
    problems = "tree_id: Field required; height: Input should be greater than 0"
    assert state.error["message"] == (
        f"the result of step 'wrong' of run {state.run_id!r} is not of type Tree: {problems}"
    )
    assert seen == []


def test_a_step_that_is_skipped_or_fails_softly_has_no_result_to_fit(inline: Inline) -> None:
    def skips(state: Any) -> Tree | None:
        state.skipped = True
        return None

    def skips_untruly(state: Any) -> Tree:
        state.skipped = True
        return None  # type: ignore[return-value]

    inline.define("w", skips, step(look, name="one"), skips_untruly, step(look, name="two"))
    assert run(inline, "w").status == "completed"
    assert seen == [None, None]


def test_a_stored_result_that_no_longer_fits_is_the_readers_error_and_only_then(inline: Inline) -> None:
    def statuses(steps: Any) -> list[str]:
        return [steps.find_tree.status]

    def reads(steps: Any) -> Any:
        return steps.find_tree.result

    made = inline.define("w", find_tree, statuses, reads)
    # As if the model had got another field between two attempts.
    made.returns["find_tree"].restored = Returns(Plank).restored  # type: ignore[method-assign, index]
    state = run(inline, "w")
    assert state.steps[1].result == ["completed"]
    assert (state.failed_step, state.error["type"]) == ("reads", "InvalidResult")
    assert state.error["message"] == (
        "the result of step 'find_tree' as it was stored is not of type Plank: length: Field required. Has the "
        "type changed since? Then let it take the old form too."
    )


def test_types_go_through_nested_workflows_loops_and_items(inline: Inline) -> None:
    def inside(steps: Any, last_step: Any) -> Tree:
        seen.extend([steps.find_tree.result, last_step.result])
        return Tree(tree_id="inner")

    def each(steps: Any, item: Any) -> Tree:
        return Tree(tree_id=f"{steps.find_tree.result.tree_id}/{item}")

    def after(steps: Any) -> None:
        seen.extend([steps.nested.result, steps.turns.result, steps["lines[1]/each"].result, steps.lines.result])

    nested = create_workflow("nested").step(inside)
    inline.define(
        "w",
        find_tree,
        workflow(nested.build(), name="nested"),
        loop("turns", do=[inside], max_iterations=2),
        for_each("lines", items=lambda: [1, 2], do=[each]),
        after,
    )
    assert run(inline, "w").status == "completed"
    oak, inner = Tree(tree_id="oak-1"), Tree(tree_id="inner")
    assert seen[:2] == [oak, oak]
    assert seen[2:6] == [oak, inner, oak, inner]
    assert seen[6:9] == [inner, inner, Tree(tree_id="oak-1/2")]
    # A list of results is plain JSON unless `Results` says what it is.
    assert seen[9] == [{"tree_id": "oak-1/1", "height": 1.0}, {"tree_id": "oak-1/2", "height": 1.0}]


# -- Results --------------------------------------------------------------------------------------------------


def untyped():  # type: ignore[no-untyped-def]
    return {"tree_id": "oak-7"}


class TreeResults(Results):
    untyped: StepOf[Tree]
    number: StepOf[dict[str, int]]
    lines: StepOf[list[Plank]]
    anything: StepView


def lined():  # type: ignore[no-untyped-def]
    return [1, 2]


def plank(item):  # type: ignore[no-untyped-def]
    return {"length": item}


def test_results_type_steps_without_annotations_and_composites(inline: Inline) -> None:
    def after(steps: TreeResults) -> None:
        seen.extend([steps.untyped.result, steps.number.result, steps.lines.result, steps.anything.result])

    steps = [
        untyped,
        step(lambda: {"a": "1"}, name="number"),
        for_each("lines", items=lined, do=[plank]),
        step(lambda: 3, name="anything"),
        after,
    ]
    inline.define("w", *steps, results=TreeResults)
    assert run(inline, "w").status == "completed"
    assert seen == [Tree(tree_id="oak-7"), {"a": 1}, [Plank(1), Plank(2)], 3]


def test_with_results_a_result_that_does_not_fit_fails_its_step(inline: Inline) -> None:
    class Wrong(Results):
        untyped: StepOf[Plank]

    inline.define("w", untyped, results=Wrong)
    assert run(inline, "w").error["type"] == "InvalidResult"


def test_results_reach_the_steps_within_branches_and_iterations(inline: Inline) -> None:
    class Within(Results):
        untyped: StepOf[Tree]

    def inner(steps: Within) -> None:
        seen.append(steps.untyped.result)

    inline.define("w", parallel("both", [[untyped, inner]]), results=Within)
    run(inline, "w")
    assert seen == [Tree(tree_id="oak-7")]


def test_the_builder_and_a_file_take_results(tmp_path: Path) -> None:
    class Both(Results):
        untyped: StepOf[Tree]

    built = create_workflow("w").step(untyped).results(Both).build()
    assert repr(built.returns_at("untyped")) == "Returns(Tree)"


class Misspelt(Results):
    untypd: StepOf[Tree]


class NotStepOf(Results):
    untyped: Tree


class Lost(Results):
    untyped: StepOf[Unknown]


class Undescribable(Results):
    untyped: StepOf[Inline]


@pytest.mark.parametrize(
    ("results", "words"),
    [
        (Misspelt, "results: Misspelt has 'untypd', which is not a step: did you mean 'untyped'?"),
        (NotStepOf, "results: untyped is a Tree, not a step: write untyped: StepOf[Tree]"),
        (Lost, "results: a type of Lost cannot be found: name 'Unknown' is not defined"),
        (Undescribable, "results: untyped cannot be checked: "),
        (dict, "results: give a subclass of Results"),
    ],
)
def test_results_that_are_none_are_refused_with_the_cure(results: Any, words: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        create_workflow("w").step(untyped).results(results).build()
    [problem] = caught.value.problems
    assert words in problem
