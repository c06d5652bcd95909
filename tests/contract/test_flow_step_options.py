"""Options of a flow's step from everywhere that they can come from: `@step(…)`, `step(function, …)`, the call itself,
`ctx.gather`, policies. None of them is ignored.
"""

from __future__ import annotations

import datetime as dt
import functools
import time
from collections import Counter
from typing import Any

import pytest
from pydantic import BaseModel

from rival_client import InvalidArgument
from rival_client.model.policies.option_fields import FIELDS
from rival_workers import (
    DefinitionError,
    StepError,
    StepFailed,
    breaker,
    default,
    every,
    flow,
    named,
    of_kind,
    rate,
    retry_with,
    step,
    value,
)
from rival_workers.definition.define import define_workflow
from rival_workers.definition.registry import Registry
from rival_workers.runtime.attempt import time_limits
from tests.contract.test_flows import define, start
from tests.support.inline import Inline
from tests.support.output import whole

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
    "compensate": (
        step(compensate=fails),
        "option compensate: a flow undoes what it has done by itself: try: … except: ctx.step(undo, …); raise",
    ),
    "on_error": (
        step(on_error=fails),
        "option on_error: a flow handles the failure of a step by itself: try: ctx.step(…) except StepFailed: …",
    ),
    "external": (
        step(execution_mode="external"),
        "option execution_mode: a flow waits for an external system with ctx.await_event(…); an external step is part "
        "of a workflow of steps, which a flow can ctx.call(…)",
    ),
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
    place = f"({__file__}:{work.__code__.co_firstlineno})"
    assert error["message"] == f"step 'work' of flow 'f': @step(…) of work {place}: {message}"


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
    assert (inline.rival.state("s").error or {})["message"] == (
        "ctx.step(takes_it, max_retries=…): 'max_retries' is a parameter of takes_it and an option of a step. "
        "Give the option as options={'max_retries': …}, and the parameter as an argument or with "
        "functools.partial(takes_it, max_retries=…)."
    )


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
    with pytest.raises(
        TypeError, match=whole("@step(…) has no effect on a flow that is registered already: put it below @flow(…)")
    ):
        step(timeout=3)(made)


def test_step_in_a_plan_overrides_the_decorator_in_other_words(inline: Inline) -> None:
    inline.define("w", step(decorated, max_retries=1))
    start(inline, workflow="w")
    assert calls == {"decorated": 2}
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'v': steps[0]: max_retries retries every exception, max_attempts caps what asks for a "
            "retry: give one of the two (…)"
        ),
    ):
        inline.define("v", step(fails, max_attempts=2, max_retries=1))


# -- every field of a policy ------------------------------------------------------------------------------


def error_of(ctx: Any, *args: Any, **options: Any) -> Any:
    """The error of a step that fails."""
    try:
        ctx.step(*args, **options)
    except StepFailed as failed:
        return failed.error
    return None


def attempts(ctx: Any, raised: BaseException, **options: Any) -> int:
    def work() -> None:
        calls["attempts"] += 1
        raise raised

    error_of(ctx, work, backoff="none", **options)
    return calls["attempts"]


def asks_to_wait() -> None:
    raise StepError("busy", behavior="retry", retry_after=900)


def slow() -> None:
    time.sleep(1)


def logged(ctx: Any, **options: Any) -> list[str]:
    def work() -> None:
        ctx.log.info("a")
        ctx.log.warning("b")

    ctx.step(work, **options)
    ctx.log.info("c")  # of the flow
    return []


def hooked(ctx: Any, **options: Any) -> None:
    ctx.step(lambda: None, name="charge", **options)


