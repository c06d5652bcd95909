"""Texts of errors and logs that name what was given, and nothing that the reader did not give."""

from __future__ import annotations

from typing import Any

import pytest

from rival_client.errors import InvalidArgument, listed
from rival_client.model.checks import amounts, arguments
from rival_workers import create_workflow
from rival_workers.runtime.flow.calls import sleep_length
from rival_workers.runtime.logs.failure_log import log_failed_run
from tests.support.output import whole


def test_a_sleep_that_is_not_a_duration_is_refused_and_a_negative_one_ends_at_once() -> None:
    with pytest.raises(
        InvalidArgument,
        match=whole(
            "Invalid argument duration: '5' is not a duration: give at most 3,153,600,000 seconds, or a timedelta."
        ),
    ):
        sleep_length("5", {})  # type: ignore[arg-type]
    assert sleep_length(-5, {}) == -5


@pytest.mark.parametrize("given", [0, -1, "7", True, float("nan")])
def test_a_wrong_rate_is_refused_as_a_rate(given: Any) -> None:
    with pytest.raises(
        InvalidArgument,
        match=whole("Invalid argument rate: … is not a rate: give a number of runs per second, of 0.001 or more."),
    ):
        amounts.rate("rate", given, "runs")


def test_a_run_that_failed_at_no_step_is_logged_without_one(caplog: pytest.LogCaptureFixture) -> None:
    log_failed_run("r", "w", None, {"type": "DeadlineExceeded", "message": "late"})
    log_failed_run("r", "w", "a", {"type": "ValueError", "message": "no"})
    assert [record.message for record in caplog.records] == [
        "run r of w failed: DeadlineExceeded: late",
        "run r of w failed at step a: ValueError: no",
    ]


def test_twenty_names_are_listed_and_the_others_counted() -> None:
    names = [f"f[{number}]" for number in range(600)]
    assert listed(names).endswith("f[18], f[19] and 580 more")
    assert (listed(names[:2]), listed([])) == ("f[0], f[1]", "")


def test_a_builder_that_is_not_registered_is_refused_as_a_workflow() -> None:
    with pytest.raises(InvalidArgument) as raised:
        arguments.workflow(create_workflow("orders").step(print))
    assert str(raised.value) == (
        "Invalid argument workflow: this WorkflowBuilder is not registered: give what its register() returns."
    )
