"""Hooks of a workflow and signals of a worker: when they are called, and what their errors do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from rival_client.errors import InvalidArgument
from rival_workers import (
    DefinitionError,
    HookEvent,
    StepError,
    branch,
    breaker,
    create_workflow,
    default,
    flow,
    limit,
    of_kind,
    signals,
    step,
)
from rival_workers.definition.define import define_workflow
from rival_workers.definition.hooks import HOOKS
from rival_workers.definition.registry import Registry
from tests.support.inline import Inline
from tests.support.output import whole
from tests.support.workers import wait_until


class Seen(list[HookEvent]):
    """Every hook appends what it receives."""

    @property
    def hooks(self) -> dict[str, Any]:
        return dict.fromkeys(HOOKS, self.append)

    @property
    def of_attempts(self) -> dict[str, Any]:
        return dict.fromkeys(("before_attempt", "after_attempt", "on_checkpoint"), self.append)

    @property
    def names(self) -> list[str]:
        return [event.hook for event in self]


def fine() -> str:
    return "fine"


def broken() -> None:
    raise ValueError("broken")


def run(inline: Inline, *steps: Any, **options: Any) -> Any:
    inline.define("pay", *steps, **options)
    inline.rival.run("pay", {}, run_id="r")
    inline.drain()
    return inline.rival.result("r")


def test_hooks_are_called_around_each_attempt_and_at_the_end_of_the_run(inline: Inline) -> None:
    seen = Seen()
    run(inline, fine, step(fine, name="two"), hooks=seen.hooks)
    assert seen.names == ["before_attempt", "after_attempt", "on_checkpoint"] * 2 + ["on_success", "on_end"]
    first, *_, last = seen
    assert (first.run_id, first.workflow, first.step, first.attempt, first.label) == ("r", "pay", "fine", 1, "pay.fine")
    assert (last.step, last.outcome) == ("two", "completed")


def test_hooks_see_retries_and_the_final_failure(inline: Inline) -> None:
    seen = Seen()
    options: Any = {"max_retries": 1, "base_delay": 0, "metadata": {"team": "billing"}, "telemetry_prefix": "shop"}
    run(inline, step(broken, **options), hooks=seen.hooks)
    around = ["before_attempt", "after_attempt"]
    assert seen.names == [*around, "on_retry", *around, "on_terminal", "on_checkpoint", "on_end"]
    retry, terminal, end = seen[2], seen[-3], seen[-1]
    assert (retry.delay, retry.error and retry.error["type"]) == (0.0, "ValueError")
    assert (terminal.attempt, terminal.metadata, terminal.label) == (2, {"team": "billing"}, "shop.pay.broken")
    assert (end.error and end.error["type"]) == "ValueError"
    assert end.outcome == "failed"


@pytest.mark.parametrize("hook", HOOKS)
def test_a_hook_that_raises_is_recorded_and_changes_nothing(inline: Inline, hook: str) -> None:
    def bad(event: HookEvent) -> None:
        raise RuntimeError("bad hook")

    found = run(inline, step(broken, max_retries=1, base_delay=0, name="s", on_failure="skip"), hooks={hook: bad})
    assert found.status == "completed"
    failed = [entry.detail for entry in inline.rival.history("r") if entry.what == "hook_failed"]
    times = {"before_attempt": 2, "after_attempt": 2, "on_timeout": 0, "on_terminal": 0, "on_cancel": 0}.get(hook, 1)
    assert failed == [{"hook": hook, "error": {"type": "RuntimeError", "message": "bad hook"}}] * times


def test_a_strict_before_attempt_fails_the_attempt(inline: Inline) -> None:
    calls = []

    def refuse(event: HookEvent) -> None:
        raise StepError("not today")

    found = run(inline, step(lambda: calls.append(1), name="s"), hooks={"before_attempt": refuse, "strict": True})
    assert (found.status, found.error["message"], calls) == ("failed", "not today", [])


def test_the_time_of_a_hook_counts_as_that_of_the_attempt(inline: Inline) -> None:
    if inline.clock is not None:
        pytest.skip("needs the clock of the machine")
    seen = Seen()

    def hangs(event: HookEvent) -> None:
        wait_until(lambda: inline.coordinator._timed_out, 30, "the commit of the timeout")

    hooks = {"before_attempt": hangs, "on_timeout": seen.append, "on_terminal": seen.append}
    found = run(inline, step(fine, timeout=0.1), hooks=hooks)
    assert (found.status, found.error["type"], seen.names) == ("failed", "StepTimeout", ["on_timeout"])


def test_a_rule_gives_hooks_to_the_steps_that_it_matches(inline: Inline) -> None:
    """They come over those of the workflow, by name. The first rule that matches counts, as a whole."""
    ruled, usual = Seen(), Seen()
    policies = [
        (of_kind("branch"), {"hooks": {"after_attempt": ruled.append}}),
        ("two", {"hooks": {"before_attempt": ruled.append, "on_checkpoint": ruled.append}, "timeout": 60}),
        (default, {"hooks": {"on_retry": ruled.append}}),
    ]
    inner = define_workflow("inner", [step(fine, name="three")], policies=[("three", {"hooks": ruled.of_attempts})])
    route = branch("route", when=lambda: True, then=[step(fine, name="two")])
    run(inline, fine, route, inner, policies=policies, hooks={"before_attempt": usual.append, "on_end": usual.append})
    assert [(one.hook, one.step) for one in usual if one.hook != "on_end"] == [
        ("before_attempt", "fine"),
        ("before_attempt", "route!when"),
    ]
    assert [(one.hook, one.step) for one in ruled] == [
        ("after_attempt", "route!when"),
        ("before_attempt", "route/two"),
        ("on_checkpoint", "route/two"),
        *((hook, "inner/three") for hook in ("before_attempt", "after_attempt", "on_checkpoint")),
    ]
    assert [one.hook for one in usual][-1] == "on_end"


def test_hooks_in_rules_are_functions_of_the_workflow_about_attempts(inline: Inline) -> None:
    with pytest.raises(DefinitionError) as refused:
        define_workflow(
            "w", [fine], policies=[("fine", {"hooks": {"on_end": fine, "on_retries": fine, "on_retry": 1}})]
        )
    known = "before_attempt, after_attempt, on_retry, on_timeout, on_terminal, on_checkpoint, strict"
    assert [one.removeprefix("workflow 'w': policies[0]: hooks: ") for one in refused.value.problems] == [
        "on_end is about the end of a run, not of a step: give it to the workflow's hooks",
        f"unknown hook 'on_retries' (did you mean 'on_retry'?); known are {known}",
        "on_retry must be a function, not 1",
    ]
    inline.define("w", fine)
    rule: Any = {"hooks": {"on_retry": fine}}
    for refuses in (
        lambda: inline.rival.run("w", {}, policies=[("fine", rule)]),
        lambda: inline.rival.set_policy("fine", rule),
    ):
        with pytest.raises(
            InvalidArgument,
            match=whole(
                "Invalid argument …: …: option hooks: a function is code: give it to the workflow, in a rule of its "
                "policies."
            ),
        ):
            refuses()


def test_a_checkpoint_is_reported_once_after_its_commit(inline: Inline) -> None:
    """Each end of a step that a flow calls; a replay reports none of them again."""
    seen: list[Any] = []
    tried = []

    def flaky() -> str:
        tried.append(1)
        if len(tried) == 1:
            raise ValueError("once")
        return "ok"

    def on_checkpoint(event: HookEvent) -> None:
        status = {one.path: one.status for one in inline.rival.state("r").steps}[event.step]
        seen.append((event.step, event.outcome, event.attempt, status))

    def body(ctx: Any) -> None:
        ctx.step(fine)
        ctx.step(flaky, max_retries=1, backoff="none")
        ctx.gather((fine,), step(broken, on_failure="skip"))
        ctx.sleep(0.001)
        ctx.step(fine, name="last")

    inline.define("pay", flow("f", register=False)(body), hooks={"on_checkpoint": on_checkpoint})
    inline.rival.run("pay", {}, run_id="r")
    for _ in range(3):
        inline.drain()
        inline.time_passes(1)
        inline.keeper.run_once()
    inline.drain()
    assert inline.rival.state("r").status == "completed"
    expected = [
        ("f/fine", "completed", 1, "completed"),
        ("f/flaky", "completed", 2, "completed"),
        ("f/fine~2", "completed", 1, "completed"),
        ("f/broken", "failed", 1, "failed"),
        ("f/last", "completed", 1, "completed"),
        ("f", "completed", seen[-1][2], "completed"),
    ]
    assert sorted(seen) == sorted(expected)
    assert (seen[0], seen[-2:]) == (expected[0], expected[-2:])


def test_an_on_checkpoint_of_a_flow_that_raises_is_recorded_and_changes_nothing(inline: Inline) -> None:
    def bad(event: HookEvent) -> None:
        raise RuntimeError("bad hook")

    found = run(inline, flow("f", register=False)(lambda ctx: ctx.step(fine)), hooks={"on_checkpoint": bad})
    assert found.result == "fine"
    assert [one.what for one in inline.rival.history("r")].count("hook_failed") == 2


LIMITS: dict[str, Any] = {"one": limit("lim", 1, key="input.tenant"), "several": [limit("lim", 1), 5]}


@pytest.mark.parametrize("how_many", LIMITS)
def test_a_signal_says_how_long_a_step_has_waited_for_its_limits(inline: Inline, received: Any, how_many: str) -> None:
    """Of the step that had to wait only."""

    def work(ctx: Any) -> None:
        if ctx.run.run_id == "r":
            inline.rival.run("pay", {}, run_id="waits")
            inline.drain()
            inline.time_passes(5)

    began = time.monotonic()
    run(inline, step(work, concurrency_limit=LIMITS[how_many]))
    at_most = 5 + time.monotonic() - began
    [about] = [about for name, about in received if name == "limit_waited"]
    assert set(about) == set(signals.limit_waited.arguments)
    assert (about["run_id"], about["step"], about["limits"][0]) == ("waits", "work", "lim")
    assert 5 <= about["waited"] <= at_most
    assert inline.rival.state("waits").status == "completed"


def test_wrong_hooks_are_all_reported() -> None:
    with pytest.raises(DefinitionError) as refused:
        define_workflow("w", [fine], hooks={"on_retries": fine, "on_end": 3, "strict": 1})
    known = (
        "before_attempt, after_attempt, on_retry, on_timeout, on_terminal, on_checkpoint, on_success, on_cancel, on_end"
    )
    assert [one.removeprefix("workflow 'w': hooks: ") for one in refused.value.problems] == [
        f"unknown hook 'on_retries' (did you mean 'on_retry'?); known are {known}, strict",
        "on_end must be a function, not 3",
        "strict is True or False, not 1",
    ]
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': hooks: give a dict of functions, such as {'on_retry': function}, not [<function fine at …>]"
        ),
    ):
        define_workflow("w", [fine], hooks=[fine])


def test_a_hook_takes_the_event_alone() -> None:
    with pytest.raises(DefinitionError) as refused:
        define_workflow("w", [fine], hooks={"on_end": fine, "on_retry": lambda event, more: None})
    assert [problem.partition("hooks: ")[2] for problem in refused.value.problems] == [
        "on_end is called with one argument, the event: write def fine(event)",
        "on_retry is called with one argument, the event: write def <lambda>(event)",
    ]
    define_workflow("w", [fine], hooks={"on_end": lambda event, more=1: None, "on_retry": print})


def test_an_async_hook_is_awaited_and_its_error_is_recorded(inline: Inline) -> None:
    seen: list[str] = []

    async def hook(event: HookEvent) -> None:
        await asyncio.sleep(0)
        seen.append(event.hook)
        if event.hook == "after_attempt":
            raise ValueError("in the hook")

    hooks = dict.fromkeys(("before_attempt", "after_attempt", "on_end"), hook)
    assert run(inline, fine, hooks=hooks).result == "fine"
    assert seen == ["before_attempt", "after_attempt", "on_end"]
    [entry] = [one for one in inline.rival.history("r") if one.what == "hook_failed"]
    assert entry.detail["error"] == {"type": "ValueError", "message": "in the hook"}


def test_a_strict_async_before_attempt_fails_the_attempt(inline: Inline) -> None:
    async def refuse(event: HookEvent) -> None:
        raise PermissionError("not today")

    found = run(inline, fine, hooks={"before_attempt": refuse, "strict": True})
    assert (found.status, found.error["type"]) == ("failed", "PermissionError")


def test_the_builder_and_flows_have_hooks(inline: Inline) -> None:
    seen = Seen()
    assert create_workflow("w").step(fine).hooks(on_end=seen.append).build().hooks == {"on_end": seen.append}

    @flow("f", hooks={"on_end": seen.append}, registry=Registry())
    def f(ctx: Any) -> Any:
        return ctx.step(fine)

    assert f.definition is not None
    assert f.definition.hooks["on_end"] is not None


@pytest.fixture
def received() -> Iterator[list[tuple[str, dict[str, Any]]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    every = [getattr(signals, name) for name in signals.__all__]
    receivers = [(one, one.connect(lambda one=one, **about: found.append((one.name, about)))) for one in every]
    yield found
    for signal, receiver in receivers:
        assert signal.disconnect(receiver)
        assert not signal.disconnect(receiver)


def test_signals_say_what_has_happened(inline: Inline, received: Any) -> None:
    run(inline, fine, step(broken, circuit_breaker=breaker("b", failures=1)))
    names = [name for name, _ in received]
    assert names == [
        "attempt_started",
        "attempt_ended",
        "attempt_started",
        "breaker_moved",
        "run_ended",
        "attempt_ended",
    ]
    for name, about in received:
        assert set(about) == set(getattr(signals, name).arguments)
    assert received[-1][1]["outcome"] == "failed"
    assert received[-2][1] == {"run_id": "r", "workflow": "pay", "status": "failed"}


def test_a_receiver_that_raises_changes_nothing(inline: Inline) -> None:
    @signals.attempt_started.connect
    def bad(**about: Any) -> None:
        raise RuntimeError("bad receiver")

    try:
        assert run(inline, fine).result == "fine"
    finally:
        signals.attempt_started.disconnect(bad)
    with pytest.raises(TypeError):
        signals.run_ended.connect(3)  # type: ignore[type-var]

    async def waits(**about: Any) -> None: ...

    with pytest.raises(TypeError, match=whole("run_ended.connect: waits is async: give a plain function")):
        signals.run_ended.connect(waits)


def test_the_lowest_level_and_the_metadata_reach_the_step(inline: Inline) -> None:
    def logs(log: Any, ctx: Any) -> Any:
        log.info("quiet")
        log.warning("loud")
        return ctx.metadata

    assert run(inline, step(logs, log_level="warning", metadata={"team": "x"})).result == {"team": "x"}
    assert [entry.message for entry in inline.rival.logs("r")] == ["loud"]
