"""Options of a flow's step from everywhere that they can come from: `@step(…)`, `step(function, …)`, the call itself,
`ctx.gather`, policies. None of them is ignored.
"""

from __future__ import annotations

import functools
import time
from collections import Counter
from typing import Any

import pytest

from rival_workers import DefinitionError, StepError, StepFailed, default, flow, step
from tests.contract.test_flows import define, start
from tests.support.inline import Inline

calls: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def fresh() -> None:
    calls.clear()


def fails(what: str = "fails") -> None:
    calls[what] += 1
    raise StepError("never works", behavior="retry")


@step(max_attempts=3, backoff="none")
def decorated() -> None:
    fails("decorated")


class Service:
    @step(max_attempts=3, backoff="none")
    def method(self) -> None:
        fails("decorated")


async def in_async_flow(ctx: Any) -> None:
    await ctx.step(decorated)


async def gathered_in_async_flow(ctx: Any) -> None:
    await ctx.gather(decorated, (ctx.sleep, 0))


ATTEMPTS = {
    "the decorator's": (3, lambda ctx: ctx.step(decorated)),
    "of a partial": (3, lambda ctx: ctx.step(functools.partial(decorated))),
    "of a method": (3, lambda ctx: ctx.step(Service().method)),
    "of a handle": (3, lambda ctx: ctx.start.step(decorated).result()),
    "in a gather": (3, lambda ctx: ctx.gather(decorated, (ctx.sleep, 0))),
    "in a first": (3, lambda ctx: ctx.first(decorated).result()),
    "in an async flow": (3, in_async_flow),
    "gathered in an async flow": (3, gathered_in_async_flow),
    "with another option in the call": (3, lambda ctx: ctx.step(decorated, timeout=60)),
    "overridden by the call": (2, lambda ctx: ctx.step(decorated, max_attempts=2)),
    "overridden by the call's options": (2, lambda ctx: ctx.step(decorated, options={"max_attempts": 2})),
    "overridden in other words": (2, lambda ctx: ctx.step(decorated, max_retries=1)),
    "overridden by step(…)": (2, lambda ctx: ctx.step(step(decorated, max_attempts=2))),
    "overridden by step(…) in other words": (2, lambda ctx: ctx.step(step(decorated, max_retries=1))),
    "the call's over those of step(…)": (1, lambda ctx: ctx.step(step(decorated, max_attempts=2), max_attempts=1)),
    "overridden by gather": (2, lambda ctx: ctx.gather(decorated, max_attempts=2)),
    "overridden by gather of ctx.step": (2, lambda ctx: ctx.gather((ctx.step, decorated), max_attempts=2)),
    "of step(…) over those of gather": (
        2,
        lambda ctx: ctx.gather(step(decorated, max_attempts=2), max_attempts=1),
    ),
    "of ctx.step over those of gather": (
        2,
        lambda ctx: ctx.gather(functools.partial(ctx.step, decorated, max_attempts=2), max_attempts=1),
    ),
}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_options_count_wherever_they_are_given(inline: Inline, what: str) -> None:
    attempts, body = ATTEMPTS[what]
    define(inline, body)
    start(inline)
    assert inline.rival.state("r").status == "failed"
    assert calls == {"decorated": attempts}


def test_the_timeout_of_the_decorator_is_kept(inline: Inline) -> None:
    @step(timeout=0.2)
    def slow() -> None:
        time.sleep(1)

    def body(ctx: Any) -> Any:
        try:
            ctx.step(slow)
        except StepFailed as failed:
            return failed.error["type"]

    define(inline, body)
    start(inline)
    inline.drain()
    assert inline.rival.result("r").result == "StepTimeout"


def test_a_name_of_the_decorator_is_the_checkpoints(inline: Inline) -> None:
    named = step(name="charge")(lambda: 1)
    define(inline, lambda ctx: [ctx.step(named), ctx.step(named, name="again")])
    start(inline)
    assert inline.rival.result("r").result == [1, 1]
    assert {one.path for one in inline.rival.state("r").steps} == {"f", "f/charge", "f/again"}


def test_policies_give_way_to_the_decorator(inline: Inline) -> None:
    @flow("g", register=False)
    def body(ctx: Any) -> None:
        ctx.step(decorated)

    inline.define("w", body, policies=[(default, {"max_retries": 7, "backoff": "none"})])
    start(inline, workflow="w")
    assert calls == {"decorated": 3}


ONLY_IN_PLANS = {
    "compensate": (step(compensate=fails), "a flow undoes what it has done by itself"),
    "on_error": (step(on_error=fails), "a flow handles the failure of a step by itself"),
    "external": (step(execution_mode="external"), "a flow waits for an external system with ctx.await_event"),
}


@pytest.mark.parametrize("what", ONLY_IN_PLANS)
def test_what_a_decorator_says_for_plans_only_is_refused_with_its_place(inline: Inline, what: str) -> None:
    decorate, message = ONLY_IN_PLANS[what]

    def work() -> int:
        return 1

    define(inline, lambda ctx: ctx.step(decorate(work)))
    start(inline)
    error = inline.rival.state("r").error
    assert error is not None
    assert error["message"].startswith("@step(…) of work (")
    assert __file__ in error["message"]
    assert message in error["message"]


def test_a_call_can_do_without_what_is_for_plans(inline: Inline) -> None:
    worked = step(compensate=fails, on_error=fails, timeout=60)(lambda: 1)
    define(inline, lambda ctx: ctx.step(worked, compensate=None, on_error=None))
    start(inline)
    assert inline.rival.result("r").result == 1


def test_a_keyword_that_means_retries_is_never_given_to_the_function(inline: Inline) -> None:
    def takes_all(**keywords: Any) -> dict[str, Any]:
        return keywords

    def takes_it(max_retries: int) -> int:
        return max_retries

    define(inline, lambda ctx: ctx.step(takes_all, max_retries=2, size=3))
    start(inline)
    assert inline.rival.result("r").result == {"size": 3}
    define(inline, lambda ctx: ctx.step(takes_it, max_retries=2), "g")
    start(inline, run_id="s", workflow="g")
    assert "is a parameter of takes_it and an option of a step" in (inline.rival.state("s").error or {})["message"]


def test_the_decorator_of_a_flows_function_is_for_the_whole_flow(inline: Inline) -> None:
    @step(max_attempts=2, backoff="none")
    def body(ctx: Any) -> None:
        ctx.now()
        fails()

    define(inline, body)
    start(inline)
    inline.drain()
    assert inline.rival.state("r").status == "failed"
    assert calls == {"fails": 2}


def test_a_decorator_above_flow_comes_too_late(inline: Inline) -> None:
    made = flow("late", registry=inline.registry)(lambda ctx: None)
    with pytest.raises(TypeError, match=r"put it below @flow"):
        step(timeout=3)(made)


def test_step_in_a_plan_overrides_the_decorator_in_other_words(inline: Inline) -> None:
    inline.define("w", step(decorated, max_retries=1))
    start(inline, workflow="w")
    assert calls == {"decorated": 2}
    with pytest.raises(DefinitionError, match="give one of the two"):
        inline.define("v", step(fails, max_attempts=2, max_retries=1))
