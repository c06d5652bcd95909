"""What a producer can do: one suite for `Rival` and `AsyncRival`, on Postgres and SQLite."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import psycopg
import pytest
import redis
from psycopg.rows import dict_row
from pydantic import BaseModel, Field
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from rival_client import (
    AsyncRival,
    DatabaseRefused,
    EventConflict,
    InvalidArgument,
    InvalidInput,
    InvalidPayload,
    Rival,
    RivalError,
    RunCancelled,
    RunConflict,
    RunFailed,
    RunNotEnded,
    RunNotFound,
    Started,
    UnknownWorkflow,
    WaitTimeout,
)
from rival_client.broker.redis_doorbell import CHANGED_CHANNEL, RedisDoorbell
from rival_client.db.database_urls import libpq_url, sqlalchemy_url
from rival_client.settings import Settings
from rival_workers import StepError, step
from tests.support.inline import Inline
from tests.support.locks import until_blocked
from tests.support.output import whole


class Order(BaseModel):
    customer: int
    note: str = Field(default="", max_length=5)
    paid: bool = False


class Api:
    """The same calls for both clients: what is awaitable is awaited on a loop of its own."""

    def __init__(self, client: Any, runner: asyncio.Runner | None) -> None:
        self._client, self._runner = client, runner

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *args, **kwargs: self.settle(getattr(self._client, name)(*args, **kwargs))

    @property
    def runner(self) -> asyncio.Runner | None:
        return self._runner

    def instance(self, workflow: str, run_id: str) -> Api:
        return Api(self._client.get(workflow).get_or_create(run_id), self._runner)

    def settle(self, value: Any) -> Any:
        return self._runner.run(value) if self._runner is not None and asyncio.iscoroutine(value) else value


@dataclass
class World:
    """A producer, and a worker for the messages that the test delivers."""

    api: Api
    inline: Inline
    kind: str

    def runs(self) -> list[str]:
        return [run.run_id for run in self.inline.rival.runs(limit=1000)]


@pytest.fixture(params=["postgres", "sqlite"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue("file_url" if request.param == "sqlite" else "postgres_url"))


@pytest.fixture(params=["sync", "async"])
def world(request: pytest.FixtureRequest, url: str) -> Iterator[World]:
    inline = Inline(url)
    define_workflows(inline)
    rival = Rival(settings=Settings(database_url=url), doorbell=inline.doorbell)
    if request.param == "sync":
        yield World(Api(rival, None), inline, "sync")
        rival.close()
    else:
        with asyncio.Runner() as runner:
            api = Api(AsyncRival(sync=rival), runner)
            yield World(api, inline, "async")
            api.close()
    inline.close()


def test_a_closed_client_refuses_every_call_and_can_be_closed_again(world: World) -> None:
    world.api.run("order", {"customer": 1}, "before")
    world.api.close()
    for call in (
        lambda: world.api.run("order", {"customer": 1}, "after"),
        lambda: world.api.result("before"),
        lambda: world.api.runs(),
    ):
        with pytest.raises(
            RivalError,
            match=whole("This client is closed: make another one, and keep it as long as the process uses it."),
        ):
            call()
    assert world.runs() == ["before"]


def test_the_history_of_an_unknown_run_is_refused(world: World) -> None:
    with pytest.raises(RunNotFound):
        world.api.history("nope")
    world.api.run("order", {"customer": 1}, "r")
    assert world.api.history("r", after=10**9) == []


def define_workflows(inline: Inline) -> None:
    def take(input: Order) -> dict[str, Any]:
        return {"customer": input.customer}

    def ship(last_step: Any, state: Any) -> dict[str, Any]:
        state.description = "shipped"
        return {"shipped": last_step.result["customer"]}

    def boom() -> None:
        raise StepError("no axe")

    inline.define("order", take, ship, input=Order)
    inline.define("anything", step(lambda input: input, name="echo"))
    inline.define("broken", step(lambda: 1, name="fine"), boom)


# -- starting ---------------------------------------------------------------------------------------------


def test_run_returns_at_once_with_the_id_and_started_and_publishes_after_its_commit(world: World) -> None:
    started = world.api.run("order", {"customer": 7}, run_id="order-42")
    assert started == Started("order-42", "started")
    [message] = world.inline.doorbell.messages
    assert (message.run_id, message.path, message.token, message.workflow) == ("order-42", None, 0, "order")
    assert world.api.state("order-42").status == "pending"


def test_run_makes_an_id_when_none_is_given(world: World) -> None:
    ids = {world.api.run("anything", n).run_id for n in range(5)}
    assert len(ids) == 5
    assert set(world.runs()) == ids


def test_starting_the_same_run_again_finds_it_running_and_publishes_nothing(world: World) -> None:
    first = world.api.run("order", {"customer": 7, "paid": True}, run_id="x")
    again = world.api.run("order", {"paid": True, "customer": 7.0}, run_id="x")
    assert (first.status, again.status) == ("started", "running")
    assert len(world.inline.doorbell.messages) == 1
    world.inline.drain()
    assert world.api.run("order", {"customer": 7, "paid": True}, run_id="x").status == "running"


@pytest.mark.parametrize("other", [{"customer": 8}, {"customer": 7, "paid": True}, {"customer": 7, "note": "x"}])
def test_the_same_run_id_with_another_input_is_refused_and_changes_nothing(world: World, other: Any) -> None:
    world.api.run("order", {"customer": 7}, run_id="x")
    with pytest.raises(
        RunConflict,
        match=whole("Run 'x' exists already, with another input. Use another run id, or none to have one made."),
    ):
        world.api.run("order", other, run_id="x")
    with pytest.raises(
        RunConflict,
        match=whole(
            "Run 'x' exists already, of workflow 'order', not 'anything'. Use another run id, or none to have one made."
        ),
    ):
        world.api.run("anything", {"customer": 7}, run_id="x")
    assert world.api.state("x").input == {"customer": 7}
    assert len(world.inline.doorbell.messages) == 1


def test_true_is_another_input_than_one(world: World) -> None:
    world.api.run("anything", {"a": [1]}, run_id="x")
    with pytest.raises(RunConflict):
        world.api.run("anything", {"a": [True]}, run_id="x")


def test_an_unknown_workflow_is_refused_with_those_that_are_known(world: World) -> None:
    with pytest.raises(
        UnknownWorkflow,
        match=whole(
            "No workflow named 'ordre' is registered (did you mean 'order'?). Known workflows: anything, "
            "broken, order. Workflows register when a worker that has them starts: `rival worker --workflows "
            "PATH`."
        ),
    ):
        world.api.run("ordre", {})
    assert world.runs() == []


def test_all_problems_of_an_input_are_listed_and_no_run_is_created(world: World) -> None:
    with pytest.raises(InvalidInput) as caught:
        world.api.run("order", {"note": "far too long", "paid": "perhaps"})
    assert caught.value.problems == [
        '"customer" is a required property',
        'note: "far too long" is longer than 5 characters',
        'paid: "perhaps" is not of type "boolean"',
    ]
    assert world.runs() == []
    assert world.inline.doorbell.messages == []


ANOTHER_INPUT = "with another input. Use another run id, or none to have one made."
TOO_LONG = (
    "is 2,000,002 bytes, over the limit of 1,048,576. Store large things elsewhere and pass a reference, or raise "
    "RIVAL_MAX_PAYLOAD."
)


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (float("nan"), "is not JSON: NaN and infinite numbers are not; give None or a text"),
        (object(), "is not JSON: object is not JSON"),
        ("\x00", r"holds a NUL character (\u0000), which Postgres cannot store"),
        ("\ud800", "holds a lone surrogate, which is not valid Unicode"),
        ("x" * 2_000_000, TOO_LONG),
    ],
    ids=["nan", "object", "nul", "surrogate", "long"],
)
def test_an_input_that_cannot_be_stored_is_refused_and_no_run_is_created(world: World, bad: Any, problem: str) -> None:
    with pytest.raises(InvalidPayload, match=whole(f"the input of workflow 'anything' {problem}")):
        world.api.run("anything", bad)
    assert world.runs() == []


@pytest.mark.parametrize(
    ("run_id", "problem"),
    [
        ("", "'' is not a usable text: give 1 to 200 characters, not only white space."),
        ("x" * 201, f"'{'x' * 59}… has 201 characters; give at most 200."),
        ("a\x00b", r"'a\x00b' holds a NUL character; leave it out."),
        (7, "7 is not text: give a string of 1 to 200 characters."),
    ],
    ids=["empty", "long", "nul", "number"],
)
def test_a_run_id_that_cannot_be_one_is_refused(world: World, run_id: Any, problem: str) -> None:
    with pytest.raises(RivalError, match=whole(f"Invalid argument run_id: {problem}")):
        world.api.run("anything", 1, run_id=run_id)
    assert world.runs() == []


# -- many -------------------------------------------------------------------------------------------------


def test_run_many_starts_one_run_per_input_in_order(world: World) -> None:
    started = world.api.run_many("anything", ({"n": n} for n in range(1500)))
    assert len({one.run_id for one in started}) == 1500
    assert {one.status for one in started} == {"started"}
    assert len(world.inline.doorbell.messages) == 1500
    assert world.api.state(started[1234].run_id).input == {"n": 1234}


def test_run_many_with_ids_says_which_existed(world: World) -> None:
    world.api.run("anything", 1, run_id="b")
    started = world.api.run_many("anything", [0, 1, 2], run_ids=["a", "b", "c"])
    assert started == [Started("a", "started"), Started("b", "running"), Started("c", "started")]


def test_run_many_checks_all_inputs_before_it_starts_any(world: World) -> None:
    with pytest.raises(InvalidInput) as caught:
        world.api.run_many("order", [{"customer": 1}, {"customer": "x"}, {}])
    assert [problem.split(":")[0] for problem in caught.value.problems] == ["inputs[1]", "inputs[2]"]
    assert world.runs() == []


def test_a_conflict_in_run_many_refuses_all_of_it(world: World) -> None:
    world.api.run("anything", 1, run_id="b")
    with pytest.raises(
        RunConflict,
        match=whole("Run 'b' exists already, with another input. Use another run id, or none to have one made."),
    ):
        world.api.run_many("anything", [*range(1500), 99], run_ids=[*(f"n{n}" for n in range(1500)), "b"])
    assert world.runs() == ["b"]
    assert len(world.inline.doorbell.messages) == 1


@pytest.mark.parametrize(
    ("ids", "problem"),
    [
        (["a"], "1 ids for 2 inputs: give one id for each input."),
        (["a", "b", "c"], "3 ids for 2 inputs: give one id for each input."),
        ([], "0 ids for 2 inputs: give one id for each input."),
        (
            ["a", "a"],
            "'a' is the id of inputs[0] and of inputs[1]: give each input an id of its own, or give the input once.",
        ),
    ],
)
def test_run_many_needs_one_distinct_id_per_input(world: World, ids: list[str], problem: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        world.api.run_many("anything", [1, 2], run_ids=ids)
    assert str(refused.value) == f"Invalid argument run_ids: {problem}"
    assert world.runs() == []


def test_an_input_with_keys_that_are_the_same_in_json_starts_nothing(world: World) -> None:
    with pytest.raises(
        InvalidPayload,
        match=whole(
            "the input of workflow 'anything' has an object with two keys that are both \"1\" in JSON, where "
            "numbers, bools and None become texts. Use texts as keys, each once."
        ),
    ):
        world.api.run("anything", {1: "a", "1": "b"})
    assert world.runs() == []


def test_run_many_of_nothing_is_nothing(world: World) -> None:
    assert world.api.run_many("anything", []) == []


# -- waiting ----------------------------------------------------------------------------------------------


def test_wait_gives_the_terminal_result(world: World) -> None:
    world.api.run("order", {"customer": 7}, run_id="x")
    world.inline.drain()
    result = world.api.wait("order", "x", timeout=5)
    assert (result.run_id, result.workflow, result.status) == ("x", "order", "completed")
    assert result.result == {"shipped": 7}
    assert result.results == {"take": {"customer": 7}, "ship": {"shipped": 7}}
    assert (result.error, result.failed_step, result.unwrap()) == (None, None, {"shipped": 7})


def test_wait_blocks_until_the_run_has_ended(world: World) -> None:
    world.api.run("order", {"customer": 7}, run_id="x")
    delivered = threading.Timer(0.05, world.inline.drain)
    delivered.start()
    assert world.api.wait("order", "x", timeout=20, poll_interval=0.01).status == "completed"
    delivered.join()


def test_a_failed_run_names_its_step_and_error_and_unwrap_raises_it(world: World) -> None:
    world.api.run("broken", None, run_id="x")
    world.inline.drain()
    result = world.api.wait("broken", "x", timeout=5)
    assert (result.status, result.result, result.failed_step) == ("failed", None, "boom")
    assert (result.error["type"], result.error["message"]) == ("StepError", "no axe")
    assert result.results == {"fine": 1}
    with pytest.raises(
        RunFailed, match=whole("Run 'x' of workflow 'broken' failed at step 'boom': StepError: no axe")
    ) as raised:
        result.unwrap()
    assert (raised.value.type, raised.value.message, raised.value.cause) == ("StepError", "no axe", None)
    assert raised.value.error == result.error


def test_what_run_returns_is_a_handle_of_the_run(world: World) -> None:
    started = Api(world.api.run("order", {"customer": 7}), world.api.runner)
    assert started.state().status == "pending"
    with pytest.raises(RunNotEnded):
        started.result()
    world.inline.drain()
    assert started.wait(timeout=5).result == {"shipped": 7}
    assert started.get(timeout=5) == {"shipped": 7}
    assert started.result().status == "completed"
    assert [entry.what for entry in started.history()][:1] == ["started"]
    assert started.logs() == []
    assert started.cancel() is False


def test_a_handle_raises_what_the_run_has_failed_with_and_cancels(world: World) -> None:
    broken, many = world.api.run("broken"), world.api.run_many("anything", [1, 2])
    assert Api(many[0], world.api.runner).cancel(by="test") is True
    world.inline.drain()
    with pytest.raises(RunFailed, match=whole("Run '…' of workflow 'broken' failed at step 'boom': StepError: no axe")):
        Api(broken, world.api.runner).get(timeout=5)
    with pytest.raises(RunCancelled):
        Api(many[0], world.api.runner).get(timeout=5)
    assert Api(many[1], world.api.runner).get(timeout=5) == 2


def test_a_run_is_waited_for_by_its_id_alone(world: World) -> None:
    run_id = world.api.run("order", {"customer": 7}).run_id
    said = f"Run '{run_id}' of workflow 'order' was still pending after 0.05 s. It continues: wait again, or cancel it."
    with pytest.raises(WaitTimeout, match=whole(said)):
        world.api.wait(run_id, timeout=0.05, poll_interval=0.01)
    world.inline.drain()
    assert world.api.wait(run_id).result == {"shipped": 7}
    assert world.api.wait(run_id=run_id).result == {"shipped": 7}
    assert world.api.wait("order", run_id).result == {"shipped": 7}


def test_waiting_without_a_run_id_says_what_to_give(world: World) -> None:
    started = world.api.run("order", {"customer": 7})
    for call, hint in (
        (lambda: world.api.wait(), "Invalid argument run_id: give the id of the run, such as wait(started.run_id)"),
        (
            lambda: world.api.wait(started),
            "Invalid argument run_id: … is not a run id: give its run_id, or call its own wait()",
        ),
        (
            lambda: world.api.wait("order", 300),
            "Invalid argument run_id: 300 is not text: give a string of 1 to 1,000 characters.",
        ),
    ):
        with pytest.raises(InvalidArgument, match=whole(hint)) as caught:
            call()
        assert caught.value.argument == "run_id"
    with pytest.raises(
        RivalError, match=whole("This handle of run 'x' has no client: use the one that `run` has returned.")
    ):
        Api(type(started)("x", "started"), world.api.runner).wait()


def test_a_workflow_is_started_as_itself_where_its_code_is_at_hand(world: World) -> None:
    echo = world.inline.define("echo-itself", step(lambda input: input, name="echo"))
    runs = [world.api.run(echo, 1), *world.api.run_many(echo, [2])]
    world.inline.drain()
    assert [world.api.wait(run.run_id).result for run in runs] == [1, 2]
    with pytest.raises(
        InvalidArgument,
        match=whole(
            "Invalid argument workflow: a value of type object is not text: give a string of 1 to 200 characters."
        ),
    ):
        world.api.run(object())


def test_an_unknown_workflow_suggests_the_name_that_was_meant(world: World) -> None:
    for wrong in ("oder", "Order", "ORDERS"):
        with pytest.raises(
            UnknownWorkflow,
            match=whole(
                "No workflow named '…' is registered (did you mean 'order'?). Known workflows: anything, broken, "
                "order. Workflows register when a worker that has them starts: `rival worker --workflows PATH`."
            ),
        ):
            world.api.run(wrong)
    with pytest.raises(UnknownWorkflow) as caught:
        world.api.run("zzz")
    assert "did you mean" not in str(caught.value)


def test_waiting_too_long_says_for_what_and_the_run_goes_on(world: World) -> None:
    world.api.run("order", {"customer": 7}, run_id="x")
    with pytest.raises(
        WaitTimeout,
        match=whole(
            "Run 'x' of workflow 'order' was still pending after 0.05 s. It continues: wait again, or cancel it."
        ),
    ) as caught:
        world.api.wait("order", "x", timeout=0.05, poll_interval=0.01)
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.workflow, caught.value.run_id, caught.value.status) == ("order", "x", "pending")
    world.inline.drain()
    assert world.api.wait("order", "x").status == "completed"


def test_a_run_that_is_not_there_cannot_be_waited_for_looked_at_or_cancelled(world: World) -> None:
    world.api.run("order", {"customer": 7}, run_id="x")
    for call in (
        lambda: world.api.wait("order", "nobody", timeout=1),
        lambda: world.api.wait("anything", "x", timeout=1),
        lambda: world.api.state("nobody"),
        lambda: world.api.result("nobody"),
        lambda: world.api.cancel("nobody"),
        lambda: world.api.instance("order", "nobody").get_state(),
    ):
        with pytest.raises(RunNotFound):
            call()


# -- looking ----------------------------------------------------------------------------------------------


def test_the_state_shows_the_steps_in_order_with_what_they_said(world: World) -> None:
    world.api.run("order", {"customer": 7}, run_id="x")
    world.inline.drain()
    state = world.api.state("x")
    assert [(s.path, s.status, s.attempts) for s in state.steps] == [("take", "completed", 1), ("ship", "completed", 1)]
    assert state.steps[1].description == "shipped"
    assert state.is_terminal
    assert state.current_step is None
    assert (state.attempts, world.api.logs("x")) == ([], [])
    recorded = [(entry.what, entry.path) for entry in world.api.history("x")]
    assert recorded == [
        ("started", None),
        ("claimed", "take"),
        ("completed", "take"),
        ("claimed", "ship"),
        ("completed", "ship"),
        ("completed", None),
    ]


def test_the_instance_remembers_its_names(world: World) -> None:
    order = world.api.instance("order", "order-42")
    assert order.run({"customer": 7}) == Started("order-42", "started")
    assert order.get_state().status == "pending"
    world.inline.drain()
    assert order.wait(timeout=5).result == {"shipped": 7}
    assert order.cancel() is False


def test_workflows_are_listed_with_their_schema(world: World) -> None:
    listed = {info.name: info for info in world.api.workflows()}
    assert set(listed) == {"order", "anything", "broken"}
    assert listed["order"].input_schema["required"] == ["customer"]


def test_runs_are_listed_newest_first_and_page_by_page(world: World) -> None:
    ids = [world.api.run("anything", n, run_id=f"r{n:02}").run_id for n in range(7)]
    pages: list[list[str]] = []
    before = None
    while page := world.api.runs(limit=3, before=before):
        pages.append([run.run_id for run in page])
        before = page[-1]
    assert [run_id for page in pages for run_id in page] == ids[::-1]
    assert [len(page) for page in pages] == [3, 3, 1]


def test_runs_started_in_one_go_are_paged_without_loss_or_repetition(world: World) -> None:
    ids = {one.run_id for one in world.api.run_many("anything", range(25))}
    seen: list[str] = []
    before = None
    while page := world.api.runs(limit=4, before=before):
        seen += [run.run_id for run in page]
        before = page[-1]
    assert sorted(seen) == sorted(ids)


def test_runs_are_found_by_workflow_status_and_time(world: World) -> None:
    world.api.run("order", {"customer": 1}, run_id="o1")
    world.api.run("broken", None, run_id="b1")
    world.inline.drain()
    world.api.run("order", {"customer": 2}, run_id="o2")

    def ids(**filters: Any) -> set[str]:
        return {run.run_id for run in world.api.runs(**filters)}

    assert ids(workflow="order") == {"o1", "o2"}
    assert ids(status="failed") == {"b1"}
    assert ids(workflow="order", status="completed") == {"o1"}
    assert ids(status="pending") == {"o2"}
    created = world.api.state("o2").created_at
    assert ids(since=created) == {"o2"}
    assert ids(until=created) == {"o1", "b1"}
    assert ids(since=dt.datetime.now(dt.UTC) + dt.timedelta(hours=1)) == set()


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"customer": 7}, {"seven", "seven-true"}),
        ({"customer": 7, "ok": True}, {"seven-true"}),
        ({"ok": 1}, {"one"}),
        ({"ok": None}, {"null"}),
        ({"name": 'O\'Brien "x"'}, {"named"}),
        ({"deep": {"a": [1, 2]}}, {"deep"}),
        ({"missing": 1}, set()),
    ],
)
def test_runs_are_found_by_what_is_in_their_input(world: World, wanted: dict[str, Any], found: set[str]) -> None:
    inputs: dict[str, Any] = {
        "seven": {"customer": 7},
        "seven-true": {"customer": 7, "ok": True},
        "one": {"ok": 1},
        "null": {"ok": None},
        "named": {"name": 'O\'Brien "x"'},
        "deep": {"deep": {"a": [1, 2]}},
        "none": None,
        "text": "customer",
    }
    world.api.run_many("anything", inputs.values(), run_ids=list(inputs))
    assert {run.run_id for run in world.api.runs(input=wanted)} == found


# -- cancelling -------------------------------------------------------------------------------------------


def test_cancel_ends_the_run_once_and_wakes_clients_that_wait(world: World) -> None:
    world.api.run("order", {"customer": 7}, run_id="x")
    assert world.api.cancel("x") is True
    assert world.api.cancel("x") is False
    assert world.inline.doorbell.changed == ["x"]
    result = world.api.wait("order", "x", timeout=5)
    assert (result.status, result.results) == ("cancelled", {})
    with pytest.raises(RunCancelled):
        result.unwrap()
    world.inline.drain()
    assert world.api.state("x").steps == []
    assert [(entry.what, entry.by) for entry in world.api.history("x")] == [("cancelled", "client")]


# -- in the producer's own transaction --------------------------------------------------------------------


@dataclass
class Joined:
    """A producer's own open transaction, in any of the forms that `connection=` takes."""

    connection: Any
    commit: Callable[[], Any]
    rollback: Callable[[], Any]
    rings_at_commit: bool


