"""Random flows of lanes, steps, sleeps, calls and events, with attempts that end at random points, compared with plain
asyncio. RIVAL_RANDOM_FLOWS=500 makes many.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from rival_workers.runtime import failpoints
from rival_workers.runtime.flow.loop import FlowLoop
from tests.support.flows import define, finish, rows
from tests.support.inline import Inline
from tests.support.random_flow_env import InFlow, received
from tests.support.random_flows import (
    GivenOrder,
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
        made.nodes[self.scheduler._commits.run_id][timer.operation.ref.path] = node_of_timer.get()
        return timer

    monkeypatch.setattr(FlowLoop, "call_later", call_later)
    failpoints.stop_flows(made.stops_here)
    yield made
    failpoints.stop_flows(None)


def define_flows(inline: Inline, book: Book) -> None:
    def child(ctx: Any, input: Any) -> Any:
        ctx.sleep(input["seconds"])
        return input["node"]

    async def program(ctx: Any, input: Any) -> Any:
        env = InFlow(ctx, inline.rival.send_event, book.nodes[ctx.run.run_id])
        book.traces[ctx.run.run_id].append(env.trace)
        return [await interpret(input, env), None]

    define(inline, child, name="child")
    define(inline, program)


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
        as_received = reference(program, GivenOrder(received(real_time.store.database, run_id, book.nodes[run_id])))
        assert result[0] == as_received[0], where
        assert trace == as_received[1], where
        if not races:
            assert result[0] == reference(program, VirtualTime())[0], where
        for seen in book.traces[run_id]:
            assert json.loads(json.dumps(seen)) == trace[: len(seen)], f"an attempt saw something else, {where}"
        left = {path: status for path, status in rows(real_time, run_id).items() if status in ("waiting", "running")}
        assert not left, where
