"""What a flow gets of steps, events and children: models where a type is declared, and keywords for the function."""

from __future__ import annotations

import datetime as dt
import functools
import time
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from rival_workers import Received, StepError, flow, http_step, step, wait_event_step
from rival_workers.definition.flows import Flow
from rival_workers.definition.registry import Registry
from tests.support.inline import Inline


class Tree(BaseModel):
    kind: str
    planted: dt.date = dt.date(2024, 5, 1)


@dataclass
class Plank:
    length: int


class Approved(BaseModel):
    topic: ClassVar[str] = "order.approved"
    by: str
    at: dt.datetime | None = None


def plant(kind: str = "oak") -> Tree:
    return Tree(kind=kind)


async def planks() -> list[Plank]:
    return [Plank(1), Plank(2)]


def wrong() -> Tree:
    return {"planted": "never"}  # type: ignore[return-value]


def define(inline: Inline, function: Any, name: str = "f") -> Flow:
    made = flow(name, registry=Registry())(function)
    assert made.definition is not None
    inline.registry.renew(made.definition)
    inline.process.register_workflows()
    return made


def run(inline: Inline, *events: Any, workflow: str = "f", run_id: str = "r", input: Any = None) -> Any:
    """To its end; each event is sent when the run waits."""
    inline.rival.run(workflow, input, run_id=run_id)
    inline.drain()
    for event in events:
        inline.rival.send_event(*event) if isinstance(event, tuple) else inline.rival.send_event(event)
        inline.drain()
    state = inline.rival.state(run_id)
    assert state.status in ("completed", "failed"), state.status
    return state


# -- steps ------------------------------------------------------------------------------------------------


def test_a_step_with_a_declared_type_gives_the_model_the_first_time_and_on_replay(inline: Inline) -> None:
    seen: list[Any] = []

    def grows(ctx: Any) -> Any:
        tree, parts = ctx.step(plant), ctx.step(planks)
        seen.append((tree, parts))
        ctx.await_event("go")
        return tree.kind

    define(inline, grows)
    assert run(inline, ("go",)).result == "oak"
    assert seen == [(Tree(kind="oak"), [Plank(1), Plank(2)])] * 2


def test_an_async_flow_gets_models_too_from_steps_gather_and_start(inline: Inline) -> None:
    async def grows(ctx: Any) -> list[str]:
        one = await ctx.step(plant, "ash")
        two, three = await ctx.gather((plant, "elm"), (ctx.step, plant, "fir"))
        four = await ctx.start.step(plant, kind="yew")
        return [tree.kind for tree in (one, two, three, four)]

    define(inline, grows)
    assert run(inline).result == ["ash", "elm", "fir", "yew"]


def test_a_result_of_another_shape_fails_the_step_as_in_a_plan(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.step(wrong))
    error = run(inline).error
    assert error["type"] == "StepFailed"
    assert error["message"] == (
        "f/wrong: InvalidResult: the result of step 'f/wrong' is not of type Tree: kind: Field required; "
        "planted: Input should be a valid date or datetime, input is too short"
    )


def test_a_step_without_a_declared_type_gives_plain_json(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.step(lambda: Tree(kind="oak"), name="plain"))
    assert run(inline).result == {"kind": "oak", "planted": "2024-05-01"}


# -- keywords ---------------------------------------------------------------------------------------------


def describe(what: str, *, size: int = 1, colour: str = "green") -> list[Any]:
    return [what, size, colour]


def takes_any(**given: Any) -> dict[str, Any]:
    return given


def waits(url: str, timeout: float = 3.0) -> list[Any]:
    return [url, timeout]


def greet(name: str) -> str:
    return f"hello {name}"


def test_keywords_that_the_function_has_are_its_own_and_options_are_the_steps(inline: Inline) -> None:
    def calls(ctx: Any) -> Any:
        return [
            ctx.step(describe, "oak", colour="red", max_attempts=3, name="first"),
            ctx.step(takes_any, a=1, timeout=5),
            ctx.start.step(describe, what="ash", size=2).result(),
            ctx.gather(functools.partial(describe, "elm", size=3), (ctx.step, describe, "fir"), max_attempts=2),
        ]

    define(inline, calls)
    assert run(inline).result == [
        ["oak", 1, "red"],
        {"a": 1},
        ["ash", 2, "green"],
        [["elm", 3, "green"], ["fir", 1, "green"]],
    ]


def test_a_keyword_that_could_be_either_is_refused_with_the_ways_out(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.step(waits, "x", timeout=5))
    error = run(inline).error
    assert error["type"] == "ValueError"
    assert error["message"] == (
        "ctx.step(waits, timeout=…): 'timeout' is a parameter of waits and an option of a step. Give the option "
        "as options={'timeout': …}, and the parameter as an argument or with functools.partial(waits, timeout=…)."
    )


def test_options_leave_all_keywords_to_the_function(inline: Inline) -> None:
    def calls(ctx: Any) -> Any:
        return [
            ctx.step(waits, "x", timeout=5, options={"timeout": 60}),
            ctx.step(waits, "x", 7, timeout=60),
            ctx.step(functools.partial(waits, timeout=8), "x"),
            ctx.step(greet, name="Ann", options={}),
            ctx.step(greet, "Ben", name="named"),
        ]

    define(inline, calls)
    state = run(inline)
    assert state.result == [["x", 5], ["x", 7], ["x", 8], "hello Ann", "hello Ben"]
    assert "f/named" in {found.path for found in state.steps}


@pytest.mark.parametrize("keyword", ["sise", "max_attempt", "compensate"])
def test_a_keyword_that_is_neither_is_refused(inline: Inline, keyword: str) -> None:
    define(inline, lambda ctx: ctx.step(describe, "oak", **{keyword: 2}))
    assert run(inline).error["type"] == "ValueError"


