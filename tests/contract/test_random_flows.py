"""Random flows of lanes, steps, sleeps, calls and events, with attempts that end at random points, compared with plain
asyncio. RIVAL_RANDOM_FLOWS=500 makes many.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from sqlalchemy import select

from rival_client.tables import steps
from rival_workers.runtime import failpoints
from rival_workers.runtime.flow_loop import FlowLoop
from tests.support.flows import define, finish, rows
from tests.support.inline import Inline
from tests.support.random_flows import (
    FAILED,
    GivenOrder,
    Program,
    VirtualTime,
    interpret,
    make_program,
    node_of_timer,
    reference,
)

COUNT = int(os.environ.get("RIVAL_RANDOM_FLOWS", "12"))
SEED = os.environ.get("RIVAL_SEED", "1")
#: The most often that attempts of one run are ended.
MOST_STOPS = 8


class Book:
    """What the flows of a test have seen and done."""

    def __init__(self) -> None:
        self.traces: defaultdict[str, list[Any]] = defaultdict(list)
        #: Of each run: the path of a checkpoint -> its node in the program.
        self.nodes: defaultdict[str, dict[str, Any]] = defaultdict(dict)
        self.stops: Counter[str] = Counter()
        self.dice = random.Random(SEED)

    def stops_here(self, point: str, run_id: str) -> bool:
        if "/" in run_id or self.stops[run_id] >= MOST_STOPS or self.dice.random() > 0.12:
            return False
        self.stops[run_id] += 1
        return True


@pytest.fixture(params=["sqlite", "postgres"])
def real_time(request: pytest.FixtureRequest) -> Iterator[Inline]:
    opened = Inline(request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url"))
    yield opened
    opened.close()


@pytest.fixture
def book(monkeypatch: pytest.MonkeyPatch) -> Iterator[Book]:
    made = Book()
    real = FlowLoop.call_later

    def call_later(self: FlowLoop, delay: float, callback: Any, *args: Any, context: Any = None) -> Any:
        timer: Any = real(self, delay, callback, *args, context=context)
        made.nodes[self.scheduler._port.run_id][timer.operation.mark.path] = node_of_timer.get()
        return timer

    monkeypatch.setattr(FlowLoop, "call_later", call_later)
    failpoints.stop_flows(made.stops_here)
    yield made
    failpoints.stop_flows(None)


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

    def __init__(self, ctx: Any, inline: Inline, book: Book) -> None:
        self._ctx, self._inline, self._nodes = ctx, inline, book.nodes[ctx.run.run_id]
        self.trace: list[Any] = []
        book.traces[ctx.run.run_id].append(self.trace)

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
        self._inline.rival.send_event(f"node{node}", node, key=self._ctx.run.run_id)

    def _known(self, node: Any, operation: Any) -> Any:
        self._nodes[operation.mark.path] = node
        return operation

    async def first(self, leaves: Sequence[Program]) -> int:
        made = [self._operation(one["kind"], one["id"], one["seconds"]) for one in leaves]
        won = await self._ctx.first(
            *(self._known(one["id"], operation) for one, operation in zip(leaves, made, strict=True)),
            cancel_others=True,
        )
        return int(won.index)


def define_flows(inline: Inline, book: Book) -> None:
    def child(ctx: Any, input: Any) -> Any:
        ctx.sleep(input["seconds"])
        return input["node"]

    async def program(ctx: Any, input: Any) -> Any:
        env = InFlow(ctx, inline, book)
        return [await interpret(input, env), None]

    define(inline, child, name="child")
    define(inline, program)


def received(inline: Inline, book: Book, run_id: str) -> list[tuple[Any, Any]]:
    """(node, result), in the order in which the flow received the ends."""
    columns: Any = (steps.c.path, steps.c.kind, steps.c.status)
    with inline.store.database.autocommit() as connection:
        found = connection.execute(
            select(*columns).where(steps.c.run_id == run_id, steps.c.end_order.is_not(None)).order_by(steps.c.end_order)
        ).all()
    return [(book.nodes[run_id][row.path], _result(row, book.nodes[run_id][row.path])) for row in found]


def _result(row: Any, node: Any) -> Any:
    if row.status == "failed":
        return FAILED
    return node if row.kind in ("step", "child") or (row.kind == "flow_wait" and row.status == "completed") else None


@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * COUNT)
def test_random_flows_do_what_asyncio_does(real_time: Inline, book: Book) -> None:
    define_flows(real_time, book)
    for number in range(COUNT):
        races, run_id = number % 2 == 1, f"p{number}"
        program = make_program(f"{SEED}:{number}", races=races)
        real_time.rival.run("f", program, run_id=run_id)
        result = finish(real_time, run_id)
        assert isinstance(result, list), (number, real_time.rival.state(run_id).error)
        trace = json.loads(json.dumps(book.traces[run_id][-1]))
        where = f"program {number} of seed {SEED}: {json.dumps(program)}"
        as_received = reference(program, GivenOrder(received(real_time, book, run_id)))
        assert result[0] == as_received[0], where
        assert trace == as_received[1], where
        if not races:
            assert result[0] == reference(program, VirtualTime())[0], where
        for seen in book.traces[run_id]:
            assert json.loads(json.dumps(seen)) == trace[: len(seen)], f"an attempt saw something else, {where}"
        left = {path: status for path, status in rows(real_time, run_id).items() if status in ("waiting", "running")}
        assert not left, where
