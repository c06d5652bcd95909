"""Where a step may have something that undoes it, what is said where it may not, and what follows from a failure."""

from __future__ import annotations

from typing import Any

import pytest

from rival_client.model.policies.step_config import StepConfig
from rival_workers import (
    DefinitionError,
    branch,
    create_workflow,
    delay_step,
    flow,
    for_each,
    parallel,
    step,
    wait_event_step,
    workflow,
)
from rival_workers.definition.define import define_workflow
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import (
    Close,
    Compensate,
    CompensationEnded,
    EndRun,
    ErrorOf,
    FailRun,
    IfCancelled,
    OpenRow,
)
from rival_workers.engine.interpreter import advance
from rival_workers.engine.nodes import FlowNode, StepNode
from rival_workers.engine.plan import Plan
from rival_workers.runtime.flow.step_options import checked_options
from tests.support.output import whole

HARD = End("failed", error={"message": "hard"}, hard=True)
OK = End("completed")


def work() -> None: ...
def undo(result: Any, error: Any, failed_step: Any, workflow_state: Any, input: Any) -> None: ...


@flow("journey", register=False)
def journey(ctx: Any) -> None: ...


def plan_of(*steps: Any, **options: Any) -> Plan:
    return define_workflow("w", steps, **options).plan


# -- definitions ------------------------------------------------------------------------------------------


def test_a_list_a_dict_and_the_builder_make_the_same_step_that_can_be_undone() -> None:
    listed = define_workflow("w", [step(work, compensate=undo)])
    built = create_workflow("w").step(work, compensate=undo).build()
    assert listed.plan == built.plan == plan_of({"fn": work, "compensate": undo})
    [node] = listed.plan.nodes
    assert isinstance(node, StepNode)
    assert node.compensate
    assert set(listed.calls) == {"work", "work!compensate"}


def test_it_is_another_version_and_without_it_the_version_is_what_it_always_was() -> None:
    assert plan_of(step(work, compensate=undo)).version != plan_of(work).version
    assert "compensate" not in plan_of(work).model_dump_json(exclude_defaults=True)


def test_a_flow_in_a_list_can_be_undone_and_takes_the_options_of_a_step_but_for_those_of_external_ones() -> None:
    defined = define_workflow("w", [step(journey, compensate=undo, name="trip", timeout=3, max_retries=2)])
    [node], config = defined.plan.nodes, defined.policies.at("trip")
    assert isinstance(node, FlowNode)
    assert (node.compensate, node.name, config.timeout, config.max_retries) == (True, "trip", 3, 2)
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': steps[0]: a flow has no option 'deadline': give it to the steps, or to the run: "
            "run(…, deadline=60) (…)"
        ),
    ):
        plan_of(step(journey, deadline=3))


def test_a_nested_workflow_brings_its_compensations_along() -> None:
    inner = define_workflow("inner", [step(work, compensate=undo)])
    outer = define_workflow("w", [workflow(inner)])
    assert "inner/work!compensate" in outer.calls
    assert list(outer.plan.compensations) == ["inner/work"]


