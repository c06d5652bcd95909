"""Children on every store: they are cancelled with their parent whatever dies in between, and kept as long as it is."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event, func, select, update

from rival_client.db import metadata
from rival_client.db.log_tables import history
from rival_client.db.run_tables import orphans, runs, steps
from rival_client.db.types import after
from rival_client.sql import runs as run_statements
from rival_workers import ChildFailed, StepError, flow, parallel, step
from tests.contract.test_flows import define, start
from tests.support.inline import Inline

DAY = 86_400.0


def waits(ctx: Any) -> Any:
    return ctx.await_event("go", key=ctx.run.id)


def family(inline: Inline) -> None:
    """`r` waits for `r/call:child`, which waits for `r/call:child/call:grandchild`, which waits for an event."""
    define(inline, waits, "grandchild")
    define(inline, lambda ctx: ctx.call("grandchild"), "child")
    define(inline, lambda ctx: ctx.call("child"))
    start(inline)


CHILD, GRANDCHILD = "r/call:child", "r/call:child/call:grandchild"


def statuses(inline: Inline) -> dict[str, str]:
    return {run.run_id: run.status for run in inline.rival.runs()}


def go(inline: Inline, run_id: str) -> None:
    inline.rival.send_event("go", 1, key=run_id)
    inline.drain()


def orphaned(inline: Inline) -> set[str]:
    with inline.store.database.autocommit() as connection:
        return set(connection.scalars(select(orphans.c.run_id)))


def cancel_and_die(inline: Inline, run_id: str) -> None:
    """The commit of a cancel whose process dies before it cancels the children."""
    with inline.store.database.transaction() as connection:
        assert run_statements.cancel_run(connection, run_id, "ann")


# -- cancelling -------------------------------------------------------------------------------------------


def test_children_of_a_run_whose_canceller_died_are_cancelled_by_a_keeper(inline: Inline) -> None:
    family(inline)
    cancel_and_die(inline, "r")
    assert statuses(inline) == {"r": "cancelled", CHILD: "suspended", GRANDCHILD: "suspended"}
    done = inline.keeper.run_once()
    assert set(statuses(inline).values()) == {"cancelled"}
    assert (done.orphans, orphaned(inline)) == (2, set())
    assert inline.rival.history(GRANDCHILD)[-1].by == "ann"
    assert inline.keeper.run_once().orphans == 0


def test_a_cancel_that_lives_leaves_nothing_to_the_keeper(inline: Inline) -> None:
    family(inline)
    assert inline.rival.cancel("r")
    assert set(statuses(inline).values()) == {"cancelled"}
    assert orphaned(inline) == set()


def test_a_child_that_ends_before_it_is_cancelled_has_ended(inline: Inline) -> None:
    family(inline)
    cancel_and_die(inline, "r")
    go(inline, GRANDCHILD)
    assert statuses(inline) == {"r": "cancelled", CHILD: "completed", GRANDCHILD: "completed"}
    assert inline.keeper.run_once().orphans == 0
    assert (statuses(inline)[CHILD], orphaned(inline)) == ("completed", set())


def test_a_cancel_reaches_children_that_are_not_awaited_too(inline: Inline) -> None:
    define(inline, waits, "child")

    def body(ctx: Any) -> Any:
        ctx.spawn("child")
        ctx.await_event("never")

    define(inline, body)
    start(inline)
    cancel_and_die(inline, "r")
    inline.keeper.run_once()
    assert statuses(inline) == {"r": "cancelled", "r/spawn:child": "cancelled"}


def test_a_child_that_is_not_awaited_outlives_its_parents_end(inline: Inline) -> None:
    define(inline, waits, "child")

    def body(ctx: Any) -> Any:
        ctx.spawn("child")
        raise ValueError("no")

    define(inline, body)
    start(inline)
    inline.keeper.run_once()
    assert statuses(inline) == {"r": "failed", "r/spawn:child": "suspended"}
    go(inline, "r/spawn:child")
    assert statuses(inline)["r/spawn:child"] == "completed"


def test_a_child_is_cancelled_when_the_flow_that_waits_for_it_is_stopped_by_a_failure_beside_it(inline: Inline) -> None:
    def breaks() -> None:
        raise StepError("no", behavior="stop")

    define(inline, waits, "child")
    calling = flow("calling", register=False)(lambda ctx: ctx.call("child"))
    inline.define("f", parallel("both", [[calling], [step(breaks, name="breaks")]]))
    start(inline)
    assert inline.rival.state("r").status == "failed"
    inline.keeper.run_once()
    assert statuses(inline) == {"r": "failed", CHILD: "cancelled"}


def test_a_rewind_cancels_the_child_that_was_waited_for_and_its_end_is_not_taken_for_the_next_ones(
    inline: Inline,
) -> None:
    define(inline, waits, "child")
    inline.define("f", flow("part", register=False)(lambda ctx: ctx.call("child")))
    start(inline)
    inline.rival.rewind("r", "part")
    inline.drain()
    assert statuses(inline) == {"r": "suspended", CHILD: "cancelled", f"{CHILD}~2": "suspended"}
    assert inline.rival.state("r").error is None
    go(inline, f"{CHILD}~2")
    assert inline.rival.result("r").result == 1


def test_a_late_end_of_a_child_that_is_not_waited_for_any_more_wakes_no_flow(inline: Inline) -> None:
    """Its canceller is dead and no keeper has come yet; the flow waits at the same place for another child."""
    define(inline, waits, "child")
    inline.define("f", flow("part", register=False)(lambda ctx: ctx.call("child")))
    start(inline)
    with inline.store.database.transaction() as connection:
        connection.execute(update(runs).where(runs.c.id == CHILD).values(id="other"))
        connection.execute(update(steps).where(steps.c.run_id == CHILD).values(run_id="other"))
        connection.execute(metadata.tables["rival_waits"].update().values(run_id="other"))
        connection.execute(update(history).where(history.c.run_id == CHILD).values(run_id="other"))
    go(inline, CHILD)
    assert statuses(inline) == {"r": "suspended", "other": "completed"}


def test_a_flow_that_is_skipped_by_hand_leaves_no_child_and_no_wait_behind(inline: Inline) -> None:
    define(inline, waits, "child")
    inline.define("f", flow("part", register=False)(lambda ctx: ctx.call("child")), step(lambda: 2, name="last"))
    start(inline)
    inline.rival.skip("r", "part", reason="not needed")
    inline.drain()
    assert statuses(inline) == {"r": "completed", CHILD: "cancelled"}
    assert {row.status for row in inline.rival.state("r").steps} == {"skipped", "cancelled", "completed"}


@pytest.mark.slow
def test_very_many_children_of_one_name_are_started_without_trying_every_number(inline: Inline) -> None:
    inline.define("child", step(lambda: 1, name="only"))

    def body(ctx: Any, input: int) -> Any:
        ctx.call("child")
        return input if input == 25 else ctx.continue_as(input + 1)

    define(inline, body)
    tries: list[str] = []

    def counted(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        tries.extend([statement] if "INSERT INTO rival_runs" in statement else [])

    event.listen(inline.store.database.engine, "before_cursor_execute", counted)
    start(inline, 1)
    event.remove(inline.store.database.engine, "before_cursor_execute", counted)
    assert inline.rival.result("r").result == 25
    assert len(tries) < 1 + 25 * 12


def test_a_parents_cancel_a_childs_end_and_a_keeper_at_once_leave_nothing_open_and_do_not_deadlock(
    postgres_url: str,
) -> None:
    inline = Inline(postgres_url)
    try:
        define(inline, waits, "child")
        define(inline, lambda ctx: ctx.call("child"))
        parents = [f"r{n}" for n in range(10)]
        for run_id in parents:
            start(inline, run_id=run_id)
        children = [f"{run_id}/call:child" for run_id in parents]
        for child in children:
            inline.rival.send_event("go", 1, key=child)
        with ThreadPoolExecutor(8) as threads:
            jobs = [threads.submit(inline.rival.cancel, run_id) for run_id in parents]
            jobs += [threads.submit(inline.deliver, message) for message in inline.doorbell.take()]
            jobs += [threads.submit(inline.keeper.run_once) for _ in range(4)]
            for job in jobs:
                job.result()
        inline.drain()
        inline.keeper.run_once()
        assert set(statuses(inline).values()) <= {"cancelled", "completed"}
        assert orphaned(inline) == set()
    finally:
        inline.close()


# -- keeping ----------------------------------------------------------------------------------------------


def aged(inline: Inline, *run_ids: str) -> None:
    """They have ended a day ago."""
    with inline.store.database.transaction() as connection:
        connection.execute(update(runs).where(runs.c.id.in_(run_ids)).values(completed_at=after(-DAY)))


def let_go(inline: Inline, limit: int = 100) -> int:
    gone = 0
    for workflow in ("grandchild", "child", "f"):
        gone += inline.store.delete_ended_before(DAY / 2, limit, workflow)
    return gone


def test_nothing_goes_below_an_unfinished_run_however_far_up_it_is(inline: Inline) -> None:
    family(inline)
    go(inline, GRANDCHILD)
    assert set(statuses(inline).values()) == {"completed"}
    inline.rival.rewind("r", "f")
    aged(inline, CHILD, GRANDCHILD)
    assert let_go(inline) == 0
    assert set(statuses(inline)) == {"r", CHILD, GRANDCHILD}


def test_a_family_goes_from_the_top_down_with_all_that_hangs_on_it(inline: Inline) -> None:
    family(inline)
    go(inline, GRANDCHILD)
    aged(inline, "r", CHILD, GRANDCHILD)
    assert [let_go(inline) for _ in range(4)] == [1, 1, 1, 0]
    with inline.store.database.transaction() as connection:
        left = {
            table.name: connection.scalar(select(func.count()).select_from(table))
            for table in metadata.sorted_tables
            if "run_id" in table.c or table is runs
        }
    assert {name: rows for name, rows in left.items() if rows} == {"rival_events": 1}


def test_a_child_that_outlives_its_parents_record_is_nobodys_and_goes_on(inline: Inline) -> None:
    define(inline, waits, "child")
    define(inline, lambda ctx: ctx.spawn("child"))
    start(inline)
    aged(inline, "r")
    assert let_go(inline) == 1
    child = inline.rival.state("r/spawn:child")
    assert (child.status, child.parent_run_id, child.parent_path) == ("suspended", None, None)
    go(inline, "r/spawn:child")
    assert inline.rival.result("r/spawn:child").result == 1


def test_a_parent_of_more_children_than_a_batch_goes_and_they_stay(inline: Inline) -> None:
    define(inline, lambda ctx: None, "child")
    define(inline, lambda ctx: [ctx.spawn("child") for _ in range(7)])
    start(inline)
    aged(inline, "r")
    assert inline.store.delete_ended_before(DAY / 2, 3, "f") == 1
    assert len(statuses(inline)) == 7
    assert {run.parent_run_id for run in inline.rival.runs()} == {None}


def test_children_that_must_stay_are_not_in_the_way_of_what_may_go(inline: Inline) -> None:
    """Nor looked at: they are not in the index that retention reads."""
    define(inline, lambda ctx: None, "child")
    define(inline, lambda ctx: [[ctx.spawn("child") for _ in range(7)], ctx.await_event("never")])
    start(inline)
    start(inline, run_id="alone", workflow="child")
    aged(inline, *(run_id for run_id in statuses(inline) if run_id != "r"))
    assert inline.store.delete_ended_before(DAY / 2, 2, "child") == 1
    assert inline.store.delete_ended_before(DAY / 2, 2, "child") == 0
    assert len(statuses(inline)) == 8


def test_a_loop_keeps_none_of_the_children_of_its_earlier_iterations(inline: Inline) -> None:
    define(inline, lambda ctx: None, "child")

    def body(ctx: Any, input: int) -> Any:
        ctx.call("child")
        return ctx.await_event("never") if input == 3 else ctx.continue_as(input + 1)

    define(inline, body)
    start(inline, 1)
    parents = [run.parent_run_id for run in inline.rival.runs(workflow="child")]
    assert sorted(parents, key=str) == [None, None, "r"]
    aged(inline, *(run_id for run_id in statuses(inline) if run_id != "r"))
    assert let_go(inline) == 2


def test_a_cancelled_child_is_distinguished_from_one_that_failed(inline: Inline) -> None:
    def body(ctx: Any) -> Any:
        try:
            ctx.call("child")
        except ChildFailed as failed:
            return failed.error["type"]

    define(inline, waits, "child")
    define(inline, body)
    start(inline)
    assert inline.rival.cancel(CHILD)
    inline.drain()
    assert inline.rival.result("r").result == "ChildCancelled"