def joined_forms(world: World, url: str) -> Iterator[tuple[str, Callable[[], Joined]]]:
    settle = world.api.settle

    def form(connection: Any, messages: bool = False) -> Joined:
        return Joined(connection, lambda: settle(connection.commit()), lambda: settle(connection.rollback()), messages)

    if world.kind == "sync":
        yield "Session", lambda: form(Session(create_engine(sqlalchemy_url(url))), messages=True)
        yield "Connection", lambda: form(create_engine(sqlalchemy_url(url)).connect())
        if url.startswith("postgresql"):
            yield "psycopg", lambda: form(psycopg.connect(libpq_url(url)))
    elif url.startswith("postgresql"):
        engine = create_async_engine(sqlalchemy_url(url))

        async def connect() -> Any:
            return await engine.connect()

        yield "AsyncSession", lambda: form(AsyncSession(engine), messages=True)
        yield "AsyncConnection", lambda: form(settle(connect()))
        yield "psycopg async", lambda: form(settle(psycopg.AsyncConnection.connect(libpq_url(url))))
        settle(engine.dispose())


def test_a_run_in_the_producers_own_transaction_exists_after_its_commit(world: World, url: str) -> None:
    for name, open_ in joined_forms(world, url):
        joined = open_()
        started = world.api.run("order", {"customer": 7}, run_id=name, connection=joined.connection)
        assert started == Started(name, "started")
        if url.startswith("postgresql"):
            assert name not in world.runs()
        assert world.inline.doorbell.messages == []
        joined.commit()
        assert name in world.runs()
        if joined.rings_at_commit:
            assert [message.run_id for message in world.inline.doorbell.messages] == [name]
        else:
            assert world.inline.keeper.run_once().published == 1
        world.inline.drain()
        assert world.api.wait("order", name, timeout=5).status == "completed"
        world.api.settle(joined.connection.close())


