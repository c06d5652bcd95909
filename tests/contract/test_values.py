"""Values are exact: what user code sees the first time is what every store returns later, with the order of keys and
the types of numbers.
"""

from __future__ import annotations

import json
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, update

from rival_client.db.fleet_tables import schedules
from rival_client.db.run_tables import attempts, steps
from rival_client.db.types import after
from rival_workers import StepError, flow, for_each, step, wait_event_step
from rival_workers.definition.registry import Registry
from tests.support.effort import examples
from tests.support.inline import Inline

EXAMPLES = examples(12)

ODD = {
    "zeta": 1.0,
    "b": 1,
    "aa": -0.0,
    "": 1e300,
    "ä": 10**30,
    "nested": [{"y": 1e23, "x": 10**23}, 2.5e-320, [], {}],
    "sign": -(10**25),
    "text": "\u2028 \\u0000 \x7f 😀",
    "no": None,
    "yes": True,
}
BARE = [1.0, -0.0, 1e300, 10**30, 9007199254740993, 0, True, False, "", "1.0", " 7 ", [], {}, None, "null"]


def exact(value: Any) -> str:
    """Text that differs whenever a value, the type of a number or the order of keys does."""
    return json.dumps(value)


class Seen:
    """What user code was given, by the place where it was given it."""

    def __init__(self) -> None:
        self.at: dict[str, list[str]] = {}

    def __call__(self, place: str, value: Any) -> Any:
        self.at.setdefault(place, []).append(exact(value))
        return value


seen = Seen()
run_ids = count(1)


def own_id(run: Any) -> str:
    return str(run.id)


# -- a plan -----------------------------------------------------------------------------------------------


def first(input: Any, state: Any) -> Any:
    state["kept"] = seen("input", input)
    return input


def second(steps: Any, ctx: Any) -> Any:
    seen("state in place", steps.first.state["kept"])
    seen("result in place", steps.first.result)
    seen("last progress", ctx.last_progress) if ctx.run.attempt > 1 else None
    ctx.heartbeat({"at": ctx.input})
    if ctx.run.attempt == 1:
        raise StepError("again", behavior="retry")
    return steps.first.result


def both(input: Any) -> list[Any]:
    return [input, [input]]


def one(item: Any) -> Any:
    return seen("item", item)


def after_the_event(steps: Any, last_step: Any) -> Any:
    seen("state", steps.first.state["kept"])
    seen("results of items", steps.items.result)
    seen("event", last_step.result)
    return steps.first.result


def fails(steps: Any) -> None:
    raise StepError("no", behavior="continue")


def handler(workflow_state: Any) -> None:
    seen("input of a handler", workflow_state.input)
    seen("result in a handler", workflow_state.steps.first.result)


def last(steps: Any) -> Any:
    return {"first": steps.first.result, "bare": [steps.first.result]}


PLAN = (
    first,
    step(second, max_attempts=2, backoff="none"),
    for_each("items", items=both, do=[one]),
    wait_event_step("go", key=own_id),
    after_the_event,
    step(fails, on_error=handler),
    last,
)

# -- a flow -----------------------------------------------------------------------------------------------


def give(value: Any) -> Any:
    return value


def gives_all(ctx: Any, input: Any) -> Any:
    value = input["value"]
    seen("flow input", value)
    if input["again"]:
        ctx.continue_as({"value": value, "again": False})
    result = seen("flow step", ctx.step(give, value))
    sent = seen("flow event", ctx.await_event(["go"], key=ctx.run.id).payload)
    child = seen("child", ctx.call("child", value))
    return {"step": result, "event": sent, "child": child}


@pytest.fixture
def ready(inline: Inline) -> Inline:
    inline.define("plan", *PLAN)
    inline.define("child", step(lambda input: seen("child input", input), name="give"))
    made = flow("flow", registry=Registry())(gives_all)
    assert made.definition is not None
    inline.registry.renew(made.definition)
    inline.process.register_workflows()
    seen.at.clear()
    return inline


def run_plan(ready: Inline, value: Any) -> str:
    run_id = f"plan-{next(run_ids)}"
    ready.rival.run("plan", value, run_id=run_id)
    ready.drain()
    ready.rival.send_event("go", value, key=run_id)
    ready.drain()
    return run_id


