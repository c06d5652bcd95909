"""The facts behind `why`, read from real runs on every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from rival_client.errors import RunNotFound
from rival_client.model.why.why_records import Reason
from rival_workers import StepError, delay_step, flow, for_each, rate, step, wait_event_step
from tests.support.inline import Inline


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    opened = Inline(url)
    yield opened
    opened.close()


def why(inline: Inline, run_id: str) -> Reason:
    [reason] = inline.rival.why(run_id).reasons
    return reason


def fails() -> None:
    raise StepError("declined", behavior="retry")


def test_each_kind_of_wait_is_explained(inline: Inline) -> None:
    inline.define("plain", step(lambda: 1, name="a"))
    inline.define("sleeps", delay_step(3600, name="nap"))
    inline.define("retries", step(fails, name="charge", max_attempts=3, base_delay=600))
    for name in ("plain", "sleeps", "retries"):
        inline.rival.run(name, {}, name)
    assert why(inline, "plain").what == "queued"
    inline.drain()
    assert why(inline, "plain").what == "completed"
    nap = why(inline, "sleeps")
    assert (nap.what, nap.step, nap.until is not None) == ("delay", "nap", True)
    retry = why(inline, "retries")
    assert (retry.what, retry.step) == ("retry", "charge")
    assert "declined" in retry.text


def test_a_limit_and_a_start_at_a_later_time_are_named(inline: Inline) -> None:
    inline.define("limited", step(lambda: 1, name="mail", rate_limit=rate(1, per=3600)))
    for run_id in ("r1", "r2"):
        inline.rival.run("limited", {}, run_id)
    inline.rival.run("limited", {}, "later", delay=3600)
    inline.drain()
    assert sorted(why(inline, run_id).what for run_id in ("r1", "r2")) in (
        ["completed", "limit"],
        ["completed", "queued"],
    )
    found = why(inline, "later")
    assert (found.what, found.step, found.until is not None) == ("delay", None, True)


def test_an_event_that_nearly_fits_is_named(inline: Inline) -> None:
    inline.define("waits", wait_event_step("reply", name="b", key="ann", where={"ok": True}))
    inline.rival.run("waits", {}, "w")
    inline.drain()
    inline.rival.send_event("reply", {"ok": False}, key="ann", event_id="e-1")
    inline.rival.send_event("reply", {"ok": False}, key="bob", event_id="e-2")
    inline.drain()
    found = why(inline, "w")
    assert found.what == "event"
    assert any("e-1 differs in filter:/ok" in text for text in found.evidence)


def test_a_flow_is_explained_by_what_it_waits_for(inline: Inline) -> None:
    @flow(registry=inline.registry)
    def parent(ctx: Any) -> Any:
        return ctx.call("child", {})

    inline.define("child", wait_event_step("go", name="b"))
    inline.process.register_workflows()
    inline.rival.run("parent", {}, "p")
    inline.drain()
    found = why(inline, "p")
    assert found.what == "child"
    assert "which is suspended" in found.text
    inline.rival.cancel("p", by="ann")
    assert why(inline, "p").text == "It was cancelled by ann."


def test_a_failed_run_names_its_step_and_a_paused_one_says_so(inline: Inline) -> None:
    inline.define("bad", step(fails, name="charge", max_attempts=1))
    inline.define("waits", for_each("f", items=lambda: [1, 2], do=[wait_event_step("t", name="b")], concurrency=2))
    inline.rival.run("bad", {}, "bad")
    inline.rival.run("waits", {}, "w")
    inline.drain()
    assert why(inline, "bad").text.startswith("charge failed: StepError: declined")
    assert [one.what for one in inline.rival.why("w").reasons] == ["steps", "event", "event"]
    inline.rival.pause("w")
    assert inline.rival.why("w").reasons[0].what == "paused"
    with pytest.raises(RunNotFound):
        inline.rival.why("none")


def test_without_a_live_executor_that_is_the_reason(inline: Inline) -> None:
    inline.define("plain", step(lambda: 1, name="a"))
    inline.rival.run("plain", {}, "r")
    [executor] = inline.rival.executors()
    assert executor.is_alive
    inline.store.forget_executors([executor.executor_id])
    assert why(inline, "r").what == "no_worker"
    inline.process.executor.register()
    inline.drain()


def test_a_delay_and_a_queue_without_a_worker_are_named(inline: Inline) -> None:
    inline.define("later", step(lambda: 1, name="a", delay=600))
    inline.define("gpu", step(lambda: 1, name="a", queue="gpu"))
    inline.rival.run("later", {}, "later")
    inline.rival.run("gpu", {}, "gpu")
    inline.drain()
    assert why(inline, "later").what == "delay"
    found = why(inline, "gpu")
    assert (found.what, found.command) == ("no_worker", "rival worker --queues gpu")


def test_of_a_for_each_the_items_that_have_not_begun_are_not_open(inline: Inline) -> None:
    nap = for_each("each", items=lambda: [1, 2, 3, 4, 5], do=[delay_step(3600, name="nap")], concurrency=2)
    inline.define("items", nap)
    inline.rival.run("items", {}, "r")
    inline.drain()
    [found] = [one for one in inline.rival.why("r").reasons if one.what == "steps"]
    assert found.evidence == ("2 are open", "3 have not begun")