def test_a_run_in_the_producers_own_transaction_is_gone_after_its_rollback(world: World, url: str) -> None:
    for name, open_ in joined_forms(world, url):
        joined = open_()
        world.api.run_many("order", [{"customer": n} for n in range(3)], connection=joined.connection)
        joined.rollback()
        assert world.runs() == []
        world.api.run("order", {"customer": 1}, run_id=f"{name} again", connection=joined.connection)
        world.api.settle(joined.connection.close())
        assert world.runs() == []
        assert world.inline.doorbell.messages == [], name


def test_many_runs_and_a_conflict_in_the_producers_own_transaction(world: World, url: str) -> None:
    for name, open_ in joined_forms(world, url):
        world.api.run("anything", 0, run_id=f"{name} 0")
        world.inline.doorbell.take()
        joined = open_()
        ids = [f"{name} {n}" for n in range(3)]
        started = world.api.run_many("anything", [0, 1, 2], run_ids=ids, connection=joined.connection)
        assert [one.status for one in started] == ["running", "started", "started"]
        with pytest.raises(RunConflict):
            world.api.run("anything", 9, run_id=f"{name} 1", connection=joined.connection)
        with pytest.raises(InvalidInput) as caught:
            world.api.run("order", {}, connection=joined.connection)
        assert len(caught.value.problems) == 1
        assert not caught.value.problems[0].startswith("inputs[")
        joined.commit()
        assert set(ids) <= set(world.runs())
        world.inline.keeper.run_once()
        assert {message.run_id for message in world.inline.doorbell.take()} >= set(ids[1:])
        world.api.settle(joined.connection.close())