#: How a field has its effect: the options, what the flow does with them, and the result.
EFFECTS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "timeout": ({"timeout": 0.1}, lambda ctx, **o: error_of(ctx, slow, **o)["type"], "StepTimeout"),
    "heartbeat": ({"heartbeat": 0.1}, lambda ctx, **o: error_of(ctx, slow, **o)["type"], "HeartbeatMissed"),
    "on_timeout": (
        {"timeout": 0.1, "on_timeout": "retry", "max_attempts": 2, "backoff": "none"},
        lambda ctx, **o: error_of(ctx, slow, **o)["attempt"],
        2,
    ),
    "max_retries": ({"max_retries": 2}, lambda ctx, **o: attempts(ctx, ValueError(), **o), 3),
    "max_attempts": (
        {"max_attempts": 2},
        lambda ctx, **o: attempts(ctx, StepError("again", behavior="retry"), **o),
        2,
    ),
    "retry_on": (
        {"max_retries": 2, "retry_on": [KeyError]},
        lambda ctx, **o: attempts(ctx, ValueError(), **o),
        1,
    ),
    "no_retry_on": (
        {"max_retries": 2, "no_retry_on": [ValueError]},
        lambda ctx, **o: attempts(ctx, ValueError(), **o),
        1,
    ),
    # A step of a flow always runs in the process of the flow.
    "execution_mode": ({"execution_mode": "inline"}, lambda ctx, **o: ctx.step(len, "ab", **o), 2),
    "on_failure": ({"on_failure": "skip"}, lambda ctx, **o: ctx.step(fails, **o), None),
    "fallback": ({"fallback": value("instead")}, lambda ctx, **o: ctx.step(fails, **o), "instead"),
}
#: The delay before the second attempt.
DELAYS: dict[str, tuple[dict[str, Any], float]] = {
    "backoff": ({"max_retries": 1, "backoff": "linear"}, 0.5),
    "base_delay": ({"max_retries": 1, "base_delay": 7}, 7),
    "max_delay": ({"max_retries": 1, "base_delay": 7, "max_delay": 3}, 3),
    "max_retry_after": ({"max_retries": 1, "max_retry_after": 60}, 60),
}
#: Tested below, one by one.
OTHERS = {"kill_on_timeout", "log_level", "metadata", "telemetry_prefix"}
REFUSED: dict[str, tuple[Any, str]] = {
    "deadline": (60, "give it a timeout and max_attempts"),
    "delay": (5, "ctx.sleep("),
    "scheduled_at": (dt.datetime.now(dt.UTC), "ctx.sleep_until("),
    "queue_timeout": (5, "starts at once, in the flow's own process"),
    "queue": ("gpu", "give the flow a queue, or ctx.call("),
    "priority": ("low", "give the flow a priority"),
    "retry_budget": (3, "give the step max_attempts, or the budget to the flow"),
    "concurrency_limit": (1, "concurrency_limit: a limit is an option of the whole flow, as step(flow, "),
    "rate_limit": (rate(1, per=60), "rate_limit: a limit is an option of the whole flow"),
    "circuit_breaker": (breaker("b"), "circuit_breaker: a step of a flow has none: put the step into a workflow"),
    "idempotency_key": ("k", "idempotency_key: a step of a flow runs once in its run"),
    "idempotency_ttl": (60, "idempotency_ttl: a step of a flow runs once in its run"),
    "idempotency_scope": ("fleet", "idempotency_scope: a step of a flow runs once in its run"),
}


def test_every_field_of_a_policy_has_its_effect_in_a_flow_or_is_refused() -> None:
    assert EFFECTS.keys() | DELAYS.keys() | OTHERS | REFUSED.keys() == FIELDS.keys()
    assert not REFUSED.keys() & (EFFECTS.keys() | DELAYS.keys() | OTHERS)


@pytest.mark.parametrize("field", EFFECTS)
def test_a_field_has_its_effect_on_a_flows_step(inline: Inline, field: str) -> None:
    options, body, expected = EFFECTS[field]
    define(inline, lambda ctx: body(ctx, **options))
    start(inline)
    inline.drain()
    assert inline.rival.result("r").result == expected


def _one_step(function: Any, options: dict[str, Any], ctx: Any) -> Any:
    return ctx.step(function, **options)


def test_delays_of_retries_have_their_effect_on_a_flows_step(inline: Inline) -> None:
    for field, (options, delay) in DELAYS.items():
        function = asks_to_wait if field == "max_retry_after" else fails
        define(inline, functools.partial(_one_step, function, options), field)
        start(inline, workflow=field, run_id=field)
        [row] = [one for one in inline.rival.state(field).steps if "/" in one.path]
        [retried] = [one for one in inline.rival.history(field) if one.what == "retried"]
        assert (field, row.status, retried.detail["delay"]) == (field, "waiting_retry", delay)


def test_what_a_flows_step_cannot_have_is_refused_by_name_with_what_to_do(inline: Inline) -> None:
    def message(ctx: Any, options: dict[str, Any]) -> str:
        try:
            ctx.step(fails, **options)
        except ValueError as refused:
            return str(refused)
        return "accepted"

    define(inline, lambda ctx: {name: message(ctx, {name: given}) for name, (given, _) in REFUSED.items()})
    start(inline)
    found = inline.rival.result("r").result
    assert {name: expected for name, (_, expected) in REFUSED.items() if expected not in found[name]} == {}, found
    assert not calls


