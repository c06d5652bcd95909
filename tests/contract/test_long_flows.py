"""Flows that go on for very long: what they have done is read at once, and what is over leaves nothing behind."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import delete, event, func, insert, select

from rival_client.db import metadata
from rival_client.db.database import Database
from rival_client.db.fleet_tables import executors
from rival_client.db.log_tables import history, logs
from rival_client.db.prepared import PreparedPool
from rival_client.db.run_tables import steps
from rival_workers import StepError
from tests.contract.test_flows import calls, define, fresh, later, once, start, timed
from tests.support.effort import examples
from tests.support.inline import Inline

__all__ = ["fresh", "timed"]


@contextmanager
def statements(database: Database) -> Iterator[Counter[str]]:
    """How many of each kind this thread executes in the block: heartbeats and log entries come from other threads.
    Prepared statements do not go through SQLAlchemy, and count by their names."""
    seen: Counter[str] = Counter()
    here, fetch, fetch_in_turn = threading.get_ident(), PreparedPool.fetch, PreparedPool.fetch_in_turn

    def add(what: str) -> None:
        if threading.get_ident() == here:
            seen[what] += 1

    def counted(pool: Any, statement: Any, values: Any) -> Any:
        add(statement.name.decode())
        return fetch(pool, statement, values)

    def counted_in_turn(pool: Any, first: Any, second: Any, values: Any) -> Any:
        add(first.name.decode())
        add(second.name.decode())
        return fetch_in_turn(pool, first, second, values)

    def count(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        add(statement.split(None, 1)[0])

    event.listen(database.engine, "before_cursor_execute", count)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PreparedPool, "fetch", counted)
            patch.setattr(PreparedPool, "fetch_in_turn", counted_in_turn)
            yield seen
    finally:
        event.remove(database.engine, "before_cursor_execute", count)


def rows(inline: Inline) -> dict[str, int]:
    """Of all tables but those that are written beside the run: the logs, and the executors with their heartbeats."""
    with inline.store.database.transaction() as connection:
        return {
            table.name: connection.scalar(select(func.count()).select_from(table)) or 0
            for table in metadata.sorted_tables
            if table not in (logs, executors)
        }


@pytest.mark.slow
def test_a_loop_of_very_many_continuations_keeps_every_table_flat(inline: Inline) -> None:
    turns = examples(60)
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
    assert len(inline.rival.logs("r")) < 5


@pytest.mark.slow
def test_a_flow_of_10_000_checkpoints_resumes_without_reading_them_one_by_one(timed: Inline) -> None:
    """It stops at its second; the others are written by hand, which is quicker than to let it do all of them."""

    def second_waits(name: str) -> int:
        if once(name, calls[name]) == 1:
            raise StepError("not yet", behavior="retry")
        return 1

    define(timed, lambda ctx: sum(ctx.step(second_waits, "s", max_attempts=2, base_delay=10) for _ in range(10_000)))
    start(timed)
    with timed.store.database.transaction() as connection:
        first = dict(connection.execute(select(steps).where(steps.c.path == "f/second_waits")).mappings().one())
        connection.execute(delete(steps).where(steps.c.path == "f/second_waits~2"))
        more = [
            {**first, "path": f"f/second_waits~{n}", "opened": n - 1, "end_order": n - 1, "begun_after": n - 1}
            for n in range(2, 10_001)
        ]
        connection.execute(insert(steps), more)
        entry = {"run_id": "r", "what": "completed", "at": first["completed_at"]}
        detail = {"kind": "step", "attempts": 1, "result": 1}
        orders = ("end_order", "begun_after")
        connection.execute(
            insert(history),
            [{**entry, "path": one["path"], "detail": detail | {name: one[name] for name in orders}} for one in more],
        )
    with statements(timed.store.database) as seen:
        later(timed, 11)
    assert (timed.rival.result("r").result, calls["s"]) == (10_000, 2)
    assert seen.total() < 50, seen


@pytest.mark.slow
def test_a_checkpoint_costs_the_same_however_many_came_before_it(inline: Inline) -> None:
    define(inline, lambda ctx, input: sum(ctx.step(once, "s", 1) for _ in range(input)))

    def cost(count: int) -> int:
        inline.rival.run("f", count, run_id=f"r{count}")
        with statements(inline.store.database) as seen:
            inline.drain()
        return seen.total()

    assert cost(110) - cost(100) == cost(20) - cost(10) > 0


def test_a_resume_is_as_few_statements_however_many_checkpoints_there_are(inline: Inline) -> None:
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

    assert resumed(100) == resumed(5) > 0
