"""Which failures are retried: `max_retries`, `max_attempts`, `retry_on`, `no_retry_on`, and what an error says."""

from __future__ import annotations

import datetime as dt
import statistics
from email.utils import format_datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rival_client.model.policies.error_names import as_names, matching, names_of
from rival_client.model.policies.step_config import StepConfig
from rival_workers import DefinitionError, StepError, step
from rival_workers.definition.define import define_workflow
from rival_workers.engine.decisions import End, Failure, Retry, decide, timed_out
from rival_workers.engine.retries import delay_after, retry_delay, why_not_retried
from rival_workers.runtime.attempt.invoke import failure
from tests.support.output import whole

ASKS = StepError("later", behavior="retry")
STOPS = StepError("never", behavior="stop")
CODED = StepError("busy", behavior="retry", code="http.429")


class Busy(ConnectionError):
    """An error of a library."""


@pytest.mark.parametrize(
    ("options", "error", "retried"),
    [
        ({}, ValueError(), False),
        ({}, ASKS, False),
        ({"max_attempts": 3}, ValueError(), False),
        ({"max_attempts": 3}, ASKS, True),
        ({"max_attempts": 3}, STOPS, False),
        ({"max_retries": 2}, ValueError(), True),
        ({"max_retries": 2}, ASKS, True),
        ({"max_retries": 2}, STOPS, False),
        ({"max_retries": 0}, ValueError(), False),
        ({"max_retries": 2, "retry_on": ("ConnectionError",)}, ValueError(), False),
        ({"max_retries": 2, "retry_on": ("ConnectionError",)}, Busy(), True),
        ({"max_retries": 2, "retry_on": ("ConnectionError",)}, ASKS, True),
        ({"max_attempts": 3, "retry_on": ("*.Busy",)}, Busy(), True),
        ({"max_attempts": 3, "retry_on": ("Busy",)}, Busy(), True),
        ({"max_attempts": 3, "retry_on": (f"{__name__}.*",)}, Busy(), True),
        ({"max_attempts": 3, "retry_on": ("Exception",)}, ValueError(), True),
        ({"max_retries": 2, "no_retry_on": ("ValueError",)}, ValueError(), False),
        ({"max_retries": 2, "no_retry_on": ("ValueError",)}, KeyError(), True),
        ({"max_retries": 2, "retry_on": ("Exception",), "no_retry_on": ("OSError",)}, Busy(), False),
        ({"max_retries": 2, "no_retry_on": ("StepError",)}, ASKS, True),
        ({"max_attempts": 2, "no_retry_on": ("http.*",)}, CODED, True),
    ],
)
def test_what_is_retried(options: dict[str, Any], error: Exception, retried: bool) -> None:
    assert (why_not_retried(StepConfig(**options), 1, failure(error, 1)) is None) == retried


@pytest.mark.parametrize(
    ("options", "retried"),
    [
        ({}, False),
        ({"max_attempts": 3}, False),
        ({"max_attempts": 3, "on_timeout": "retry"}, True),
        ({"max_retries": 2}, True),
        ({"max_retries": 2, "on_timeout": "stop"}, False),
        ({"max_retries": 2, "retry_on": ("ValueError",)}, False),
        ({"max_attempts": 3, "retry_on": ("TimeoutError",)}, True),
        ({"max_attempts": 3, "retry_on": ("StepTimeout",)}, True),
        ({"max_retries": 2, "no_retry_on": ("TimeoutError",)}, False),
    ],
)
def test_a_timeout_is_an_exception_unless_on_timeout_decides(options: dict[str, Any], retried: bool) -> None:
    config = StepConfig(timeout=1, **options)
    decision = decide(config, 1, timed_out(config, {"type": "StepTimeout", "message": "m"}))
    assert isinstance(decision, Retry if retried else End)


@given(st.integers(0, 20))
def test_max_retries_means_so_many_attempts_after_the_first(retries: int) -> None:
    config, attempts = StepConfig(max_retries=retries, backoff="none"), 1
    while isinstance(decide(config, attempts, failure(ValueError("x"), attempts)), Retry):
        attempts += 1
    assert attempts == retries + 1


@pytest.mark.parametrize(
    ("options", "error", "why"),
    [
        ({"max_attempts": 3}, ValueError("x"), "that takes StepError(behavior='retry'), max_retries or retry_on"),
        ({"max_retries": 3}, STOPS, "its StepError says behavior='stop'"),
        ({"max_retries": 3, "no_retry_on": ("Value*",)}, ValueError("x"), "no_retry_on has 'Value*'"),
        ({"max_retries": 3, "retry_on": ("KeyError",)}, ValueError("x"), "retry_on does not name it"),
        ({}, ValueError("x"), None),
        ({"max_retries": 0}, ValueError("x"), None),
    ],
)
def test_an_error_says_why_it_was_not_retried_if_attempts_were_left(
    options: dict[str, Any], error: Exception, why: str | None
) -> None:
    end = decide(StepConfig(**options), 1, failure(error, 1))
    assert isinstance(end, End)
    assert (end.error or {}).get("not_retried") == why
    last = decide(StepConfig(**options), 4, failure(error, 4))
    assert isinstance(last, End)
    assert "not_retried" not in (last.error or {})