def leftovers(world: World) -> list[str]:
    """The runs that have rows, of any table that a start writes."""
    with world.inline.store.database.autocommit() as connection:
        rows = connection.exec_driver_sql("SELECT id FROM rival_runs UNION SELECT run_id FROM rival_labels")
        return sorted(rows.scalars())


#: Options of `run_many`, and the ids of which the last one is another run already.
CONFLICTS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "two": ({}, ["new", "taken"]),
    "labels": ({"labels": {"tenant": "a"}}, ["new", "newer", "taken"]),
    "the last of a second thousand": ({}, [*(f"new {n}" for n in range(1001)), "taken"]),
    "queued": ({"singleton": "k", "on_conflict": "queue", "labels": {"a": "b"}}, ["new", "newer", "taken"]),
    "queued, in a second thousand": (
        {"singleton": "k", "on_conflict": "queue"},
        [*(f"new {n}" for n in range(1001)), "taken"],
    ),
    "later": ({"delay": 60.0, "deadline": 600.0, "priority": "high"}, ["new", "taken"]),
}


@pytest.mark.parametrize("which", CONFLICTS)
def test_a_conflict_of_many_starts_inserts_nothing_and_leaves_the_transaction(
    world: World, url: str, which: str
) -> None:
    options, ids = CONFLICTS[which]
    world.api.run("anything", "old", run_id="taken")
    expected = ["taken"]
    for name, open_ in joined_forms(world, url):
        joined = open_()
        world.api.run("anything", 1, run_id=f"{name} before", connection=joined.connection)
        with pytest.raises(RunConflict, match=whole(f"Run 'taken' exists already, {ANOTHER_INPUT}")):
            world.api.run_many("anything", range(len(ids)), run_ids=ids, connection=joined.connection, **options)
        world.api.run("anything", 2, run_id=f"{name} after", connection=joined.connection)
        joined.commit()
        world.api.settle(joined.connection.close())
        expected += [f"{name} before", f"{name} after"]
        assert leftovers(world) == sorted(expected), name
    world.inline.keeper.run_once()
    world.inline.drain()
    assert {run.status for run in world.api.runs()} == {"completed"}
    with pytest.raises(RunConflict):
        world.api.run_many("anything", range(len(ids)), run_ids=ids, **options)
    assert leftovers(world) == sorted(expected)