@pytest.mark.parametrize(
    ("thing", "cure"),
    [
        (
            branch("b", when=lambda: True, then=[work], compensate=undo),
            " 'b': a branch has no compensation: give compensate to the steps within (…)",
        ),
        (
            parallel("p", [work], compensate=undo),
            " 'p': a parallel has no compensation: give compensate to the steps within (…)",
        ),
        (
            for_each("f", items=list, do=[work], compensate=undo),
            " 'f': a for_each has no compensation: give compensate to the steps within (…)",
        ),
        (
            workflow(define_workflow("v", [work]), compensate=undo),
            " 'v': a workflow has no compensation: give compensate to the steps within (…)",
        ),
        (
            wait_event_step("paid", compensate=undo),
            " 'wait_paid': a wait_event has no compensation: give compensate to the step that does what must be undone",
        ),
        (
            delay_step(seconds=1, compensate=undo),
            ": unknown option 'compensate': a delay has only a time and a name; it cannot be retried or compensated",
        ),
        (
            step(work, compensate=lambda payment, why: None),
            ": work's compensate: cannot inject parameters 'payment', 'why': a step may ask for any of … result, or …",
        ),
        (step(work, compensate="undo"), ": work's compensate: 'undo' is not a function (…)"),
        (step(lambda result: None, name="x"), "x"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_where_it_makes_no_sense_it_is_refused_with_its_cure(thing: Any, cure: str) -> None:
    if cure == "x":
        # Its only parameter: the whole context, whatever it is called.
        assert plan_of(thing)
        return
    with pytest.raises(DefinitionError, match=whole(f"workflow 'w': steps[0]{cure}")) as refused:
        plan_of(thing)
    assert len(refused.value.problems) == 1


def test_only_what_undoes_a_step_may_ask_for_its_result() -> None:
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': steps[0]: work's on_error: cannot inject parameter 'result': a step may ask for any "
            "of ctx, input, steps, last_step, state, log, run, error, failed_step, workflow_state, "
            "run_continues, or take the whole context as its only argument. Rename it, or give it a default. "
            "(…)"
        ),
    ):
        plan_of(step(work, on_error=lambda result, error: None))


def test_what_undoes_an_item_may_ask_for_it() -> None:
    assert plan_of(for_each("f", items=list, do=[step(work, compensate=lambda item, index, result: None)]))


def test_a_flow_with_compensations_gets_an_error_that_says_how_a_flow_undoes_its_steps() -> None:
    advice = "option compensate: a flow undoes what it has done by itself: try: … except: ctx.step(undo, …); raise"
    with pytest.raises(ValueError, match=whole(advice)):
        checked_options({"compensate": undo})


# -- what follows -----------------------------------------------------------------------------------------


def test_it_has_the_retries_and_the_timeout_of_its_step_and_nothing_of_its_being_external() -> None:
    options: dict[str, Any] = {"max_attempts": 5, "backoff": "exponential", "timeout": 9, "on_timeout": "retry"}
    external = {"execution_mode": "external", "deadline": 60, "heartbeat": 30}
    policies = define_workflow("w", [step(work, compensate=undo, **options, **external)]).policies
    assert policies.at("work!compensate") == StepConfig(**options)


def test_a_plan_in_which_nothing_can_be_undone_fails_as_it_always_did() -> None:
    assert advance(plan_of(work), "work", HARD, "step").effects == (FailRun(), EndRun("failed"))
    kept = plan_of(workflow(define_workflow("v", [work]), propagate_failure=False), step(work, compensate=undo))
    assert advance(kept, "v/work", HARD, "step").effects == (Close("v", "failed"), OpenRow("work", "step"))


def test_a_run_that_fails_is_compensated_after_the_steps_handler_and_before_its_own() -> None:
    plan = plan_of(step(work, name="a", compensate=undo), step(work, name="b", on_error=work), on_error=work)
    failing, handler = advance(plan, "b", HARD, "step").effects
    assert (failing, handler.path) == (FailRun(), "b!on_error")  # type: ignore[union-attr]
    recall, unwind = advance(plan, "b!on_error", OK, "handler").effects
    assert recall == ErrorOf("b")
    assert isinstance(unwind, Compensate)
    assert (unwind.scope, list(unwind.compensations)) == ("", ["a"])
    assert [effect.path for effect in unwind.then if isinstance(effect, OpenRow)] == ["!on_error"]


def test_a_soft_failure_compensates_nothing() -> None:
    plan = plan_of(step(work, name="a", compensate=undo), step(work, name="b"), step(work, name="c"))
    assert advance(plan, "b", End("failed", error={}), "step").effects == (OpenRow("c", "step"),)


@pytest.mark.parametrize("end", [OK, HARD, End("skipped")])
def test_however_a_compensation_ends_the_next_one_follows(end: End) -> None:
    inner = define_workflow("inner", [step(work, name="a", compensate=undo), work])
    plan = plan_of(for_each("f", items=list, do=[workflow(inner, propagate_failure=False)]))
    [undone] = advance(plan, "f[3]/inner/a!compensate", end, "compensation").effects
    assert isinstance(undone, CompensationEnded)
    assert list(undone.then) == ["f[3]/inner!compensate", "!compensate"]
    assert undone.then["!compensate"] == (IfCancelled((EndRun("cancelled"),), (EndRun("failed"),)),)
    assert undone.then["f[3]/inner!compensate"][0] == ErrorOf("f[3]/inner")
