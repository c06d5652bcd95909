"""When runs begin and must end: delay, scheduled_at and deadline, on every store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from rival_client import InvalidArgument
from rival_client.broker.message import StepMessage
from rival_client.db.run_tables import runs
from rival_workers import StepError, delay_step, parallel, step
from tests.support.flows import define, finish
from tests.support.inline import Inline
from tests.support.output import whole

HOUR = dt.timedelta(hours=1)


def database_now(inline: Inline) -> dt.datetime:
    return dt.datetime.now(dt.UTC) if inline.clock is None else inline.clock.now


def pass_time(inline: Inline, seconds: float) -> None:
    """On Postgres, everything that is stored moves into the past."""
    if inline.clock is not None:
        inline.clock.advance(seconds)
        return
    times = {
        "rival_runs": ("ring_at", "due_at", "deadline_at", "created_at", "started_at"),
        "rival_steps": ("ring_at", "due_at", "timeout_at", "created_at", "started_at"),
    }
    with inline.store.database.transaction() as connection:
        for table, columns in times.items():
            changes = ", ".join(f"{one} = {one} - interval '{seconds} seconds'" for one in columns)
            connection.exec_driver_sql(f"UPDATE {table} SET {changes}")
    inline.receive()
    inline.later = [(at - seconds, message) for at, message in inline.later]


def go_on(inline: Inline) -> None:
    inline.drain()
    inline.keeper.run_once()
    inline.drain()


def status(inline: Inline, run_id: str = "r") -> str:
    return inline.rival.state(run_id).status


def one_step(inline: Inline, called: list[Any] | None = None) -> None:
    inline.define("w", step(lambda: None if called is None else called.append(1), name="a"))


def recorded(inline: Inline, run_id: str = "r") -> list[tuple[str | None, str]]:
    return [(entry.path, entry.what) for entry in inline.rival.history(run_id)]


# -- delay, scheduled_at ------------------------------------------------------------------------------------


def test_a_near_delay_is_a_countdown_and_a_far_one_waits_in_the_table(inline: Inline) -> None:
    one_step(inline)
    inline.rival.run("w", run_id="near", delay=10)
    [message] = inline.doorbell.take()
    assert (message.run_id, message.countdown) == ("near", 10)
    inline.rival.run("w", run_id="far", delay=dt.timedelta(hours=2))
    assert inline.doorbell.take() == []
    assert inline.keeper.run_once().published == 0
    pass_time(inline, 7200 - 3)
    inline.keeper.run_once()
    [message] = [one for one in inline.doorbell.take() if one.run_id == "far"]
    assert 0 < message.countdown <= 5


@pytest.mark.parametrize("seconds", [10, 3600])
def test_a_message_that_comes_too_early_starts_nothing(inline: Inline, seconds: float) -> None:
    called: list[Any] = []
    one_step(inline, called)
    inline.rival.run("w", run_id="r", delay=seconds)
    inline.doorbell.take()
    inline.rival.recover()
    run = inline.rival.state("r")
    inline.deliver(StepMessage("r", None, 0, run.workflow, run.version))
    assert (status(inline), called) == ("pending", [])
    again = [one.countdown for one in inline.doorbell.take()]
    assert len(again) == (1 if seconds == 10 else 0), "a far one is the keeper's"
    assert all(0 < countdown <= 10 for countdown in again), "the rest of the delay"
    pass_time(inline, seconds)
    inline.deliver(StepMessage("r", None, 0, run.workflow, run.version))
    assert (status(inline), called) == ("completed", [1])


def test_scheduled_at_is_a_point_in_time_and_the_past_is_now(inline: Inline) -> None:
    one_step(inline)
    at = database_now(inline)
    inline.rival.run("w", run_id="past", scheduled_at=at - HOUR)
    inline.rival.run("w", run_id="later", scheduled_at=at + 24 * HOUR)
    inline.drain()
    assert (status(inline, "past"), status(inline, "later")) == ("completed", "pending")
    assert inline.rival.state("later").due_at == at + 24 * HOUR
    pass_time(inline, 86_400 + 20)
    go_on(inline)
    assert status(inline, "later") == "completed"


def test_a_lost_message_of_a_delayed_run_is_published_again(inline: Inline) -> None:
    one_step(inline)
    inline.rival.run("w", run_id="r", delay=10)
    inline.doorbell.take()
    pass_time(inline, 60)
    go_on(inline)
    assert status(inline) == "completed"


def test_a_delayed_run_can_be_paused_resumed_and_cancelled(inline: Inline) -> None:
    one_step(inline)
    inline.rival.run_many("w", [1, 2], run_ids=["a", "b"], delay=3600)
    inline.rival.pause("a")
    inline.rival.resume("a")
    inline.rival.cancel("b")
    go_on(inline)
    assert (status(inline, "a"), status(inline, "b")) == ("pending", "cancelled")
    pass_time(inline, 3600)
    go_on(inline)
    assert (status(inline, "a"), status(inline, "b")) == ("completed", "cancelled")


def test_a_child_can_begin_later(inline: Inline) -> None:
    define(inline, lambda ctx: "done", "child")
    define(inline, lambda ctx: ctx.call("child", delay=3600), "parent")
    inline.rival.run("parent", run_id="r")
    go_on(inline)
    assert (status(inline), status(inline, "r/call:child")) == ("suspended", "pending")
    pass_time(inline, 3600)
    go_on(inline)
    assert inline.rival.state("r").result == "done"


# -- deadlines ----------------------------------------------------------------------------------------------


def expired(inline: Inline, *steps: Any, seconds: float = 60, **options: Any) -> Any:
    """A run that waits at its second step while its deadline passes."""
    inline.define("w", *(steps or (step(lambda: 1, name="first"), delay_step(3600, name="wait"))), **options)
    inline.rival.run("w", run_id="r", deadline=seconds)
    inline.drain()
    assert status(inline) in ("suspended", "running")
    pass_time(inline, seconds + 1)
    go_on(inline)
    return inline.rival.state("r")


def test_a_run_that_has_not_ended_by_its_deadline_fails_and_its_open_steps_are_cancelled(inline: Inline) -> None:
    state = expired(inline)
    assert (state.status, state.error["type"], state.failed_step) == ("failed", "DeadlineExceeded", "wait")
    assert {one.path: one.status for one in state.steps} == {"first": "completed", "wait": "cancelled"}
    assert (None, "expired") in recorded(inline)
    assert inline.keeper.run_once().expired == 0


def test_a_run_that_ends_in_time_never_expires(inline: Inline) -> None:
    one_step(inline)
    inline.rival.run("w", run_id="r", deadline=60)
    inline.drain()
    pass_time(inline, 120)
    assert inline.keeper.run_once().expired == 0
    assert status(inline) == "completed"
    assert inline.rival.history("r")[0].detail["options"]["deadline"].endswith("+00:00")


def test_handlers_and_compensations_run_after_the_deadline(inline: Inline) -> None:
    done: list[str] = []

    def undo(error: dict[str, Any]) -> None:
        done.append(f"undo after {error['type']}")

    def report(error: dict[str, Any]) -> None:
        done.append(f"report {error['type']}")

    state = expired(
        inline, step(lambda: 1, name="first", compensate=undo), delay_step(3600, name="wait"), on_error=report
    )
    assert state.status == "failed"
    assert done == ["undo after DeadlineExceeded", "report DeadlineExceeded"]


def test_a_deadline_that_passes_while_compensations_wait_does_not_stop_them(inline: Inline) -> None:
    done: list[str] = []

    def undo() -> None:
        done.append("tried")
        if len(done) < 2:
            raise StepError("not now", behavior="retry", max_attempts=3, backoff="none")

    def fails() -> None:
        raise StepError("no")

    object.__setattr__(inline.coordinator.settings, "continuation_budget", 0.0)
    inline.define("w", step(lambda: 1, name="first", compensate=undo), step(fails, name="bad"))
    inline.rival.run("w", run_id="r", deadline=60)
    for _ in range(3):
        for message in inline.doorbell.take():
            inline.deliver(message)
    pass_time(inline, 120)
    go_on(inline)
    state = inline.rival.state("r")
    assert (state.status, state.failed_step) == ("failed", "bad")
    assert done, "the compensation has run"
    assert (None, "expired") not in recorded(inline)


def test_all_branches_of_a_parallel_are_cancelled(inline: Inline) -> None:
    waits = [delay_step(3600, name=name) for name in ("a", "b")]
    state = expired(inline, parallel("both", waits))
    assert {one.path: one.status for one in state.steps} == {
        "both": "cancelled",
        "both/a": "cancelled",
        "both/b": "cancelled",
    }


def test_a_run_that_has_not_begun_by_its_deadline_fails_and_its_handler_runs(inline: Inline) -> None:
    called: list[Any] = []
    inline.define("w", step(lambda: called.append("step"), name="a"), on_error=lambda error: called.append("handler"))
    inline.rival.run("w", run_id="by a message", deadline=60)
    inline.rival.run("w", run_id="by the keeper", deadline=60)
    first, _ = inline.doorbell.take()
    pass_time(inline, 61)
    inline.deliver(first)
    go_on(inline)
    for run_id in ("by a message", "by the keeper"):
        state = inline.rival.state(run_id)
        assert (state.status, (state.error or {}).get("type"), state.failed_step) == (
            "failed",
            "DeadlineExceeded",
            None,
        )
    assert called == ["handler", "handler"]


def test_a_late_result_of_a_run_that_has_expired_is_refused(inline: Inline) -> None:
    def slow() -> str:
        pass_time(inline, 61)
        inline.keeper.run_once()
        return "too late"

    inline.define("w", step(slow, name="slow"))
    inline.rival.run("w", run_id="r", deadline=60)
    inline.drain()
    state = inline.rival.state("r")
    assert (state.status, (state.error or {})["type"], state.result) == ("failed", "DeadlineExceeded", None)
    assert ("slow", "late_result_refused") in recorded(inline)


def test_a_finish_that_comes_first_wins_over_the_deadline(inline: Inline) -> None:
    inline.define("w", step(lambda: "in time", name="a"))
    inline.rival.run("w", run_id="r", deadline=60)
    inline.drain()
    pass_time(inline, 61)
    assert inline.coordinator.transitions.expire("r", "w", inline.rival.state("r").version) is False
    assert inline.rival.state("r").result == "in time"


def test_a_step_sees_the_time_that_is_left(inline: Inline) -> None:
    inline.define("w", step(lambda ctx: ctx.remaining, name="a"), step(lambda ctx: ctx.remaining, name="b"))
    inline.rival.run("w", run_id="r", deadline=60)
    inline.rival.run("w", run_id="without")
    inline.drain()
    assert all(50 < one.result <= 60 for one in inline.rival.state("r").steps)
    assert [one.result for one in inline.rival.state("without").steps] == [None, None]


def test_a_flow_compares_its_deadline_with_its_own_clock(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.run.deadline_at is not None)
    inline.rival.run("f", run_id="r", deadline=60)
    assert finish(inline) is True
    define(inline, lambda ctx: ctx.remaining, "g")
    inline.rival.run("g", run_id="s", deadline=60)
    assert finish(inline, "s") == "NotInFlows"


def test_a_retry_that_would_begin_after_the_deadline_fails_at_once(inline: Inline) -> None:
    def fails() -> None:
        raise StepError("no", behavior="retry", max_attempts=5)

    inline.define("w", step(fails, name="a", base_delay=30, backoff="linear"))
    inline.rival.run("w", run_id="r", deadline=45)
    inline.drain()
    assert status(inline) in ("running", "suspended"), "a first retry after 30 s fits"
    pass_time(inline, 31)
    go_on(inline)
    state = inline.rival.state("r")
    assert (state.status, (state.error or {})["type"]) == ("failed", "StepError"), "a second one after 60 s does not"


@pytest.mark.parametrize("own", [None, 10, 1000])
def test_children_have_the_time_that_their_parent_has_left(inline: Inline, own: float | None) -> None:
    define(inline, lambda ctx: ctx.sleep(hours=1), "child")
    define(inline, lambda ctx: ctx.call("child", deadline=own), "parent")
    inline.rival.run("parent", run_id="r", deadline=60)
    inline.drain()
    parent, child = inline.rival.state("r"), inline.rival.state("r/call:child")
    assert parent.deadline_at is not None
    assert child.deadline_at is not None
    if own == 10:
        assert child.deadline_at < parent.deadline_at
    else:
        assert child.deadline_at == parent.deadline_at
    pass_time(inline, 61)
    go_on(inline)
    go_on(inline)
    assert (status(inline), status(inline, "r/call:child")) in [("failed", "failed"), ("failed", "cancelled")]


def test_an_operators_retry_gives_an_expired_run_its_time_again(inline: Inline) -> None:
    expired(inline, step(lambda: 1, name="first"), delay_step(70, name="wait"))
    inline.rival.retry("r")
    go_on(inline)
    state = inline.rival.state("r")
    assert state.status in ("running", "suspended")
    assert state.deadline_at is not None
    [retried] = [entry.at for entry in inline.rival.history("r") if entry.what == "retry_run"]
    assert state.deadline_at - retried == dt.timedelta(seconds=60)
    pass_time(inline, 61)
    go_on(inline)
    assert status(inline) == "failed"


def test_a_run_that_expired_before_it_began_can_be_retried(inline: Inline) -> None:
    one_step(inline)
    inline.rival.run("w", run_id="r", deadline=60)
    inline.doorbell.take()
    pass_time(inline, 61)
    go_on(inline)
    assert status(inline) == "failed"
    inline.rival.retry("r")
    inline.drain()
    assert status(inline) == "completed"


def test_a_paused_run_expires_too(inline: Inline) -> None:
    inline.define("w", delay_step(3600, name="wait"))
    inline.rival.run("w", run_id="r", deadline=60)
    inline.drain()
    inline.rival.pause("r")
    pass_time(inline, 61)
    go_on(inline)
    assert status(inline) == "failed"


def test_the_deadline_counts_from_when_a_delayed_run_is_due(inline: Inline) -> None:
    one_step(inline)
    inline.rival.run("w", run_id="r", delay=3600, deadline=60)
    state = inline.rival.state("r")
    assert state.due_at is not None
    assert state.deadline_at == state.due_at + dt.timedelta(seconds=60)
    pass_time(inline, 3600)
    go_on(inline)
    assert status(inline) == "completed"


def test_the_runs_of_a_schedule_have_a_deadline(inline: Inline) -> None:
    one_step(inline)
    record = inline.rival.schedule("w", 60, name="s", deadline=30, catch_up="last")
    assert record.options == {"deadline": 30}
    pass_schedule(inline)
    inline.keeper.run_once()
    [run] = inline.rival.runs()
    assert run.deadline_at is not None
    assert run.deadline_at - run.created_at == dt.timedelta(seconds=30)


def pass_schedule(inline: Inline) -> None:
    past = "now() - interval '2 minutes'" if inline.store.database.is_postgres else "rival_now() - 120"
    with inline.store.database.transaction() as connection:
        connection.exec_driver_sql(f"UPDATE rival_schedules SET next_at = {past}")


# -- wrong arguments ----------------------------------------------------------------------------------------

NAIVE = dt.datetime(2030, 1, 1)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"delay": -1}, "Invalid argument delay: -1 is not a duration: give 0 to 3,153,600,000 seconds, or a timedelta."),
    (
        {"delay": "soon"},
        "Invalid argument delay: 'soon' is not a duration: give 0 to 3,153,600,000 seconds, or a timedelta.",
    ),
    (
        {"delay": True},
        "Invalid argument delay: True is not a duration: give 0 to 3,153,600,000 seconds, or a timedelta.",
    ),
    (
        {"scheduled_at": NAIVE},
        (
            "Invalid argument scheduled_at: datetime.datetime(2030, 1, 1, 0, 0) is not a point in time: it has "
            "no time zone; give datetime(…, tzinfo=UTC)."
        ),
    ),
    (
        {"scheduled_at": 60},
        "Invalid argument scheduled_at: 60 is not a point in time: give a datetime with a time zone.",
    ),
    (
        {"delay": 5, "scheduled_at": NAIVE.replace(tzinfo=dt.UTC)},
        "Invalid argument scheduled_at: give either `delay` or `scheduled_at`: each says when it begins.",
    ),
    (
        {"deadline": 0},
        ("Invalid argument deadline: 0 is not a duration: give 0.001 to 3,153,600,000 seconds, or a timedelta."),
    ),
    (
        {"deadline": NAIVE},
        (
            "Invalid argument deadline: datetime.datetime(2030, 1, 1, 0, 0) is not a point in time: it has no "
            "time zone; give datetime(…, tzinfo=UTC)."
        ),
    ),
    (
        {"deadline": "tomorrow"},
        (
            "Invalid argument deadline: 'tomorrow' is not a duration: give 0.001 to 3,153,600,000 seconds, or a "
            "timedelta."
        ),
    ),
]


@pytest.mark.parametrize(("options", "problem"), WRONG)
def test_wrong_times_are_refused(inline: Inline, options: dict[str, Any], problem: str) -> None:
    one_step(inline)
    starts: list[Callable[[], Any]] = [
        lambda: inline.rival.run("w", **options),
        lambda: inline.rival.run_many("w", [1], **options),
    ]
    for start in starts:
        with pytest.raises(InvalidArgument, match=whole(problem)):
            start()
    assert inline.rival.runs() == []


@pytest.mark.parametrize("options", [{"delay": 5}, {"scheduled_at": dt.datetime.now(dt.UTC)}])
def test_a_schedule_has_no_other_times(inline: Inline, options: dict[str, Any]) -> None:
    one_step(inline)
    with pytest.raises(
        InvalidArgument, match=whole("Invalid argument …: a schedule says when its runs begin: leave it out.")
    ):
        inline.rival.schedule("w", 60, name="s", **options)
    with pytest.raises(
        InvalidArgument,
        match=whole("Invalid argument deadline: give the runs of a schedule seconds, not one point in time."),
    ):
        inline.rival.schedule("w", 60, name="s", deadline=dt.datetime.now(dt.UTC))


def test_a_run_without_times_has_none_in_its_row(inline: Inline) -> None:
    one_step(inline)
    inline.rival.run("w", run_id="r")
    inline.drain()
    with inline.store.database.autocommit() as connection:
        row = connection.execute(runs.select()).one()
    assert (row.due_at, row.deadline_at, row.ring_at) == (None, None, None)
    assert "options" not in inline.rival.history("r")[0].detail