def test_a_conflict_leaves_the_runs_that_the_transaction_has_started_before(world: World, url: str) -> None:
    for name, open_ in joined_forms(world, url):
        joined = open_()
        one = {"connection": joined.connection}
        world.api.run_many("anything", [1, 2], run_ids=[f"{name} 1", f"{name} 2"], **one)
        with pytest.raises(RunConflict, match=whole(f"Run '{name} 2' exists already, {ANOTHER_INPUT}")):
            world.api.run_many("anything", [1, 3, 9], run_ids=[f"{name} 1", f"{name} 3", f"{name} 2"], **one)
        again = world.api.run_many("anything", [2, 3], run_ids=[f"{name} 2", f"{name} 3"], **one)
        assert [one.status for one in again] == ["running", "started"]
        joined.commit()
        world.api.settle(joined.connection.close())
        assert set(world.runs()) >= {f"{name} {n}" for n in (1, 2, 3)}


def test_a_conflict_with_a_start_of_the_same_moment_inserts_nothing(world: World, url: str) -> None:
    """Another transaction commits a run with one of the ids while this one waits for it."""
    if url.startswith("sqlite"):
        pytest.skip("transactions exclude each other")
    for number, (name, open_) in enumerate(joined_forms(world, url)):
        joined = open_()
        ids = [f"{number} a", f"{number} b"]
        with ThreadPoolExecutor(1) as pool, psycopg.connect(libpq_url(url)) as theirs:
            other = Rival(url)
            other.run("anything", "other", run_id=ids[1], connection=theirs)
            commits = pool.submit(lambda at=theirs: (until_blocked(world.inline.store.database), at.commit()))
            with pytest.raises(RunConflict):
                world.api.run_many("anything", [1, 2], run_ids=ids, connection=joined.connection)
            commits.result(20)
            other.close()
        joined.commit()
        world.api.settle(joined.connection.close())
        assert (ids[0] in world.runs(), ids[1] in world.runs()) == (False, True), name


