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
from tests.support.output import as_expected, whole

FAR = dt.datetime(9999, 12, 31, tzinfo=dt.timezone(-dt.timedelta(hours=14)))
CALLS: dict[str, tuple[str, Callable[[FlowContext], Any]]] = {
    "sleep 1e12": (
        "duration: 1000000000000.0 is not a duration: give at most 3,153,600,000 seconds, or a timedelta.",
        lambda ctx: ctx.sleep(1e12),
    ),
    "sleep nan": (
        "duration: nan is not a duration: give at most 3,153,600,000 seconds, or a timedelta.",
        lambda ctx: ctx.sleep(float("nan")),
    ),
    "sleep inf": (
        "duration: inf is not a duration: give at most 3,153,600,000 seconds, or a timedelta.",
        lambda ctx: ctx.sleep(float("inf")),
    ),
    "sleep 10**400": (
        "duration: 1000… is not a duration: give at most 3,153,600,000 seconds, or a timedelta.",
        lambda ctx: ctx.sleep(10**400),
    ),
    "sleep text": (
        "duration: '3' is not a duration: give at most 3,153,600,000 seconds, or a timedelta.",
        lambda ctx: ctx.sleep("3"),
    ),  # type: ignore[arg-type]
    "sleep True": (
        "duration: True is not a duration: give at most 3,153,600,000 seconds, or a timedelta.",
        lambda ctx: ctx.sleep(True),
    ),
    "sleep longest span": (
        (
            "duration: datetime.timedelta(days=999999999, seconds=86399, microsecon… is not a duration: give at "
            "most 3,153,600,000 seconds, or a timedelta."
        ),
        lambda ctx: ctx.sleep(dt.timedelta.max),
    ),
    "sleep many days": (
        "days: give numbers of weeks, days, hours, minutes, seconds (…).",
        lambda ctx: ctx.sleep(days=1e12),
    ),
    "sleep in fortnights": (
        (
            "fortnights: give numbers of weeks, days, hours, minutes, seconds ('fortnights' is an invalid "
            "keyword argument for …)."
        ),
        lambda ctx: ctx.sleep(fortnights=1),
    ),
    "until naive": (
        (
            "when: datetime.datetime(2026, 1, 1, 0, 0) is not a point in time: it has no time zone; give "
            "datetime(…, tzinfo=UTC)."
        ),
        lambda ctx: ctx.sleep_until(dt.datetime(2026, 1, 1)),
    ),
    "until far": (
        (
            "when: datetime.datetime(9999, 12, 31, 0, 0, tzinfo=datetime.timezo… is not a time within the next "
            "hundred years."
        ),
        lambda ctx: ctx.sleep_until(FAR),
    ),
    "until 1": ("when: 1 is not a point in time: give a datetime with a time zone.", lambda ctx: ctx.sleep_until(1)),  # type: ignore[arg-type]
    "event nul": ("topic: 'a\\x00b' holds a NUL character; leave it out.", lambda ctx: ctx.await_event("a\x00b")),
    "event empty": (
        "topic: '' is not a usable text: give 1 to 200 characters, not only white space.",
        lambda ctx: ctx.await_event(""),
    ),
    "event none": (
        "topic: a value of type list is not a topic: give one, or several.",
        lambda ctx: ctx.await_event([]),
    ),
    "event long": ("topic: 'xxx…xxx… has 8,000 characters; give at most 200.", lambda ctx: ctx.await_event("x" * 8000)),
    "event key": (
        "key: 'b\\x00c' holds a NUL character; leave it out.",
        lambda ctx: ctx.await_event("a", key="b\x00c"),
    ),
    "event where": (
        "where: it is not JSON: NaN and infinite numbers are not; give None or a text",
        lambda ctx: ctx.await_event("a", where={"x": float("nan")}),
    ),
    "event timeout": (
        "timeout: 1000000000000.0 is not a duration: give 0 to 3,153,600,000 seconds, or a timedelta.",
        lambda ctx: ctx.await_event("a", timeout=1e12),
    ),
    "call nul": ("workflow: 'a\\x00b' holds a NUL character; leave it out.", lambda ctx: ctx.call("a\x00b")),
    "call 7": ("workflow: 7 is not text: give a string of 1 to 200 characters.", lambda ctx: ctx.call(7)),
    "spawn long": ("workflow: 'xxx…xxx… has 8,000 characters; give at most 200.", lambda ctx: ctx.spawn("x" * 8000)),
    "step 7": ("function: 7 is not a function that ctx.step can call.", lambda ctx: ctx.step(7)),  # type: ignore[arg-type]
    "step name": (
        "name: 'xxx…xxx… has 8,000 characters; give at most 200.",
        lambda ctx: ctx.step(len, (), name="x" * 8000),
    ),
}


@pytest.mark.parametrize("what", CALLS)
def test_a_hostile_argument_is_the_flows_clear_failure_and_the_run_can_be_read(inline: Inline, what: str) -> None:
    problem, call = CALLS[what]
    message = f"Invalid argument {problem}"

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
    assert as_expected(message, state.error["message"]) == message


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
        (
            lambda: step(len, timeout=1e12),
            "workflow 'w': steps[0]: option timeout: 1000000000000.0 is longer than a hundred years",
        ),
        (
            lambda: step(len, max_delay=dt.timedelta.max),
            (
                "workflow 'w': steps[0]: option max_delay: datetime.timedelta(days=999999999, seconds=86399, "
                "microsecon… is longer than a hundred years"
            ),
        ),
        (
            lambda: step(len, name="x" * 8000),
            (
                "workflow 'w': steps[0]: step name "
                "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…"
            ),
        ),
        (
            lambda: wait_event_step("a\x00b", name="w"),
            "workflow 'w': steps[0] 'w': option topic of 'w': 'a\\x00b' holds a NUL character; leave it out.",
        ),
        (
            lambda: wait_event_step("a", key="b\x00", name="w"),
            "workflow 'w': steps[0] 'w': option key of 'w': 'b\\x00' holds a NUL character; leave it out.",
        ),
        (
            lambda: wait_event_step("a", where={"x": object()}, name="w"),
            "workflow 'w': steps[0] 'w': option where of 'w': it is not JSON: object is not JSON",
        ),
        (
            lambda: wait_event_step("a", timeout=1e12, name="w"),
            (
                "workflow 'w': steps[0] 'w': option timeout of 'w': 1000000000000.0 is not a duration: give 0 to "
                "3,153,600,000 seconds, or a timedelta."
            ),
        ),
    ],
)
def test_what_no_store_takes_is_refused_at_registration(made: Callable[[], Any], problem: str) -> None:
    with pytest.raises(DefinitionError, match=whole(problem)):
        define_workflow("w", [made()])


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("a\x00b", r"'a\x00b' holds a NUL character; leave it out."),
        ("x" * 8000, f"'{'x' * 59}… has 8,000 characters; give at most 200."),
        (" ", "' ' is not a usable text: give 1 to 200 characters, not only white space."),
        ("\ud800", r"'\ud800' holds a lone surrogate, which is not Unicode; leave it out."),
    ],
)
def test_a_workflow_has_a_name_that_every_store_takes(name: str, problem: str) -> None:
    with pytest.raises(DefinitionError, match=whole(f"workflow {name!r}: name: {problem}")):
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
