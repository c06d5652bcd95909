"""External steps on every store: an external system completes them, once; a late completion is refused and recorded."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import select, update

from rival_client import InvalidPayload, InvalidToken, Rival
from rival_client.api.async_client import AsyncRival
from rival_client.db.run_tables import steps
from rival_client.db.types import after, now
from rival_client.errors import RunNotFound
from rival_client.model.completion_token import CompletionToken
from rival_client.model.step_records import Step
from rival_client.sql import external_steps
from rival_client.sql.wake import wake_run
from rival_workers import StepError, for_each, parallel, step
from rival_workers.runtime.flow.stop_signals import Killed
from rival_workers.store.claim_records import Claim
from tests.support.inline import Clock, CollectingDoorbell, Inline
from tests.support.output import whole

pytestmark = pytest.mark.usefixtures("locks_in_order")

tokens: list[str] = []


@pytest.fixture(autouse=True)
def fresh() -> None:
    tokens.clear()


def ask(ctx: Any) -> None:
    tokens.append(ctx.completion_token)


def after_it(last_step: Any) -> Any:
    return {"got": last_step.result}


def define(inline: Inline, function: Any = ask, **options: Any) -> None:
    inline.define("w", step(function, name="ask", execution_mode="external", **options), after_it)


def start(inline: Inline, run_id: str = "r") -> str:
    """The token that its step has handed out."""
    inline.rival.run("w", None, run_id=run_id)
    inline.drain()
    return tokens[-1]


def the_step(inline: Inline, path: str = "ask", run_id: str = "r") -> Step:
    return next(one for one in inline.rival.state(run_id).steps if one.path == path)


def time_is_up(inline: Inline) -> None:
    """Whatever the step waits for should have come by now."""
    with inline.store.database.transaction() as connection:
        connection.execute(update(steps).where(steps.c.due_at.is_not(None)).values(due_at=after(-1), ring_at=after(-1)))


def keep(inline: Inline) -> None:
    inline.keeper.run_once()
    inline.drain()


def whats(inline: Inline, run_id: str = "r") -> list[str]:
    return [entry.what for entry in inline.rival.history(run_id)]


# -- completing -------------------------------------------------------------------------------------------


def test_an_external_step_waits_without_a_worker_or_a_message_until_it_is_completed(inline: Inline) -> None:
    define(inline)
    token = start(inline)
    assert inline.rival.state("r").status == "suspended"
    waiting = the_step(inline)
    assert (waiting.status, waiting.waits_for_external, waiting.result) == ("waiting", True, None)
    assert inline.doorbell.take() == []
    assert inline.store.next_look() is None, "nothing is due, whatever time passes"
    assert inline.rival.complete_step(token, {"price": 7})
    inline.drain()
    assert inline.rival.result("r").results == {"ask": {"price": 7}, "after_it": {"got": {"price": 7}}}
    assert tokens == [token], "its function was called once"
    assert the_step(inline).attempts == 1
    assert "completed_externally" in whats(inline)


def test_completing_twice_counts_once(inline: Inline) -> None:
    define(inline)
    token = start(inline)
    assert inline.rival.complete_step(token, 1)
    assert not inline.rival.complete_step(token, 2), "before anybody has looked"
    inline.drain()
    assert not inline.rival.complete_step(token, 3), "after the end"
    assert not inline.rival.fail_step(token, "no")
    assert inline.rival.result("r").results["ask"] == 1
    assert whats(inline).count("late_answer_refused") == 3


def test_an_answer_that_is_quicker_than_the_function_is_not_lost(inline: Inline) -> None:
    def quick(ctx: Any) -> None:
        ask(ctx)
        assert inline.rival.complete_step(ctx.completion_token, "quick")

    define(inline, quick)
    start(inline)
    assert inline.rival.result("r").results["ask"] == "quick"
    assert (len(tokens), the_step(inline).attempts) == (1, 1)


@pytest.mark.parametrize("how", ["raises", "times out", "dies"])
def test_an_answer_counts_however_the_function_ends_after_it(inline: Inline, how: str) -> None:
    """It was accepted, so its sender will not come again."""

    def quick(ctx: Any) -> None:
        ask(ctx)
        assert inline.rival.complete_step(ctx.completion_token, "quick")
        if how == "raises":
            raise StepError("the line broke", behavior="retry")
        if how == "times out":
            time_is_up(inline)
            inline.keeper.run_once()
        if how == "dies":
            raise Killed

    define(inline, quick, max_attempts=3, timeout=60)
    inline.rival.run("w", None, run_id="r")
    if how == "dies":
        with pytest.raises(Killed):
            inline.drain()
    inline.drain()
    assert inline.rival.result("r").results["ask"] == "quick"
    assert len(tokens) == 1


def test_a_message_that_is_lost_after_the_answer_was_committed_is_published_by_the_keeper(inline: Inline) -> None:
    define(inline)
    token = start(inline)
    inline.doorbell.down = True
    assert inline.rival.complete_step(token, 5)
    inline.doorbell.down = False
    with inline.store.database.transaction() as connection:
        connection.execute(update(steps).where(steps.c.path == "ask").values(ring_at=after(-1)))
    keep(inline)
    assert inline.rival.result("r").results["ask"] == 5


def test_a_worker_that_dies_with_an_answer_in_hand_leaves_it_to_the_next(inline: Inline) -> None:
    define(inline)
    token = start(inline)
    inline.rival.complete_step(token, 5)
    [message] = inline.doorbell.take()
    claim = Claim(message.run_id, message.path or "", message.token)
    assert inline.store.claim_step(claim, None, inline.process.executor.id) is not None
    [lost] = inline.store.running_on(inline.process.executor.id)
    inline.coordinator.transitions.take_over(lost)
    inline.drain()
    assert (inline.rival.result("r").results["ask"], len(tokens)) == (5, 1)


class Reply(BaseModel):
    price: int


def typed(ctx: Any) -> Reply:  # type: ignore[empty-body]
    ask(ctx)


def test_a_result_is_checked_and_restored_as_the_type_that_the_function_is_declared_to_return(inline: Inline) -> None:
    seen: list[Any] = []
    external = step(typed, name="ask", execution_mode="external")
    inline.define("w", external, step(lambda last_step: seen.append(last_step.result), name="look"))
    inline.rival.complete_step(start(inline, "good"), {"price": "7"})
    inline.rival.complete_step(start(inline, "bad"), {"prize": 7})
    inline.drain()
    assert seen == [Reply(price=7)]
    assert (inline.rival.result("bad").error or {})["type"] == "InvalidResult"


def test_a_result_has_the_limits_of_any_payload_and_a_token_that_is_none_is_an_error(inline: Inline) -> None:
    define(inline)
    token = start(inline)
    too_long = (
        "the result is 1,048,579 bytes, over the limit of 1,048,576. Store large things elsewhere and pass a "
        "reference, or raise RIVAL_MAX_PAYLOAD."
    )
    wrongs = ((object(), "the result is not JSON: object is not JSON"), ("x" * (1_048_576 + 1), too_long))
    for wrong, problem in wrongs:
        with pytest.raises(InvalidPayload, match=whole(problem)):
            inline.rival.complete_step(token, wrong)
    for nonsense in ("", "nonsense", token[:-1], token + "A", token.swapcase(), None):
        with pytest.raises(
            InvalidToken,
            match=whole(
                "This is not a token of an external step, or only a part of one. Give the whole text that "
                "`ctx.completion_token` has handed out; it begins with rvl_."
            ),
        ):
            inline.rival.complete_step(nonsense, 1)  # type: ignore[arg-type]
    assert inline.rival.complete_step(token, 1), "nothing has happened to it"


def test_the_async_client_completes_too(inline: Inline) -> None:
    define(inline, max_attempts=2)
    client = AsyncRival(sync=inline.rival)

    async def answer(token: str) -> list[bool]:
        return [
            await client.heartbeat_step(token, 0.5),
            await client.complete_step(token, 1),
            await client.fail_step(token, "x", retry=True),
        ]

    assert asyncio.run(answer(start(inline))) == [True, True, False]
    inline.drain()
    assert inline.rival.result("r").results["ask"] == 1


def test_external_steps_stand_in_composites_too(inline: Inline) -> None:
    named = {"execution_mode": "external"}
    inline.define(
        "w",
        parallel("both", [step(ask, **named), step(lambda: 1, name="other")]),
        for_each("lines", items=lambda: [1, 2], do=[step(ask, name="each", **named)], concurrency=2),
    )
    start(inline)
    assert inline.rival.complete_step(tokens[0], "a")
    inline.drain()
    assert len(tokens) == 3
    for token in reversed(tokens[1:]):
        assert inline.rival.complete_step(token, token)
        inline.drain()
    assert inline.rival.result("r").results == {
        "both": {"ask": "a", "other": 1},
        "both/ask": "a",
        "both/other": 1,
        "lines": tokens[1:],
    }


def test_what_the_function_has_noted_is_kept_and_one_that_skips_does_not_wait(inline: Inline) -> None:
    def noting(ctx: Any, state: Any, input: Any) -> None:
        ask(ctx)
        state.description = "asked"
        state.skipped = input

    inline.define("w", step(noting, name="ask", execution_mode="external"))
    inline.rival.run("w", True, run_id="skips")
    inline.rival.run("w", False, run_id="waits")
    inline.drain()
    assert the_step(inline, run_id="skips").status == "skipped"
    assert the_step(inline, run_id="waits").description == "asked"
    inline.rival.complete_step(tokens[-1], 1)
    inline.drain()
    assert (the_step(inline, run_id="waits").status, the_step(inline, run_id="waits").description) == (
        "completed",
        "asked",
    )


# -- failing ----------------------------------------------------------------------------------------------


def test_a_failure_from_outside_is_the_steps_failure_with_its_handler(inline: Inline) -> None:
    handled: list[Any] = []
    define(inline, on_error=lambda error: handled.append(error))
    assert inline.rival.fail_step(start(inline), "out of stock")
    inline.drain()
    error = inline.rival.result("r").error or {}
    assert (error["type"], error["message"], error["attempt"]) == ("ExternalFailure", "out of stock", 1)
    assert [one["message"] for one in handled] == ["out of stock"]


def test_with_retry_it_is_tried_again_with_a_new_token_as_long_as_it_has_attempts(inline: Inline) -> None:
    define(inline, max_attempts=2, backoff="none")
    first = start(inline)
    assert inline.rival.fail_step(first, ValueError("not now"), retry=True)
    inline.drain()
    assert len(tokens) == 2
    second = tokens[-1]
    assert not inline.rival.complete_step(first, "stale"), "a retry makes the token before it stale"
    assert inline.rival.fail_step(second, {"type": "Gone", "message": "for good"}, retry=True)
    inline.drain()
    state = inline.rival.state("r")
    assert (state.status, (state.error or {})["type"], the_step(inline).attempts) == ("failed", "Gone", 2)
    assert [(one.attempt, (one.error or {})["type"]) for one in state.attempts] == [(1, "ValueError"), (2, "Gone")]


# -- stale tokens -----------------------------------------------------------------------------------------


def test_an_answer_after_the_deadline_is_refused_even_before_the_keeper_has_looked(inline: Inline) -> None:
    define(inline, deadline=3600)
    token = start(inline)
    time_is_up(inline)
    assert not inline.rival.complete_step(token, 1)
    keep(inline)
    error = inline.rival.result("r").error or {}
    assert error["type"] == "StepTimeout"
    assert error["message"] == "no external system has completed attempt 1 within its deadline of 1 h"
    assert not inline.rival.complete_step(token, 1)
    assert whats(inline).count("late_answer_refused") == 2


def test_a_deadline_that_lets_it_retry_hands_out_a_new_token(inline: Inline) -> None:
    define(inline, deadline=3600, on_timeout="retry", max_attempts=2, backoff="none")
    first = start(inline)
    time_is_up(inline)
    keep(inline)
    assert (len(tokens), the_step(inline).waits_for_external) == (2, True)
    assert not inline.rival.complete_step(first, "old")
    assert inline.rival.complete_step(tokens[1], "new")
    inline.drain()
    assert inline.rival.result("r").results["ask"] == "new"


def test_a_cancel_makes_the_token_stale(inline: Inline) -> None:
    define(inline)
    token = start(inline)
    assert inline.rival.cancel("r")
    assert not inline.rival.complete_step(token, 1)
    assert not inline.rival.heartbeat_step(token)
    assert inline.rival.state("r").status == "cancelled"


@pytest.mark.parametrize("ended", [False, True])
def test_a_rewind_makes_the_token_stale(inline: Inline, ended: bool) -> None:
    define(inline)
    first = start(inline)
    if ended:
        inline.rival.complete_step(first, "first")
        inline.drain()
    inline.rival.rewind("r", "ask")
    inline.drain()
    assert len(tokens) == 2
    assert not inline.rival.complete_step(first, "again")
    assert inline.rival.complete_step(tokens[1], "second")
    inline.drain()
    assert inline.rival.result("r").results["ask"] == "second"


def test_a_token_of_an_unknown_run_is_stale(inline: Inline) -> None:
    define(inline)
    token = start(inline)
    inline.rival.complete_step(token)
    inline.drain()
    inline.store.delete_ended_before(-10.0, 10, "w")
    assert not inline.rival.complete_step(token)
    with pytest.raises(RunNotFound):
        inline.rival.history("r")


def test_an_operator_can_end_a_step_that_gets_no_answer(inline: Inline) -> None:
    define(inline)
    token = start(inline)
    inline.rival.set_result("r", "ask", 9, reason="the vendor has closed")
    inline.drain()
    assert inline.rival.result("r").results["ask"] == 9
    assert not inline.rival.complete_step(token, 1)


def test_a_paused_run_takes_its_answer_and_goes_on_when_it_is_resumed(inline: Inline) -> None:
    define(inline)
    token = start(inline)
    inline.rival.pause("r")
    assert inline.rival.complete_step(token, 1)
    inline.drain()
    assert inline.rival.state("r").status == "running"
    inline.rival.resume("r")
    inline.drain()
    assert inline.rival.result("r").status == "completed"


# -- races ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", ["answer", "deadline"])
def test_of_a_deadline_and_an_answer_at_the_same_moment_exactly_one_counts(postgres_url: str, first: str) -> None:
    """Each holds the row when the other comes; the one that comes waits for it, and finds the step moved on."""
    inline = Inline(postgres_url)
    try:
        define(inline, deadline=3600)
        token = start(inline)
        answered = _forced(inline, token, first)
        keep(inline)
        inline.drain()
        result = inline.rival.result("r")
        assert answered == (first == "answer")
        assert result.status == ("completed" if answered else "failed")
    finally:
        inline.close()


def _forced(inline: Inline, token: str, first: str) -> bool:
    """`first` has the row's lock, and commits only when the other one waits for it."""
    database = inline.store.database
    message = inline.store.token_of("r", "ask")
    assert message is not None
    with ThreadPoolExecutor(1) as threads, database.transaction() as connection:
        if first == "answer":
            # From here on it is in time, whatever the clock shows when it has the row.
            connection.execute(select(now()))
            time_is_up_now(inline)
            given = external_steps.completed(1, 1000)
            assert external_steps.answer_step(connection, CompletionToken.parse(token), given, "test", 0.0)
            other = threads.submit(inline.store.claim_step, Claim("r", "ask", message[1]), None, "other")
        else:
            connection.execute(
                update(steps)
                .where(steps.c.path == "ask", steps.c.status == "waiting", steps.c.execution_token == message[1])
                .values(
                    status="running",
                    execution_token=steps.c.execution_token + 1,
                    attempts=1,
                    executor_id=inline.process.executor.id,
                )
            )
            wake_run(connection, "r")
            other = threads.submit(inline.rival.complete_step, token, 1)
        assert not _done(other), "it waits for the row"
        connection.commit()
        outcome = other.result(10)
    if first == "answer":
        assert outcome is None, "the claim of the deadline is stale"
        return True
    [running] = inline.store.running_on(inline.process.executor.id)
    inline.coordinator.transitions.take_over(running)
    return bool(outcome)


