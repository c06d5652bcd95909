"""The options fallback and on_failure: what is accepted, and what is refused with a hint."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel

from rival_client.model.policies.fallbacks import Fallback
from rival_workers import DefinitionError, Results, StepOf, default, flow, retry_with, step, value
from rival_workers.definition.define import define_workflow
from tests.support.output import as_expected


def charge() -> None:
    pass


def instead(error: Any) -> None:
    pass


def problems(*steps: Any, **options: Any) -> list[str]:
    with pytest.raises(DefinitionError) as refused:
        define_workflow("pay", steps, **options)
    return refused.value.problems


@pytest.mark.parametrize(
    ("given", "data"),
    [
        (value([1, 2]), Fallback(shape="value", value=[1, 2])),
        (value(None), Fallback(shape="value")),
        (retry_with(model="mini"), Fallback(shape="retry_with", overrides={"model": "mini"})),
        ({"shape": "value", "value": 3}, Fallback(shape="value", value=3)),
        ({"value": 5}, Fallback(shape="value", value=5)),
        ({"retry_with": {"model": "mini"}}, Fallback(shape="retry_with", overrides={"model": "mini"})),
        (instead, Fallback(shape="function")),
        (None, None),
    ],
)
def test_a_fallback_is_data_in_the_plan(given: Any, data: Fallback | None) -> None:
    definition = define_workflow("pay", [step(charge, fallback=given)])
    assert definition.policies.at("charge").fallback == data
    assert (definition.call_at("charge!fallback") is not None) == callable(given)


def test_a_rule_can_give_a_fallback_function_and_the_steps_own_comes_first() -> None:
    definition = define_workflow(
        "pay",
        [charge, step(charge, name="two", fallback=value(1))],
        policies=[(default, {"fallback": instead})],
    )
    assert definition.call_at("charge!fallback") is not None
    assert definition.call_at("two!fallback") is None


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"fallback": 3},
            "option fallback: 3 is not a fallback: write value(3) if the step shall have this result instead, "
            "or give retry_with(…) or a function",
        ),
        ({"fallback": value(object())}, "option fallback: the value is not JSON: object is not JSON"),
        ({"fallback": {"value": object()}}, "option fallback: the value is not JSON: object is not JSON"),
        ({"fallback": {"vlaue": 5}}, 'option fallback: give {"value": 5} or {"retry_with": {"model": "mini"}}'),
        ({"fallback": {"retry_with": 5}}, 'option fallback: give {"value": 5} or {"retry_with": {"model": "mini"}}'),
        (
            {"fallback": retry_with(a={1})},
            "option fallback: the overrides of the fallback is not JSON: set is not JSON",
        ),
        ({"fallback": {"shape": "other"}}, 'option fallback: give {"value": 5} or {"retry_with": {"model": "mini"}}'),
        ({"fallback": lambda wrong: 1}, None),
        (
            {"fallback": lambda x, y: 1},
            "charge's fallback: cannot inject parameters 'x', 'y': a step may ask for any of …",
        ),
        (
            {"on_failure": "explode"},
            "option on_failure: Input should be 'halt', 'skip', 'fallback', 'compensate' or 'dead_letter'",
        ),
        ({"on_failure": "fallback"}, 'on_failure="fallback" needs a fallback: value(…), retry_with(…) or a function'),
    ],
)
def test_a_wrong_option_is_refused_with_what_to_give(options: dict[str, Any], problem: str | None) -> None:
    if problem is None:
        define_workflow("pay", [step(charge, **options)])
    else:
        expected = f"workflow 'pay': steps[0]: {problem} ({__file__}:{charge.__code__.co_firstlineno})"
        assert as_expected(expected, problems(step(charge, **options))[0]) == expected


def test_a_flow_can_only_fall_back_to_a_value() -> None:
    @flow("inner")
    def inner(ctx: Any) -> None:
        pass

    expected = (
        "workflow 'pay': steps[0]: a flow can only fall back to value(…): it handles other failures by itself, with "
        "try and except (…)"
    )
    [problem] = problems(step(inner, fallback=instead))
    assert as_expected(expected, problem) == expected
    define_workflow("outer", [step(inner, fallback=value(1))])


class Receipt(BaseModel):
    number: int


def typed() -> Receipt:
    return Receipt(number=1)


def test_a_value_that_is_not_of_the_type_of_the_result_is_refused() -> None:
    fallback = "the result of value(…), the fallback of step 'typed',"
    says = f"workflow 'pay': option fallback: {fallback} is not of type Receipt: number: Field required"
    unfit = {"fallback": value({"no": 1})}
    assert problems(step(typed, **unfit)) == [says]
    assert problems(typed, policies=[(default, unfit)]) == [says]
    for fitting in (value({"number": 2}), value(Receipt(number=2))):
        assert define_workflow("pay", [step(typed, fallback=fitting)]).policies.at("typed").fallback is not None


class Types(Results):
    untyped: StepOf[Receipt]


def test_results_give_the_type_that_a_value_must_have() -> None:
    def untyped():  # type: ignore[no-untyped-def]
        return {"number": 1}

    assert problems(step(untyped, fallback=value(5)), results=Types) == [
        "workflow 'pay': option fallback: the result of value(…), the fallback of step 'untyped', is not of type "
        "Receipt: Input should be a valid dictionary or instance of Receipt"
    ]
