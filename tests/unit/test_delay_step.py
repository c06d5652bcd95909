"""`delay_step` as it is written: durations, names, and what is refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from rival_workers import DefinitionError, create_workflow, delay_step, step
from rival_workers.definition.define import define_workflow
from rival_workers.definition.registry import Registry
from rival_workers.engine.nodes import SleepNode
from tests.support.output import whole


@pytest.mark.parametrize(
    ("given", "seconds", "name"),
    [
        ({"seconds": 20}, 20, "delay_20s"),
        ({"seconds": 0.25}, 0.25, "delay_0.25s"),
        ({"seconds": 0}, 0, "delay_0s"),
        ({"minutes": 5}, 300, "delay_5m"),
        ({"hours": 1, "minutes": 30}, 5400, "delay_90m"),
        ({"days": 2}, 172_800, "delay_2d"),
        ({"duration": 7}, 7, "delay_7s"),
        ({"duration": dt.timedelta(hours=3)}, 10_800, "delay_3h"),
        ({"seconds": 1, "name": "cool-down"}, 1, "cool-down"),
    ],
)
def test_a_delay_has_a_length_and_a_name(given: dict[str, Any], seconds: float, name: str) -> None:
    [node] = define_workflow("w", [delay_step(**given)]).plan.nodes
    assert isinstance(node, SleepNode)
    assert (node.seconds, node.name) == (seconds, name)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "a delay needs a time: delay_step(seconds=20), or minutes, hours, days, or a timedelta"),
        ({"seconds": -1}, "option seconds: a delay cannot be -1; give a number from 0 on"),
        ({"duration": dt.timedelta(seconds=-1)}, "option duration: a delay cannot be -1.0; give a number from 0 on"),
        ({"minutes": float("nan")}, "option minutes: a delay cannot be nan; give a number from 0 on"),
        ({"hours": float("inf")}, "option hours: a delay cannot be inf; give a number from 0 on"),
        ({"seconds": "20"}, "option seconds: give a number, not '20'"),
        ({"seconds": True}, "option seconds: give a number, not True"),
        ({"duration": dt.timedelta.max}, "a delay of 8.64e+13 s is longer than a hundred years"),
        ({"days": 1e300, "hours": 1e308}, "a delay of inf s is longer than a hundred years"),
        (
            {"seconds": 1, "name": "a/b"},
            "step name 'a/b': use letters, digits, _, - and .; give one with name=…",
        ),
    ],
)
def test_a_delay_that_makes_no_sense_is_refused_with_its_place(given: dict[str, Any], said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        define_workflow("w", [step(lambda: 1, name="first"), delay_step(**given)])
    assert str(refused.value) == f"workflow 'w': steps[1]: {said}"


def test_two_equal_delays_need_names() -> None:
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': steps[1]: step 'delay_5s' appears twice: give one of them another name, step(…, name=…)"
        ),
    ):
        define_workflow("w", [delay_step(seconds=5), delay_step(seconds=5)])


def test_the_builder_has_it_too() -> None:
    [first, second] = create_workflow("w").delay("pause", minutes=1).delay(seconds=2).register(Registry()).plan.nodes
    assert (first.name, second.name) == ("pause", "delay_2s")