def time_is_up_now(inline: Inline) -> None:
    with inline.store.database.transaction() as connection:
        connection.execute(update(steps).where(steps.c.path == "ask").values(due_at=now()))


def _done(job: Any) -> bool:
    try:
        job.result(0.3)
    except TimeoutError:
        return False
    return True


def test_of_many_who_answer_at_once_exactly_one_is_heard(postgres_url: str) -> None:
    inline = Inline(postgres_url)
    try:
        define(inline)
        token = start(inline)
        gate = threading.Barrier(8)

        def answer(n: int) -> bool:
            gate.wait()
            return inline.rival.complete_step(token, n)

        with ThreadPoolExecutor(8) as threads:
            heard = list(threads.map(answer, range(8)))
        inline.drain()
        assert heard.count(True) == 1
        assert inline.rival.result("r").results["ask"] == heard.index(True)
    finally:
        inline.close()


def test_a_run_is_not_deleted_beside_the_history_entry_of_a_late_answer(postgres_url: str) -> None:
    """Otherwise the entry is left without a run, and no retention ever comes to it."""
    inline = Inline(postgres_url)
    try:
        define(inline)
        token = start(inline)
        inline.rival.complete_step(token)
        inline.drain()
        with inline.store.database.transaction() as connection:
            late = external_steps.answer_step(
                connection, CompletionToken.parse(token), external_steps.completed(2, 9), "late", 0.0
            )
            assert late is None
            assert inline.store.delete_ended_before(-10.0, 10, "w") == 0, "the run is locked: its next round"
        assert whats(inline).count("late_answer_refused") == 1
        assert inline.store.delete_ended_before(-10.0, 10, "w") == 1
        with pytest.raises(RunNotFound):
            inline.rival.history("r")
    finally:
        inline.close()


