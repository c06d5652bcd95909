"""Time fields of steps: delay, scheduled_at, deadline, queue_timeout. The database's clock decides all of them."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from rival_client import RivalError
from rival_workers import StepError, breaker, limit, step, value
from rival_workers.definition.define import define_workflow
from rival_workers.store.sweep_records import SweepOptions
from tests.support.inline import Inline
from tests.support.output import as_expected, whole


def ran() -> str:
    return "ran"


def again() -> None:
    raise StepError("not yet", behavior="retry")


def started(inline: Inline, **options: Any) -> str:
    """A run whose second step has the options; no worker has taken the step yet."""
    inline.define("w", step(ran, name="first"), step(options.pop("function", ran), name="it", **options))
    return inline.rival.run("w").run_id


def outcome(inline: Inline, run_id: str) -> tuple[str, str | None]:
    state = inline.rival.state(run_id)
    its = next(one for one in state.steps if one.path == "it")
    return its.status, None if its.error is None else its.error["type"]


def entries(inline: Inline, run_id: str) -> list[str]:
    return [entry.what for entry in inline.rival.history(run_id) if entry.path == "it"]


@pytest.mark.parametrize("function", [ran, again], ids=["function", "retried"])
def test_a_delayed_step_waits_without_a_worker_and_never_starts_early(inline: Inline, function: Any) -> None:
    run_id = started(inline, function=function, delay=60, max_attempts=2)
    inline.drain()
    assert outcome(inline, run_id) == ("waiting", None)
    assert inline.rival.state(run_id).status == "suspended"
    inline.time_passes(59)
    inline.keeper.run_once()
    inline.drain()
    assert "claimed" not in entries(inline, run_id)
    inline.time_passes(2)
    inline.later = [(0.0, message) for _, message in inline.later]
    inline.keeper.run_once()
    inline.drain()
    assert outcome(inline, run_id)[0] == ("completed" if function is ran else "waiting_retry")


def test_a_near_delay_has_a_countdown(inline: Inline) -> None:
    run_id = started(inline, delay=5)
    inline.drain()
    assert [message.countdown for _, message in inline.later] == [5]
    assert inline.rival.state(run_id).steps[-1].due_at is not None


@pytest.mark.parametrize(("ahead", "status"), [(60, "waiting"), (-60, "completed")], ids=["ahead", "past"])
def test_a_step_that_is_scheduled_starts_at_its_time_or_at_once(inline: Inline, ahead: float, status: str) -> None:
    present = inline.clock() if inline.clock else dt.datetime.now(dt.UTC).timestamp()
    run_id = started(inline, scheduled_at=dt.datetime.fromtimestamp(present + ahead, dt.UTC))
    inline.drain()
    assert outcome(inline, run_id) == (status, None)
    inline.time_passes(61)
    inline.keeper.run_once()
    inline.drain()
    assert outcome(inline, run_id) == ("completed", None)


# -- deadline -------------------------------------------------------------------------------------------------


def test_the_deadline_limits_the_attempt_and_no_retry_follows(inline: Inline) -> None:
    def overstay() -> str:
        inline.time_passes(11)
        inline.keeper.run_once()
        return "late"

    run_id = started(inline, function=overstay, deadline=10, timeout=60, on_timeout="retry", max_attempts=3)
    inline.drain()
    assert outcome(inline, run_id) == ("failed", "DeadlineExceeded")
    assert "timed_out" in entries(inline, run_id)
    assert "late_result_refused" in entries(inline, run_id)
    assert inline.rival.result(run_id).status == "failed"


def test_a_retry_that_does_not_fit_before_the_deadline_fails_at_once_and_says_why(inline: Inline) -> None:
    run_id = started(inline, function=again, deadline=10, max_attempts=5, base_delay=20, backoff="exponential")
    inline.drain()
    error = inline.rival.state(run_id).error or {}
    assert error["type"] == "StepError"
    expected = "the next attempt would begin in 20 s, but the deadline is over in … s"
    assert as_expected(expected, error["not_retried"]) == expected
    assert entries(inline, run_id) == ["claimed", "failed"]


def test_a_retry_that_no_worker_takes_before_the_deadline_expires(inline: Inline) -> None:
    run_id = started(inline, function=again, deadline=30, max_attempts=5, base_delay=1)
    inline.drain()
    assert outcome(inline, run_id) == ("waiting_retry", "StepError")
    inline.time_passes(31)
    late = [message for _, message in inline.later]
    inline.keeper.run_once()
    assert outcome(inline, run_id) == ("failed", "DeadlineExceeded")
    assert [inline.deliver(message).what for message in late] == ["stale"]  # type: ignore[union-attr]
    assert entries(inline, run_id) == ["claimed", "retried", "expired"]


def test_a_message_after_the_deadline_starts_nothing(inline: Inline) -> None:
    run_id = started(inline, deadline=30, delay=5)
    inline.drain()
    [message] = [message for _, message in inline.later]
    inline.time_passes(31)
    inline.deliver(message)
    assert "claimed" not in entries(inline, run_id)
    inline.keeper.run_once()
    assert outcome(inline, run_id) == ("failed", "DeadlineExceeded")
    assert inline.rival.state(run_id).status == "failed"


def test_remaining_is_the_least_of_timeout_step_deadline_and_run_deadline(inline: Inline) -> None:
    seen: list[float | None] = []

    def look(ctx: Any) -> None:
        seen.append(ctx.remaining)

    options: list[dict[str, Any]] = [{}, {"timeout": 50}, {"deadline": 40}, {"timeout": 30, "deadline": 90}]
    inline.define("w", *(step(look, name=f"s{n}", **one) for n, one in enumerate(options)))
    inline.rival.run("w", deadline=600)
    inline.rival.run("w")
    inline.drain()
    assert [None if one is None else round(one, -1) for one in seen] == [600, 50, 40, 30, None, 50, 40, 30]


@pytest.mark.parametrize("timeout", [600, None], ids=["longer", "none"])
def test_another_timeout_by_a_rule_leaves_the_deadline_of_the_step_to_the_keeper(
    inline: Inline, timeout: float | None
) -> None:
    """The process that runs the attempt is frozen, so that only the row says when its time is up."""

    def freeze() -> str:
        inline.time_passes(11)
        inline.keeper.run_once()
        return "late"

    inline.define("w", step(ran, name="first"), step(freeze, name="it", deadline=10, timeout=5, delay=1))
    run_id = inline.rival.run("w", {}, policies=[("it", {"timeout": timeout, "max_attempts": 3})]).run_id
    inline.drain()
    inline.time_passes(1)
    inline.later = [(0.0, message) for _, message in inline.later]
    inline.drain()
    assert outcome(inline, run_id) == ("failed", "DeadlineExceeded")
    assert "late_result_refused" in entries(inline, run_id)


def test_a_deadline_by_a_rule_of_the_run_counts_for_its_first_step(inline: Inline) -> None:
    def overstay() -> str:
        inline.time_passes(11)
        inline.keeper.run_once()
        return "late"

    inline.define("w", step(overstay, name="it"))
    run_id = inline.rival.run("w", {}, policies=[("it", {"deadline": 10})]).run_id
    inline.drain()
    assert outcome(inline, run_id) == ("failed", "DeadlineExceeded")


# -- queue_timeout --------------------------------------------------------------------------------------------


def waiting(inline: Inline, **options: Any) -> str:
    """A run whose first step no worker takes."""
    inline.coordinator.stopping = True
    inline.define("w", step(ran, name="it", **options), on_error=options.pop("handler", None))
    run_id = inline.rival.run("w").run_id
    for message in inline.doorbell.take():
        inline.deliver(message)
    return run_id


def test_a_step_that_no_worker_begins_in_time_fails_with_queue_timeout(inline: Inline) -> None:
    run_id = waiting(inline, queue_timeout=7)
    inline.time_passes(6)
    inline.keeper.run_once()
    assert outcome(inline, run_id) == ("pending", None)
    inline.time_passes(2)
    [message] = inline.doorbell.take()
    inline.keeper.run_once()
    assert outcome(inline, run_id) == ("failed", "QueueTimeout")
    assert inline.deliver(message).what == "stale"  # type: ignore[union-attr]
    assert entries(inline, run_id) == ["scheduled", "expired"]
    assert inline.rival.state(run_id).attempts == [], "no attempt has begun"
    assert (inline.rival.state(run_id).error or {})["message"] == (
        "no worker has begun the step within its queue_timeout of 7 s: the workers of its queue are busy, or none "
        "serves it"
    )


def test_a_queue_timeout_names_the_limits_that_the_step_may_have_waited_for(inline: Inline) -> None:
    """Not what a step waits for after its first claim, which ends the queue timeout."""
    later = {"idempotency_key": "{run.id}", "circuit_breaker": breaker("bank", on_open="wait")}
    run_id = waiting(inline, queue_timeout=7, concurrency_limit=1, **later)
    inline.time_passes(8)
    inline.keeper.run_once()
    assert (inline.rival.state(run_id).error or {})["message"] == (
        "no worker has begun the step within its queue_timeout of 7 s: the workers of its queue are busy, or none "
        "serves it, or its limits are full"
    )


@pytest.mark.parametrize("retries", [{"max_retries": 3}, {"max_attempts": 3, "retry_on": ("QueueTimeout",)}])
def test_a_queue_timeout_is_not_retried(inline: Inline, retries: Any) -> None:
    run_id = waiting(inline, queue_timeout=7, base_delay=0, **retries)
    inline.time_passes(8)
    inline.keeper.run_once()
    assert outcome(inline, run_id) == ("failed", "QueueTimeout")
    assert entries(inline, run_id) == ["scheduled", "expired"]
    assert (inline.rival.state(run_id).error or {})["not_retried"] == "its queue_timeout is over"


@pytest.mark.parametrize(
    ("option", "error"), [({"queue_timeout": 7}, "QueueTimeout"), ({"deadline": 7}, "DeadlineExceeded")]
)
def test_a_step_with_retries_that_waits_for_a_slot_expires_once(
    inline: Inline, option: dict[str, Any], error: str
) -> None:
    inline.define("w", step(ran, name="it", max_retries=3, base_delay=0, concurrency_limit=limit("one", 1), **option))
    inline.define("holder", step(ran, execution_mode="external", deadline=600, concurrency_limit=limit("one", 1)))
    holder = inline.rival.run("holder").run_id
    inline.drain()
    run_id = inline.rival.run("w").run_id
    inline.drain()
    assert outcome(inline, run_id) == ("waiting", None)
    inline.time_passes(8)
    for _ in range(3):
        inline.keeper.run_once()
        inline.drain()
    assert outcome(inline, run_id) == ("failed", error)
    assert [entry.what for entry in inline.rival.history(run_id)].count("expired") == 1
    assert [(one.used, one.waiting) for one in inline.rival.limits()] == [(1, 0)]
    inline.rival.cancel(holder)
    assert [(one.used, one.waiting) for one in inline.rival.limits()] == [(0, 0)]


def test_the_first_claim_ends_the_queue_timeout(inline: Inline) -> None:
    def lasts() -> str:
        inline.time_passes(60)
        inline.keeper.run_once()
        return "ran"

    run_id = started(inline, function=lasts, queue_timeout=7)
    inline.drain()
    assert outcome(inline, run_id) == ("completed", None)


def test_a_delay_does_not_count_as_waiting_for_a_worker(inline: Inline) -> None:
    run_id = started(inline, delay=60, queue_timeout=5)
    inline.drain()
    inline.time_passes(62)
    inline.keeper.run_once()
    inline.drain()
    assert outcome(inline, run_id) == ("completed", None)


def test_a_pause_is_not_a_queue_timeout_until_the_run_is_resumed(inline: Inline) -> None:
    run_id = waiting(inline, queue_timeout=7)
    inline.rival.pause(run_id, by="ana")
    inline.time_passes(60)
    inline.keeper.run_once()
    assert outcome(inline, run_id) == ("pending", None)
    inline.rival.resume(run_id, by="ana")
    inline.time_passes(11)
    inline.keeper.run_once()
    assert outcome(inline, run_id) == ("failed", "QueueTimeout")


def test_what_expires_can_fall_back(inline: Inline) -> None:
    run_id = waiting(inline, queue_timeout=7, fallback=value("cached"))
    inline.time_passes(8)
    inline.keeper.run_once()
    assert inline.rival.result(run_id).result == "cached"
    assert entries(inline, run_id) == ["scheduled", "expired", "fell_back", "completed"]


def test_two_keepers_expire_a_step_once(inline: Inline) -> None:
    run_id = waiting(inline, queue_timeout=7)
    inline.time_passes(8)
    [due] = inline.store.due(SweepOptions(10, backoff=10, backoff_max=60))
    assert [inline.coordinator.transitions.expire_due(due) for _ in range(2)] == [True, False]
    assert entries(inline, run_id).count("expired") == 1


# -- what is refused ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delay": -1}, "workflow 'w': steps[0]: option delay: Input should be greater than or equal to 0 (…)"),
        (
            {"delay": dt.timedelta(days=40_000)},
            ("workflow 'w': steps[0]: option delay: datetime.timedelta(days=40000) is longer than a hundred years (…)"),
        ),
        ({"queue_timeout": 0}, "workflow 'w': steps[0]: option queue_timeout: Input should be greater than 0 (…)"),
        (
            {"scheduled_at": dt.datetime(2030, 1, 1)},
            (
                "workflow 'w': steps[0]: option scheduled_at: give a time with a time zone, such as "
                "datetime.now(UTC) + timedelta(hours=1) (…)"
            ),
        ),
        (
            {"scheduled_at": "soon"},
            (
                "workflow 'w': steps[0]: option scheduled_at: Input should be a valid datetime or date, input is "
                "too short (…)"
            ),
        ),
        (
            {"deadline": 5, "delay": 5},
            (
                "workflow 'w': steps[0]: deadline counts from the opening of the step: give one that is longer than "
                "its delay (…)"
            ),
        ),
        (
            {"queue": "two words"},
            (
                "workflow 'w': steps[0]: option queue: give the name of a queue: 1 to 100 letters, digits or any of "
                ". : _ - (…)"
            ),
        ),
        ({"queue": 7}, "workflow 'w': steps[0]: option queue: Input should be a valid string (…)"),
        (
            {"priority": "urgent"},
            "workflow 'w': steps[0]: option priority: Input should be 'high', 'normal' or 'low' (…)",
        ),
    ],
    ids=lambda one: next(iter(one)) if isinstance(one, dict) else None,
)
def test_what_makes_no_sense_is_refused_at_registration(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(RivalError, match=whole(problem)):
        define_workflow("w", [step(ran, **options)])
