"""A run's history is complete: each transition, its actor and order; the run can be rebuilt from it."""

from __future__ import annotations

from typing import Any

import pytest

from rival_client.db.database import Database
from rival_client.db.run_tables import steps
from rival_client.model.payload import Json
from rival_client.model.rebuild import rebuild
from rival_client.model.run_entries import HistoryEntry
from rival_workers import StepError, flow, for_each, parallel, step, wait_event_step
from rival_workers.drawing import run_charts
from rival_workers.engine.replay import CheckpointRef, CheckpointWrite
from rival_workers.store.flow_records import ChildRun, FlowCommit
from tests.support.histories import assert_histories_are_complete
from tests.support.inline import Inline
from tests.support.output import whole


def recorded(history: list[HistoryEntry]) -> list[tuple[str, str | None]]:
    return [(entry.what, entry.path) for entry in history]


class Fails:
    """The first so many calls."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self) -> str:
        self.left -= 1
        if self.left >= 0:
            raise StepError("not yet", behavior="retry", max_attempts=2, backoff="none")
        return "at last"


def test_the_state_of_a_run_that_went_through_everything_is_rebuilt_from_its_history(inline: Inline) -> None:
    fails = Fails(2)

    @flow("talk")
    def talk(ctx: Any) -> Any:
        ctx.step(lambda: "hello", name="greet")
        ctx.spawn("other", {})
        return ctx.await_event("answer")

    inline.define("other", step(lambda: "other", name="o"))
    inline.define(
        "w",
        step(fails, name="flaky"),
        parallel("both", [[step(lambda: 1, name="one")], [for_each("each", items=lambda: [1, 2, 3], do=[echo])]]),
        wait_event_step("paid", name="paid"),
        talk,
        step(lambda: "end", name="end"),
    )
    run_id = inline.rival.run("w", run_id="r").run_id
    inline.drain()
    assert inline.rival.state(run_id).status == "failed"
    inline.rival.retry(run_id, by="ann")
    inline.drain()
    inline.rival.pause(run_id, by="bob")
    inline.rival.resume(run_id, by="bob")
    inline.rival.send_event("paid", {"amount": 7})
    inline.drain()
    inline.rival.send_event("answer", "yes")
    inline.drain()
    assert inline.rival.state(run_id).status == "completed"
    inline.rival.rewind(run_id, "both", by="cy")
    inline.drain()
    inline.rival.skip(run_id, "paid", reason="paid in cash", by="cy")
    inline.drain()
    inline.rival.cancel(run_id, by="dan")
    assert assert_histories_are_complete(inline.store.database) == 3
    history = inline.rival.history(run_id)
    whats = {entry.what for entry in history}
    assert whats >= {
        "started",
        "scheduled",
        "claimed",
        "completed",
        "failed",
        "retried",
        "suspended",
        "woken",
        "event",
        "child",
        "rewind_run",
        "retry_run",
        "cancelled",
        "opened",
        "fanned_out",
        "paused",
        "skip",
        "failing",
        "waiting",
    }
    assert [entry.at for entry in history] == sorted(entry.at for entry in history)


def echo(item: int) -> int:
    return item


def test_each_entry_says_who_or_what_did_it(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid", name="paid"), step(lambda: 1, name="a"))
    inline.rival.run("w", run_id="r")
    inline.drain()
    event = inline.rival.send_event("paid")
    inline.drain()
    inline.rival.rewind("r", "a", by="ann")
    inline.rival.cancel("r", by="bob")
    who = {entry.what: entry.by for entry in inline.rival.history("r")}
    executor = inline.process.executor.id
    assert who["started"] == who["claimed"] == executor
    assert who["event"] == who["woken"] == f"event {event.event_id}"
    assert (who["rewind_run"], who["scheduled"], who["cancelled"]) == ("ann", "ann", "bob")


def test_the_first_part_of_a_history_is_the_run_as_it_was(inline: Inline) -> None:
    inline.define("w", step(lambda: 1, name="a"), step(lambda: 2, name="b"))
    inline.rival.run("w", {"x": 1}, run_id="r")
    inline.drain()
    history = inline.rival.history("r")
    assert recorded(history) == [
        ("started", None),
        ("claimed", "a"),
        ("completed", "a"),
        ("claimed", "b"),
        ("completed", "b"),
        ("completed", None),
    ]
    assert (rebuild([]).status, rebuild(history[:1]).input) == ("pending", {"x": 1})
    then = rebuild(history[:4])
    assert (then.status, {path: one.status for path, one in then.steps.items()}) == (
        "running",
        {"a": "completed", "b": "running"},
    )
    assert (rebuild(history).result, rebuild(history).steps["a"].result) == (2, 1)


def test_the_comparison_finds_what_a_history_does_not_record(inline: Inline) -> None:
    inline.define("w", step(lambda: 1, name="a"))
    inline.rival.run("w", run_id="r")
    inline.drain()
    assert assert_histories_are_complete(inline.store.database) == 1
    _set_result(inline.store.database, "2")
    found = "{'a': ({'kind': 'step', …'result': 1, …}, {'kind': 'step', …'result': 2, …})}"
    expected = f"run 'r': path -> (rebuilt from its history, in the tables): {found}"
    with pytest.raises(AssertionError, match=whole(expected)):
        assert_histories_are_complete(inline.store.database)
    _set_result(inline.store.database, "1")


def _set_result(database: Database, result: str) -> None:
    with database.transaction() as connection:
        connection.execute(steps.update().values(result=int(result)))


def test_a_timeline_has_each_step_with_when_it_waited_and_ran(inline: Inline) -> None:
    inline.define("w", step(Fails(1), name="flaky"), wait_event_step("paid", name="paid"))
    inline.rival.run("w", run_id="r")
    inline.drain()
    tracks = {one.path: one for one in run_charts.tracks(inline.rival.history("r"))}
    assert [one.status for one in tracks["flaky"].stretches] == ["running", "waiting_retry", "running"]
    assert [(one.status, one.ended) for one in tracks["paid"].stretches] == [("waiting", None)]


IDLE = {
    "nothing has ended since the last commit": lambda store, claim, ref: store.commit_flow(claim, FlowCommit(1)),
    "what was recorded is recorded again": lambda store, claim, ref: store.record_checkpoint(
        claim, CheckpointWrite(ref, "completed", Json("1"))
    ),
    "a child that was started is started again": lambda store, claim, ref: store.spawn_child(
        claim, ref, ChildRun("child", "other", Json("{}"))
    ),
}


@pytest.mark.parametrize("what", IDLE)
def test_a_flow_that_does_nothing_new_keeps_the_losses_that_its_history_records(inline: Inline, what: str) -> None:
    seen: list[tuple[int, int]] = []

    @flow("f", register=False)
    def lossy(ctx: Any) -> int:
        ctx.step(lambda: 1, name="first")
        [claim] = [running.claim for running in inline.store.running_on(inline.process.executor.id)]
        if not seen:
            seen.append((0, assert_histories_are_complete(inline.store.database)))
            inline.store.take_over_step(claim)
            return 0
        IDLE[what](inline.store, claim, CheckpointRef("f/first", "step", 1))
        seen.append((inline.rival.state("r").steps[0].lost, assert_histories_are_complete(inline.store.database)))
        return 1

    inline.define("w", lossy)
    inline.rival.run("w", run_id="r")
    inline.drain()
    inline.rival.recover()
    inline.keeper.run_once()
    inline.drain()
    assert seen == [(0, 1), (1, 1)]
    assert inline.rival.state("r").status == "completed"


def test_a_flow_that_waits_again_after_a_loss_has_it_forgiven_by_its_history_too(inline: Inline) -> None:
    passes: list[int] = []

    @flow("f", register=False)
    def waits_twice(ctx: Any) -> None:
        first = ctx.start.await_event("first")
        ctx.first(first, ctx.start.await_event("second"))
        passes.append(1)
        if len(passes) == 1:
            [claim] = [running.claim for running in inline.store.running_on(inline.process.executor.id)]
            inline.store.take_over_step(claim)
        first.result()

    inline.define("w", waits_twice)
    inline.rival.run("w", run_id="r")
    inline.drain()
    inline.rival.send_event("second")
    inline.drain()
    inline.rival.recover()
    inline.keeper.run_once()
    inline.drain()
    [row] = [one for one in inline.rival.state("r").steps if one.path == "f"]
    assert (len(passes), row.status, row.lost) == (2, "waiting", 0)
    assert "taken_over" in [entry.what for entry in inline.rival.history("r")]
    assert assert_histories_are_complete(inline.store.database) == 1
