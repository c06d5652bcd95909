"""The input that a function makes for a nested workflow is checked before its first step, by the workflow's model."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from rival_workers import create_workflow
from rival_workers.definition.registry import Registry
from tests.support.inline import Inline


class Order(BaseModel):
    amount: int


def order(first: Any) -> Any:
    return create_workflow("pay").input(Order).step(first, name="charge").register(Registry())


def started(inline: Inline, nested: Any, **options: Any) -> str:
    inline.registry.add(create_workflow("outer").workflow(nested, **options).build(Registry()))
    inline.process.register_workflows()
    run_id = inline.rival.run("outer").run_id
    inline.drain()
    return run_id


def test_an_input_that_does_not_fit_fails_the_nested_workflow_before_its_first_step(inline: Inline) -> None:
    run_id = started(inline, order(lambda: "paid"), input=lambda: {"amuont": "ten"})
    state = inline.rival.state(run_id)
    expected = (
        "The input does not fit nested workflow 'pay'; none of its steps was started:\n"
        '  - "amount" is a required property'
    )
    assert (state.status, (state.error or {})["type"], (state.error or {})["message"]) == (
        "failed",
        "InvalidInput",
        expected,
    )
    assert [one.path for one in state.steps if one.path.endswith("charge")] == []


@pytest.mark.parametrize("made", [{"amount": 3}, Order(amount=3)], ids=["dict", "model"])
def test_an_input_that_fits_reaches_the_steps_as_the_model(inline: Inline, made: Any) -> None:
    run_id = started(inline, order(lambda input: input.amount + 1), input=lambda: made)
    assert inline.rival.result(run_id).result == 4


def test_an_input_of_the_outer_run_that_does_not_fit_names_the_nested_workflow(inline: Inline) -> None:
    run_id = started(inline, order(lambda input: "paid"))
    error = inline.rival.state(run_id).error or {}
    start = f"The input of run {run_id!r} does not fit the model of workflow 'pay' on its worker:\n"
    assert (error["type"], error["message"].startswith(start)) == ("InvalidInput", True)