# -- heartbeats from an external system -------------------------------------------------------------------


def test_a_beat_from_outside_puts_the_time_off_but_not_beyond_the_deadline(file_url: str) -> None:
    clock = Clock()
    inline = Inline(file_url, clock=clock)
    try:
        define(inline, heartbeat=60, deadline=100)
        token = start(inline)
        clock.advance(50)
        assert inline.rival.heartbeat_step(token, {"done": 1})
        waiting = the_step(inline)
        assert (waiting.progress, waiting.due_at) == ({"done": 1}, waiting.timeout_at), "100 s, not 110"
        clock.advance(49)
        keep(inline)
        assert the_step(inline).waits_for_external
        clock.advance(2)
        keep(inline)
        assert (inline.rival.result("r").error or {})["message"] == (
            "no external system has completed attempt 1 within its deadline of 100 s"
        )
        assert not inline.rival.heartbeat_step(token)
    finally:
        inline.close()


def test_a_heartbeat_after_the_message_for_its_deadline_puts_off_no_message_for_long(file_url: str) -> None:
    """What is far is a row and the keeper's look; a message that waits for an hour would not outlive its broker's
    patience."""
    clock = Clock()
    inline = Inline(file_url, clock=clock)
    try:
        define(inline, heartbeat=3600)
        token = start(inline)
        clock.advance(3597)
        keep(inline)
        inline.rival.heartbeat_step(token)
        clock.advance(4)
        inline.drain()
        assert (inline.later, the_step(inline).waits_for_external) == ([], True)
        clock.advance(3597)
        keep(inline)
        assert inline.rival.state("r").status == "failed"
    finally:
        inline.close()


