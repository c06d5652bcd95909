"""A run of many items can be looked at without reading all of them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from sqlalchemy import event, insert

from rival_client.db.database import Database
from rival_client.db.run_tables import attempts, runs, steps
from rival_client.model.kinds import COMPOSITE_KINDS, CompositeKind
from rival_client.model.records import RunState
from rival_client.sql.reads.state_reads import read_state

NOW = dt.datetime.now(dt.UTC)


class Table:
    """Rows as a worker would have left them."""

    def __init__(self, url: str) -> None:
        self.database = Database(url)
        self._insert(runs, [{"id": "x", "workflow": "w", "version": "1", "status": "running", "started_at": NOW}])

    def _insert(self, table: Any, rows: list[dict[str, Any]]) -> None:
        with self.database.transaction() as connection:
            connection.execute(insert(table), [{"created_at": NOW, **row} for row in rows])

    def steps(self, paths: list[str], kind: str = "step", status: str = "completed", **more: Any) -> None:
        ended = None if status in ("waiting", "pending") else NOW
        about = {"run_id": "x", "kind": kind, "status": status, "completed_at": ended, "result": {"big": 1}, **more}
        self._insert(steps, [{"path": path, **about} for path in paths])

    def attempts(self, *paths: str) -> None:
        about = {"run_id": "x", "token": 1, "attempt": 1, "outcome": "failed", "ended_at": NOW}
        with self.database.transaction() as connection:
            connection.execute(insert(attempts), [{"path": path, **about} for path in paths])

    def look(self, fold: int | None = 10) -> RunState:
        with self.database.snapshot() as connection:
            return read_state(connection, "x", fold)


@pytest.fixture(params=["file_url", "postgres_url"])
def table(request: pytest.FixtureRequest) -> Iterator[Table]:
    made = Table(request.getfixturevalue(request.param))
    yield made
    made.database.dispose()


def paths(state: RunState) -> set[str]:
    return {step.path for step in state.steps}


@pytest.mark.slow
def test_items_that_are_many_are_counted_by_what_became_of_them(table: Table) -> None:
    table.steps(["a_b"])
    table.steps(["lines"], "for_each", "waiting", total=10_000, opened=9_000, remaining=2_000)
    table.steps([f"lines[{n}]" for n in range(8_000)], "item", item={"n": 1})
    table.steps([f"lines[{n}]" for n in range(8_000, 10_000)], "item", "waiting", item={"n": 1})
    table.steps([f"lines[{n}]/pack" for n in range(8_000)])
    table.steps(["lines!items"], "items")
    # Its name begins alike, and would match a pattern in which _ stands for any letter.
    table.steps(["lines_too", "lines-2"])
    fetched = []
    event.listen(table.database.engine, "before_cursor_execute", lambda *args: fetched.append(args[2]))
    state = table.look()
    assert paths(state) == {"a_b", "lines", "lines!items", "lines_too", "lines-2"}
    assert state.folded == {"lines": {"completed": 8_000, "waiting": 2_000}}
    assert not [text for text in fetched if "rival_steps.result" in text or "rival_steps.item" in text]
    assert len(table.look(None).steps) == 18_005


def test_few_items_are_shown_each_and_what_is_in_them_again_by_its_number(table: Table) -> None:
    table.steps(["few"], "for_each", total=2)
    table.steps(["few[0]", "few[1]"], "item")
    table.steps(["few[0]/parts"], "for_each", total=11)
    table.steps([f"few[0]/parts[{n}]" for n in range(11)], "item", "failed", error={"type": "E"})
    table.steps([f"few[0]/parts[{n}]/cut" for n in range(11)])
    table.steps(["few[1]/parts"], "for_each", total=1)
    table.steps(["few[1]/parts[0]"], "item")
    table.steps(["few[1]/parts[0]/cut"])
    state = table.look()
    assert paths(state) == {
        "few",
        "few[0]",
        "few[1]",
        "few[0]/parts",
        "few[1]/parts",
        "few[1]/parts[0]",
        "few[1]/parts[0]/cut",
    }
    assert state.folded == {"few[0]/parts": {"failed": 11}}


def test_of_a_long_loop_the_last_iteration_is_shown(table: Table) -> None:
    table.steps(["pages"], "loop", "waiting")
    table.steps([f"pages[{n}]/fetch" for n in range(101)])
    table.steps([f"pages[{n}]!until" for n in range(100)], "condition")
    table.steps(["short"], "loop")
    table.steps([f"short[{n}]/fetch" for n in range(10)])
    table.attempts("pages[9]/fetch", "pages[100]/fetch", "short[3]/fetch")
    state = table.look()
    assert paths(state) == {"pages", "pages[100]/fetch", "short"} | {f"short[{n}]/fetch" for n in range(10)}
    assert state.folded == {"pages": {"completed": 100}}
    assert {attempt.path for attempt in state.attempts} == {"pages[100]/fetch", "short[3]/fetch"}


def test_the_current_step_is_one_that_runs_and_not_a_composite_around_it(table: Table) -> None:
    table.steps(["done"])
    table.steps(["both"], "parallel", "waiting", total=2, opened=2, remaining=1)
    table.steps(["both/inner"], "branch", "waiting")
    table.steps(["both/one"])
    table.steps(["both/two"], status="pending")
    assert table.look(None).current_step == "both/two"


def test_both_sides_call_the_same_kinds_composites() -> None:
    assert set(get_args(CompositeKind)) == set(COMPOSITE_KINDS)
