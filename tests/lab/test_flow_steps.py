"""The steps that a flow calls, addressed by name or path like those of a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

from rival_workers import StepFailed, flow, step
from rival_workers.testing import Lab, LabError
from tests.support.output import whole


def charge(amount: int) -> Any:
    raise RuntimeError("no test should reach the bank")


def refund(amount: int) -> str:
    return f"refunded {amount}"


@flow("pay", register=False)
def pay(ctx: Any, input: int) -> Any:
    try:
        return ctx.step(charge, input, max_attempts=3, timeout=60)
    except StepFailed:
        return ctx.step(refund, input)


@flow("both", register=False)
def both(ctx: Any, input: Any) -> Any:
    return [*ctx.gather((refund, 1), (refund, 2)), ctx.step(refund, 3), ctx.step(refund, 4)]


@flow("named", register=False)
def named(ctx: Any, input: Any) -> Any:
    return ctx.step(refund, 1, name=f"refund-{input}")


@pytest.fixture(params=[True, False], ids=["continuation", "message-per-attempt"])
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    with Lab(continuation=request.param) as opened:
        for one in (pay, both, named):
            opened.register([one], name=one.name)
        yield opened


@pytest.mark.parametrize("address", ["charge", "pay/charge"])
def test_a_step_of_a_flow_is_replaced(lab: Lab, address: str) -> None:
    lab.replace(address, lambda: "charged")
    lab.run("pay", 7).assert_completed("charged")


def test_the_replacement_gets_the_arguments_of_the_call(lab: Lab) -> None:
    bank = Mock(side_effect=lambda amount: amount + 1)
    lab.replace("charge", bank)
    lab.run("pay", 7).assert_completed(8)
    bank.assert_called_once_with(7)
    lab.replace("charge", lambda card: card)
    lab.run("pay", 7).assert_completed(7)


def test_a_replacement_with_other_parameters_is_a_mistake_of_the_test(lab: Lab) -> None:
    lab.replace("charge", lambda card, sum: None)
    with pytest.raises(
        LabError,
        match=whole("The replacement of step 'charge', which a flow calls: missing a required argument: 'sum'."),
    ):
        lab.run("pay", 7)


def test_its_attempts_fail_crash_and_time_out(lab: Lab) -> None:
    lab.replace("charge", lambda: "charged")
    lab.fail("charge")
    lab.crash("charge", after=True)
    lab.time_out("charge", workflow="other")
    lab.register([step(refund, timeout=5, name="charge")], name="other")
    run = lab.run("pay", 7)
    run.assert_completed("charged")
    run.assert_attempts("charge", 2)
    lab.fail("pay/charge", times=None)
    lab.run("pay", 8).assert_completed("refunded 8")


def test_its_attempt_takes_longer_than_its_timeout(lab: Lab) -> None:
    lab.replace("charge", lambda: "charged")
    lab.delay("charge", 90)
    run = lab.run("pay", 7)
    run.assert_completed("refunded 7")
    assert run.step("charge").error["type"] == "StepTimeout"


def test_a_name_means_each_call_and_a_path_one(lab: Lab) -> None:
    lab.replace("refund", lambda amount: amount)
    lab.replace("both/refund~4", lambda: "last")
    lab.run("both").assert_completed([1, 2, 3, "last"])


def test_a_delay_of_steps_that_run_together(lab: Lab) -> None:
    lab.delay("refund", 30)
    run = lab.run("both")
    run.assert_completed()
    assert run.seconds >= 60


def test_a_name_that_the_flow_makes_is_known_when_it_was_called(lab: Lab) -> None:
    lab.replace("refund-x", lambda: "mine")
    lab.run("named", "x").assert_completed("mine")


KNOWN = "Its steps are: pay: pay, both: both, named: named. No flow has called it either."


@pytest.mark.parametrize("wrong", ["refnd", "named/refund-y"])
def test_a_name_that_no_flow_has_called_is_an_error_at_the_end_of_its_run(lab: Lab, wrong: str) -> None:
    lab.fail(wrong)
    with pytest.raises(LabError, match=whole(f"Unknown step '{wrong}' in this lab. {KNOWN}")):
        lab.run("named", "x")


UNKNOWN = (
    "Unknown step 'refnd' in this lab. Its steps are: pay: pay, both: both, named: named. No flow has called it either."
)


def test_it_is_one_however_the_run_was_brought_to_its_end(lab: Lab) -> None:
    lab.fail("refnd")
    with pytest.raises(LabError, match=whole(UNKNOWN)):
        lab.rival.run("named", "x").get()
    run = lab.start("named", "x")
    with pytest.raises(LabError, match=whole(UNKNOWN)):
        lab.advance(5)
    assert run.status == "completed"


def test_a_step_that_the_run_does_not_reach_may_be_replaced(lab: Lab) -> None:
    lab.replace("charge", lambda: "charged")
    lab.replace("refund", lambda: "refunded")
    run = lab.run("pay", 7)
    run.assert_completed("charged")
    run.assert_never_ran("refund")


def test_a_name_that_no_step_has_is_not_a_step_that_never_ran(lab: Lab) -> None:
    lab.register([step(refund, name="charge")], name="plan", input=None)
    lab.replace("charge", lambda: "charged")
    for run in (lab.run("plan", 7), lab.run("pay", 7)):
        with pytest.raises(LabError, match=whole("'chrage' in run '…': unknown step; its steps are: …charge.")):
            run.assert_never_ran("chrage")
        with pytest.raises(LabError, match=whole("'chrage' in run '…': unknown step; its steps are: …charge.")):
            run.attempts_of("chrage")
