"""Random programs as flows: the environment that a flow gives them, and what the database says of their order."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import select

from rival_client.db.database import Database
from rival_client.db.run_tables import steps
from tests.support.random_flows import FAILED, Program


def work(node: Any, seconds: float) -> Any:
    time.sleep(seconds)
    return node


async def async_work(node: Any, seconds: float) -> Any:
    await asyncio.sleep(seconds)
    return node


def fail(node: Any, seconds: float) -> None:
    time.sleep(seconds)
    raise ValueError("failed")


class InFlow:
    """The environment of a flow."""

    def __init__(self, ctx: Any, send: Callable[..., Any], nodes: dict[str, Any]) -> None:
        """`nodes` gets the node of each checkpoint by its path; `send` sends an event."""
        self._ctx, self._send_event, self._nodes = ctx, send, nodes
        self.trace: list[Any] = []

    def log(self, *what: Any) -> None:
        if self._ctx.scheduler.stopped is None:
            self.trace.append(list(what))

    async def leaf(self, kind: str, node: Any, seconds: float) -> Any:
        if kind == "now":
            await self._ctx.now()
            return node
        if kind == "sent":
            await self._known(f"{node}s", self._ctx.step(self._send, node))
        return await self._known(node, self._operation(kind, node, seconds))

    def _operation(self, kind: str, node: Any, seconds: float) -> Any:
        ctx = self._ctx
        match kind:
            case "sleep":
                return ctx.sleep(seconds)
            case "event" | "sent":
                limit = seconds if kind == "event" else 60
                return ctx.await_event(f"node{node}", key=ctx.run.run_id, timeout=limit)
            case "call":
                return ctx.call("child", {"node": node, "seconds": seconds})
        return ctx.step({"step": work, "async_step": async_work, "fail": fail}[kind], node, seconds)

    def _send(self, node: Any) -> None:
        self._send_event(f"node{node}", node, key=self._ctx.run.run_id)

    def _known(self, node: Any, operation: Any) -> Any:
        self._nodes[operation.ref.path] = node
        return operation

    async def first(self, leaves: Sequence[Program]) -> int:
        made = [self._operation(one["kind"], one["id"], one["seconds"]) for one in leaves]
        won = await self._ctx.first(
            *(self._known(one["id"], operation) for one, operation in zip(leaves, made, strict=True)),
            cancel_others=True,
        )
        return int(won.index)


def received(database: Database, run_id: str, nodes: dict[str, Any]) -> list[tuple[Any, Any]]:
    """(node, result), in the order in which the flow received the ends."""
    columns: Any = (steps.c.path, steps.c.kind, steps.c.status)
    its_ends = select(*columns).where(steps.c.run_id == run_id, steps.c.end_order.is_not(None))
    with database.autocommit() as connection:
        found = connection.execute(its_ends.order_by(steps.c.end_order)).all()
    return [(nodes[row.path], _result(row, nodes[row.path])) for row in found]


def _result(row: Any, node: Any) -> Any:
    if row.status == "failed":
        return FAILED
    return node if row.kind in ("step", "child") or (row.kind == "flow_wait" and row.status == "completed") else None
