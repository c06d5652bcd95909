"""A workflow file for real workers: random programs, each with what its last attempt saw."""

from __future__ import annotations

from typing import Any

from rival_client import Rival
from rival_workers import flow
from rival_workers.runtime.flow.loop import FlowLoop
from tests.support.random_flow_env import InFlow
from tests.support.random_flows import interpret, node_of_timer

_real = FlowLoop.call_later
_nodes: dict[int, dict[str, Any]] = {}


def _call_later(self: FlowLoop, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
    timer: Any = _real(self, delay, callback, *args, context=context)
    _nodes[id(self.scheduler)][timer.operation.ref.path] = node_of_timer.get()
    return timer


FlowLoop.call_later = _call_later  # type: ignore[method-assign]


def _send(*args: Any, **options: Any) -> None:
    with Rival() as rival:
        rival.send_event(*args, **options)


@flow("child")
def child(ctx: Any, input: Any) -> Any:
    ctx.sleep(input["seconds"])
    return input["node"]


@flow("program")
async def program(ctx: Any, input: Any) -> Any:
    nodes = _nodes[id(ctx.scheduler)] = {}
    env = InFlow(ctx, _send, nodes)
    return [await interpret(input, env), env.trace, nodes]
