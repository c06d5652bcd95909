"""How long ended runs are kept: as their workflow says, or else as the workers do."""

from __future__ import annotations

from sqlalchemy import select

from rival_client.db.run_tables import runs
from rival_workers.engine.nodes import StepNode
from rival_workers.engine.plan import Plan
from tests.contract.stage import COMPLETES, DONE, PLAN, Stage
from tests.support.inline import Clock, Inline

HOUR = 3600.0
OTHER = Plan(nodes=(StepNode(name="a"),))


def left(stage: Stage) -> set[str]:
    with stage.database.transaction() as connection:
        return set(connection.scalars(select(runs.c.id)))


def ended(stage: Stage, run_id: str, workflow: str | None = None) -> None:
    stage.store.finish_step(stage.begin(run_id), DONE, COMPLETES, claim_for=None)
    if workflow is not None:
        stage.force("UPDATE rival_runs SET workflow = :workflow WHERE id = :id", workflow=workflow, id=run_id)


def test_while_no_workflow_says_anything_the_workers_retention_is_for_all(stage: Stage) -> None:
    assert stage.store.retentions(HOUR) == [("w", HOUR)]
    assert stage.store.retentions(0.0) == []


def test_the_version_that_was_registered_last_says_it(stage: Stage) -> None:
    stage.store.register_workflow("other", OTHER, None, None, 60.0)
    stage.time_passes(1)
    assert dict(stage.store.retentions(HOUR)) == {"w": HOUR, "other": 60.0}
    stage.store.register_workflow("other", PLAN, None, None, 0.0)
    assert dict(stage.store.retentions(HOUR)) == {"w": HOUR}
    stage.time_passes(1)
    stage.store.register_workflow("other", OTHER, None, None)
    assert dict(stage.store.retentions(HOUR)) == {"w": HOUR, "other": HOUR}


def test_of_one_workflow_only_ended_runs_of_that_age_go(stage: Stage) -> None:
    ended(stage, "old")
    ended(stage, "of-another", "another")
    stage.begin("open")
    stage.begin("late")
    stage.time_passes(100)
    ended(stage, "young")
    stage.cancel("late")
    assert stage.store.delete_ended_before(50, 10, "w") == 1
    assert left(stage) == {"of-another", "open", "late", "young"}


def test_batches_of_one_workflow_are_bounded(stage: Stage) -> None:
    for number in range(5):
        ended(stage, f"run-{number}")
    stage.time_passes(100)
    assert [stage.store.delete_ended_before(50, 2, "w") for _ in range(4)] == [2, 2, 1, 0]


def test_a_workflows_own_retention_holds_for_its_runs_and_no_others(file_url: str) -> None:
    def one() -> int:
        return 1

    clock = Clock()
    inline = Inline(file_url, clock=clock, retention=10 * HOUR)
    inline.keeper.clock = clock
    try:
        for name, retention in (("brief", HOUR), ("plain", None), ("precious", 0)):
            inline.define(name, one, retention=retention)
            inline.rival.run(name, run_id=name)
        inline.drain()

        def after(hours: float) -> set[str]:
            clock.advance(hours * HOUR)
            inline.keeper.run_once()
            return {run.run_id for run in inline.rival.runs()}

        assert after(0.9) == {"brief", "plain", "precious"}
        assert after(0.2) == {"plain", "precious"}
        assert after(10) == {"precious"}
    finally:
        inline.close()


def test_a_run_that_another_transaction_has_locked_is_left_for_later(pg_stage: Stage) -> None:
    ended(pg_stage, "held")
    ended(pg_stage, "free")
    pg_stage.time_passes(100)
    with pg_stage.database.transaction() as connection:
        connection.execute(select(runs).where(runs.c.id == "held").with_for_update()).all()
        assert pg_stage.store.delete_ended_before(50, 10, "w") == 1
    assert left(pg_stage) == {"held"}
