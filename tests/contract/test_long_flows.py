"""Flows that go on for very long: what they have done is read at once, and what is over leaves nothing behind."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import event, func, select

from rival_client.database import Database
from rival_client.tables import metadata
from tests.contract.test_flows import calls, define, fresh, inline, later, once, start, timed
from tests.support.inline import Inline

__all__ = ["fresh", "inline", "timed"]


@contextmanager
def statements(database: Database) -> Iterator[Counter[str]]:
    """How many of each kind are executed in the block."""
    seen: Counter[str] = Counter()

    def count(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        seen[statement.split(None, 1)[0]] += 1

    event.listen(database.engine, "before_cursor_execute", count)
    try:
        yield seen
    finally:
        event.remove(database.engine, "before_cursor_execute", count)


def rows(inline: Inline) -> dict[str, int]:
    with inline.store.database.transaction() as connection:
        return {
            table.name: connection.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
        }


def test_a_loop_of_very_many_continuations_keeps_every_table_flat(inline: Inline) -> None:
    turns = 300 if inline.store.database.is_postgres else 2000
    counted: dict[int, dict[str, int]] = {}

    def body(ctx: Any, input: int) -> Any:
        ctx.log.info("turn", n=input)
        ctx.step(once, "turn", 1)
        ctx.now()
        if input in (5, turns // 2, turns):
            counted[input] = rows(inline)
        return input if input == turns else ctx.continue_as(input + 1)

    define(inline, body)
    start(inline, 1)
    assert (inline.rival.result("r").result, calls["turn"]) == (turns, turns)
    assert counted[5] == counted[turns // 2] == counted[turns]


@pytest.mark.slow
def test_a_flow_of_10_000_checkpoints_resumes_without_reading_them_one_by_one(timed: Inline) -> None:
    marks: dict[int, float] = {}

    def body(ctx: Any) -> Any:
        total = 0
        for number in range(10_000):
            total += ctx.step(once, "s", 1)
            if calls["s"] == number + 1 and number % 2500 == 2499:
                marks[number] = time.perf_counter()
        ctx.sleep(10)
        return total

    define(timed, body)
    began = time.perf_counter()
    start(timed)
    times = [began, *marks.values()]
    quarters = [after - before for before, after in zip(times, times[1:], strict=False)]
    assert quarters[3] < 3 * quarters[0], f"each checkpoint's commit costs the same: {quarters}"
    with statements(timed.store.database) as seen:
        resumed = time.perf_counter()
        later(timed, 11)
    assert (timed.rival.result("r").result, calls["s"]) == (10_000, 10_000)
    assert seen.total() < 100, seen
    assert time.perf_counter() - resumed < (times[-1] - began) / 2


def test_on_postgres_a_resume_is_as_few_statements_however_many_checkpoints_there_are(inline: Inline) -> None:
    def body(ctx: Any, input: int) -> Any:
        total = sum(ctx.step(once, "s", 1) for _ in range(input))
        return [total, ctx.await_event("go", key=ctx.run.id)][0]

    define(inline, body)

    def resumed(count: int) -> int:
        start(inline, count, run_id=f"r{count}")
        inline.rival.send_event("go", key=f"r{count}")
        with statements(inline.store.database) as seen:
            inline.drain()
        assert inline.rival.result(f"r{count}").result == count
        return seen.total()

    assert resumed(5) == resumed(200)
