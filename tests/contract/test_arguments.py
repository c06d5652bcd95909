"""What arguments mean at the boundary: the cases that were wrong once, on both stores."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pytest

from rival_client import InvalidArgument, InvalidInput, InvalidPayload, RunNotFound, RunResult
from rival_client.model.checks.argument_errors import shown
from rival_workers import wait_event_step
from tests.support.inline import Inline
from tests.support.output import is_printed, whole


def echo(input: Any) -> Any:
    return input


NOT_A_DURATION = "is not a duration: give 0 to 3,153,600,000 seconds, or a timedelta."


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"topic": "paid\x00late"}, r"topic: 'paid\x00late' holds a NUL character; leave it out."),
        ({"topic": "paid", "key": "order-4\x002"}, r"key: 'order-4\x002' holds a NUL character; leave it out."),
        ({"topic": "paid", "run_id": "r\x00x"}, r"run_id: 'r\x00x' holds a NUL character; leave it out."),
        ({"topic": "x" * 8000}, f"topic: '{'x' * 59}… has 8,000 characters; give at most 200."),
        (
            {"topic": "paid", "key": 1.5},
            "key: 1.5 is not a key: give a string of 1 to 200 characters, an int or a UUID.",
        ),
        ({"topic": "paid", "expires": math.inf}, f"expires: inf {NOT_A_DURATION}"),
        ({"topic": "paid", "expires": -1}, f"expires: -1 {NOT_A_DURATION}"),
    ],
)
def test_an_event_never_reaches_another_topic_key_or_run(inline: Inline, given: dict[str, Any], problem: str) -> None:
    """libpq ends a text at its first NUL: such an event reached the key before it."""
    inline.define("waits", wait_event_step("paid", key="order-4"))
    inline.rival.run("waits", None, "r")
    inline.drain()
    with pytest.raises(InvalidArgument, match=whole(f"Invalid argument {problem}")) as caught:
        inline.rival.send_event(**given)
    assert caught.value.argument == problem.partition(":")[0]
    inline.drain()
    assert inline.rival.events() == []
    assert inline.rival.state("r").status == "suspended"


def test_keys_that_are_numbers_or_uuids_are_taken_as_they_are_written(inline: Inline) -> None:
    inline.define("waits", wait_event_step("paid", key="42"))
    inline.rival.run("waits", None, "r")
    inline.drain()
    inline.rival.send_event("paid", {"n": 1}, key=42)  # type: ignore[arg-type]
    inline.drain()
    assert inline.rival.result("r").result == {"n": 1}


def test_of_many_inputs_the_one_that_does_not_fit_is_named_and_nothing_is_started(inline: Inline) -> None:
    inline.define("numbers", echo, input=dict[str, int])
    with pytest.raises(
        InvalidInput,
        match=whole(
            "The input does not fit workflow 'numbers'; no run was started:\n  - inputs[2]: a: \"x\" is not of "
            'type "integer"'
        ),
    ):
        inline.rival.run_many("numbers", [{"a": 1}, {"a": 2}, {"a": "x"}, {"a": 4}])
    with pytest.raises(
        InvalidPayload, match=whole("inputs[1]: the input of workflow 'numbers' is not JSON: object is not JSON")
    ):
        inline.rival.run_many("numbers", [{"a": 1}, {"a": object()}])
    with pytest.raises(
        InvalidArgument, match=whole("Invalid argument run_ids[1]: 'y\\x00' holds a NUL character; leave it out.")
    ):
        inline.rival.run_many("numbers", [{"a": 1}, {"a": 2}], run_ids=["x", "y\x00"])
    for not_a_list in ("text", {"a": 1}, None, 7):
        with pytest.raises(InvalidArgument, match=whole("Invalid argument inputs: … is not a list.")):
            inline.rival.run_many("numbers", not_a_list)  # type: ignore[arg-type]
    assert inline.rival.runs() == []


def test_an_input_with_very_many_problems_names_some_and_keeps_all(inline: Inline) -> None:
    inline.define("numbers", echo, input=dict[str, int])
    with pytest.raises(InvalidInput) as caught:
        inline.rival.run_many("numbers", [{"a": "x" * 5000}] * 100)
    assert len(caught.value.problems) == 100
    named = [f'  - inputs[{n}]: a: "xxx…xxx" is not of type "integer"' for n in range(20)]
    shown = ["The input does not fit workflow 'numbers'; no run was started:", *named, "  and 80 more"]
    assert is_printed(shown, str(caught.value).splitlines()), str(caught.value)
    assert len(str(caught.value)) < 20_000


def test_a_subclass_of_text_is_taken_by_its_content(inline: Inline) -> None:
    class Other(str):
        def __str__(self) -> str:
            return "something else"

    inline.define("echo", echo)
    inline.rival.run("echo", 1, Other("mine"))
    inline.drain()
    assert inline.rival.result("mine").result == 1
    with pytest.raises(RunNotFound):
        inline.rival.state("something else")


def test_json_may_have_200_levels_and_comes_back(inline: Inline) -> None:
    deep: Any = "bottom"
    for _ in range(200):
        deep = [deep]
    inline.define("echo", echo)
    inline.rival.run("echo", deep, "r")
    inline.drain()
    assert inline.rival.result("r").result == deep
    with pytest.raises(
        InvalidPayload,
        match=whole(
            "the input of workflow 'echo' has 201 levels of lists and objects within one another; at most 200 are taken"
        ),
    ):
        inline.rival.run("echo", [deep], "s")
    # Brackets within texts do not count as levels.
    assert inline.rival.run("echo", ["[" * 1000, "]" * 1000, '\\"[' * 500], "t").status == "started"


def test_a_filter_needs_a_time_with_a_time_zone(inline: Inline) -> None:
    with pytest.raises(
        InvalidArgument,
        match=whole(
            "Invalid argument since: datetime.datetime(2026, 1, 1, 0, 0) is not a point in time: it has no time "
            "zone; give datetime(…, tzinfo=UTC)."
        ),
    ):
        inline.rival.runs(since=dt.datetime(2026, 1, 1))
    assert inline.rival.runs(since=dt.datetime(1, 1, 2, tzinfo=dt.UTC)) == []


@pytest.mark.parametrize("timeout", [None, math.inf, 10**400, 0, -5, dt.timedelta(seconds=1)])
def test_any_timeout_that_has_a_meaning_is_taken(inline: Inline, timeout: Any) -> None:
    inline.define("echo", echo)
    inline.rival.run("echo", 1, "r")
    inline.drain()
    assert isinstance(inline.rival.wait("r", timeout=timeout), RunResult)


def test_an_error_shows_a_short_form_of_the_value_and_nothing_of_what_may_hold_secrets() -> None:
    assert shown("x" * 500).endswith("…")
    assert len(shown("x" * 500)) < 70
    assert shown({"password": "s3cret"}) == "a value of type dict"
    assert shown(10**5000) == "a value of type int"
