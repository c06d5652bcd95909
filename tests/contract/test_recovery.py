"""Recovery by hand: publishes messages for steps that wait, leaves claimed steps alone, and reports what it did."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from rival_client.broker.message import EventMessage
from rival_client.errors import DatabaseUnavailable
from rival_client.model.recovery import Recovery
from rival_client.model.timers import NEVER_PUBLISHED
from rival_client.sql.recovery import recover
from rival_workers import flow, step, wait_event_step
from rival_workers.engine.decisions import Retry
from rival_workers.runtime.flow.stop_signals import Killed
from rival_workers.runtime.host import host_name
from rival_workers.store.sweep_records import SweepOptions
from tests.contract.stage import DONE, ERROR, GOES_ON, Stage
from tests.support.inline import Clock, Inline

LOOK = SweepOptions(100, backoff=10, backoff_max=600)
NOTHING = Recovery(0, 0, 0, 0, 0, 0, 0, 0, 0)


def test_where_nothing_is_to_be_recovered_nothing_is_changed(stage: Stage) -> None:
    stage.store.add_executor("e1", "here", 1, "w", 60)
    stage.begin("running")
    before = stage.everything()
    assert recover(stage.database) == dataclasses.replace(NOTHING, live_executors=1)
    assert stage.everything() == before


def test_all_that_was_published_before_is_published_again(stage: Stage) -> None:
    for number in range(3):
        stage.add_run(f"run-{number}")
    stage.store.finish_step(stage.begin("step"), DONE, GOES_ON, claim_for=None)
    stage.add_run("due")
    stage.force("UPDATE rival_runs SET rings = 5 WHERE id = 'due'")
    stage.store.due(LOOK)
    assert recover(stage.database).republished == 5
    due = stage.store.due(LOOK)
    assert {(one.run_id, one.rings) for one in due} == {
        (run_id, NEVER_PUBLISHED) for run_id in ("run-0", "run-1", "run-2", "step", "due")
    }


def test_what_is_due_already_and_held_back_is_published_too(stage: Stage) -> None:
    stage.add_run("due", grace=1)
    stage.time_passes(2)
    assert recover(stage.database).republished == 1
    [due] = stage.store.due(LOOK)
    assert due.rings == NEVER_PUBLISHED


def test_the_report_counts_what_others_must_do_or_wait_for(stage: Stage) -> None:
    stage.store.add_executor("e1", "here", 1, "w", 60)
    stage.store.add_executor("e2", "here", 2, "w", 1)
    stage.begin("living")
    stage.begin("dead", executor="e2")
    stage.begin("unknown", executor="e3")
    stage.add_run("parked")
    stage.store.park_run("parked", 0, "nobody has it", 15.0)
    stage.store.retry_step(stage.begin("later"), Retry(60.0, ERROR), published=False)
    stage.time_passes(2)
    before = stage.everything()
    assert recover(stage.database) == dataclasses.replace(
        NOTHING, lost=2, parked=1, waiting_for_time=1, live_executors=1
    )
    assert stage.everything() == before


def test_events_that_were_not_delivered_are_published(file_url: str) -> None:
    inline = Inline(file_url, clock=Clock())
    try:
        inline.rival.send_event("paid", {"n": 1})
        inline.doorbell.take()
        assert inline.rival.recover().republished == 1
        assert inline.keeper.run_once().published == 1
        assert len(inline.drain()) == 1
        assert inline.rival.recover().republished == 0
    finally:
        inline.close()


def test_an_event_whose_message_went_with_a_worker_is_made_due(inline: Inline) -> None:
    inline.rival.send_event("paid", {"n": 1})
    inline.doorbell.take()
    assert inline.keeper.run_once().published == 0
    assert inline.store.make_all_due(600, 100) == 1
    inline.time_passes(0.1)
    assert inline.keeper.run_once().published == 1
    assert [message.topic for message in inline.drain() if isinstance(message, EventMessage)] == ["paid"]
    assert inline.store.make_all_due(600, 100) == 0


def test_a_lost_message_is_published_at_once_and_twice_does_no_harm(file_url: str) -> None:
    def one() -> int:
        return 1

    inline = Inline(file_url, clock=Clock())
    try:
        inline.define("w", one)
        inline.rival.run("w", run_id="r")
        inline.doorbell.take()
        assert [inline.rival.recover().republished for _ in range(2)] == [1, 1]
        inline.keeper.run_once()
        inline.drain()
        assert inline.rival.result("r").result == 1
        assert inline.rival.recover().republished == 0
    finally:
        inline.close()


def test_a_flow_whose_time_came_while_no_keeper_ran_is_resumed_at_once(inline: Inline) -> None:
    sleeper = flow("f", register=False)(lambda ctx: ctx.sleep(3600))
    inline.define("f", sleeper)
    inline.define("w", wait_event_step("never", name="never"))
    inline.rival.run("f", run_id="sleeps")
    inline.rival.run("w", run_id="waits")
    for message in inline.doorbell.take():
        inline.deliver(message)
    inline.doorbell.take()
    found = inline.rival.recover()
    assert (found.suspended, found.resumed, found.waiting_for_time, found.waiting_for_events) == (2, 0, 1, 1)
    inline.time_passes(3601)
    assert inline.rival.recover().resumed == 1
    inline.keeper.run_once()
    inline.drain()
    assert inline.rival.result("sleeps").status == "completed"


def die_with_a_message(inline: Inline, seconds: float) -> None:
    """A worker takes the message that starts a run, and dies so many seconds later without having begun it."""
    inline.define("w", step(lambda: 1, name="a"))
    inline.rival.run("w", run_id="r")
    inline.doorbell.take()
    inline.time_passes(seconds)
    inline.store.add_executor("dead", "elsewhere", 1, "w", -1)
    inline.keeper._steady_since = -1e9
    # The round that finds the dead executor has looked for due rows before that.
    inline.keeper.run_once()
    inline.keeper.run_once()


def test_a_message_that_a_dead_worker_had_taken_is_published_before_the_grace_period_is_over(inline: Inline) -> None:
    die_with_a_message(inline, 2)
    assert [message.run_id for message in inline.doorbell.messages] == ["r"]
    inline.drain()
    assert inline.rival.result("r").status == "completed"


def test_a_message_that_may_still_be_queued_is_not_published_again_when_a_worker_dies(inline: Inline) -> None:
    inline.doorbell.age = 3.0
    die_with_a_message(inline, 2)
    assert inline.doorbell.messages == []


def test_a_message_older_than_the_oldest_in_the_queue_was_taken(inline: Inline) -> None:
    inline.doorbell.age = 3.0
    die_with_a_message(inline, 9)
    assert [message.run_id for message in inline.doorbell.messages] == ["r"]


def test_a_message_that_was_taken_during_an_outage_is_published_before_the_grace_period_is_over(
    inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline.define("w", step(lambda: 1, name="a"))
    inline.rival.run("w", run_id="r")
    [message] = inline.doorbell.take()
    with monkeypatch.context() as outage:
        outage.setattr(type(inline.store), "begin_run", _is_away)
        with pytest.raises(DatabaseUnavailable):
            inline.deliver(message)
    inline.time_passes(2)
    inline.keeper._steady_since = -1e9
    # The first round finds that the message is not in the queue, after it has looked for due rows.
    inline.keeper.run_once()
    inline.keeper.run_once()
    assert [message.run_id for message in inline.doorbell.messages] == ["r"]
    inline.drain()
    assert inline.rival.result("r").status == "completed"


def _is_away(*_: object, **__: object) -> None:
    raise DatabaseUnavailable("the database is away")


@pytest.mark.parametrize(("host", "expected"), [("here", 2), ("elsewhere", 1)])
def test_a_keeper_that_has_just_started_takes_over_only_from_processes_that_are_known_to_be_dead(
    inline: Inline, host: str, expected: int
) -> None:
    """As when a supervisor restarts the only worker of a machine."""
    calls: list[int] = []

    def dies_first() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise Killed

    inline.define("w", step(dies_first, name="a"))
    inline.rival.run("w", run_id="r")
    died = subprocess.Popen([sys.executable, "-c", ""])
    died.wait()
    own, executor, is_here = inline.process.executor.id, inline.process.executor, host == "here"
    inline.store.add_executor("dead", host_name() if is_here else host, died.pid, "w", 60 if is_here else -1)
    executor.id = "dead"
    with pytest.raises(Killed):
        inline.drain()
    executor.id = own
    inline.keeper.run_once()
    inline.drain()
    assert len(calls) == expected
