"""What functions read of other steps is looked up in their source when a workflow is registered."""

from __future__ import annotations

import ast
import functools
import gc
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rival_workers import DefinitionError, branch, create_workflow, for_each, loop, parallel, step, workflow
from rival_workers.definition.define import define_workflow
from rival_workers.definition.files import register_paths
from rival_workers.definition.inject import STEP_NAMES, injection
from rival_workers.definition.registry import Registry
from rival_workers.definition.source_lines import parsed
from rival_workers.definition.step_references import mentions_of
from tests.support.output import as_expected, whole


def first(): ...  # type: ignore[no-untyped-def]
def last(): ...  # type: ignore[no-untyped-def]


def reads_last(steps: Any) -> Any:
    return steps.last.result


def reads_first(steps: Any) -> Any:
    return steps.first.result


def reads_no_step(steps: Any) -> Any:
    return steps.nobody.result


def problems(*steps: Any, **options: Any) -> list[str]:
    try:
        workflow = define_workflow("w", steps, **options)
    except DefinitionError as error:
        return error.problems
    return workflow.unseen


def the_problem(*steps: Any) -> str:
    """The only one, without the workflow before it and the place after it."""
    [found] = problems(*steps)
    return re.sub(r" \([^ ]+:\d+\)$", "", found.removeprefix("workflow 'w': "))


def comes_later(step: str, other: str) -> str:
    return f"step {step!r} reads steps.{other}, but {other!r} comes later: move it before this one"


def unknown(step: str, reads: str, name: str, known: str) -> str:
    elsewhere = "If a workflow around this one has it, register that one, or check"
    return f'step {step!r} reads {reads}, but no step {name!r} exists: {known} {elsewhere} `"{name}" in steps` first.'


# -- what counts as reading -----------------------------------------------------------------------------------


def mentioned(function: Any) -> list[str]:
    return [mention.name for mention in mentions_of(injection(function, STEP_NAMES))]


def attribute_and_subscript(steps: Any) -> Any:
    return steps.one.result, steps["two-three"], [steps.four for _ in range(3)], lambda: steps.five


def by_context(ctx: Any, log: Any) -> Any:
    return ctx.steps.one, ctx.steps["two"], ctx.run.run_id, ctx.input.three


def by_whole_context(everything: Any) -> Any:
    return everything.steps.one


async def asynchronously(steps: Any) -> Any:
    return steps.one


def dynamic(steps: Any) -> Any:
    return [steps[name] for name in ("one", "two")], getattr(steps, "three", None), [*steps]


def asked_first(steps: Any) -> Any:
    if "one" in steps:
        return steps.one.result
    return None if "two" not in steps else steps["two"]  # noqa: SIM401


def tried(steps: Any) -> Any:
    try:
        return steps.one.result
    except AttributeError:
        return None


def rebinds(steps: Any) -> Any:
    steps = {"a": 1}
    return steps.items()  # type: ignore[attr-defined]


def shadows(steps: Any) -> Any:
    return (lambda steps: steps.other)(1)


def something_elses(input: Any) -> Any:
    steps: Any = input
    return steps.one


@step(timeout=3)
@functools.lru_cache
def decorated(steps: Any) -> Any:
    return steps.one


class Callable:
    def __call__(self, steps: Any) -> Any:
        return steps.one

    def method(self, steps: Any) -> Any:
        return steps.one


two_of_them = (lambda steps: steps.one, lambda steps: steps.two)
namespace: dict[str, Any] = {}
exec("def without_source(steps): return steps.one", namespace)  # noqa: S102


