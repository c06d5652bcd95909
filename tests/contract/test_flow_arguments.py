"""Hostile arguments of flows, options and waits: a clear failure or a problem at registration; the run can be read."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any

import pytest

from rival_client.db.types import Timestamp
from rival_client.model.checks.arguments import MAX_NAME
from rival_workers import DefinitionError, FlowContext, flow, step, wait_event_step
from rival_workers.definition.define import define_workflow
from tests.support.inline import Inline

FAR = dt.datetime(9999, 12, 31, tzinfo=dt.timezone(-dt.timedelta(hours=14)))
CALLS: dict[str, tuple[str, Callable[[FlowContext], Any]]] = {
    "sleep 1e12": ("duration", lambda ctx: ctx.sleep(1e12)),
    "sleep nan": ("duration", lambda ctx: ctx.sleep(float("nan"))),
    "sleep inf": ("duration", lambda ctx: ctx.sleep(float("inf"))),
    "sleep 10**400": ("duration", lambda ctx: ctx.sleep(10**400)),
    "sleep text": ("duration", lambda ctx: ctx.sleep("3")),  # type: ignore[arg-type]
    "sleep True": ("duration", lambda ctx: ctx.sleep(True)),
    "sleep longest span": ("duration", lambda ctx: ctx.sleep(dt.timedelta.max)),
    "sleep many days": ("days", lambda ctx: ctx.sleep(days=1e12)),
    "sleep in fortnights": ("fortnights", lambda ctx: ctx.sleep(fortnights=1)),
    "until naive": ("when", lambda ctx: ctx.sleep_until(dt.datetime(2026, 1, 1))),
    "until far": ("when", lambda ctx: ctx.sleep_until(FAR)),
    "until 1": ("when", lambda ctx: ctx.sleep_until(1)),  # type: ignore[arg-type]
    "event nul": ("topic", lambda ctx: ctx.await_event("a\x00b")),
    "event empty": ("topic", lambda ctx: ctx.await_event("")),
    "event none": ("topic", lambda ctx: ctx.await_event([])),
    "event long": ("topic", lambda ctx: ctx.await_event("x" * 8000)),
    "event key": ("key", lambda ctx: ctx.await_event("a", key="b\x00c")),
    "event where": ("where", lambda ctx: ctx.await_event("a", where={"x": float("nan")})),
    "event timeout": ("timeout", lambda ctx: ctx.await_event("a", timeout=1e12)),
    "call nul": ("workflow", lambda ctx: ctx.call("a\x00b")),
    "call 7": ("workflow", lambda ctx: ctx.call(7)),
    "spawn long": ("workflow", lambda ctx: ctx.spawn("x" * 8000)),
    "step 7": ("function", lambda ctx: ctx.step(7)),  # type: ignore[arg-type]
    "step name": ("name", lambda ctx: ctx.step(len, (), name="x" * 8000)),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_hostile_argument_is_the_flows_clear_failure_and_the_run_can_be_read(inline: Inline, what: str) -> None:
    argument, call = CALLS[what]

    @flow("hostile")
    def hostile(ctx: FlowContext) -> Any:
        return call(ctx)

    inline.define("hostile", hostile)
    inline.rival.run("hostile", None, "r")
    inline.drain()
    state = inline.rival.state("r")
    assert state.status == "failed"
    assert state.error is not None
    assert state.error["type"] == "InvalidArgument"
    assert f"Invalid argument {argument}" in state.error["message"]


@pytest.mark.slow
def test_child_runs_at_any_depth_have_ids_that_every_store_takes(inline: Inline) -> None:
    @flow("a-flow-with-quite-a-long-name")
    def nested(ctx: FlowContext, input: int) -> Any:
        return ctx.call("a-flow-with-quite-a-long-name", input - 1) if input else "bottom"

    inline.define("a-flow-with-quite-a-long-name", nested)
    inline.rival.run("a-flow-with-quite-a-long-name", 30, "r" * MAX_NAME)
    inline.drain()
    assert inline.rival.result("r" * MAX_NAME).result == "bottom"
    found = [run.run_id for run in inline.rival.runs(limit=100)]
    assert len(found) == len(set(found)) == 31
    assert max(map(len, found)) <= MAX_NAME


def test_a_flow_can_wait_for_many_long_topics_at_once(inline: Inline) -> None:
    topics = [f"{'topic' * 30}-{n}" for n in range(40)]

    @flow("many")
    def many(ctx: FlowContext) -> Any:
        return ctx.await_event(topics).payload

    inline.define("many", many)
    inline.rival.run("many", None, "r")
    inline.drain()
    inline.rival.send_event(topics[7], "seven")
    inline.drain()
    assert inline.rival.result("r").result == "seven"


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (lambda: step(len, timeout=1e12), "timeout"),
        (lambda: step(len, max_delay=dt.timedelta.max), "max_delay"),
        (lambda: step(len, name="x" * 8000), "step name"),
        (lambda: wait_event_step("a\x00b", name="w"), "option topic"),
        (lambda: wait_event_step("a", key="b\x00", name="w"), "option key"),
        (lambda: wait_event_step("a", where={"x": object()}, name="w"), "option where"),
        (lambda: wait_event_step("a", timeout=1e12, name="w"), "option timeout"),
    ],
)
def test_what_no_store_takes_is_refused_at_registration(made: Callable[[], Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=problem):
        define_workflow("w", [made()])


@pytest.mark.parametrize("name", ["a\x00b", "x" * 8000, " ", "\ud800"])
def test_a_workflow_has_a_name_that_every_store_takes(name: str) -> None:
    with pytest.raises(DefinitionError, match="name"):
        define_workflow(name, [max])


@pytest.mark.parametrize("key", [None, "a\x00b", "x" * 8000, [1]])
def test_a_key_function_that_gives_no_key_is_the_steps_failure(inline: Inline, key: Any) -> None:
    def make_key() -> Any:
        return key

    inline.define("keyed", wait_event_step("paid", key=make_key))
    inline.rival.run("keyed", None, "r")
    inline.drain()
    state = inline.rival.state("r")
    assert (state.status, (state.error or {}).get("type")) == ("failed", "InvalidArgument")


def test_a_time_beyond_all_datetimes_can_be_read(sqlite_url: str) -> None:
    from rival_client.db.database import Database

    dialect = Database(sqlite_url).engine.dialect
    read = Timestamp().process_result_value(1e15, dialect)
    assert read is not None
    assert read.year == 9999