def test_a_missed_beat_from_outside_is_a_timeout_that_says_when_the_last_one_was(file_url: str) -> None:
    clock = Clock()
    inline = Inline(file_url, clock=clock)
    try:
        define(inline, heartbeat=10, deadline=1000, on_timeout="retry", max_attempts=2, backoff="none")
        token = start(inline)
        for _ in range(5):
            clock.advance(8)
            assert inline.rival.heartbeat_step(token)
            keep(inline)
        clock.advance(10.01)
        keep(inline)
        [missed] = inline.rival.state("r").attempts
        assert (missed.error or {})["type"] == "HeartbeatMissed"
        assert (missed.error or {})["message"] == (
            "attempt 1 sent no heartbeat for 10 s; the last was at 2023-11-14 22:14:00 UTC"
        )
        assert not inline.rival.complete_step(token, 1)
        assert inline.rival.complete_step(tokens[1], 2)
        inline.drain()
        assert inline.rival.result("r").results["ask"] == 2
    finally:
        inline.close()


def test_a_client_needs_no_broker_to_complete_a_step(inline: Inline) -> None:
    """It commits, and the next reader finds it."""
    define(inline)
    token = start(inline)
    silent = CollectingDoorbell()
    silent.down = True
    other = Rival(settings=inline.rival.settings, database=inline.store.database, doorbell=silent)
    assert other.complete_step(token, 1)
    with inline.store.database.transaction() as connection:
        connection.execute(update(steps).where(steps.c.path == "ask").values(ring_at=after(-1)))
    keep(inline)
    assert inline.rival.result("r").status == "completed"
