"""Heartbeats on every store: a step without heartbeats is timed out, others are not; progress can be read."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import event, update

from rival_client import InvalidPayload
from rival_client.db.run_tables import steps
from rival_client.db.types import after
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.step_records import Step
from rival_workers import StepError, StepFailed, StepMovedOn, flow, step
from rival_workers.store.claim_records import Claim, Claimed
from rival_workers.testing import Lab
from tests.contract.stage import CountedDown, Stage
from tests.support.inline import Inline
from tests.support.output import whole

BEATS = StepConfig(heartbeat=100, timeout=250)


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab() as opened:
        yield opened


def ran(inline: Inline, function: Callable[..., Any], **options: Any) -> Step:
    inline.define("w", step(function, name="work", **options))
    inline.rival.run("w", None, run_id="r")
    inline.drain()
    return inline.rival.state("r").steps[0]


# -- the store --------------------------------------------------------------------------------------------


def test_a_beat_gives_more_time_but_not_more_than_the_timeout(stage: Stage) -> None:
    claim = stage.begin(executor=None)
    claimed = stage.store.claim_step(claim, BEATS.limit, "e1")
    assert isinstance(claimed, Claimed)
    mine = Claim("r", "a", claimed.token)
    left = []
    for passed in (0, 80, 90, 60):
        stage.time_passes(passed)
        beaten = stage.store.beat_step(mine, BEATS, None)
        assert beaten is not None
        assert stage.now_plus("ring_at") == CountedDown(beaten.left), "the keeper looks when it is over"
        left.append(beaten.left)
    assert left == [CountedDown(seconds) for seconds in (100, 100, 80, 20)]


def test_a_beat_that_comes_too_late_revives_nothing(stage: Stage) -> None:
    claim = stage.begin(executor=None)
    claimed = stage.store.claim_step(claim, BEATS.limit, "e1")
    assert isinstance(claimed, Claimed)
    stage.time_passes(110)
    before = stage.everything()
    assert stage.store.beat_step(Claim("r", "a", claimed.token), BEATS, None) is None
    assert stage.everything() == before


# -- progress ---------------------------------------------------------------------------------------------


def test_progress_is_seen_while_the_step_runs_and_after_it(inline: Inline) -> None:
    seen: list[Any] = []

    def work(ctx: Any) -> None:
        ctx.heartbeat(progress={"done": 1, "of": 2})
        seen.append(inline.rival.state("r").steps[0])
        ctx.heartbeat(progress={"done": 2, "of": 2})

    after_it = ran(inline, work)
    assert (seen[0].status, seen[0].progress) == ("running", {"done": 1, "of": 2})
    assert seen[0].heartbeat_at >= seen[0].started_at
    assert (after_it.status, after_it.progress) == ("completed", {"done": 2, "of": 2}), "the last one is not lost"


def test_a_step_that_beats_in_a_tight_loop_writes_a_few_times_and_one_that_does_not_never(inline: Inline) -> None:
    writes: list[str] = []

    @event.listens_for(inline.store.database.engine, "before_cursor_execute")
    def count(_c: Any, _u: Any, statement: str, *_: Any) -> None:
        if statement.startswith("UPDATE rival_steps") and "heartbeat_at" in statement:
            writes.append(statement)

    def work(ctx: Any) -> None:
        for n in range(2000):
            ctx.heartbeat(progress=n)

    assert ran(inline, work).progress == 1999
    assert 2 <= len(writes) <= 8
    writes.clear()
    inline.define("still", step(lambda: 1, name="work", heartbeat=60))
    inline.rival.run("still", None, run_id="s")
    inline.drain()
    assert (inline.rival.result("s").status, writes) == ("completed", [])


def test_a_retry_can_read_how_far_the_attempt_before_it_had_come(inline: Inline) -> None:
    read: list[Any] = []

    def work(ctx: Any, run: Any) -> None:
        if run.attempt == 2:
            ctx.heartbeat(progress="second")
        read.append(ctx.last_progress)
        if run.attempt == 1:
            ctx.heartbeat(progress={"page": 7})
            raise StepError("again", behavior="retry")

    assert ran(inline, work, max_attempts=2, backoff="none").progress == "second"
    assert read == [None, {"page": 7}]


def test_progress_that_is_not_json_is_the_steps_failure(inline: Inline) -> None:
    def work(ctx: Any) -> None:
        with pytest.raises(
            InvalidPayload, match=whole("the progress of step 'work' of run 'r' is not JSON: object is not JSON")
        ):
            ctx.heartbeat(progress=object())

    assert ran(inline, work).status == "completed"


# -- moving on --------------------------------------------------------------------------------------------


def test_a_heartbeat_raises_when_the_run_has_continued_without_the_step(inline: Inline) -> None:
    errors: list[str] = []

    def work(ctx: Any) -> None:
        inline.rival.cancel("r")
        try:
            ctx.heartbeat()
        except StepMovedOn as error:
            errors.append(str(error))
            raise

    assert ran(inline, work).status == "cancelled"
    assert errors == [
        "step 'work' of run 'r' has continued without this attempt: it was cancelled, has timed out, or was taken over"
    ]


def test_the_keeper_times_out_a_step_whose_process_is_too_stuck_to_do_it(inline: Inline) -> None:
    """As if its process were frozen: only the row shows it."""

    def work(ctx: Any) -> None:
        ctx.heartbeat()
        with inline.store.database.transaction() as connection:
            stuck = {"timeout_at": after(-1), "ring_at": after(-1), "heartbeat_at": after(-61)}
            connection.execute(update(steps).values(stuck | {"started_at": after(-90)}))
        inline.keeper.run_once()
        with pytest.raises(StepMovedOn):
            ctx.beats._write()

    ran(inline, work, heartbeat=60)
    error = inline.rival.result("r").error or {}
    assert error["type"] == "HeartbeatMissed"
    assert error["message"].startswith("attempt 1 sent no heartbeat for 60 s; the last was at ")


# -- by the clock -----------------------------------------------------------------------------------------


def is_just_after(end: dt.datetime | None, start: dt.datetime | None, seconds: float) -> bool:
    """Never early. The clock of a lab goes on by microseconds whenever something happens."""
    assert start is not None
    assert end is not None
    return 0 <= (end - start).total_seconds() - seconds < 0.001


def test_a_step_that_beats_may_take_its_time_and_one_that_stops_is_timed_out(lab: Lab) -> None:
    def work(ctx: Any, run: Any) -> str:
        for n in range(10):
            lab.advance(50)
            ctx.heartbeat(progress=n)
        if run.attempt == 1:
            lab.advance(61)
        return f"after {ctx.last_progress}"

    options = {"heartbeat": dt.timedelta(seconds=60), "on_timeout": "retry", "max_attempts": 2}
    lab.register([step(work, **options)], name="w")
    run = lab.run("w")
    assert run.result == "after 9"
    [missed, done] = lab.rival.state(run.run_id).attempts
    assert (missed.outcome, (missed.error or {})["type"], done.outcome) == ("timed_out", "HeartbeatMissed", "completed")
    assert is_just_after(missed.ended_at, missed.started_at, 560)


def test_a_step_that_never_beats_is_timed_out_and_gets_an_error(lab: Lab) -> None:
    lab.register([step(lambda: None, name="work", heartbeat=5)], name="w")
    lab.time_out("work")
    run = lab.run("w")
    run.assert_failed(step="work", error="HeartbeatMissed")
    message = (lab.rival.state(run.run_id).error or {})["message"]
    assert message == "attempt 1 sent no heartbeat for 5 s; it sent none at all"


def test_beating_does_not_put_off_the_timeout_itself(lab: Lab) -> None:
    def work(ctx: Any) -> None:
        for _ in range(10):
            lab.advance(8)
            ctx.heartbeat()

    lab.register([step(work, heartbeat=10, timeout=30)], name="w")
    run = lab.run("w")
    run.assert_failed(step="work", error="StepTimeout")
    message = (lab.rival.state(run.run_id).error or {})["message"]
    assert message.endswith("attempt 1 took longer than its timeout of 30 s")


# -- steps of flows ---------------------------------------------------------------------------------------


def test_a_flows_step_that_beats_may_take_its_time_and_one_that_stops_is_timed_out(lab: Lab) -> None:
    tries: list[int] = []

    @flow("f", register=False)
    def body(ctx: Any) -> Any:
        def work() -> str:
            tries.append(len(tries))
            for n in range(10):
                lab.advance(50)
                ctx.heartbeat(progress=n)
            if len(tries) == 1:
                lab.advance(61)
            return f"after {len(tries)}"

        return ctx.step(work, heartbeat=dt.timedelta(seconds=60), on_timeout="retry", max_attempts=2)

    lab.register([body], name="w")
    run = lab.run("w")
    assert (run.result, tries) == ("after 2", [0, 1])
    state = lab.rival.state(run.run_id)
    assert [(row.path, row.attempts, row.progress) for row in state.steps] == [("f", 1, 9), ("f/work", 2, None)]
    [missed] = [entry for entry in lab.rival.history(run.run_id) if entry.what == "retried"]
    assert missed.detail["error"]["type"] == "HeartbeatMissed"
    assert missed.detail["error"]["message"].startswith("attempt 1 sent no heartbeat for 60 s; the last was at ")


def test_a_flows_step_that_never_beats_fails_and_says_so(lab: Lab) -> None:
    @flow("f", register=False)
    def body(ctx: Any) -> Any:
        try:
            ctx.step(lambda: lab.advance(6), name="still", heartbeat=5)
        except StepFailed as failed:
            return failed.error

    lab.register([body], name="w")
    error = lab.run("w").result
    message = "attempt 1 sent no heartbeat for 5 s; it sent none at all"
    assert (error["type"], error["message"]) == ("HeartbeatMissed", message)


def test_beating_does_not_put_off_the_timeout_of_a_flows_step(lab: Lab) -> None:
    @flow("f", register=False)
    def body(ctx: Any) -> Any:
        def work() -> None:
            for _ in range(10):
                lab.advance(8)
                ctx.heartbeat()

        ctx.step(work, heartbeat=10, timeout=30)

    lab.register([body], name="w")
    run = lab.run("w")
    message = (lab.rival.state(run.run_id).error or {})["message"]
    assert message.endswith("attempt 1 took longer than its timeout of 30 s")


def test_each_of_the_steps_that_a_flow_gathers_beats_for_itself(inline: Inline) -> None:
    """One beats all the time, the other never: only that one is timed out."""
    over = threading.Event()

    @flow("f", register=False)
    def body(ctx: Any) -> Any:
        def beats() -> str:
            while not over.wait(0.05):
                ctx.heartbeat()
            return "done"

        def silent() -> None:
            assert over.wait(20)

        ctx.gather(beats, silent, heartbeat=0.8)

    inline.define("w", body)
    inline.rival.run("w", run_id="r")
    threading.Timer(1.5, over.set).start()
    inline.drain()
    inline.drain()
    checkpoints = {row.path: row for row in inline.rival.state("r").steps}
    assert (checkpoints["f/silent"].error or {})["type"] == "HeartbeatMissed"
    assert "f/beats" not in checkpoints or checkpoints["f/beats"].error is None


def test_an_external_step_in_a_lab_is_completed_by_the_test_or_runs_into_its_deadline(lab: Lab) -> None:
    tokens: list[str] = []
    ask = step(lambda ctx: tokens.append(ctx.completion_token), name="ask", execution_mode="external", deadline=86_400)
    lab.register([ask], name="w")
    answered, silent = lab.start("w"), lab.start("w")
    lab.advance(3600)
    assert lab.rival.complete_step(tokens[0], 7)
    assert answered.finish().result == 7
    silent.finish().assert_failed(step="ask", error="StepTimeout")
    state = lab.rival.state(silent.run_id)
    assert is_just_after(state.completed_at, state.created_at, 86_400)
