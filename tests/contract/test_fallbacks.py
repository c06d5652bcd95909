"""What a step does instead of failing: a value, one more attempt, a function; and what follows if that fails, too."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel

from rival_workers import Registry, RetryWith, StepError, branch, flow, for_each, retry_with, step, value
from rival_workers.engine.interpreter import first
from tests.support.inline import Inline
from tests.support.workers import wait_until


class Receipt(BaseModel):
    number: int


def broken() -> None:
    raise ValueError("the bank is closed")


def last(last_step: Any) -> Any:
    return ["after", last_step.status, last_step.result]


def result_of(inline: Inline, *steps: Any, **options: Any) -> Any:
    inline.define("pay", *steps, **options)
    inline.rival.run("pay", {"amount": 7}, run_id="r")
    inline.drain()
    return inline.rival.result("r")


def time_passes(inline: Inline) -> None:
    if inline.clock is not None:
        inline.clock.advance(1)
    inline.keeper.run_once()


def entries(inline: Inline, path: str | None) -> list[str]:
    return [entry.what for entry in inline.rival.history("r") if entry.path == path]


def test_a_value_completes_the_step_in_the_commit_of_its_failure(inline: Inline) -> None:
    found = result_of(inline, step(broken, fallback=value({"paid": False})), last)
    assert found.result == ["after", "completed", {"paid": False}]
    [first, *_] = inline.rival.state("r").steps
    assert (first.status, first.error, first.attempts) == ("completed", None, 1)
    assert first.fallback == {
        "shape": "value",
        "error": {"type": "ValueError", "message": "the bank is closed", "attempt": 1},
    }
    assert first.last_error is not None
    assert entries(inline, "broken") == ["claimed", "fell_back", "completed"]


@pytest.mark.parametrize("by", ["run", "fleet"])
def test_a_value_of_a_rule_that_is_not_of_the_type_of_the_result_is_not_stored(inline: Inline, by: str) -> None:
    def count() -> Receipt:
        raise ValueError("the bank is closed")

    inline.define("pay", count, last)
    rule: dict[str, Any] = {"fallback": {"value": {"number": "none"}}}
    if by == "fleet":
        inline.rival.set_policy("count", rule)
        inline.keeper.run_once()
    inline.rival.run("pay", {}, run_id="r", **({"policies": [("count", rule)]} if by == "run" else {}))
    inline.drain()
    found = inline.rival.result("r")
    assert (found.status, found.failed_step) == ("failed", "count")
    assert found.error is not None
    del found.error["traceback"]
    assert found.error == {
        "type": "InvalidResult",
        "message": "the result of value(…), the fallback of step 'count' of run 'r', is not of type Receipt: number: "
        "Input should be a valid integer, unable to parse string as an integer",
        "attempt": 1,
        "cause": {"type": "ValueError", "message": "the bank is closed"},
    }


def test_retry_with_makes_one_more_attempt_with_other_values(inline: Inline) -> None:
    seen = []

    def ask(ctx: Any) -> str:
        seen.append(ctx.overrides)
        if not ctx.overrides:
            raise StepError("busy", behavior="retry")
        return str(ctx.overrides["model"])

    found = result_of(inline, step(ask, max_attempts=2, base_delay=0, fallback=retry_with(model="mini")))
    assert found.result == "mini"
    assert seen == [{}, {}, {"model": "mini"}]
    assert entries(inline, "ask") == ["claimed", "retried", "claimed", "fell_back", "retried", "claimed", "completed"]


def test_the_attempt_with_other_values_is_the_last_one(inline: Inline) -> None:
    def ask(ctx: Any) -> None:
        raise StepError(f"busy {ctx.overrides}", behavior="retry")

    found = result_of(inline, step(ask, max_attempts=3, base_delay=0, fallback=retry_with(model="mini")))
    assert (found.status, found.error["message"]) == ("failed", "busy {'model': 'mini'}")
    assert inline.rival.state("r").steps[0].attempts == 4


def test_a_function_is_a_step_of_its_own_and_its_result_that_of_the_step(inline: Inline) -> None:
    def cached(error: Any, failed_step: Any, input: Any, steps: Any) -> Any:
        return [error["message"], failed_step.status, input["amount"]]

    found = result_of(inline, step(broken, fallback=cached), last)
    assert found.result == ["after", "completed", ["the bank is closed", "waiting", 7]]
    assert found.results["broken"] == ["the bank is closed", "waiting", 7]
    assert [(one.path, one.kind) for one in inline.rival.state("r").steps][1] == ("broken!fallback", "fallback")
    assert entries(inline, "broken") == ["claimed", "fell_back", "completed"]


def test_a_function_can_ask_for_one_more_attempt(inline: Inline) -> None:
    def ask(ctx: Any) -> str:
        if not ctx.overrides:
            raise ValueError("busy")
        return str(ctx.overrides["model"])

    def cheaper(error: Any) -> RetryWith:
        return RetryWith(model="mini" if error["type"] == "ValueError" else "none")

    found = result_of(inline, step(ask, fallback=cheaper), last)
    assert found.result == ["after", "completed", "mini"]
    assert inline.rival.state("r").steps[0].fallback["overrides"] == {"model": "mini"}  # type: ignore[index]


def test_a_fallback_that_fails_leaves_the_error_of_the_step(inline: Inline) -> None:
    def worse() -> None:
        raise KeyError("no cache")

    handled = []

    def handler(error: Any, failed_step: Any) -> None:
        handled.append((error["type"], failed_step.status))

    found = result_of(inline, step(broken, fallback=worse, on_error=handler), last)
    assert (found.status, found.failed_step, found.error["type"]) == ("failed", "broken", "ValueError")
    assert handled == [("ValueError", "failed")]
    failed = inline.rival.state("r").steps[0].error
    assert failed is not None
    assert "step" not in failed


def test_a_fallback_that_is_skipped_skips_its_step(inline: Inline) -> None:
    def nothing(state: Any) -> None:
        state.skipped = True

    found = result_of(inline, step(broken, fallback=nothing), last)
    assert found.result == ["after", "skipped", None]


@pytest.mark.parametrize("fallback", [None, retry_with(model="mini"), lambda: 1 / 0])
def test_skip_lets_the_run_continue_without_the_step(inline: Inline, fallback: Any) -> None:
    found = result_of(inline, step(broken, fallback=fallback, on_failure="skip"), last)
    assert (found.status, found.result) == ("completed", ["after", "skipped", None])
    assert inline.rival.state("r").steps[0].error["type"] == "ValueError"  # type: ignore[index]
    assert entries(inline, "broken")[-1] == "skipped"


def test_an_error_that_lets_the_run_continue_needs_no_fallback(inline: Inline) -> None:
    def soft() -> None:
        raise StepError("never mind", behavior="continue")

    found = result_of(inline, step(soft, fallback=value(1), on_failure="skip"), last)
    assert found.result == ["after", "failed", None]


def test_items_fall_back_one_by_one(inline: Inline) -> None:
    def charge(item: int) -> int:
        if item % 2:
            raise ValueError(item)
        return item

    def instead(item: int) -> int:
        return -item

    each = for_each("lines", items=lambda: [1, 2, 3], do=[step(charge, fallback=instead)], concurrency=2)
    assert result_of(inline, each).result == [-1, 2, -3]


def test_a_value_is_not_compensated_and_a_function_is(inline: Inline) -> None:
    undone = []

    def undo(result: Any) -> None:
        undone.append(result)

    def other() -> str:
        return "from the other bank"

    one = step(broken, name="one", fallback=value("nothing"), compensate=undo)
    two = step(broken, name="two", fallback=other, compensate=undo)
    result_of(inline, one, two, step(broken, name="three"))
    assert undone == ["from the other bank"]


def test_a_run_that_is_cancelled_while_a_step_falls_back_begins_the_step_again(inline: Inline) -> None:
    calls = []

    def charge() -> str:
        calls.append("charge")
        if len(calls) < 3:
            raise ValueError("closed")
        return "paid"

    def instead() -> str:
        calls.append("instead")
        inline.rival.cancel("r")
        return "late"

    assert result_of(inline, step(charge, fallback=instead)).status == "cancelled"
    assert {one.path: one.status for one in inline.rival.state("r").steps} == {
        "charge": "cancelled",
        "charge!fallback": "cancelled",
    }
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.result("r").result == "paid"
    assert [one.path for one in inline.rival.state("r").steps] == ["charge"]


def test_a_rewind_goes_back_over_a_fallback(inline: Inline) -> None:
    result_of(inline, step(broken, fallback=lambda: "instead"), last)
    inline.rival.rewind("r", "broken")
    inline.drain()
    assert inline.rival.result("r").result == ["after", "completed", "instead"]
    assert entries(inline, "broken!fallback").count("completed") == 2


@pytest.mark.parametrize(
    ("verb", "path", "status"),
    [("skip", "broken", "skipped"), ("skip", "broken!fallback", "skipped"), ("set", "broken!fallback", "completed")],
)
def test_an_operator_can_end_a_fallback_and_its_step(inline: Inline, verb: str, path: str, status: str) -> None:
    inline.define("pay", step(broken, fallback=lambda: "instead"), last)
    inline.rival.run("pay", {}, run_id="r")
    inline.coordinator.stopping = True
    [start] = inline.doorbell.take()
    inline.deliver(start)
    [attempt] = inline.doorbell.take()
    inline.deliver(attempt)
    [fallback] = inline.doorbell.take()
    assert fallback.path == "broken!fallback"
    if verb == "skip":
        inline.rival.skip("r", path, reason="test")
    else:
        inline.rival.set_result("r", path, "set", reason="test")
    inline.deliver(fallback)
    inline.drain()
    assert inline.rival.result("r").result == ["after", status, "set" if verb == "set" else None]


def test_a_branch_and_its_step_after_it_see_the_result_of_the_fallback(inline: Inline) -> None:
    found = result_of(
        inline, branch("closed?", when=lambda: True, then=[step(broken, fallback=lambda: 5), last], otherwise=[])
    )
    assert found.result == ["after", "completed", 5]


@pytest.mark.parametrize(
    ("fallback", "on_failure", "result"), [(value("v"), "halt", "v"), (lambda: "f", "halt", "f"), (None, "skip", None)]
)
def test_a_timeout_that_the_keeper_applies_falls_back_or_skips(
    inline: Inline, fallback: Any, on_failure: str, result: Any
) -> None:
    defined = inline.define("pay", step(broken, timeout=0.05, fallback=fallback, on_failure=on_failure), last)
    inline.rival.run("pay", {}, run_id="r")
    [start] = inline.doorbell.take()
    opened = first(defined.plan).with_options(defined.policies.at)
    claimed = inline.store.begin_run("r", start.token, opened, claim_for=inline.process.executor.id)
    assert claimed is not None
    wait_until(lambda: "timed_out" in entries(inline, "broken") or time_passes(inline))
    inline.drain()
    found = inline.rival.result("r")
    assert found.result == ["after", "skipped" if on_failure == "skip" else "completed", result]
    assert "timed_out" in entries(inline, "broken")


def test_a_step_that_loses_its_executors_falls_back(inline: Inline) -> None:
    inline.define("pay", step(broken, fallback=value("v")), last)
    inline.rival.run("pay", {}, run_id="r")
    [start] = inline.doorbell.take()
    inline.store.begin_run(
        "r", start.token, first(inline.registry.newest("pay").plan), claim_for=inline.process.executor.id
    )  # type: ignore[union-attr]
    [lost] = inline.store.running_on(inline.process.executor.id)
    inline.coordinator.transitions.take_over(replace(lost, lost=3))
    inline.drain()
    assert inline.rival.result("r").result == ["after", "completed", "v"]


@pytest.mark.parametrize(("options", "result"), [({"fallback": value(3)}, 3), ({"on_failure": "skip"}, None)])
def test_a_step_of_a_flow_falls_back_to_a_value_or_is_skipped(inline: Inline, options: Any, result: Any) -> None:
    @flow("f", registry=Registry())
    def f(ctx: Any) -> Any:
        found = ctx.step(broken, **options)
        ctx.sleep(seconds=0)
        return ["then", found]

    assert result_of(inline, f).result == ["then", result]


ONLY_VALUES = "option fallback: in a flow only value(…) is possible; or catch StepFailed and call ctx.step(…) again"


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"fallback": retry_with(a=1)}, ONLY_VALUES),
        ({"fallback": broken}, ONLY_VALUES),
        (
            {"on_failure": "compensate"},
            "option on_failure: this is an option of the flow as a step, not of its own steps",
        ),
    ],
)
def test_a_step_of_a_flow_refuses_the_other_forms(inline: Inline, options: Any, hint: str) -> None:
    @flow("f", registry=Registry())
    def f(ctx: Any) -> Any:
        return ctx.step(broken, **options)

    found = result_of(inline, f)
    assert found.error["message"] == f"step 'broken' of flow 'f': {hint}"


def test_a_flow_as_a_step_falls_back_to_a_value(inline: Inline) -> None:
    @flow("f", registry=Registry())
    def f(ctx: Any) -> Any:
        ctx.step(broken)

    assert result_of(inline, step(f, fallback=value(9)), last).result == ["after", "completed", 9]