def test_a_flow_takes_a_function_with_options_as_a_plan_does(inline: Inline) -> None:
    tries: list[str] = []

    def fails_once(what: str, *, timeout: float = 3.0) -> list[Any]:
        tries.append(what)
        if tries.count(what) == 1:
            raise StepError("again", behavior="retry")
        return [what, timeout]

    patient = step(fails_once, max_attempts=2, base_delay=0, name="patient")

    def calls(ctx: Any) -> Any:
        one = ctx.step(patient, "one", timeout=7.0)
        two = ctx.start.step(patient, "two").result()
        # Its options come over those of gather, which would let it fail.
        return [one, two, *ctx.gather((patient, "three"), (describe, "oak"), max_attempts=1)]

    define(inline, calls)
    state = run(inline)
    assert state.result == [["one", 7.0], ["two", 3.0], ["three", 3.0], ["oak", 1, "green"]]
    assert {found.path for found in state.steps} == {"f", "f/patient", "f/patient~2", "f/patient~3", "f/describe"}


def test_a_flow_refuses_a_predefined_step_with_the_way_out(inline: Inline) -> None:
    define(inline, lambda ctx: ctx.step(http_step("https://example.org/")))
    error = run(inline).error
    assert error["type"] == "ValueError"
    assert error["message"] == (
        "http_get: a predefined step is part of a plan. Put it into a workflow of steps, and ctx.call(…) that; "
        "or give ctx.step a function."
    )


# -- events -----------------------------------------------------------------------------------------------


def test_a_typed_event_gives_the_model_to_a_flow(inline: Inline) -> None:
    seen: list[Any] = []

    def asks(ctx: Any) -> Any:
        seen.append(ctx.await_event(Approved))
        seen.append(ctx.await_event([Approved, "order.refused"]))
        seen.append(ctx.await_event([Approved, "order.refused"]))
        return seen[-1].payload["by"]

    define(inline, asks)
    state = run(inline, Approved(by="Ann"), Approved(by="Ben"), ("order.refused", {"by": "Cem"}))
    assert state.result == "Cem"
    assert Approved(by="Ann") in seen
    assert Received("order.approved", None, Approved(by="Ben")) in seen
    assert Received("order.refused", None, {"by": "Cem"}) in seen


def test_a_typed_event_gives_the_model_to_the_steps_of_a_plan(inline: Inline) -> None:
    inline.define(
        "w", wait_event_step(Approved, name="answer"), step(lambda steps: steps.answer.result.by.upper(), name="end")
    )
    assert run(inline, Approved(by="Ann"), workflow="w").result == "ANN"


MISFITS = {
    "flow": "the payload of event 'order.approved' is not of type Approved: by: Field required. Send it as that model; "
    "or wait for the topic by its name, for any payload.",
    "plan": "the result of step 'answer' of run 'r' is not of type Approved: by: Field required",
}


@pytest.mark.parametrize("workflow", MISFITS)
def test_a_payload_that_does_not_fit_the_type_is_an_error_that_names_the_problem(inline: Inline, workflow: str) -> None:
    define(inline, lambda ctx: ctx.await_event(Approved), "flow")
    inline.define("plan", wait_event_step(Approved, name="answer"))
    error = run(inline, ("order.approved", {"bye": 1}), workflow=workflow).error
    assert (error["type"], error["message"]) == ("InvalidResult", MISFITS[workflow])


def test_an_event_without_a_payload_is_not_a_timeout(inline: Inline) -> None:
    def asks(ctx: Any) -> Any:
        went = ctx.await_event("go", key="k", timeout=3600)
        late = ctx.await_event("never", timeout=0)
        several = ctx.await_event(["never", "never too"], timeout=0)
        return [went == Received("go", "k", None), bool(went), late, several]

    define(inline, asks)
    inline.rival.send_event("go", key="k")
    inline.drain()
    assert run(inline).result == [True, True, None, None]


def test_a_step_that_waited_distinguishes_an_event_without_a_payload_from_a_timeout(inline: Inline) -> None:
    def reports(steps: Any) -> Any:
        return [[one.status, one.result] for one in (steps.went, steps.late)]

    inline.define(
        "w",
        wait_event_step("go", name="went", timeout=3600, on_timeout="continue"),
        wait_event_step("never", name="late", timeout=0.05, on_timeout="continue"),
        reports,
    )
    inline.rival.send_event("go")
    inline.rival.run("w", run_id="r")
    give_up_at = time.monotonic() + 30
    while inline.rival.state("r").status != "completed":
        assert time.monotonic() < give_up_at, inline.rival.state("r")
        inline.clock.advance(0.05) if inline.clock else time.sleep(0.05)
        inline.drain()
    assert inline.rival.state("r").result == [["completed", None], ["failed", None]]


# -- children ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by_name", [True, False])
def test_a_child_gives_the_type_of_its_result(inline: Inline, by_name: bool) -> None:
    seen: list[Any] = []
    nursery = inline.define("nursery", step(lambda: 1, name="first"), plant)

    def child(ctx: Any) -> Tree:
        return Tree(kind="elm")

    garden = define(inline, child, "garden")

    def calls(ctx: Any) -> Any:
        of_plan = ctx.call("nursery" if by_name else nursery)
        of_flow = ctx.call("garden" if by_name else garden)
        spawned = ctx.spawn("nursery" if by_name else nursery).result()
        seen.append([of_plan, of_flow, spawned])
        return len(seen)

    define(inline, calls)
    assert run(inline).status == "completed"
    assert seen == [[Tree(kind="oak"), Tree(kind="elm"), Tree(kind="oak")]]