@pytest.mark.parametrize(
    ("after", "most", "delay"), [(None, 3600, 2), (1, 3600, 2), (60, 3600, 60), (90_000, 3600, 3600), (60, 10, 10)]
)
def test_a_retry_waits_as_long_as_the_error_says(after: float | None, most: float, delay: float) -> None:
    config = StepConfig(max_attempts=2, base_delay=2, max_retry_after=most)
    asks = failure(StepError("busy", behavior="retry", retry_after=after), 1)
    assert delay_after(config, 1, asks, 0.0) == delay


def header_of(time: dt.datetime) -> str:
    return format_datetime(time, usegmt=True)


def rounded(time: dt.timedelta) -> float:
    return round(time.total_seconds(), 3)


def test_retry_after_is_a_duration_a_time_or_a_header() -> None:
    assert StepError("x", retry_after=dt.timedelta(minutes=2)).retry_after == 120
    later = dt.datetime.now(dt.UTC) + dt.timedelta(minutes=2)
    in_another_zone = later.astimezone(dt.timezone(dt.timedelta(hours=5)))
    # A header has whole seconds.
    for near, exact in ((later, later), (in_another_zone, later), (header_of(later), later.replace(microsecond=0))):
        before = dt.datetime.now(dt.UTC)
        seconds = StepError("x", retry_after=near).retry_after
        assert seconds is not None
        assert rounded(exact - dt.datetime.now(dt.UTC)) <= seconds <= rounded(exact - before)
    headers = ("120", " 7 ", "Wed, 21 Oct 2015 07:28:00 GMT", "soon", "", "-5", "1e9")
    assert [StepError("x", retry_after=one).retry_after for one in headers] == [120, 7, 0, None, None, None, None]
    for wrong in (-1, float("nan"), True, dt.datetime(2030, 1, 1), [5]):
        with pytest.raises(
            ValueError,
            match=whole(
                "StepError retry_after is seconds from 0 on, a timedelta, a datetime with a time zone, or the text "
                "of the header Retry-After, not …"
            ),
        ):
            StepError("x", retry_after=wrong)  # type: ignore[arg-type]


# -- names of errors --------------------------------------------------------------------------------------


def test_an_error_has_the_names_of_its_classes_and_its_code() -> None:
    assert names_of(Busy) == (f"{__name__}.Busy", "ConnectionError", "OSError", "Exception", "BaseException")
    assert names_of(StepError, "http.429")[0] == "http.429"
    assert matching(["http.4*"], names_of(StepError, "http.429")) == "http.4*"
    assert matching(["builtins.LookupError"], names_of(KeyError)) == "builtins.LookupError"
    assert matching(["builtins.declined"], ["declined"]) is None
    assert matching(["http.5*"], names_of(StepError, "http.429")) is None


def test_classes_and_texts_become_names_and_anything_else_is_refused() -> None:
    problems: list[str] = []
    assert as_names("retry_on", (TimeoutError, "openai.*", Busy), problems) == [
        "TimeoutError",
        "openai.*",
        f"{__name__}.Busy",
    ]
    assert as_names("retry_on", TimeoutError, problems) == ["TimeoutError"]
    assert not problems
    as_names("retry_on", (3, dict), problems)
    assert [one.partition(" is not an error")[0] for one in problems] == [
        "option retry_on: 3",
        "option retry_on: <class 'dict'>",
    ]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (
            {"retry_on": ValueError},
            "workflow 'w': steps[0]: retry_on needs more than one attempt: give max_retries=1 or more (…)",
        ),
        (
            {"retry_on": [7], "max_retries": 1},
            (
                "workflow 'w': steps[0]: option retry_on: 7 is not an error: give classes of exceptions, their "
                "names ('openai.*'), or codes of StepErrors (…)"
            ),
        ),
        (
            {"max_retries": 1, "max_attempts": 2},
            (
                "workflow 'w': steps[0]: max_retries retries every exception, max_attempts caps what asks for a "
                "retry: give one of the two (…)"
            ),
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=whole(problem)):
        define_workflow("w", [step(lambda: None, name="a", **options)])


# -- delays -----------------------------------------------------------------------------------------------


@given(st.floats(0.01, 100), st.floats(0.01, 1000), st.integers(1, 40))
def test_no_delay_is_longer_than_the_next_one(base: float, most: float, attempt: int) -> None:
    for backoff in ("linear", "exponential"):
        config = StepConfig(backoff=backoff, base_delay=base, max_delay=most)  # type: ignore[arg-type]
        assert retry_delay(config, None, attempt, 0.0) <= retry_delay(config, None, attempt + 1, 0.0) <= most


def test_jitter_is_spread_evenly_over_the_whole_delay() -> None:
    config = StepConfig(backoff="jitter", base_delay=8, max_delay=8)
    delays = [retry_delay(config, None, 1, n / 1000) for n in range(1000)]
    assert 0 <= min(delays) < 0.1
    assert 7.9 < max(delays) < 8
    assert abs(statistics.mean(delays) - 4) < 0.01
    assert abs(statistics.pstdev(delays) - 8 / 12**0.5) < 0.01


def test_a_failure_without_a_choice_is_a_plain_exception() -> None:
    assert not failure(ValueError(), 1).is_chosen
    assert failure(ASKS, 1).is_chosen
    assert Failure({}).behavior is None