def run_flow(ready: Inline, value: Any) -> str:
    run_id = f"flow-{next(run_ids)}"
    ready.rival.run("flow", {"value": value, "again": True}, run_id=run_id)
    ready.drain()
    ready.rival.send_event("go", value, key=run_id)
    ready.drain()
    return run_id


def assert_exact_in_plan(ready: Inline, value: Any) -> None:
    seen.at.clear()
    run_id, text = run_plan(ready, value), exact(value)
    run = ready.rival.state(run_id)
    assert run.status == "completed", run.error
    wrapped = exact([value, [value]])
    progress = exact({"at": value})
    assert seen.at == {
        "input": [text],
        "state in place": [text, text],
        "result in place": [text, text],
        "last progress": [progress],
        "item": [text, exact([value])],
        "state": [text],
        "results of items": [wrapped],
        "event": [text],
        "input of a handler": [text],
        "result in a handler": [text],
    }
    assert exact(run.input) == text
    result = ready.rival.result(run_id)
    assert exact(result.result) == exact({"first": value, "bare": [value]})
    assert [exact(result.results[name]) for name in ("first", "second", "items", "wait_go")] == [
        text,
        text,
        wrapped,
        text,
    ]


def assert_exact_in_flow(ready: Inline, value: Any) -> None:
    seen.at.clear()
    run_id, text = run_flow(ready, value), exact(value)
    run = ready.rival.state(run_id)
    assert run.status == "completed", run.error
    assert set(seen.at) == {"flow input", "flow step", "flow event", "child", "child input"}
    assert all(set(texts) == {text} for texts in seen.at.values()), seen.at
    # The first pass and the replays after the event and after the child.
    assert len(seen.at["flow step"]) == 3
    assert exact(ready.rival.result(run_id).result) == exact({"step": value, "event": value, "child": value})


storable = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), max_size=8)
numbers = st.integers() | st.integers(-(10**40), 10**40) | st.floats(allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | storable
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(storable, inner, max_size=4), max_leaves=12
)
in_random = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES == 12,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@pytest.mark.slow
@given(value=values)
@example(value=ODD)
@example(value=BARE)
@in_random
def test_any_value_is_exact_wherever_a_plan_sees_it(ready: Inline, value: Any) -> None:
    assert_exact_in_plan(ready, value)


@pytest.mark.slow
@given(value=values)
@example(value=ODD)
@example(value=BARE)
@in_random
def test_any_value_is_exact_on_the_first_pass_of_a_flow_and_on_replay(ready: Inline, value: Any) -> None:
    assert_exact_in_flow(ready, value)


@pytest.mark.slow
@pytest.mark.parametrize("value", BARE, ids=repr)
def test_a_bare_number_or_string_is_exact(ready: Inline, value: Any) -> None:
    """SQLite turns text that looks like a number into one, in a column of numeric affinity."""
    assert_exact_in_plan(ready, value)
    assert_exact_in_flow(ready, value)


# -- the examples that went wrong -------------------------------------------------------------------------


def define_flow(inline: Inline, function: Any) -> None:
    made = flow("f", registry=Registry())(function)
    assert made.definition is not None
    inline.registry.renew(made.definition)
    inline.process.register_workflows()


def test_a_flow_that_iterates_over_a_dict_comes_to_the_same_steps_again(inline: Inline) -> None:
    def iterates(ctx: Any) -> list[Any]:
        prices = ctx.step(lambda: {"zebra": 1, "ox": 2, "ant": 3.0, "b": 1e300}, name="prices")
        recorded = [ctx.step(lambda n=name, p=price: [n, p], name=f"tell-{name}") for name, price in prices.items()]
        ctx.await_event("go")
        return recorded

    define_flow(inline, iterates)
    inline.rival.run("f", run_id="r")
    inline.drain()
    inline.rival.send_event("go")
    inline.drain()
    assert inline.rival.state("r").error is None
    assert exact(inline.rival.result("r").result) == exact([["zebra", 1], ["ox", 2], ["ant", 3.0], ["b", 1e300]])


