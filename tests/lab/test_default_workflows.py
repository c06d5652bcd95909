"""Workflows that were registered with `.register()` are in every lab, without `lab.register`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rival_workers import create_workflow, flow, step
from rival_workers.definition.default_registry import default_registry
from rival_workers.testing import Lab

DAY = 86_400


@pytest.fixture(autouse=True)
def registry() -> Iterator[None]:
    before = [workflow.name for workflow in default_registry]
    create_workflow("billing").step(lambda: {"plan": "basic"}, name="subscribe").register()
    create_workflow("minutely").step(lambda: 1, name="tick").schedule(60).register()
    yield
    default_registry.keep_only(before)


def onboarding(ctx: Any, input: Any) -> Any:
    ctx.sleep(DAY)
    return ctx.call("billing")


def test_a_flow_calls_a_workflow_that_was_never_started_by_its_name() -> None:
    with Lab() as lab:
        lab.register([flow("onboarding", register=False)(onboarding)], name="onboarding")
        lab.run("onboarding").assert_completed({"plan": "basic"})


def test_their_schedules_fire_when_the_test_lets_time_pass() -> None:
    with Lab() as lab:
        lab.advance(300)
        assert [run.workflow for run in lab.rival.runs()] == ["minutely"] * 5


def test_their_schedules_do_not_fire_during_a_run_of_another_workflow() -> None:
    with Lab() as lab:
        lab.register([flow("onboarding", register=False)(onboarding)], name="onboarding")
        run = lab.run("onboarding")
        assert run.seconds >= DAY
        assert "minutely" not in {run.workflow for run in lab.rival.runs()}


def test_a_client_lists_them() -> None:
    with Lab() as lab:
        assert {"billing", "minutely"} <= {workflow.name for workflow in lab.rival.workflows()}
        assert lab.rival.registry.get("billing").name == "billing"


def test_a_test_registers_another_workflow_of_the_same_name() -> None:
    with Lab() as lab:
        lab.run("billing").assert_completed({"plan": "basic"})
        lab.advance(60)
        lab.register([step(lambda: "own", name="once")], name="minutely")
        lab.run("minutely").assert_completed("own")
        lab.advance(300)
        assert len(lab.rival.runs(workflow="minutely")) == 2
