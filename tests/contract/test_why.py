"""The facts behind `why`, read from real runs on every store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import update

from rival_client.db.fleet_tables import executors
from rival_client.errors import RunNotFound
from rival_client.model.why.why_records import Reason
from rival_workers import StepError, branch, breaker, delay_step, flow, for_each, limit, rate, step, wait_event_step
from tests.support.inline import Clock, Inline, opened


@pytest.fixture(params=["sqlite", "postgres"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    with opened(lambda: Inline(url, clock=Clock() if request.param == "sqlite" else None)) as inline:
        yield inline


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
    assert retry.text == "charge is tried again: attempt 1 failed with StepError: declined."


def test_a_step_that_has_failed_waits_for_its_fallback(inline: Inline) -> None:
    inline.define("falls", step(fails, name="charge", fallback=lambda: "later"))
    inline.coordinator.stopping = True
    inline.rival.run("falls", {}, "r")
    for _ in range(2):
        [message] = inline.doorbell.take()
        inline.deliver(message)
    waits, queued = inline.rival.why("r").reasons
    assert (waits.what, waits.step, waits.text) == (
        "steps",
        "charge",
        "charge has failed, and waits for its fallback.",
    )
    assert (queued.what, queued.step) == ("queued", "charge!fallback")


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
    assert found.evidence == (
        "no event of topic reply that fits has come",
        "its payload must fit the filter of /ok",
        "kept event e-1 differs in filter:/ok",
    )


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
    assert found.text == "parent/call:child waits for run p/call:child, which is suspended."
    inline.rival.cancel("p", by="ann")
    assert why(inline, "p").text == "It was cancelled by ann."


def test_a_child_that_waits_for_the_slot_of_its_parent_says_so(inline: Inline) -> None:
    @flow("down", registry=inline.registry, concurrency_limit=1)
    def down(ctx: Any, input: int) -> Any:
        return ctx.call("down", input - 1) if input else "down"

    inline.process.register_workflows()
    inline.rival.run("down", 1, "r")
    inline.drain()
    found = why(inline, "r/call:down")
    assert found.text == ("The run waits for a slot of limit down. Run r, whose child it is, uses one until it ends.")
    assert (found.who, found.command) == ("run r", "rival limit show down")
    inline.rival.set_limit("down", 2)
    inline.time_passes(60)
    inline.keeper.run_once()
    inline.drain()
    assert inline.rival.result("r").result == "down"


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
    inline.store.delete_executors([executor.executor_id])
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
    *counts, longest = found.evidence
    assert counts == ["2 are open", "3 have not begun"]
    assert longest.startswith("open the longest: each[0]/nap, since ")


def test_a_running_step_says_what_it_logs_and_how_long_it_usually_takes(inline: Inline) -> None:
    seen: list[Reason] = []

    def work(input: Any) -> None:
        if input["looks"]:
            seen.append(why(inline, "r"))

    inline.define("w", step(work, name="a"))
    for number in range(6):
        inline.rival.run("w", {"looks": False}, f"r{number}")
    inline.drain()
    inline.rival.run("w", {"looks": True}, "r")
    inline.drain()
    [found] = seen
    assert (found.what, found.text) == ("running", "a runs on inline@test: its attempt has not ended.")
    alive, logged, usual = found.evidence
    assert alive.startswith("inline@test is alive: its lease ends at ")
    assert logged == "this attempt has no log entry"
    assert usual.startswith("95 % of its last 6 took at most 0")


def test_a_failure_names_its_first_error_and_what_was_never_reached(inline: Inline) -> None:
    errors = iter(["timed out", "declined", "declined"])

    def charge() -> None:
        raise StepError(next(errors), behavior="retry")

    plan = [step(lambda: 1, name="reserve"), step(charge, name="charge", max_attempts=3, base_delay=0)]
    inline.define("w", *plan, branch("valid?", when=lambda: True, then=[step(asks, name="x")]), step(asks, name="ship"))
    inline.rival.run("w", {}, "r")
    inline.drain()
    found = why(inline, "r")
    assert found.text.startswith("charge failed after 3 attempts: StepError: declined")
    assert found.evidence[1:] == ("its first attempt failed with StepError: timed out", "never reached: valid?, ship")


def test_what_starts_later_or_waits_for_a_limit_does_not_wait_for_a_worker(inline: Inline) -> None:
    inline.define("w", step(asks, name="a"))
    inline.define("one", wait_event_step("go", name="b"))
    for run_id in ("first", "second", "third"):
        inline.rival.run("one", {}, run_id, singleton="k", on_conflict="queue")
    inline.drain()
    inline.rival.run("w", {}, "later", delay=3600)
    inline.rival.run("w", {}, "paused")
    inline.rival.pause("paused")
    inline.rival.run("w", {}, "r")
    found = why(inline, "r")
    assert found.evidence[0].startswith("1 run or step in queue default waits for a worker, the oldest since ")
    assert found.evidence[1] == "1 live worker serves it"


# -- what a hint must not say ---------------------------------------------------------------------------------


def asks(ctx: Any) -> None:
    """An external step: its answer comes from elsewhere."""


def no_worker_is_alive(inline: Inline) -> None:
    inline.store.delete_executors([one.executor_id for one in inline.rival.executors()])


def test_a_step_that_a_rate_lets_start_later_was_not_published(inline: Inline) -> None:
    inline.define("rated", step(lambda: 1, name="mail", rate_limit=rate(1, per=3600)))
    for run_id in ("r1", "r2"):
        inline.rival.run("rated", {}, run_id)
    inline.drain()
    [found] = [found for run_id in ("r1", "r2") if (found := why(inline, run_id)).what != "completed"]
    assert (found.what, found.who, found.until is not None) == ("limit", "the clock", True)
    assert not any("slots" in text for text in found.evidence)


def test_the_slots_of_a_limit_in_shards_are_counted_together(inline: Inline) -> None:
    many = limit("many", 32)
    inline.define("w", step(asks, name="ask", execution_mode="external", concurrency_limit=many))
    runs = [inline.rival.run("w", {}, f"r{number}").run_id for number in range(33)]
    inline.drain()
    [found] = [found for run_id in runs if (found := why(inline, run_id)).what == "limit"]
    assert found.evidence == ("32 of 32 slots are in use",)
    assert [why(inline, run_id).what for run_id in runs].count("external") == 32


def test_a_run_with_a_singleton_key_waits_for_the_one_before_it(inline: Inline) -> None:
    inline.define("w", wait_event_step("go", name="b"))
    for run_id in ("first", "second"):
        inline.rival.run("w", {}, run_id, singleton="k", on_conflict="queue")
    inline.drain()
    assert why(inline, "first").what == "event"
    found = why(inline, "second")
    assert (found.what, found.who, found.evidence) == ("limit", "another run that ends", ("1 of 1 slots are in use",))


def test_a_circuit_breaker_is_as_it_is_now(inline: Inline) -> None:
    inline.define("w", step(fails, name="ask", circuit_breaker=breaker("bank", failures=1, reset=60, on_open="wait")))
    inline.rival.run("w", {}, "opens")
    inline.drain()
    inline.rival.run("w", {}, "waits")
    inline.drain()
    found = why(inline, "waits")
    assert (found.what, found.who, found.command) == ("breaker", "the clock", "rival breaker close bank")
    inline.rival.open_breaker("bank", by="ann")
    assert why(inline, "waits").evidence[0] == "ann has opened it until an operator closes it"
    inline.rival.close_breaker("bank")
    assert (why(inline, "waits").what, why(inline, "waits").evidence[-1]) == (
        "not_published",
        "circuit breaker bank was open when it asked before",
    )


def test_an_idempotency_key_names_its_owner(inline: Inline) -> None:
    keyed = step(asks, name="ask", execution_mode="external", idempotency_key=lambda input: "k")
    inline.define("w", keyed)
    for run_id in ("owner", "other"):
        inline.rival.run("w", {}, run_id)
        inline.drain()
    asked, found = why(inline, "owner"), why(inline, "other")
    assert (asked.what, asked.evidence[0].startswith("no heartbeat since ")) == ("external", True)
    assert (found.what, found.who, found.command) == ("idempotency_key", "step ask of run owner", "rival why owner")


def test_a_broker_that_is_away_is_named(inline: Inline) -> None:
    inline.define("w", step(lambda: 1, name="a"))
    inline.doorbell.down = True
    inline.rival.run("w", {}, "r")
    assert why(inline, "r").what == "broker_away"
    inline.doorbell.down = False
    assert why(inline, "r").what == "queued"


def test_starts_that_become_one_run_are_counted(inline: Inline) -> None:
    inline.define("w", step(lambda: 1, name="a"))
    for _ in range(3):
        run_id = inline.rival.run("w", {}, debounce=50, key="k").run_id
    inline.drain()
    found = why(inline, run_id)
    assert (found.what, found.evidence[0], found.until is not None) == ("gathering", "starts so far: 3", True)


def test_deadlines_and_a_queue_timeout_are_said(inline: Inline) -> None:
    inline.define("w", wait_event_step("t", name="b"))
    limited = {"execution_mode": "external", "concurrency_limit": 1, "queue_timeout": 600}
    inline.define("limited", step(asks, name="ask", **limited))
    inline.rival.run("w", {}, "r", deadline=600)
    for run_id in ("first", "second"):
        inline.rival.run("limited", {}, run_id)
        inline.drain()
    assert why(inline, "r").evidence[-1].startswith("the run must have ended by ")
    found = why(inline, "second")
    assert (found.what, found.until is not None) == ("limit", True)
    assert found.evidence[-1].startswith("it fails if no attempt has begun by ")


def test_a_timer_needs_a_worker_that_is_alive(inline: Inline) -> None:
    inline.define("sleeps", delay_step(3600, name="nap"))
    inline.define("retries", step(fails, name="charge", max_attempts=3, base_delay=600))
    for name in ("sleeps", "retries"):
        inline.rival.run(name, {}, name)
    inline.drain()
    no_worker_is_alive(inline)
    for name, what in (("sleeps", "delay"), ("retries", "retry")):
        found = why(inline, name)
        assert (found.what, found.command) == (what, "rival worker")
    inline.time_passes(4000)
    for name in ("sleeps", "retries"):
        assert why(inline, name).what == "no_worker"
        inline.rival.pause(name, by="ann")
        found = why(inline, name)
        assert (found.what, found.evidence) == ("paused", ("ann has paused it",))
    inline.process.executor.register()


def test_a_dead_worker_is_not_replaced_by_itself(inline: Inline) -> None:
    seen: list[Reason] = []

    def work() -> None:
        no_worker_is_alive(inline)
        seen.append(why(inline, "r"))
        inline.process.executor.register()
        seen.append(why(inline, "r"))

    inline.define("w", step(work, name="a"))
    inline.rival.run("w", {}, "r")
    inline.drain()
    assert [(one.what, one.command) for one in seen] == [("lost_executor", "rival worker"), ("lost_executor", None)]


def test_a_version_that_no_worker_has_is_parked(inline: Inline) -> None:
    version = inline.define("w", step(lambda: 1, name="a")).version
    inline.rival.run("w", {}, "r")

    def has(*versions: str) -> None:
        with inline.store.database.transaction() as connection:
            connection.execute(update(executors).values(workflows={"w": [*versions]}))

    has("v1")
    found = why(inline, "r")
    assert (found.what, found.do) == ("no_worker", f"Start a worker that has version {version} of w.")
    assert found.evidence == ("live workers have w at version v1 (inline@test)",)
    with opened(lambda: Inline(inline.settings.database_url or "", clock=inline.clock)) as other:
        [message] = inline.doorbell.take()
        other.deliver(message)
        has("v1")
        found = why(inline, "r")
        assert (found.what, found.do) == ("parked", f"Start a worker that has version {version} of w.")
        assert found.evidence == (
            "parked: worker does not have workflow 'w'",
            "live workers have w at version v1 (inline@test)",
        )
        has(version)
        found = why(inline, "r")
        assert (found.what, found.do, found.until is not None) == ("parked", None, True)


@pytest.fixture(params=["sqlite", "postgres"])
def one_by_one(request: pytest.FixtureRequest) -> Iterator[Inline]:
    """A message for each step."""
    url = request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")
    with opened(lambda: Inline(url, continuation_budget=0.0)) as inline:
        yield inline


def test_a_callback_of_a_composite_and_compensations_are_named(one_by_one: Inline) -> None:
    inline = one_by_one
    undone: dict[str, Any] = {"compensate": asks}
    plan = [
        branch("ok?", when=lambda: True, then=[step(lambda: 1, name="x", **undone)]),
        step(fails, name="c", max_attempts=1, on_failure="compensate"),
    ]
    inline.define("w", *plan)
    inline.rival.run("w", {}, "r")
    said: list[tuple[str, str | None]] = []
    while messages := inline.doorbell.take():
        said += [(one.what, one.step) for one in inline.rival.why("r").reasons]
        for message in messages:
            inline.deliver(message)
    queued = [("queued", step) for step in (None, "ok?!when", "ok?/x", "c")]
    assert said == [*queued, ("compensating", "!compensate"), ("queued", "ok?/x!compensate")]


def test_what_a_long_flow_waits_for_is_found_behind_its_checkpoints(inline: Inline) -> None:
    @flow(registry=inline.registry)
    def long(ctx: Any) -> Any:
        for _ in range(1200):
            ctx.step(one)
        return ctx.await_event("zz", timeout=3600)

    def one() -> int:
        return 1

    @flow(registry=inline.registry)
    def parent(ctx: Any) -> Any:
        return ctx.call("long", {})

    inline.process.register_workflows()
    inline.rival.run("parent", {}, "p")
    inline.drain()
    found = why(inline, "p")
    child = (found.who or "").removeprefix("run ")
    assert found.evidence == (f"run {child}: long/event:zz waits for an event of topic zz.",)
    assert (why(inline, child).what, why(inline, child).until is not None) == ("event", True)
