"""Dead letters: failed steps that operators list, redrive and drop; and the budget of a run's retries."""

from __future__ import annotations

import asyncio
import datetime as dt
from typing import Any

import pytest

from rival_client import AsyncRival, DeadLetterFilter, InvalidArgument
from rival_workers import StepError, for_each, parallel, step, value
from tests.support.inline import Inline
from tests.support.output import whole
from tests.support.workers import wait_until

CLOSED = {"now": True}


def charge(input: Any) -> str:
    if CLOSED["now"]:
        raise ConnectionError("the bank is closed")
    return "paid"


@pytest.fixture(autouse=True)
def bank() -> None:
    CLOSED["now"] = True


def failed_runs(inline: Inline, count: int, **options: Any) -> None:
    inline.define("pay", step(charge, on_failure="dead_letter", **options))
    for number in range(count):
        inline.rival.run("pay", {}, run_id=f"r{number}")
    inline.drain()


def letters(inline: Inline, **chosen: Any) -> list[tuple[str, str]]:
    return [(one.run_id, one.path) for one in inline.rival.dead_letters(DeadLetterFilter(**chosen))]


def entries(inline: Inline, run_id: str, path: str) -> list[str]:
    return [entry.what for entry in inline.rival.history(run_id) if entry.path == path]


def test_a_failed_step_is_a_dead_letter_in_the_commit_of_its_failure(inline: Inline) -> None:
    failed_runs(inline, 1)
    [one] = inline.rival.dead_letters()
    assert (one.run_id, one.path, one.workflow) == ("r0", "charge", "pay")
    assert (one.error_type, one.message) == ("ConnectionError", "the bank is closed")
    assert inline.rival.result("r0").status == "failed"
    assert entries(inline, "r0", "charge") == ["claimed", "failed", "dead_lettered"]


@pytest.mark.parametrize("fallback", [value(1), None, lambda: 1 / 0])
def test_only_a_step_whose_fallback_fails_too_is_a_dead_letter(inline: Inline, fallback: Any) -> None:
    failed_runs(inline, 1, fallback=fallback)
    assert bool(letters(inline)) == (inline.rival.result("r0").status == "failed")


def test_a_redriven_step_starts_again_and_is_not_a_dead_letter_any_more(inline: Inline) -> None:
    failed_runs(inline, 1)
    CLOSED["now"] = False
    assert inline.rival.redrive(["r0"], by="ana").done == ("r0",)
    inline.drain()
    assert inline.rival.result("r0").result == "paid"
    assert letters(inline) == []
    assert entries(inline, "r0", "charge") == [
        "claimed",
        "failed",
        "dead_lettered",
        "redriven",
        "scheduled",
        "claimed",
        "completed",
    ]
    [redriven] = [entry for entry in inline.rival.history("r0") if entry.what == "redriven"]
    assert redriven.by == "ana"


def test_a_step_that_fails_again_is_a_dead_letter_again(inline: Inline) -> None:
    failed_runs(inline, 1)
    inline.rival.redrive(DeadLetterFilter(workflow="pay"))
    inline.drain()
    assert letters(inline) == [("r0", "charge")]


@pytest.mark.parametrize("verb", ["retry", "rewind", "skip"])
def test_other_verbs_of_operators_take_the_dead_letter_along(inline: Inline, verb: str) -> None:
    failed_runs(inline, 1)
    match verb:
        case "retry":
            inline.rival.retry("r0")
        case "rewind":
            inline.rival.rewind("r0", "charge")
        case "skip":
            inline.rival.skip("r0", "charge", reason="test")
    assert letters(inline) == []


def test_a_bulk_redrive_is_spread_over_time(inline: Inline) -> None:
    failed_runs(inline, 6)
    CLOSED["now"] = False
    done = inline.rival.redrive(DeadLetterFilter(error="CLOSED"), limit=5, rate=10)
    assert len(done.done) == 5
    delays = sorted(message.countdown for message in inline.doorbell.messages)
    assert delays == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])
    assert len(letters(inline)) == 1

    def all_paid() -> bool:
        if inline.clock is not None:
            inline.clock.advance(0.1)
        inline.drain()
        return len(inline.rival.runs(status="completed")) == 5

    wait_until(all_paid)


def test_a_preview_changes_nothing_and_a_run_without_dead_letters_is_refused(inline: Inline) -> None:
    failed_runs(inline, 1)
    inline.rival.run("pay", {}, run_id="other")
    assert inline.rival.redrive(["r0"], dry_run=True).done == ("r0",)
    assert letters(inline) == [("r0", "charge")]
    refused = inline.rival.redrive(["other", "unknown"]).refused
    assert refused == {
        "other": "Cannot redrive run 'other': it has no dead letters (`rival dlq ls` lists them). Nothing was changed.",
        "unknown": "Unknown run 'unknown'. `rival ls` lists the runs.",
    }
    for verb in (inline.rival.redrive, inline.rival.drop_dead_letters):
        with pytest.raises(
            InvalidArgument,
            match=whole("Invalid argument chosen: give a list of run ids, ['r0'], or DeadLetterFilter(…)."),
        ):
            verb("r0")