def test_a_connection_may_give_its_rows_in_any_form(world: World, url: str) -> None:
    if url.startswith("sqlite"):
        pytest.skip("psycopg's row factories")

    def opened() -> Any:
        rows: Any = {"row_factory": dict_row}
        if world.kind == "sync":
            return psycopg.connect(libpq_url(url), **rows)
        return world.api.settle(psycopg.AsyncConnection.connect(libpq_url(url), **rows))

    connection = opened()
    assert [world.api.run("anything", 1, "r", connection=connection).status for _ in range(2)] == ["started", "running"]
    assert world.api.send_event("paid", 1, connection=connection).status == "sent"
    with pytest.raises(RunConflict):
        world.api.run_many("anything", [1, 2], run_ids=["new", "r"], connection=connection)
    world.api.settle(connection.commit())
    world.api.settle(connection.close())
    assert world.runs() == ["r"]


def test_labels_are_kept_in_the_producers_own_transaction_too(world: World, url: str) -> None:
    for name, open_ in joined_forms(world, url):
        joined = open_()
        labels = {"tenant": name, "odd": '"{}\\'}
        world.api.run("order", {"customer": 7}, run_id=name, connection=joined.connection, labels=labels)
        world.api.run_many(
            "order", [{"customer": 7}], run_ids=[f"{name} many"], connection=joined.connection, labels=labels
        )
        joined.commit()
        assert {run.run_id for run in world.api.runs(labels={"tenant": name})} == {name, f"{name} many"}
        assert world.api.state(name).labels == labels
        world.api.settle(joined.connection.close())