def test_the_log_level_of_a_flows_step_is_its_own(inline: Inline) -> None:
    define(inline, lambda ctx: logged(ctx, log_level="warning"))
    start(inline)
    assert [one.message for one in inline.rival.logs("r")] == ["b", "c"]


def test_a_flows_step_that_times_out_is_killed_if_it_asks_for_it(
    inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kill itself is tested with real processes."""
    killed: list[Any] = []
    monkeypatch.setattr(time_limits.os, "kill", lambda *about: killed.append(about))
    monkeypatch.setattr(inline.process.coordinator.limits, "may_kill", True)
    define(inline, lambda ctx: error_of(ctx, slow, timeout=0.1, kill_on_timeout=True)["type"])
    start(inline)
    assert len(killed) == 1


def test_hooks_see_the_metadata_and_the_prefix_of_a_flows_step(inline: Inline) -> None:
    seen: list[Any] = []
    hooks = {"on_checkpoint": lambda event: seen.append((event.step, event.metadata, event.label))}
    define(inline, lambda ctx: hooked(ctx, metadata={"team": "x"}, telemetry_prefix="shop"), hooks=hooks)
    start(inline)
    assert ("f/charge", {"team": "x"}, "shop.f.f/charge") in seen


class Receipt(BaseModel):
    number: int


def charge() -> Receipt:
    raise ValueError("declined")


@pytest.mark.parametrize(("instead", "status"), [({"number": 2}, "completed"), ({"no": 2}, "failed")])
def test_the_value_of_a_fallback_has_the_type_of_the_result(inline: Inline, instead: Any, status: str) -> None:
    define(inline, lambda ctx: ctx.step(charge, fallback=value(instead)).number)
    start(inline)
    ended = inline.rival.state("r")
    assert ended.status == status
    if ended.error is not None:
        assert ended.error["message"] == (
            "f/charge: InvalidResult: the result of value(…), the fallback of step 'f/charge', is not of type "
            "Receipt: number: Field required"
        )
    else:
        assert ended.result == 2


def test_an_error_of_an_option_names_the_step_and_the_option(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.step(len, "ab", name="count", delay=5, queue="gpu"))
    start(inline)
    message = (inline.rival.state("r").error or {})["message"]
    assert message.startswith("step 'count' of flow 'f': option delay: a flow waits before a step with ctx.sleep(…)")
    assert message == (
        "step 'count' of flow 'f': option delay: a flow waits before a step with ctx.sleep(…); option queue: a "
        "step of a flow runs in the flow's process: give the flow a queue, or ctx.call(…) another workflow"
    )


# -- rules ------------------------------------------------------------------------------------------------


def works_at_the_fourth() -> str:
    calls["attempts"] += 1
    if calls["attempts"] < 4:
        raise ValueError("boom")
    return "again and again"


FOR_MANY: dict[str, dict[str, Any]] = {
    "retry_with": {"fallback": retry_with(model="mini")},
    "fallback": {"fallback": retry_with(model="mini"), "on_failure": "fallback"},
    "dead_letter": {"on_failure": "dead_letter"},
    "others": {"circuit_breaker": breaker("b"), "deadline": 60},
}


@pytest.mark.parametrize("what", FOR_MANY)
def test_what_a_rule_of_the_fleet_has_and_a_flows_step_cannot_does_not_change_it(inline: Inline, what: str) -> None:
    define(inline, lambda ctx: ctx.step(works_at_the_fourth))
    inline.rival.set_policy(default, FOR_MANY[what])
    inline.keeper.run_once()
    assert_fails_at_once(inline)


def assert_fails_at_once(inline: Inline, **options: Any) -> None:
    inline.rival.run("f", None, "r", **options)
    inline.drain()
    assert (inline.rival.state("r").status, calls["attempts"]) == ("failed", 1)
    assert (inline.rival.state("r").error or {})["message"] == "f/works_at_the_fourth: ValueError: boom"


@pytest.mark.parametrize("what", FOR_MANY)
def test_what_a_rule_of_a_run_has_and_a_flows_step_cannot_is_refused(inline: Inline, what: str) -> None:
    define(inline, lambda ctx: ctx.step(works_at_the_fourth))
    with pytest.raises(InvalidArgument) as refused:
        inline.rival.run("f", None, "r", policies=[(default, FOR_MANY[what])])
    for name in FOR_MANY[what].keys() - ({"on_failure"} if what == "fallback" else set()):
        says = "has no option" if name in ("circuit_breaker", "deadline") else "cannot have this"
        assert f"policies[0]: a step of a flow {says} {name!r}: choose other steps with a matcher" in str(refused.value)
    assert inline.rival.runs() == []


@pytest.mark.parametrize("layer", ["run", "fleet"])
def test_a_rule_that_says_what_follows_from_a_timeout_does_not_retry_errors(inline: Inline, layer: str) -> None:
    define(inline, lambda ctx: ctx.step(works_at_the_fourth))
    if layer == "fleet":
        inline.rival.set_policy(default, {"on_timeout": "retry"})
        inline.keeper.run_once()
    assert_fails_at_once(inline, policies=[(default, {"on_timeout": "retry"})] if layer == "run" else None)


IN_RULES = {
    **REFUSED,
    "fallback": (retry_with(model="mini"), "in a flow only value(…) is possible"),
    "on_failure": ("dead_letter", "this is an option of the flow as a step, not of its own steps"),
    "execution_mode": ("external", "a flow waits for an external system with ctx.await_event(…)"),
    "hooks": ({"on_checkpoint": print}, "give them to the flow, in a rule for of_kind('flow') or to the workflow"),
}


@pytest.mark.parametrize("field", IN_RULES)
@pytest.mark.parametrize("match", ["charge", default, named("ch.*")], ids=["name", "default", "regex"])
def test_a_rule_for_a_flows_steps_that_these_cannot_have_is_refused(field: str, match: Any) -> None:
    given, advice = IN_RULES[field]
    with pytest.raises(DefinitionError) as caught:
        flow("f", registry=Registry(), policies=[("other", {"timeout": 5}), (match, {field: given})])(lambda ctx: None)
    assert f"policies[1]: for steps of a flow: option {field}: " in str(caught.value)
    assert advice in str(caught.value)


def test_a_rule_that_also_matches_a_step_of_the_plan_or_another_workflow_is_not_refused() -> None:
    options: Any = {"retry_budget": 5}
    steps = [step(fails, name="charge"), flow("f", register=False)(lambda ctx: None)]
    for match in ("charge", default, {"workflow": "other", "name": "x"}, of_kind("flow"), every(of_kind("branch"))):
        define_workflow("w", steps, policies=[(match, options)])


def test_each_call_of_a_function_has_its_own_options(inline: Inline) -> None:
    """Although those of a call that was made before are not worked out again."""
    again = step(fails, max_attempts=2, base_delay=0)

    def body(ctx: Any) -> None:
        for options in (2, 3, 2, 1):
            error_of(ctx, fails, f"{options} attempts", max_attempts=options, base_delay=0)
        for _ in range(2):
            error_of(ctx, again, "2 attempts of a value")
        error_of(ctx, step(fails, max_attempts=1), "1 attempt of a value")
        error_of(ctx, fails, "named", name="a", max_attempts=1)
        error_of(ctx, fails, "named", name="b", max_attempts=1)

    define(inline, body)
    start(inline)
    inline.keeper.run_once()
    inline.drain()
    assert calls == {
        "2 attempts": 4,
        "3 attempts": 3,
        "1 attempts": 1,
        "2 attempts of a value": 4,
        "1 attempt of a value": 1,
        "named": 2,
    }
    assert {"f/a", "f/b", "f/fails~7"} <= {one.path for one in inline.rival.state("r").steps}


def test_an_option_that_is_wrong_is_refused_after_an_equal_one_of_another_type(inline: Inline) -> None:
    def body(ctx: Any) -> list[str]:
        ctx.step(nothing, timeout=1)
        return [refused(ctx, timeout=True), refused(ctx, timeout=1.0), refused(ctx, unknown=1)]

    define(inline, body)
    start(inline)
    assert inline.rival.result("r").result == ["ValueError", "not refused", "ValueError"]


def nothing() -> None:
    """Does nothing."""


def refused(ctx: Any, **options: Any) -> str:
    try:
        ctx.step(nothing, **options)
    except ValueError as error:
        return type(error).__name__
    return "not refused"
