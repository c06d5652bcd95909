"""The database takes a commit, and its answer is lost: what is then said again is done once all the same, and a run goes
on however long the database was away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import func, select

from rival_client.errors import DatabaseUnavailable
from rival_client.tables import waits
from rival_workers import flow, step
from rival_workers.definition.registry import Registry
from tests.support.inline import Inline


def define_flow(inline: Inline, function: Callable[..., Any]) -> None:
    made = flow("f", registry=Registry())(function)
    assert made.definition is not None
    inline.registry.renew(made.definition)
    inline.process.register_workflows()


def lose_answer(inline: Inline, operation: str) -> None:
    """Of the store's next operation of that name: it is done, and nobody hears of it."""
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
    lose_answer(inline, "suspend_for_event")
    started(inline)
    assert inline.rival.result("r").result == 0
    assert sorted(event.status for event in inline.rival.events()) == ["consumed", *["kept"] * (kept - 1)]
    with inline.store.database.autocommit() as connection:
        assert connection.scalar(select(func.count()).select_from(waits)) == 0


def test_a_flow_that_has_spawned_a_child_does_not_fail_since_its_ring_was_not_heard(inline: Inline) -> None:
    inline.define("child", step(lambda: 1, name="one"))
    define_flow(inline, lambda ctx: ctx.spawn("child"))
    lose_answer(inline, "started_run")
    started(inline)
    assert inline.rival.result("r").result == "r/spawn:child"
    assert inline.rival.result("r/spawn:child").status == "completed"
