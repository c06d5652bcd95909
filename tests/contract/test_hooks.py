"""Hooks of a workflow and signals of a worker: when they are called, and what their errors do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from rival_workers import DefinitionError, HookEvent, StepError, breaker, create_workflow, flow, signals, step
from rival_workers.definition.define import define_workflow
from rival_workers.definition.hooks import HOOKS
from rival_workers.definition.registry import Registry
from tests.support.inline import Inline


class Seen(list[HookEvent]):
    """Every hook appends what it receives."""

    @property
    def hooks(self) -> dict[str, Any]:
        return dict.fromkeys(HOOKS, self.append)

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
    assert seen.names == ["before_attempt", "after_attempt"] * 2 + ["on_success", "on_end"]
    first, *_, last = seen
    assert (first.run_id, first.workflow, first.step, first.attempt, first.label) == ("r", "pay", "fine", 1, "pay.fine")
    assert (last.step, last.outcome) == ("two", "completed")


def test_hooks_see_retries_and_the_final_failure(inline: Inline) -> None:
    seen = Seen()
    options: Any = {"max_retries": 1, "base_delay": 0, "metadata": {"team": "billing"}, "telemetry_prefix": "shop"}
    run(inline, step(broken, **options), hooks=seen.hooks)
    around = ["before_attempt", "after_attempt"]
    assert seen.names == [*around, "on_retry", *around, "on_terminal", "on_end"]
    retry, terminal, end = seen[2], seen[-2], seen[-1]
    assert (retry.delay, retry.error and retry.error["type"]) == (0.0, "ValueError")
    assert (terminal.attempt, terminal.metadata, terminal.label) == (2, {"team": "billing"}, "shop.pay.broken")
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
        threading.Event().wait(0.4)

    hooks = {"before_attempt": hangs, "on_timeout": seen.append, "on_terminal": seen.append}
    found = run(inline, step(fine, timeout=0.1), hooks=hooks)
    assert (found.status, found.error["type"], seen.names) == ("failed", "StepTimeout", ["on_timeout"])


def test_wrong_hooks_are_all_reported() -> None:
    with pytest.raises(DefinitionError) as refused:
        define_workflow("w", [fine], hooks={"on_retries": fine, "on_end": 3, "strict": 1})
    text = "\n".join(refused.value.problems)
    assert "unknown hook 'on_retries' (did you mean 'on_retry'?)" in text
    assert "on_end must be a function, not 3" in text
    assert "strict is True or False" in text
    with pytest.raises(DefinitionError, match="give a dict of functions"):
        define_workflow("w", [fine], hooks=[fine])


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
    every = (signals.attempt_started, signals.attempt_ended, signals.run_ended, signals.breaker_moved)
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


def test_the_lowest_level_and_the_metadata_reach_the_step(inline: Inline) -> None:
    def logs(log: Any, ctx: Any) -> Any:
        log.info("quiet")
        log.warning("loud")
        return ctx.metadata

    assert run(inline, step(logs, log_level="warning", metadata={"team": "x"})).result == {"team": "x"}
    assert [entry.message for entry in inline.rival.logs("r")] == ["loud"]
