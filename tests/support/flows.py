"""Flows in tests: defining one in place, and bringing its run to its end on a fleet of one."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from rival_workers import flow
from rival_workers.definition.flows import Flow
from rival_workers.definition.registry import Registry
from tests.support.inline import Inline

#: Seconds of the run's clock, or real ones, after which a run counts as stuck.
PATIENCE = 30.0


def define(inline: Inline, function: Any, name: str = "f", **options: Any) -> Flow:
    made = flow(name, registry=Registry(), **options)(function)
    assert made.definition is not None
    inline.registry.renew(made.definition)
    inline.process.register_workflows()
    return made


def run(inline: Inline, body: Any, input: Any = None, run_id: str = "r") -> Any:
    """The result of a flow with this body; if it has none, the type of its error, or its status."""
    define(inline, body)
    inline.rival.run("f", input, run_id=run_id)
    return finish(inline, run_id)


def finish(inline: Inline, run_id: str = "r") -> Any:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        inline.drain()
        state = inline.rival.state(run_id)
        if state.status in ("completed", "failed", "cancelled"):
            return state.result if state.status == "completed" else (state.error or {}).get("type", state.status)
        pass_time(inline)
    raise AssertionError(f"run {run_id!r} has not ended: {rows(inline, run_id)}")


def pass_time(inline: Inline, seconds: float = 0.02) -> None:
    if inline.clock is None:
        time.sleep(seconds)
    else:
        inline.clock.advance(seconds)


def rows(inline: Inline, run_id: str = "r") -> dict[str, str]:
    return {found.path: found.status for found in inline.rival.state(run_id).steps}


class Calls(Counter[str]):
    """How often each step was called."""

    def once(self, name: str, value: Any = None, seconds: float = 0.0) -> Any:
        self[name] += 1
        if seconds:
            time.sleep(seconds)
        return name if value is None else value
