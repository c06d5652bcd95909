"""The version is a hash of the plan: the same for the same plan, another for any other."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from rival_workers import step
from rival_workers.definition.workflow import define_workflow
from rival_workers.engine.plan import Plan, StepConfig, StepNode


def plan(**config: Any) -> Plan:
    return Plan(nodes=(StepNode(name="a", config=StepConfig(**config)), StepNode(name="b")))


def test_the_same_plan_has_the_same_version_in_another_process() -> None:
    script = (
        "from rival_workers.engine.plan import Plan, StepConfig, StepNode;"
        "print(Plan(nodes=(StepNode(name='a', config=StepConfig(timeout=3)), StepNode(name='b'))).version)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == plan(timeout=3).version


def test_a_plan_that_was_stored_and_loaded_has_the_same_version() -> None:
    stored = plan(timeout=3, backoff="jitter").model_dump(mode="json")
    assert Plan.load(stored).version == plan(timeout=3, backoff="jitter").version


def test_an_option_written_out_with_its_default_changes_nothing() -> None:
    assert plan(on_timeout="stop", base_delay=0.5, max_attempts=None).version == plan().version


@pytest.mark.parametrize(
    "config",
    [
        {"timeout": 1},
        {"timeout": 2},
        {"on_timeout": "retry"},
        {"kill_on_timeout": True},
        {"max_attempts": 1},
        {"max_attempts": 2},
        {"backoff": "none"},
        {"backoff": "jitter"},
        {"base_delay": 1},
        {"max_delay": 1},
        {"heartbeat": 1},
        {"execution_mode": "external"},
        {"deadline": 1},
    ],
)
def test_every_option_of_a_step_makes_another_version(config: dict[str, Any]) -> None:
    assert set(config) <= set(StepConfig.model_fields)
    assert plan(**config).version != plan().version


def test_every_option_is_part_of_the_version() -> None:
    """When an option is added, it joins the test above."""
    assert set(StepConfig.model_fields) == {
        "timeout",
        "on_timeout",
        "kill_on_timeout",
        "max_attempts",
        "backoff",
        "base_delay",
        "max_delay",
        "heartbeat",
        "execution_mode",
        "deadline",
    }


def test_names_order_number_and_handlers_of_steps_make_another_version() -> None:
    a, b, c = StepNode(name="a"), StepNode(name="b"), StepNode(name="c")
    handled = StepNode(name="a", on_error=True)
    plans = [
        Plan(nodes=(a, b)),
        Plan(nodes=(b, a)),
        Plan(nodes=(a, c)),
        Plan(nodes=(a,)),
        Plan(nodes=(a, b, c)),
        Plan(nodes=(handled, b)),
        Plan(nodes=(a, b), on_error=True),
    ]
    assert len({p.version for p in plans}) == len(plans)


def test_a_functions_body_and_the_description_are_not_part_of_the_version() -> None:
    def one() -> int:
        return 1

    def another() -> int:
        return 2

    first = define_workflow("w", [step(one, name="a")], description="first")
    second = define_workflow("w", [step(another, name="a")], description="second")
    assert first.version == second.version


@pytest.mark.parametrize("duration", ["timeout", "base_delay", "max_delay", "heartbeat", "deadline"])
@pytest.mark.parametrize("value", [float("inf"), float("nan"), -1, "soon"])
def test_a_duration_that_no_database_could_store_is_refused(duration: str, value: Any) -> None:
    with pytest.raises(ValidationError):
        StepConfig(**{duration: value})


def test_a_step_is_found_by_its_path() -> None:
    assert plan().place("b").position == 1
    assert plan().place("a!on_error").node.name == "a"