@pytest.mark.parametrize(
    ("function", "names"),
    [
        (attribute_and_subscript, ["one", "two-three", "four", "five"]),
        (by_context, ["one", "two"]),
        (by_whole_context, ["one"]),
        (asynchronously, ["one"]),
        (decorated, ["one"]),
        (Callable(), ["one"]),
        (Callable().method, ["one"]),
        (functools.partial(by_context), ["one", "two"]),
        (lambda steps: steps.one, ["one"]),
        (dynamic, []),
        (asked_first, []),
        (tried, []),
        (rebinds, []),
        (shadows, []),
        (something_elses, []),
        (two_of_them[0], []),
        (namespace["without_source"], []),
        (dict, []),
    ],
)
def test_only_what_is_surely_read_of_steps_counts(function: Any, names: list[str]) -> None:
    assert mentioned(function) == names


# -- what is refused ------------------------------------------------------------------------------------------


def test_a_step_that_comes_later_is_refused_with_file_line_and_cure() -> None:
    [problem] = problems(reads_last, last)
    line = reads_last.__code__.co_firstlineno + 1
    assert problem == (
        "workflow 'w': step 'reads_last' reads steps.last, but 'last' comes later: move it before this one "
        f"({__file__}:{line})"
    )
    assert problems(last, reads_last) == []


def test_a_step_that_does_not_exist_is_refused_with_what_was_meant() -> None:
    def misspelt(steps: Any) -> Any:
        return steps["frist"]

    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': step 'misspelt' reads steps.frist, but no step 'frist' exists: did you mean 'first'? "
            'If a workflow around this one has it, register that one, or check `"frist" in steps` first. (…)'
        ),
    ):
        Registry().add(define_workflow("w", [first, misspelt]))
    with pytest.raises(
        DefinitionError,
        match=whole(
            "…: workflow 'w': step 'x' reads steps.nobody, but no step 'nobody' exists: its steps are first, x. "
            'If a workflow around this one has it, register that one, or check `"nobody" in steps` first. (…)'
        ),
    ):
        create_workflow("w").step(first).step(reads_no_step, name="x").register(Registry())


def test_all_of_them_are_reported_at_once_with_the_other_problems() -> None:
    found = problems(reads_last, reads_no_step, step(last, timeuot=3))
    expected = [
        "workflow 'w': steps[2]: unknown option 'timeuot' (did you mean 'timeout'?); known are name, …",
        "workflow 'w': step 'reads_last' reads steps.last, but 'last' comes later: move it before this one (…)",
        "workflow 'w': step 'reads_no_step' reads steps.nobody, but no step 'nobody' exists: its steps are …",
    ]
    assert as_expected(expected, found) == expected


def test_what_is_around_or_elsewhere_at_the_same_time_does_not_come_before() -> None:
    other_way = branch("way", when=lambda: True, then=[reads_last], otherwise=[last])
    assert (
        the_problem(other_way)
        == "step 'way/reads_last' reads steps.last, but 'last' is in the other branch of 'way': only one of them runs"
    )
    at_once = parallel("both", [reads_last, last])
    assert (
        the_problem(at_once)
        == "step 'both/reads_last' reads steps.last, but 'last' runs at the same time: read it after 'both'"
    )

    def reads_way(steps: Any) -> Any:
        return steps.way.result

    within = branch("way", when=lambda: True, then=[reads_way])
    assert (
        the_problem(within)
        == "step 'way/reads_way' reads steps.way, but 'way' has not ended by then: one of the two is within the other"
    )
    asks = branch("way", when=reads_last, then=[last])
    assert (
        the_problem(asks)
        == "step 'way!when' reads steps.last, but 'last' has not ended by then: one of the two is within the other"
    )


def test_names_within_branches_and_parallels_are_seen_from_behind_them_but_not_those_of_items() -> None:
    assert problems(branch("way", when=lambda: True, then=[last]), reads_last) == []
    assert problems(parallel("both", [[first, last]]), reads_last) == []
    assert the_problem(for_each("all", items=list, do=[last]), reads_last) == unknown(
        "reads_last", "steps.last", "last", "its steps are all, reads_last."
    )


