"""Where a step may be external, and what is said where it may not."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from rival_client.model.policies.step_config import StepConfig
from rival_workers import DefinitionError, branch, create_workflow, step
from rival_workers.definition.define import define_workflow
from rival_workers.engine import interpreter
from rival_workers.runtime.attempt.context import NotExternal
from rival_workers.runtime.flow.step_options import checked_options
from rival_workers.testing import Lab
from tests.support.output import whole


def ask() -> None:
    """An external system."""


def test_a_list_and_the_builder_make_the_same_external_step() -> None:
    options: dict[str, Any] = {"execution_mode": "external", "deadline": dt.timedelta(hours=1), "heartbeat": 30}
    listed = define_workflow("w", [step(ask, **options)])
    built = create_workflow("w").step(ask, **options).build()
    ruled = define_workflow("w", [ask], policies=[("ask", options)])
    assert listed.plan == built.plan == ruled.plan
    [opening] = interpreter.first(listed.plan).effects
    assert opening.kind == "external"  # type: ignore[union-attr]
    assert [one.policies.at("ask").deadline for one in (listed, built, ruled)] == [3600] * 3


@pytest.mark.parametrize(
    ("steps", "problem"),
    [
        (
            [step(ask, deadline=5, delay=5)],
            (
                "workflow 'w': steps[0]: deadline counts from the opening of the step: give one that is longer than "
                "its delay (…)"
            ),
        ),
        (
            [step(ask, execution_mode="elsewhere")],
            ("workflow 'w': steps[0]: option execution_mode: Input should be 'durable', 'inline' or 'external' (…)"),
        ),
        ([step(ask, heartbeat=0)], "workflow 'w': steps[0]: option heartbeat: Input should be greater than 0 (…)"),
        (
            [branch("b", when=lambda: True, then=[ask], execution_mode="external")],
            (
                "workflow 'w': steps[0] 'b': option execution_mode: a branch cannot be external: give \"inline\" or "
                '"durable" (…)'
            ),
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_reason(steps: list[Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=whole(problem)):
        define_workflow("w", steps)


def test_an_external_flow_gets_an_error_that_says_what_to_use_instead() -> None:
    with pytest.raises(
        ValueError,
        match=whole(
            "option execution_mode: a flow waits for an external system with ctx.await_event(…); an external "
            "step is part of a workflow of steps, which a flow can ctx.call(…)"
        ),
    ):
        checked_options({"execution_mode": "external"})
    with pytest.raises(
        ValueError,
        match=whole(
            "option deadline: a step of a flow has no deadline over its attempts: give it a timeout and max_attempts"
        ),
    ):
        checked_options({"deadline": 5})


def test_a_step_that_is_not_external_has_no_token_and_gets_an_error_that_says_so() -> None:
    said: list[str] = []

    def work(ctx: Any) -> None:
        with pytest.raises(NotExternal) as error:
            _ = ctx.completion_token
        said.append(str(error.value))

    with Lab() as lab:
        lab.register([work], name="w")
        lab.run("w")
    why = "Step 'work' has no completion token, since it is not external."
    assert said == [f"{why} Give it execution_mode='external'."]


@pytest.mark.parametrize(
    ("options", "limit", "patience"),
    [
        ({}, None, None),
        ({"timeout": 5}, 5, None),
        ({"heartbeat": 3}, 3, 3),
        ({"timeout": 5, "heartbeat": 3}, 3, 3),
        ({"timeout": 2, "heartbeat": 3}, 2, 3),
        ({"timeout": 5, "heartbeat": 3, "execution_mode": "external", "deadline": 2}, 5, 2),
    ],
)
def test_the_nearest_limit_counts(options: dict[str, Any], limit: float | None, patience: float | None) -> None:
    config = StepConfig(**options)
    assert (config.limit, config.patience) == (limit, patience)