def test_values_that_are_not_json_types_are_the_same_json_the_first_time_and_on_replay(inline: Inline) -> None:
    passes = []

    def odd(ctx: Any) -> Any:
        value = ctx.step(lambda: {1: (2, 3), "t": ()}, name="odd")
        passes.append(exact(value))
        ctx.await_event("go")
        return value

    define_flow(inline, odd)
    inline.rival.run("f", run_id="r")
    inline.drain()
    inline.rival.send_event("go")
    inline.drain()
    assert passes == [exact({"1": [2, 3], "t": []})] * 2


def test_a_step_cannot_change_the_input_or_result_that_later_steps_see(inline: Inline) -> None:
    def spoils(input: Any) -> Any:
        input["list"].append("spoilt")
        return input

    def spoils_more(input: Any, steps: Any) -> Any:
        steps.spoils.result["list"].clear()
        return input

    inline.define("w", spoils, spoils_more, step(lambda input, steps: [input, steps.spoils.result], name="sees"))
    inline.rival.run("w", {"list": [1]}, run_id="r")
    inline.drain()
    assert inline.rival.result("r").results["sees"] == [{"list": [1]}, {"list": [1, "spoilt"]}]


def test_a_scheduled_run_has_exactly_the_input_of_its_schedule(ready: Inline) -> None:
    ready.rival.schedule("child", 3600, name="s", input=ODD, catch_up="last")
    assert exact(ready.rival.schedules()[0].input) == exact(ODD)
    with ready.store.database.transaction() as connection:
        connection.execute(update(schedules).values(next_at=after(-7200.0)))
    ready.keeper.run_once()
    ready.drain()
    assert seen.at["child input"] == [exact(ODD)]


def test_what_is_kept_of_errors_and_logs_is_exact_too(inline: Inline) -> None:
    def fails(log: Any) -> None:
        log.info("odd", value=ODD)
        raise ValueError("no")

    inline.define("w", fails)
    inline.rival.run("w", run_id="r")
    inline.drain()
    with inline.store.database.autocommit() as connection:
        kept = connection.scalar(select(steps.c.error))
        assert [exact(kept)] == [exact(error) for error in connection.scalars(select(attempts.c.error))]
        assert next(iter(kept)) == "type"
    entry = next(entry for entry in inline.rival.logs("r") if entry.message == "odd")
    assert exact(entry.fields["value"]) == exact(ODD)


# -- finding runs and events by their values --------------------------------------------------------------

SAME_NUMBER = [(1, 1.0), (1.0, 1), (10**23, 1e23), (1e23, 10**23), (0, -0.0), (1e300, 1e300), (10**30, 10**30)]
OTHER = [(1, True), (0, False), (1, "1"), (9007199254740993, 9007199254740992.0), (10**30, 10**30 + 1), (None, 0)]


def found(inline: Inline, **wanted: Any) -> list[str]:
    return [run.run_id for run in inline.rival.runs(**wanted)]


@pytest.mark.parametrize(
    ("stored", "wanted", "fits"), [(*pair, True) for pair in SAME_NUMBER] + [(*pair, False) for pair in OTHER]
)
def test_fields_are_compared_as_numbers_exactly_on_every_store(
    inline: Inline, stored: Any, wanted: Any, fits: bool
) -> None:
    inline.define("w", step(lambda input: input, name="give"), wait_event_step("go", where={"n": wanted}))
    inline.rival.run("w", {"n": stored, "deep": {"n": [stored]}}, run_id="r")
    inline.drain()
    assert found(inline, input={"n": wanted}) == ["r"] * fits
    assert found(inline, input={"deep": {"n": [wanted]}}) == ["r"] * fits
    inline.rival.send_event("go", {"zz": 1, "n": stored})
    inline.drain()
    assert inline.rival.state("r").status == ("completed" if fits else "suspended")
    assert found(inline, result={"n": wanted}) == ["r"] * fits


def test_runs_are_found_by_parts_of_their_error(inline: Inline) -> None:
    def fails() -> None:
        raise ValueError("no such card 😀")

    inline.define("w", fails)
    inline.rival.run("w", run_id="r")
    inline.drain()
    assert found(inline, error="valueerror: no such card 😀") == ["r"]
    assert found(inline, error="another") == []