def test_in_a_loop_a_later_step_is_that_of_the_iteration_before() -> None:
    assert problems(loop("turns", do=[reads_last, last], max_iterations=3)) == []
    assert problems(loop("turns", do=[last], until=reads_last)) == []
    assert problems(loop("turns", do=[last], while_=reads_last)) == []
    assert the_problem(for_each("all", items=list, do=[reads_last, last])) == comes_later("all[]/reads_last", "last")
    assert the_problem(loop("turns", do=[reads_last], max_iterations=3), last) == comes_later(
        "turns[]/reads_last", "last"
    )


def test_the_nearest_of_two_with_the_same_name_is_meant() -> None:
    assert the_problem(last, for_each("all", items=list, do=[reads_last, last])) == comes_later(
        "all[]/reads_last", "last"
    )


def test_a_whole_path_must_be_one_of_the_plan() -> None:
    def by_path(steps: Any) -> Any:
        return steps["all[3]/last"].result

    assert problems(for_each("all", items=list, do=[last]), by_path) == []
    assert the_problem(for_each("all", items=list, do=[first]), by_path) == unknown(
        "by_path", "steps['all[3]/last']", "all[3]/last", "its steps are all, by_path."
    )


def test_a_step_may_look_at_itself_and_a_handler_at_anything() -> None:
    def itself(steps: Any) -> Any:
        return steps.itself.state

    assert problems(itself) == []
    assert problems(step(first, on_error=reads_last), last, on_error=reads_no_step) == []


# -- nested workflows -----------------------------------------------------------------------------------------


def test_a_nested_workflow_may_read_what_comes_before_it_in_the_one_around_it() -> None:
    inner = create_workflow("inner").step(reads_first)
    assert problems(first, workflow(inner.build())) == []
    assert the_problem(workflow(inner.build()), first) == comes_later("inner/reads_first", "first")
    assert the_problem(last, workflow(inner.build())) == unknown(
        "inner/reads_first", "steps.first", "first", "did you mean 'reads_first'?"
    )
    with pytest.raises(
        DefinitionError,
        match=whole(
            "…: workflow 'inner': step 'reads_first' reads steps.first, but no step 'first' exists: did you "
            "mean 'reads_first'? If a workflow around this one has it, register that one, or check `\"first\" "
            "in steps` first. (…)"
        ),
    ):
        inner.register(Registry())


def test_a_file_that_is_also_nested_is_measured_where_it_is_nested(tmp_path: Path) -> None:
    (tmp_path / "inner.py").write_text("def reads(steps):\n    return steps.first.result\nsteps = [reads]\n")
    with pytest.raises(
        DefinitionError,
        match=whole(
            "…inner.py: workflow 'inner': step 'reads' reads steps.first, but no step 'first' exists: its steps "
            'are reads. If a workflow around this one has it, register that one, or check `"first" in steps` '
            "first. (…inner.py:2)"
        ),
    ):
        register_paths([tmp_path], Registry())
    outer = "from rival_workers import workflow\ndef first(): ...\nsteps = [first, workflow('./inner.py')]\n"
    (tmp_path / "outer.py").write_text(outer)
    assert [one.name for one in register_paths([tmp_path], Registry())] == ["inner", "outer"]


class ParsesAtItsEnd:
    """It parses when it is collected, as an asyncio task that failed unnoticed does: it logs a traceback."""

    def __init__(self) -> None:
        self.itself = self

    def __del__(self) -> None:
        with suppress(SystemError):
            ast.parse("(1, [2, {3: (4, 5)}])")


def test_a_source_is_parsed_although_garbage_is_collected_meanwhile_that_parses_too() -> None:
    source = "\n".join(f"def f{n}(a, b=({n}, [1])): return lambda x: x + {n} * (a - b)" for n in range(300))
    before = gc.get_threshold()
    ParsesAtItsEnd()
    gc.set_threshold(5)
    try:
        tree = parsed(source)
    finally:
        gc.set_threshold(*before)
    assert len(tree.body) == 300
