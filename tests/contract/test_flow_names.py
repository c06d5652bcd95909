"""What looked like one thing in a flow and was another: names of steps that are paths, chance inside a step, options
that nothing takes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.test_flows import calls, define, fresh, later, once, start, timed
from tests.support.inline import Inline

__all__ = ["fresh", "timed"]


@pytest.mark.parametrize("name", ["x~2", "sleep~2", "spawn:child/result", "call:child", "#1:x", "a[1]", "a!on_error"])
def test_a_step_cannot_have_the_path_of_another_checkpoint_as_its_name(inline: Inline, name: str) -> None:
    define(inline, lambda ctx: ctx.step(once, "a", name=name))
    start(inline)
    error = inline.rival.result("r").error or {}
    message = f"Invalid argument name: {name!r} is not a name for a step: leave ~ : # [ ] ! out."
    assert (error["type"], error["message"], calls) == ("InvalidArgument", message, {})


def test_chance_inside_a_step_is_refused_since_it_would_change_what_comes_after(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.step(lambda: ctx.random.random(), name="chance"))
    start(inline)
    assert (inline.rival.result("r").error or {})["message"] == (
        "f/chance: NotInFlows: ctx of a flow was used inside a step, or in another thread. Only the flow's own "
        "function may use it: let the step return a value, and call ctx with that."
    )


def test_an_option_that_nothing_takes_is_refused(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.first(ctx.start.sleep(1), cancel_losers=True))
    start(inline)
    assert (inline.rival.result("r").error or {})["message"] == (
        "Invalid argument cancel_losers: options of ctx.gather and ctx.first apply to steps, but no call is a step."
    )


def test_a_cancelled_handle_is_done(timed: Inline) -> None:
    def body(ctx: Any) -> Any:
        handle = ctx.start.sleep(60)
        ctx.sleep(1)
        handle.cancel()
        return handle.done

    define(timed, body)
    start(timed)
    later(timed, 2)
    assert timed.rival.result("r").result is True
