"""A message is untrusted. One that names another workflow or version than the run's row, or a row that no message may
start, changes nothing, and is logged once.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from rival_client.broker.message import StepMessage
from rival_workers import for_each, step, wait_event_step
from rival_workers.engine.decisions import Retry
from rival_workers.engine.interpreter import first
from rival_workers.store.claim_records import Claim, Claimed, NotYet, WorkflowVersion
from tests.contract.stage import ERROR, PLAN, Stage, every_row
from tests.support.inline import Inline

RIGHT = WorkflowVersion("w", PLAN.version)
WRONG = {
    "workflow": replace(RIGHT, workflow="other"),
    "version": replace(RIGHT, version="0" * len(PLAN.version)),
    "case": replace(RIGHT, workflow="W"),
}


@pytest.fixture(params=WRONG)
def wrong(request: pytest.FixtureRequest) -> WorkflowVersion:
    return WRONG[request.param]


@pytest.mark.parametrize("claim_for", ["e1", None])
def test_a_run_begins_only_under_its_own_workflow_and_version(
    stage: Stage, wrong: WorkflowVersion, claim_for: str | None
) -> None:
    stage.add_run()
    before = stage.everything()
    assert stage.store.begin_run("r", 0, first(PLAN), claim_for=claim_for, of=wrong) == RIGHT
    assert stage.everything() == before
    assert stage.store.begin_run("r", 0, first(PLAN), claim_for=claim_for, of=RIGHT) is not None


def test_a_step_is_claimed_only_under_its_runs_workflow_and_version(stage: Stage, wrong: WorkflowVersion) -> None:
    claim = stage.begin(executor=None)
    before = stage.everything()
    assert stage.store.claim_step(claim, None, "e1", of=wrong) == RIGHT
    assert stage.everything() == before
    assert isinstance(stage.store.claim_step(claim, None, "e1", of=RIGHT), Claimed)


def test_a_claim_that_comes_too_early_says_so_to_its_own_workflow_only(stage: Stage, wrong: WorkflowVersion) -> None:
    token = stage.store.retry_step(stage.begin(), Retry(30, ERROR), published=True)
    claim = Claim("r", "a", token or 0)
    before = stage.everything()
    assert stage.store.claim_step(claim, None, "e1", of=wrong) == RIGHT
    assert stage.everything() == before
    assert isinstance(stage.store.claim_step(claim, None, "e1", of=RIGHT), NotYet)


def test_a_step_and_a_run_are_parked_only_under_their_own_workflow(stage: Stage, wrong: WorkflowVersion) -> None:
    claim = stage.begin(executor=None)
    stage.add_run("new")
    before = stage.everything()
    assert stage.store.park_step(claim, "unknown here", 15.0, of=wrong) == RIGHT
    assert stage.store.park_run("new", 0, "unknown here", 15.0, of=wrong) == RIGHT
    assert stage.everything() == before
    assert stage.store.park_step(claim, "unknown here", 15.0, of=RIGHT)
    assert stage.store.park_run("new", 0, "unknown here", 15.0, of=RIGHT)


def test_what_waits_without_a_time_is_not_claimed(stage: Stage) -> None:
    claim = stage.begin(executor=None)
    stage.force("UPDATE rival_steps SET status = 'waiting', due_at = NULL")
    before = stage.everything()
    assert stage.store.claim_step(claim, None, "e1", of=RIGHT) is None
    assert stage.everything() == before


# -- through a worker -------------------------------------------------------------------------------------


def forge(inline: Inline, step_message: StepMessage, **changes: Any) -> None:
    before = rows(inline)
    assert inline.doorbell.take() == []
    for _ in range(3):
        inline.deliver(replace(step_message, **changes))
    assert inline.doorbell.take() == [], "nothing was rung for it"
    assert rows(inline) == before


def rows(inline: Inline) -> Any:
    found = every_row(inline.store.database)
    # The executor's heartbeat goes on.
    found.pop("rival_executors")
    return found


def two(inline: Inline) -> tuple[list[str], str]:
    """Two workflows whose plans have the same paths; the version of the second."""
    ran: list[str] = []
    inline.define("mine", step(lambda: ran.append("mine"), name="a"), step(lambda: ran.append("mine"), name="b"))
    other = inline.define("other", step(lambda: ran.append("other"), name="a", max_attempts=2))
    return ran, other.version


@pytest.mark.parametrize("budget", [1.0, 0.0], ids=["begins in place", "opens"])
def test_a_start_that_names_another_workflow_runs_nothing(
    inline: Inline, caplog: pytest.LogCaptureFixture, budget: float
) -> None:
    object.__setattr__(inline.coordinator.settings, "continuation_budget", budget)
    ran, version = two(inline)
    inline.rival.run("mine", run_id="r")
    [step_message] = inline.doorbell.take()
    forge(inline, step_message, workflow="other", version=version)
    forge(inline, step_message, workflow="nowhere", version="1")
    forge(inline, step_message, version="1")
    assert ran == []
    assert [record.message.partition(";")[0] for record in caplog.records if record.levelno >= logging.WARNING] == [
        f"run r step (start): a message names workflow {name!r} version {named!r}, "
        f"but the run is one of 'mine' version {step_message.version!r}"
        for name, named in (("other", version), ("nowhere", "1"), ("mine", "1"))
    ], "each is logged once, not three times"
    inline.deliver(step_message)
    inline.drain()
    assert ran == ["mine", "mine"]


def test_an_attempt_that_names_another_workflow_runs_nothing(inline: Inline, caplog: pytest.LogCaptureFixture) -> None:
    object.__setattr__(inline.coordinator.settings, "continuation_budget", 0.0)
    ran, version = two(inline)
    inline.rival.run("mine", run_id="r")
    inline.deliver(inline.doorbell.take()[0])
    [step_message] = inline.doorbell.take()
    assert (step_message.path, ran) == ("a", [])
    forge(inline, step_message, workflow="other", version=version)
    forge(inline, step_message, workflow="nowhere", version="1")
    assert ran == []
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) == 2
    inline.deliver(step_message)
    inline.drain()
    assert ran == ["mine", "mine"]
    assert inline.rival.result("r").status == "completed"


def test_a_stale_message_is_not_taken_for_a_forged_one(inline: Inline, caplog: pytest.LogCaptureFixture) -> None:
    two(inline)
    inline.rival.run("mine", run_id="r")
    [step_message] = inline.doorbell.take()
    inline.deliver(step_message)
    inline.drain()
    inline.deliver(step_message)
    inline.deliver(replace(step_message, run_id="nobody"))
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


def test_a_message_cannot_end_a_wait_or_park_what_is_not_a_step(inline: Inline) -> None:
    inline.define(
        "waits",
        wait_event_step("order.ready", name="ready"),
        for_each("lines", items=lambda: [1, 2], do=[step(lambda: 1, name="pack")]),
    )
    version = inline.registry.find("waits", inline.rival.workflows()[0].version)
    assert version is not None
    inline.rival.run("waits", run_id="r")
    inline.drain()
    token = inline.store.token_of("r", "ready")
    assert token is not None
    forge(inline, StepMessage("r", "ready", token[1], "waits", version.version))
    for path in ("lines", "lines[0]", "", "ready/x", "nowhere"):
        forge(inline, StepMessage("r", path, 0, "waits", version.version))
    inline.rival.send_event("order.ready")
    inline.drain()
    assert inline.rival.result("r").status == "completed"


def test_an_event_is_delivered_only_once_however_often_it_is_named(inline: Inline) -> None:
    inline.define("waits", wait_event_step("order.ready", name="ready", timeout=60))
    inline.rival.run("waits", run_id="r")
    inline.drain()
    inline.rival.send_event("order.ready")
    step_messages = inline.doorbell.take()
    for step_message in [*step_messages, *step_messages]:
        inline.deliver(step_message)
    assert inline.rival.result("r").status == "completed"
    assert Claim("r", "ready", 1) not in inline.process.executor.running.all
