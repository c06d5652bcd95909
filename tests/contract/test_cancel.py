"""Cancelled runs that workers end: what was done is undone, hooks are called, and nothing is left."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rival_client import AsyncRival, RunCancelled
from rival_workers import DefinitionError, create_workflow, flow, for_each, step, wait_event_step
from rival_workers.definition.define import define_workflow
from tests.support.inline import Inline
from tests.support.output import whole

log: list[str] = []


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    log.clear()


def act(run: Any) -> str:
    return str(run.step)


def undo(run: Any, result: Any, error: Any) -> str:
    log.append(run.step)
    return f"{result}: {error['type']}, {error['message']}"


def never() -> None:
    raise AssertionError("not called")


#: Two steps that can be undone, and a wait in which the run is cancelled.
SAGA: list[Any] = [
    step(act, name="a", compensate=undo),
    for_each("all", items=lambda: [1, 2], do=[step(act, name="b", compensate=undo)]),
    wait_event_step("paid", name="paid", key="1"),
    step(never, name="last", compensate=undo),
]
UNDONE = ["all[1]/b!compensate", "all[0]/b!compensate", "a!compensate"]


def waiting(inline: Inline, **options: Any) -> None:
    options = {"compensate_on_cancel": True} | options
    inline.define("w", *SAGA, on_error=never, **options)
    inline.rival.run("w", {}, "r", **({"deadline": 60} if inline.clock else {}))
    inline.drain()


def statuses(inline: Inline, run_id: str = "r") -> dict[str, str]:
    return {one.path: one.status for one in inline.rival.state(run_id).steps}


def test_a_cancelled_run_is_undone_like_a_failed_one_and_ends_as_cancelled(inline: Inline) -> None:
    waiting(inline)
    assert inline.rival.cancel("r", by="ana")
    state = inline.rival.state("r")
    assert (state.status, statuses(inline)["paid"], statuses(inline)["!cancel"]) == ("running", "cancelled", "pending")
    inline.drain()
    state = inline.rival.state("r")
    assert (state.status, log, state.completed_at is not None) == ("cancelled", UNDONE, True)
    assert (state.error or {})["message"] == "the run was cancelled by ana"
    [undone] = [one for one in state.steps if one.path == "a!compensate"]
    assert undone.result == "a: RunCancelled, the run was cancelled by ana"
    assert "!on_error" not in statuses(inline), "it has not failed"
    assert [reason.text for reason in inline.rival.why("r").reasons] == ["It was cancelled by ana."]
    whole = [(entry.what, entry.by) for entry in inline.rival.history("r") if entry.path is None]
    assert [what for what, _ in whole] == ["started", "cancelling", "cancelled"]
    assert whole[1] == ("cancelling", "ana")
    with pytest.raises(RunCancelled):
        inline.rival.result("r").unwrap()
    assert not inline.rival.cancel("r")


def test_the_async_client_cancels_in_the_same_way(inline: Inline) -> None:
    waiting(inline)
    assert asyncio.run(AsyncRival(sync=inline.rival).cancel("r", by="ana"))
    inline.drain()
    assert (inline.rival.state("r").status, log) == ("cancelled", UNDONE)


def test_without_the_option_a_cancel_ends_the_run_at_once(inline: Inline) -> None:
    waiting(inline, compensate_on_cancel=False)
    assert inline.rival.cancel("r")
    assert inline.rival.state("r").status == "cancelled"
    inline.drain()
    assert log == []


def test_a_second_cancel_ends_the_run_without_undoing_the_rest(inline: Inline) -> None:
    waiting(inline)
    assert inline.rival.cancel("r")
    assert inline.rival.cancel("r")
    assert inline.rival.state("r").status == "cancelled"
    inline.drain()
    assert log == []


def test_a_run_that_has_not_begun_or_that_fails_is_cancelled_at_once(inline: Inline) -> None:
    waiting(inline)
    inline.rival.run("w", {}, "pending")
    assert inline.rival.cancel("pending")
    assert inline.rival.state("pending").status == "cancelled"

    def cancels(run: Any) -> None:
        log.append(run.step)
        assert inline.rival.cancel("failing")

    def fails() -> None:
        raise ValueError("no")

    steps = [step(act, name="a", compensate=undo), step(act, name="b", compensate=cancels), step(fails, name="c")]
    inline.define("f", *steps, compensate_on_cancel=True)
    inline.rival.run("f", {}, "failing")
    inline.drain()
    assert (inline.rival.state("failing").status, log) == ("cancelled", ["b!compensate"])


def test_the_result_of_a_step_that_runs_during_the_cancel_comes_too_late(inline: Inline) -> None:
    def cancels() -> str:
        assert inline.rival.cancel("r")
        return "late"

    inline.define(
        "w", step(act, name="a", compensate=undo), step(cancels, name="b", compensate=undo), compensate_on_cancel=True
    )
    inline.rival.run("w", {}, "r")
    inline.drain()
    assert (inline.rival.state("r").status, log, statuses(inline)["b"]) == ("cancelled", ["a!compensate"], "cancelled")


def test_nothing_to_undo_is_an_end(inline: Inline) -> None:
    inline.define(
        "w",
        wait_event_step("paid", name="paid", key="1"),
        step(act, name="b", compensate=undo),
        compensate_on_cancel=True,
    )
    inline.rival.run("w", {}, "r")
    inline.drain()
    inline.rival.cancel("r")
    inline.drain()
    assert (inline.rival.state("r").status, log) == ("cancelled", [])


def test_a_lost_message_is_published_again_by_a_keeper(inline: Inline) -> None:
    waiting(inline)
    inline.rival.cancel("r")
    inline.doorbell.take()
    inline.time_passes(60)
    inline.keeper.run_once()
    inline.drain()
    assert (inline.rival.state("r").status, log) == ("cancelled", UNDONE)


def test_the_deadline_of_the_run_does_not_stop_it(inline: Inline) -> None:
    waiting(inline)
    inline.rival.cancel("r")
    inline.time_passes(600)
    inline.keeper.run_once()
    inline.drain()
    assert (inline.rival.state("r").status, log) == ("cancelled", UNDONE)


def test_a_paused_run_is_undone_when_it_is_resumed(inline: Inline) -> None:
    waiting(inline)
    inline.rival.pause("r")
    inline.rival.cancel("r")
    inline.drain()
    assert (inline.rival.state("r").status, log) == ("running", [])
    inline.rival.resume("r")
    inline.drain()
    assert (inline.rival.state("r").status, log) == ("cancelled", UNDONE)


@pytest.mark.parametrize("verb", ["retry", "rewind"])
def test_an_operator_opens_a_run_again_that_was_undone(inline: Inline, verb: str) -> None:
    waiting(inline)
    inline.rival.cancel("r")
    inline.drain()
    reopened = inline.rival.retry("r") if verb == "retry" else inline.rival.rewind("r", "a")
    assert reopened.opened == ("a",), "all that was undone is done again"
    inline.drain()
    state = inline.rival.state("r")
    assert (state.status, state.error, statuses(inline)["paid"]) == ("suspended", None, "waiting")
    assert not {"!cancel", "!compensate"} & statuses(inline).keys()
    log.clear()
    inline.rival.cancel("r")
    inline.drain()
    assert (inline.rival.state("r").status, log) == ("cancelled", UNDONE)


def test_a_rewind_while_it_is_being_undone_continues_the_run(inline: Inline) -> None:
    waiting(inline)
    inline.rival.cancel("r")
    inline.rival.rewind("r", "paid")
    inline.drain()
    assert (inline.rival.state("r").status, log, "!cancel" in statuses(inline)) == ("suspended", [], False)


def test_children_are_cancelled_and_undone_with_their_parent(inline: Inline) -> None:
    inline.define("w", *SAGA, compensate_on_cancel=True)

    @flow("parent", register=False)
    def parent(ctx: Any) -> Any:
        return ctx.call("w", {})

    inline.define("p", parent)
    inline.rival.run("p", {}, "p")
    inline.drain()
    [child] = inline.rival.runs(workflow="w")
    assert inline.rival.cancel("p")
    assert inline.rival.state("p").status == "cancelled"
    inline.drain()
    assert (inline.rival.state(child.run_id).status, log) == ("cancelled", UNDONE)


def test_a_keeper_that_cancels_an_orphan_has_it_undone(inline: Inline) -> None:
    waiting(inline)
    assert inline.store.cancel_orphan("r", "its parent p")
    inline.keeper.run_once()
    inline.drain()
    assert (inline.rival.state("r").status, log) == ("cancelled", UNDONE)


def test_a_start_that_replaces_a_singleton_does_not_wait_for_it_to_be_undone(inline: Inline) -> None:
    inline.define("w", *SAGA, compensate_on_cancel=True)
    inline.rival.run("w", {}, "old", singleton="s")
    inline.drain()
    started = inline.rival.run("w", {}, "new", singleton="s", on_conflict="cancel")
    assert started.status == "started"
    inline.drain()
    assert [inline.rival.state(one).status for one in ("old", "new")] == ["cancelled", "suspended"]
    assert log == UNDONE


# -- hooks ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("undone", [True, False])
def test_the_hooks_of_a_cancel_are_called_by_the_worker_that_ends_the_run(inline: Inline, undone: bool) -> None:
    called: list[tuple[str, str | None]] = []

    def note(event: Any) -> None:
        called.append((event.hook, event.outcome))

    hooks = dict.fromkeys(("on_cancel", "on_end", "on_success", "on_terminal"), note)
    waiting(inline, compensate_on_cancel=undone, hooks=hooks)
    inline.rival.cancel("r")
    inline.drain()
    assert (inline.rival.state("r").status, log) == ("cancelled", UNDONE if undone else [])
    assert called == [("on_cancel", "cancelled"), ("on_end", "cancelled")]


def test_a_hook_is_called_once_also_if_its_message_comes_twice(inline: Inline) -> None:
    called: list[str] = []
    waiting(inline, hooks={"on_cancel": lambda event: called.append(event.run_id)})
    inline.rival.cancel("r")
    [message] = inline.doorbell.take()
    for _ in range(2):
        inline.deliver(message)
    inline.drain()
    assert (called, log) == (["r"], UNDONE)


def test_a_hook_that_raises_is_recorded_and_the_run_is_cancelled(inline: Inline) -> None:
    def bad(event: Any) -> None:
        raise RuntimeError("bad hook")

    waiting(inline, hooks={"on_cancel": bad})
    inline.rival.cancel("r")
    inline.drain()
    failed = [entry.detail["hook"] for entry in inline.rival.history("r") if entry.what == "hook_failed"]
    assert (inline.rival.state("r").status, failed, log) == ("cancelled", ["on_cancel"], UNDONE)


# -- definitions ------------------------------------------------------------------------------------------


def test_it_is_not_part_of_the_version_and_is_checked() -> None:
    built = create_workflow("w").step(act).compensate_on_cancel().build()
    assert (built.whole.compensate_on_cancel, built.version) == (True, create_workflow("w").step(act).build().version)
    with pytest.raises(
        DefinitionError, match=whole("workflow 'w': compensate_on_cancel: give True or False, not 'yes'")
    ):
        define_workflow("w", [act], compensate_on_cancel="yes")  # type: ignore[arg-type]
