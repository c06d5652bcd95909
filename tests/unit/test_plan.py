"""The version is a hash of the plan: the same for the same plan, another for any other."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from pydantic import ValidationError

from rival_client.model.policies.step_config import StepConfig
from rival_workers import default, step
from rival_workers.definition.define import define_workflow
from rival_workers.engine.nodes import StepNode
from rival_workers.engine.plan import Plan


def plan(**fields: Any) -> Plan:
    return Plan(nodes=(StepNode(name="a", **fields), StepNode(name="b")))


def test_the_same_plan_has_the_same_version_in_another_process() -> None:
    script = (
        "from rival_workers.engine.plan import Plan, StepNode;"
        "print(Plan(nodes=(StepNode(name='a', external=True), StepNode(name='b'))).version)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == plan(external=True).version


def test_a_plan_that_was_stored_and_loaded_has_the_same_version() -> None:
    stored = plan(external=True, on_error=True).model_dump(mode="json")
    assert Plan.load(stored).version == plan(external=True, on_error=True).version


@pytest.mark.parametrize("fields", [{"external": True}, {"on_error": True}, {"compensate": True}])
def test_which_functions_exist_and_who_completes_a_step_make_another_version(fields: dict[str, Any]) -> None:
    assert plan(**fields).version != plan().version


def nothing() -> None: ...


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 1},
        {"timeout": 2, "on_timeout": "retry", "max_attempts": 2},
        {"kill_on_timeout": True},
        {"max_retries": 3},
        {"backoff": "jitter", "base_delay": 1, "max_delay": 2},
        {"heartbeat": 1},
        {"tags": ["slow"]},
        {"on_failure": "skip"},
        {"retry_budget": 3},
        {"fallback": {"shape": "value", "value": 1}},
    ],
)
def test_an_option_is_not_part_of_the_version(options: dict[str, Any]) -> None:
    plain, given = define_workflow("w", [nothing]), define_workflow("w", [step(nothing, **options)])
    assert plain.version == given.version
    assert plain.document != given.document
    ruled = define_workflow("w", [nothing], policies=[(default, {"timeout": 9})])
    assert ruled.version == plain.version


def test_an_external_step_is_another_version_also_by_a_rule() -> None:
    own = define_workflow("w", [step(nothing, execution_mode="external")])
    ruled = define_workflow("w", [nothing], policies=[(default, {"execution_mode": "external"})])
    assert own.version == ruled.version != define_workflow("w", [nothing]).version


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