def test_a_redrive_says_whether_the_filter_selects_more(inline: Inline) -> None:
    failed_runs(inline, 3)
    chosen = DeadLetterFilter(workflow="pay")
    found = [inline.rival.redrive(chosen, limit=limit, dry_run=True) for limit in (2, 3, 4)]
    assert [(len(one.done), one.more) for one in found] == [(2, True), (3, False), (3, False)]
    assert not inline.rival.redrive(["r0"], limit=1, dry_run=True).more
    for verb in (inline.rival.redrive, inline.rival.drop_dead_letters):
        for which in (chosen, ["r0"]):
            with pytest.raises(InvalidArgument, match="limit"):
                verb(which, limit=0)


def test_a_run_that_has_continued_without_the_step_is_not_redriven(inline: Inline) -> None:
    each = for_each("lines", items=lambda: [1], do=[step(charge, on_failure="dead_letter")], on_failure="continue")
    inline.define("pay", each)
    inline.rival.run("pay", {}, run_id="r")
    inline.drain()
    assert letters(inline, step="charge") == [("r", "lines[0]/charge")]
    assert inline.rival.redrive(["r"]).refused["r"] == (
        "Cannot redrive run 'r': it is completed, and has continued without the step: rewind it to the step instead. "
        "Nothing was changed."
    )


def test_a_dropped_dead_letter_leaves_its_run_failed(inline: Inline) -> None:
    failed_runs(inline, 2)
    assert inline.rival.drop_dead_letters(["r0", "unknown"], by="ana") == 1
    assert letters(inline) == [("r1", "charge")]
    assert inline.rival.result("r0").status == "failed"
    assert entries(inline, "r0", "charge")[-1] == "dead_letter_dropped"
    assert inline.rival.drop_dead_letters(DeadLetterFilter()) == 1


def test_retention_leaves_runs_with_dead_letters(inline: Inline) -> None:
    failed_runs(inline, 2)
    inline.rival.drop_dead_letters(["r0"])
    if inline.clock is not None:
        inline.clock.advance(10)
    assert inline.store.delete_ended_before(-1, 10, "pay") == 1
    assert [run.run_id for run in inline.rival.runs()] == ["r1"]


def test_dead_letters_are_found_by_workflow_step_error_and_time(inline: Inline) -> None:
    failed_runs(inline, 3)
    for chosen in ({"workflow": "pay"}, {"step": "charge"}, {"error": "connectionerror: the"}, {"run_id": "r1"}):
        assert letters(inline, **chosen)
    for chosen in (
        {"workflow": "x"},
        {"step": "arge"},
        {"error": "%"},
        {"since": dt.datetime(2100, 1, 1, tzinfo=dt.UTC)},
    ):
        assert letters(inline, **chosen) == []
    first, *_ = inline.rival.dead_letters(limit=1)
    assert [one.run_id for one in inline.rival.dead_letters(after=first)] == ["r1", "r0"]
    for wrong in ({"workflow": 3}, {"since": "now"}):
        with pytest.raises(InvalidArgument):
            letters(inline, **wrong)


def test_the_async_client_has_the_same_verbs(inline: Inline) -> None:
    failed_runs(inline, 2)

    async def use() -> tuple[int, tuple[str, ...], int]:
        rival = AsyncRival(sync=inline.rival)
        found = await rival.dead_letters()
        redriven = await rival.redrive(["r0"])
        return len(found), redriven.done, await rival.drop_dead_letters(["r1"])

    assert asyncio.run(use()) == (2, ("r0",), 1)


# -- the budget of retries ------------------------------------------------------------------------------------


def busy() -> None:
    raise StepError("busy", behavior="retry")


def test_the_steps_of_a_run_share_its_budget_of_retries(inline: Inline) -> None:
    options: Any = {"max_attempts": 10, "base_delay": 0, "retry_budget": 3}
    lanes = [step(busy, name=f"s{number}", **options) for number in range(3)]
    inline.define("pay", parallel("all", lanes, on_failure="wait"))
    inline.rival.run("pay", {}, run_id="r")
    inline.drain()
    state = inline.rival.state("r")
    tried = [one for one in state.steps if one.path.startswith("all/")]
    assert sum(one.retry_count for one in tried) == 3
    assert {(one.error or {})["type"] for one in tried} == {"RetryBudgetSpent"}
    left = [entry.detail["budget_left"] for entry in inline.rival.history("r") if entry.what == "retried"]
    assert left == [2, 1, 0]


def test_a_retry_that_finds_the_budget_spent_in_its_commit_fails_the_step(inline: Inline, monkeypatch: Any) -> None:
    inline.define("pay", step(busy, max_attempts=5, base_delay=0, retry_budget=1))
    seen = iter([0, 0])
    real = inline.store.retries_of
    monkeypatch.setattr(inline.store, "retries_of", lambda run_id: next(seen, None) or real(run_id))
    inline.rival.run("pay", {}, run_id="r")
    inline.drain()
    found = inline.rival.result("r")
    assert (found.status, found.error["type"]) == ("failed", "RetryBudgetSpent")
    assert inline.rival.state("r").steps[0].attempts == 2


def test_an_operators_retry_begins_with_the_whole_budget(inline: Inline) -> None:
    inline.define("pay", step(busy, max_attempts=5, base_delay=0, retry_budget=1))
    inline.rival.run("pay", {}, run_id="r")
    inline.drain()
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.state("r").steps[0].attempts == 2
