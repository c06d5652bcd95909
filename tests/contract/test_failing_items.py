"""One bad row does not stop a keeper's round: it is named once and tried ever less often, and the rest goes on."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from sqlalchemy import insert, update

from rival_client.db.run_tables import orphans, steps, workflows
from rival_client.db.types import after, now
from rival_client.errors import DatabaseRefused, DatabaseUnavailable
from rival_workers import step
from rival_workers.engine.interpreter import first
from rival_workers.runtime import keeper
from rival_workers.runtime.keeper import failing_items
from rival_workers.runtime.keeper.failing_items import FailingItems
from tests.support.inline import Inline


def hang(inline: Inline, workflow: str, run_id: str, by: str = "gone") -> None:
    """A run whose step has timed out on an executor that does not know it."""
    if inline.registry.newest(workflow) is None:
        inline.define(workflow, step(lambda: 1, name="slow", timeout=60), step(lambda: 2, name="more"))
    version = next(w.version for w in inline.registry if w.name == workflow)
    inline.rival.run(workflow, run_id=run_id)
    inline.doorbell.take()
    plan = inline.registry.find(workflow, version)
    assert plan is not None
    assert inline.store.begin_run(run_id, 0, first(plan.plan), claim_for=by)
    with inline.store.database.transaction() as connection:
        connection.execute(
            update(steps).where(steps.c.run_id == run_id).values(timeout_at=after(-1), ring_at=after(-1))
        )


def corrupt(inline: Inline, workflow: str) -> None:
    """No worker has the workflow any more, and its stored plan cannot be read."""
    with inline.store.database.transaction() as connection:
        connection.execute(update(workflows).where(workflows.c.name == workflow).values(plan={"nodes": "nonsense"}))
    version = next(w.version for w in inline.registry if w.name == workflow)
    del inline.registry._versions[workflow, version], inline.registry._newest[workflow]


def errors(caplog: pytest.LogCaptureFixture, word: str) -> list[str]:
    return [record.getMessage() for record in caplog.records if word in record.getMessage()]


def test_a_corrupt_plan_is_named_once_and_other_timeouts_are_applied(
    inline: Inline, caplog: pytest.LogCaptureFixture
) -> None:
    hang(inline, "bad", "b")
    hang(inline, "good", "g")
    corrupt(inline, "bad")
    for _ in range(3):
        with inline.store.database.transaction() as connection:
            connection.execute(update(steps).where(steps.c.run_id == "b").values(ring_at=after(-1)))
        inline.keeper.run_once()
    inline.drain()
    assert inline.rival.result("g").status == "failed"
    assert inline.rival.state("b").status == "running"
    assert len(errors(caplog, "cannot time out b slow")) == 1


def test_a_part_that_fails_does_not_keep_the_others_from_their_work(
    inline: Inline, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def poison(limit: int) -> Any:
        raise DatabaseRefused("permission denied for table rival_schedules", "42501")

    monkeypatch.setattr(inline.store, "fire_schedules", poison)
    hang(inline, "good", "g")
    inline.keeper.run_once()
    inline.drain()
    assert inline.rival.result("g").status == "failed"
    assert len(errors(caplog, "cannot fire schedules")) == 1
    assert inline.keeper._steady_since is not None  # a later part has begun to count from now


def test_one_orphan_that_cannot_be_cancelled_does_not_keep_the_others(inline: Inline) -> None:
    inline.define("w", step(lambda: 1, name="a"))
    for run_id in ("x", "y"):
        inline.rival.run("w", run_id=run_id)
    with inline.store.database.transaction() as connection:
        for run_id in ("x", "y"):
            connection.execute(insert(orphans).values(run_id=run_id, by="me", at=now()))
    real = inline.store.cancel_orphan

    def cancel(run_id: str, by: str) -> bool | None:
        if run_id == "x":
            raise ValueError("odd")
        return real(run_id, by)

    inline.store.cancel_orphan = cancel  # type: ignore[method-assign]
    inline.keeper.run_once()
    assert (inline.rival.state("x").status, inline.rival.state("y").status) == ("pending", "cancelled")


def test_more_failing_orphans_than_a_batch_do_not_keep_the_others(
    inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "BATCH", 2)
    inline.define("w", step(lambda: 1, name="a"))
    bad = [f"bad-{number}" for number in range(5)]
    with inline.store.database.transaction() as connection:
        for run_id in [*bad, "good"]:
            connection.execute(insert(orphans).values(run_id=run_id, by="me", at=now()))
    for run_id in [*bad, "good"]:
        inline.rival.run("w", run_id=run_id)
    real, tried = inline.store.cancel_orphan, list[str]()

    def cancel(run_id: str, by: str) -> bool | None:
        tried.append(run_id)
        if run_id in bad:
            raise ValueError("odd")
        return real(run_id, by)

    inline.store.cancel_orphan = cancel  # type: ignore[method-assign]
    assert inline.keeper.run_once().orphans == 1
    assert inline.rival.state("good").status == "cancelled"
    assert sorted(tried) == [*bad, "good"]


@pytest.mark.parametrize("executor", ["dead", "unknown"])
def test_more_attempts_that_cannot_be_taken_over_than_a_batch_do_not_keep_the_others(
    inline: Inline, monkeypatch: pytest.MonkeyPatch, executor: str
) -> None:
    """`dead`: its lease has run out. `unknown`: it has no row any more."""
    monkeypatch.setattr(keeper, "BATCH", 2)
    for number in range(5):
        hang(inline, "bad", f"bad-{number}", by=executor)
    hang(inline, "good", "good", by=executor)
    corrupt(inline, "bad")
    with inline.store.database.transaction() as connection:
        connection.execute(update(steps).values(timeout_at=None, ring_at=after(60)))
    # No loss is forgiven: the step fails, and that needs the plan.
    inline.keeper._transitions._settings = inline.settings.with_(max_lost=0)
    if executor == "dead":
        inline.store.add_executor("dead", "elsewhere", 1, "w", -1)
    inline.keeper._steady_since = -1e9
    inline.keeper.run_once()
    statuses = {run.run_id: run.status for run in inline.rival.runs()}
    assert statuses == {"good": "failed"} | {f"bad-{number}": "running" for number in range(5)}


def test_a_failing_item_is_tried_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    clock: list[float] = [0.0]
    tried: list[float] = []
    failing = FailingItems(lambda: clock[0])

    def fail() -> None:
        tried.append(clock[0])
        raise ValueError("no")

    for second in range(5000):
        clock[0] = float(second)
        failing.attempt("do", ("r",), fail)
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert gaps == sorted(gaps)
    assert (gaps[0], gaps[-1]) == (5.0, failing_items._LONGEST_PAUSE)
    assert len(errors(caplog, "cannot do r")) == 1


def test_a_database_that_is_away_is_not_the_fault_of_an_item() -> None:
    def away() -> None:
        raise DatabaseUnavailable("away")

    with pytest.raises(DatabaseUnavailable):
        FailingItems(lambda: 0.0).attempt("do", ("r",), away)