def test_starts_share_a_run_in_the_producers_own_transaction_too(world: World, url: str) -> None:
    for name, open_ in joined_forms(world, url):
        joined = open_()
        one = {"connection": joined.connection, "batch": 2, "within": 60, "key": name, "labels": {"by": name}}
        started = [world.api.run("anything", number, **one) for number in range(3)]
        assert [one.status for one in started] == ["started", "gathered", "started"], name
        alone = {"connection": joined.connection, "singleton": name}
        with pytest.raises(
            InvalidArgument,
            match=whole(
                'Invalid argument on_conflict: "cancel" is not possible in your own transaction: cancel the run '
                "first, or leave connection out."
            ),
        ):
            world.api.run("anything", 1, **alone, on_conflict="cancel")
        first = world.api.run("anything", 1, **alone)
        assert world.api.run("anything", 2, **alone).run_id == first.run_id
        skipped = world.api.run("anything", 2, **alone, on_conflict="skip")
        assert (skipped.status, skipped.instead_of) == ("skipped", first.run_id)
        queued = world.api.run("anything", 3, **alone, on_conflict="queue")
        many = world.api.run_many("anything", [4, 5], **alone, on_conflict="queue")
        assert [one.status for one in (queued, *many)] == ["queued"] * 3
        joined.commit()
        world.inline.keeper.run_once()
        world.inline.drain()
        assert world.api.state(started[0].run_id).result == [0, 1]
        assert len(world.api.runs(labels={"by": name})) == 2
        assert {world.api.state(one.run_id).status for one in (first, queued, *many)} == {"completed"}
        world.api.settle(joined.connection.close())


