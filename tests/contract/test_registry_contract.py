"""The registry and a step's metrics: the same for both clients, on Postgres and SQLite."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Iterator
from typing import Any

import pytest

from rival_client import (
    AsyncRival,
    InvalidPayload,
    Rival,
    Run,
    RunNotEnded,
    RunNotFound,
    RunState,
    Started,
    UnknownWorkflow,
)
from rival_client.settings import Settings
from rival_workers import StepError, branch, create_workflow, for_each, loop, parallel, step, workflow
from rival_workers.engine.interpreter import first
from tests.support.inline import Clock, Inline
from tests.support.output import whole


class Api:
    """Calls by dotted name; what is awaitable is awaited."""

    def __init__(self, client: Any, runner: asyncio.Runner | None) -> None:
        self._client, self._runner = client, runner

    def __call__(self, name: str, *args: Any, **kwargs: Any) -> Any:
        target = self._client
        for part in name.split("."):
            target = getattr(target, part)
        return self.settle(target(*args, **kwargs))

    def settle(self, value: Any) -> Any:
        return self._runner.run(value) if self._runner is not None and asyncio.iscoroutine(value) else value


@pytest.fixture(params=["postgres", "sqlite"])
def inline(request: pytest.FixtureRequest) -> Iterator[Inline]:
    made = Inline(str(request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url")))
    made.define("order", step(lambda input: input, name="take"), description="Takes orders", input=dict)
    made.define("other", step(lambda: 1, name="one"))
    yield made
    made.close()


@pytest.fixture(params=["sync", "async"])
def api(request: pytest.FixtureRequest, inline: Inline) -> Iterator[Api]:
    rival = Rival(settings=Settings(database_url=inline.settings.database_url), doorbell=inline.doorbell)
    if request.param == "sync":
        yield Api(rival, None)
    else:
        with asyncio.Runner() as runner:
            yield Api(AsyncRival(sync=rival), runner)
    rival.close()


# -- the registry -----------------------------------------------------------------------------------------


def test_workflows_are_listed_with_description_schema_and_step_count(api: Api) -> None:
    listed = {info.name: info for info in api("registry.list")}
    assert set(listed) == {"order", "other"}
    order = listed["order"]
    assert (order.description, order.input_schema["type"], order.step_count) == ("Takes orders", "object", 1)
    assert api("registry.get", "order") == order


def test_a_workflow_that_is_not_registered_is_unknown(api: Api) -> None:
    for call in ("registry.get", "registry.launch"):
        with pytest.raises(
            UnknownWorkflow,
            match=whole(
                "No workflow named 'nix' is registered. Known workflows: order, other. Workflows register when a "
                "worker that has them starts: `rival worker --workflows PATH`."
            ),
        ):
            api(call, "nix")


def test_a_run_is_launched_found_again_and_cancelled(api: Api, inline: Inline) -> None:
    launched = api("registry.launch", "order", {"n": 1})
    assert launched == Started(launched.run_id, "started")
    handle = api("registry.get_run", launched.run_id)
    assert (handle.workflow, handle.run_id) == ("order", launched.run_id)
    inline.drain()
    assert api.settle(handle.wait(timeout=5)).result == {"n": 1}
    assert api("registry.cancel", launched.run_id) is False
    assert api("registry.cancel", api("registry.launch", "other").run_id) is True
    with pytest.raises(RunNotFound):
        api("registry.get_run", "nobody")


def test_active_runs_are_those_that_have_not_ended_newest_first_and_page_by_page(api: Api, inline: Inline) -> None:
    inline.define("waits", step(lambda: fail("later"), name="wait", max_attempts=9, base_delay=60))
    ended = [inline.rival.run("order", {"n": n}).run_id for n in range(3)]
    running = [inline.rival.run("waits").run_id for _ in range(3)]
    inline.drain()
    pending = [inline.rival.run("order", {"n": n}).run_id for n in range(4)]
    api("cancel", pending.pop())
    wanted = [*running, *pending][::-1]

    def ids(found: list[Run]) -> list[str]:
        return [run.run_id for run in found]

    assert ids(api("active_runs")) == wanted
    assert {run.status for run in api("active_runs")} == {"running", "pending"}
    assert not set(ended) & set(wanted)
    assert ids(api("registry.active_runs", "waits")) == running[::-1]
    pages, before = [], None
    while page := api("registry.active_runs", before=before, limit=4):
        pages.append(ids(page))
        before = page[-1]
    assert pages == [wanted[:4], wanted[4:]]
    newest = inline.rival.runs(limit=1)[0].run_id
    assert ids(api("runs", status=("cancelled", "completed"), limit=2)) == [newest, ended[2]]


def fail(message: str) -> None:
    raise StepError(message, behavior="retry")


def test_steps_are_counted_at_any_depth_and_as_the_plan_does(api: Api, inline: Inline) -> None:
    def leaf(name: str) -> Any:
        return step(lambda: 1, name=name)

    child = create_workflow("child").step(leaf("i")).step(leaf("j")).build()
    made = inline.define(
        "deep",
        leaf("a"),
        branch("b", when=lambda: True, then=[leaf("c"), leaf("d")], otherwise=[leaf("e")]),
        parallel("p", [leaf("f"), for_each("g", items=lambda: [1], do=[leaf("h")])]),
        loop("l", do=[leaf("m")], until=lambda: True, max_iterations=3),
        workflow(child),
    )
    assert api("registry.get", "deep").step_count == made.plan.step_count == 9


# -- results that are not there, and inputs that are none ---------------------------------------------------


def test_a_run_that_has_not_ended_has_no_result_and_says_what_to_do(api: Api, inline: Inline) -> None:
    run_id = inline.rival.run("order", {}, "x").run_id
    with pytest.raises(
        RunNotEnded,
        match=whole(
            "Run 'x' of workflow 'order' is pending: it has no result yet. Wait for it (`rival.wait('x')`), or "
            "look at its `state`."
        ),
    ) as caught:
        api("result", run_id)
    assert caught.value.status == "pending"
    inline.drain()
    assert api("result", run_id).status == "completed"


def test_of_many_inputs_the_one_that_is_not_json_is_named(api: Api, inline: Inline) -> None:
    with pytest.raises(
        InvalidPayload, match=whole("inputs[2]: the input of workflow 'order' is not JSON: object is not JSON")
    ):
        api("run_many", "order", [{}, {"n": 1}, {"n": object()}])
    assert inline.rival.runs() == []


# -- metrics ----------------------------------------------------------------------------------------------


@pytest.fixture
def timed(file_url: str) -> Iterator[Inline]:
    """A clock that is set: only SQLite takes it."""
    made = Inline(file_url, clock=Clock())
    yield made
    made.close()


def passes(inline: Inline, seconds: float) -> None:
    assert inline.clock is not None
    inline.clock.advance(seconds)


def state_of(inline: Inline, run_id: str) -> RunState:
    return inline.rival.state(run_id)


def test_queue_time_is_from_when_a_start_was_due_and_a_backoff_is_not_waiting(timed: Inline) -> None:
    def flaky(run: Any) -> None:
        passes(timed, 3)
        if run.attempt == 1:
            raise StepError("blunt axe", behavior="retry")

    timed.define("w", step(lambda: 1, name="before"), step(flaky, max_attempts=2, base_delay=20))
    run_id = timed.rival.run("w").run_id
    timed.drain()
    waiting = state_of(timed, run_id).steps[1]
    assert (waiting.status, waiting.queue_time, waiting.duration) == ("waiting_retry", None, None)
    assert waiting.last_error is not None
    assert (waiting.last_error.type, waiting.last_error.message, waiting.last_error.attempt) == (
        "StepError",
        "blunt axe",
        1,
    )
    failed_at = waiting.last_error.at
    passes(timed, 25)
    timed.drain()
    before, done = state_of(timed, run_id).steps
    assert (before.queue_time, before.duration, before.retry_count, before.last_error) == (0, 0, 0, None)
    # The delay counts from the failure, a moment before its commit.
    assert done.queue_time is not None
    assert 5 <= done.queue_time < 6
    assert (done.duration, done.retry_count, done.attempts) == (3, 1, 2)
    assert done.error is None
    assert done.last_error is not None
    assert (done.last_error.attempt, done.last_error.at) == (1, failed_at)
    assert done.started_at == failed_at + dt.timedelta(seconds=25)
    assert done.completed_at == failed_at + dt.timedelta(seconds=28)


def test_a_step_that_waits_for_a_worker_is_queued(timed: Inline) -> None:
    timed.coordinator.stopping = True  # so that the second step gets a message and does not run in place
    timed.define("w", step(lambda: 1, name="one"), step(lambda: 2, name="two"))
    run_id = timed.rival.run("w").run_id
    [step_message] = timed.doorbell.take()
    timed.deliver(step_message)
    [step_message] = timed.doorbell.take()
    passes(timed, 7)
    assert state_of(timed, run_id).steps[0].queue_time is None
    timed.deliver(step_message)
    timed.drain()
    assert [s.queue_time for s in state_of(timed, run_id).steps] == [7, 0]


def test_an_attempt_that_was_lost_does_not_count_as_waiting_of_the_next_one(timed: Inline) -> None:
    plan = timed.define("w", step(lambda: 1, name="one")).plan
    run_id = timed.rival.run("w").run_id
    timed.store.begin_run(run_id, timed.doorbell.take()[0].token, first(plan), claim_for="gone")
    passes(timed, 100)
    [running] = timed.store.running_on("gone")
    timed.coordinator.transitions.take_over(running)
    passes(timed, 4)
    timed.drain()
    [done] = state_of(timed, run_id).steps
    assert (done.status, done.lost, done.queue_time) == ("completed", 1, 4)


def test_a_failed_composite_shows_the_error_of_the_step_below(timed: Inline) -> None:
    def boom() -> None:
        raise ValueError("no axe")

    timed.define("w", branch("b", when=lambda: True, then=[step(boom, name="c")]))
    run_id = timed.rival.run("w").run_id
    timed.drain()
    errors = {s.path: s.last_error for s in state_of(timed, run_id).steps if s.last_error}
    assert {path: (e.type, e.message, e.attempt) for path, e in errors.items()} == {
        "b": ("ValueError", "no axe", 1),
        "b/c": ("ValueError", "no axe", 1),
    }
