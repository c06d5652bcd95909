"""The database takes a commit, and its answer is lost: what is then said again is done once all the same, and a run
goes on however long the database was away.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import func, select

from rival_client.db.event_tables import waits
from rival_client.errors import DatabaseUnavailable
from rival_workers import flow, step
from rival_workers.definition.registry import Registry
from tests.support.inline import Inline
from tests.support.workers import lines_like


def define_flow(inline: Inline, function: Callable[..., Any]) -> None:
    made = flow("f", registry=Registry())(function)
    assert made.definition is not None
    inline.registry.renew(made.definition)
    inline.process.register_workflows()


def lose_answer(inline: Inline, operation: str) -> None:
    """The store's next operation of that name commits, and its caller gets an error."""
    real = getattr(inline.store, operation)

    def unheard(*args: Any, **options: Any) -> None:
        setattr(inline.store, operation, real)
        real(*args, **options)
        raise DatabaseUnavailable("the answer was lost")

    setattr(inline.store, operation, unheard)


def started(inline: Inline, workflow: str = "f") -> None:
    inline.rival.run(workflow, run_id="r")
    inline.drain()


@pytest.mark.parametrize("kept", [1, 2])
def test_a_flow_gets_the_event_that_was_there_although_the_answer_was_lost(inline: Inline, kept: int) -> None:
    """It is not taken for a wait that goes on, and no other event is taken in its place."""
    define_flow(inline, lambda ctx: ctx.await_event("go"))
    for number in range(kept):
        inline.rival.send_event("go", number)
    inline.drain()
    lose_answer(inline, "commit_flow")
    started(inline)
    assert inline.rival.result("r").result == 0
    assert sorted(event.status for event in inline.rival.events()) == ["consumed", *["kept"] * (kept - 1)]
    with inline.store.database.autocommit() as connection:
        assert connection.scalar(select(func.count()).select_from(waits)) == 0


def test_a_flow_that_has_spawned_a_child_does_not_fail_when_the_reply_is_lost(inline: Inline) -> None:
    inline.define("child", step(lambda: 1, name="one"))
    define_flow(inline, lambda ctx: ctx.spawn("child"))
    lose_answer(inline, "started_run")
    started(inline)
    assert inline.rival.result("r").result == "r/spawn:child"
    assert inline.rival.result("r/spawn:child").status == "completed"


@pytest.mark.parametrize("budget", [60.0, 0.0], ids=["in place", "by messages"])
def test_a_flow_starts_over_once_although_the_answer_was_lost(inline: Inline, budget: float) -> None:
    """The attempt that the lost commit has claimed is handed back, and the flow goes on with its new input."""
    inline.coordinator.settings = replace(inline.settings, continuation_budget=budget)
    seen: list[int] = []

    def body(ctx: Any, input: int | None) -> Any:
        seen.append(ctx.step(lambda: input or 0, name="one"))
        return input if input == 2 else ctx.continue_as((input or 0) + 1)

    define_flow(inline, body)
    lose_answer(inline, "continue_flow")
    started(inline)
    inline.keeper.run_once()
    inline.drain()
    assert (inline.rival.result("r").result, seen) == (2, [0, 1, 2])
    assert inline.process.executor.running.all == set()
    assert "late_result_refused" not in [one.what for one in inline.rival.history("r")]


# -- away for longer than an attempt waits ----------------------------------------------------------------


@pytest.fixture
def impatient(inline: Inline) -> Inline:
    """One that does not wait for a database that is away."""
    inline.coordinator._outage._seconds = 0.0
    return inline


def make_away(inline: Inline, operation: str) -> None:
    """For the store's next operation of that name: it is not even done."""
    real = getattr(inline.store, operation)

    def away(*args: Any, **options: Any) -> None:
        setattr(inline.store, operation, real)
        raise DatabaseUnavailable("away")

    setattr(inline.store, operation, away)


def pass_time(inline: Inline) -> None:
    if inline.clock is None:
        time.sleep(0.01)
    else:
        inline.clock.advance(0.1)
    inline.drain()


def start_and_lose_contact(inline: Inline, workflow: str) -> None:
    started(inline, workflow)
    assert [one.what for one in inline.rival.history("r")].count("handed_back") == 1


@pytest.mark.parametrize(
    "operation",
    ["read_checkpoints", "record_checkpoint", "record_checkpoints", "commit_flow", "continue_flow"],
)
def test_a_flow_goes_on_after_the_database_was_away_for_longer_than_its_patience(
    impatient: Inline, operation: str, caplog: pytest.LogCaptureFixture
) -> None:
    """No attempt fails: this one is handed back, and another one continues from what was committed."""

    def body(ctx: Any, input: Any) -> Any:
        ctx.step(lambda: 1, name="one")
        ctx.step(lambda: 2, name="quick", execution_mode="inline")
        ctx.gather(lambda: 2, lambda: 3)
        ctx.sleep(0.05)
        ctx.await_event("never", timeout=0)
        ctx.call("child")
        return input if input else ctx.continue_as("again")

    impatient.define("child", step(lambda: 1, name="one"))
    define_flow(impatient, body)
    make_away(impatient, operation)
    impatient.rival.run("f", run_id="r")
    for _ in range(40):
        pass_time(impatient)
    assert impatient.rival.result("r").result == "again"
    assert impatient.process.executor.running.all == set()
    released = "run r step f attempt …: no outcome could be committed, it is released (DatabaseUnavailable: away)"
    assert any(lines_like(record.message, released) for record in caplog.records)


@pytest.mark.parametrize("operation", ["suspend_external_step", "read_step"])
def test_an_external_step_is_not_left_running_when_the_database_was_away_for_too_long(
    impatient: Inline, operation: str
) -> None:
    impatient.define("w", step(lambda ctx: tokens.append(ctx.completion_token), name="out", execution_mode="external"))
    tokens: list[str] = []
    make_away(impatient, operation)
    start_and_lose_contact(impatient, "w")
    assert [found.status for found in impatient.rival.state("r").steps] == ["waiting"]
    assert impatient.rival.complete_step(tokens[-1], 7)
    impatient.drain()
    assert impatient.rival.result("r").result == 7