def test_a_savepoint_that_is_rolled_back_does_not_take_the_message_of_a_run_outside_it(world: World, url: str) -> None:
    if world.kind == "async":
        pytest.skip("AsyncSession drives the same Session")
    with Session(create_engine(sqlalchemy_url(url))) as session:
        world.api.run("anything", 1, run_id="kept", connection=session)
        with session.begin_nested() as savepoint:
            savepoint.rollback()
        with session.begin_nested():
            world.api.run("anything", 2, run_id="nested", connection=session)
        assert world.inline.doorbell.messages == []
        session.commit()
        assert {message.run_id for message in world.inline.doorbell.take()} == {"kept", "nested"}
        session.commit()
        assert world.inline.doorbell.take() == []


def test_another_kind_of_connection_is_refused(world: World) -> None:
    with pytest.raises(
        InvalidArgument,
        match=whole(
            "Invalid argument connection: str cannot be joined by a start or an event: give a SQLAlchemy "
            "Session or Connection, or a psycopg Connection (AsyncRival: their async forms)."
        ),
    ):
        world.api.run("anything", 1, connection="postgresql://…")
    with pytest.raises(
        InvalidArgument,
        match=whole(
            "Invalid argument connection: str cannot be joined by a start or an event: give a SQLAlchemy "
            "Session or Connection, or a psycopg Connection (AsyncRival: their async forms)."
        ),
    ):
        world.api.send_event("paid", 1, connection="postgresql://…")


def test_the_id_of_an_event_for_others_is_refused_also_in_the_producers_own_transaction(world: World, url: str) -> None:
    world.api.send_event("paid", 1, event_id="e1")
    with pytest.raises(
        EventConflict,
        match=whole(
            "Event 'e1' exists already, with another topic, key or run: this one, of topic 'refunded', was not "
            "sent. Ids of events are unique in all topics: put the topic in front of an id from elsewhere, as "
            'in event_id=f"{topic}:{order_id}".'
        ),
    ):
        world.api.send_event("refunded", 1, event_id="e1")
    for name, open_ in joined_forms(world, url):
        joined = open_()
        one = {"connection": joined.connection, "event_id": f"of {name}"}
        assert [world.api.send_event("paid", n, **one).status for n in range(2)] == ["sent", "duplicate"], name
        with pytest.raises(
            EventConflict,
            match=whole(
                "Event 'of …' exists already, with another topic, key or run: this one, of topic 'refunded', was "
                "not sent. Ids of events are unique in all topics: put the topic in front of an id from elsewhere, "
                'as in event_id=f"{topic}:{order_id}".'
            ),
        ):
            world.api.send_event("refunded", 1, **one)
        joined.commit()
        world.api.settle(joined.connection.close())
    assert {one.topic for one in world.api.events()} == {"paid"}


def test_a_transaction_that_has_failed_is_to_be_rolled_back_first(world: World, url: str) -> None:
    if url.startswith("sqlite"):
        pytest.skip("a failed statement does not end a transaction of SQLite")
    with psycopg.connect(libpq_url(url)) as connection:
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT 1 / 0")
        client = Rival(url)
        with pytest.raises(
            DatabaseRefused,
            match=whole(
                "The database of the given connection has rejected a statement (InFailedSqlTransaction: current "
                "transaction is aborted, commands ignored until end of transaction block). An earlier statement of "
                "this transaction has failed: roll it back, all of it or to a savepoint, and begin again."
            ),
        ):
            client.run("anything", 1, connection=connection)
        connection.rollback()
        assert client.run("anything", 1, connection=connection).status == "started"
        client.close()


# -- run-end notifications --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["sync", "async"])
def test_the_run_end_notification_wakes_a_wait_long_before_its_next_poll(
    kind: str, postgres_url: str, broker_url: str
) -> None:
    settings = Settings(database_url=postgres_url, broker_url=broker_url, queue="run-ends")
    inline = Inline(postgres_url)
    inline.define("echo", step(lambda input: input, name="echo"))
    inline.rival.run("echo", 1, run_id="x")

    def wait() -> Any:
        if kind == "sync":
            with Rival(settings=settings) as rival:
                return rival.wait("echo", "x", timeout=60, poll_interval=50)

        async def later() -> Any:
            async with AsyncRival(settings=settings) as rival:
                return await rival.wait("echo", "x", timeout=60, poll_interval=50)

        return asyncio.run(later())

    with ThreadPoolExecutor(1) as threads, redis.Redis.from_url(broker_url) as listening:
        waiting = threads.submit(wait)
        channel = CHANGED_CHANNEL + "x"
        while dict(listening.pubsub_numsub(channel)).get(channel.encode(), 0) == 0:
            assert not waiting.done()
        inline.drain()
        doorbell = RedisDoorbell(broker_url, "bell")
        assert doorbell.publish([], changed=inline.doorbell.changed)
        assert waiting.result(timeout=10).result == 1
        doorbell.close()
    inline.close()
