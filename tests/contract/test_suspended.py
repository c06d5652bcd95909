"""When a run is `suspended`: its one open step waits for a time, an event or a child, however deep it is. Among
parallel lanes another step may be open, and the run stays `running`.
"""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import select

from rival_client.db.event_tables import waits
from rival_workers import branch, delay_step, flow, for_each, loop, parallel, step, wait_event_step, workflow
from rival_workers.definition.define import define_workflow
from tests.contract.test_flows import define, later
from tests.support.effort import long_but_first
from tests.support.inline import Clock, Inline


def one() -> int:
    return 1


def yes() -> bool:
    return True


def event() -> Any:
    return wait_event_step("go", name="event")


def sleeping() -> Any:
    return delay_step(seconds=3600, name="sleeping")


def a_flow() -> Any:
    return flow("part", register=False)(lambda ctx: ctx.await_event("go"))


def calling() -> Any:
    return flow("part", register=False)(lambda ctx: ctx.call("child"))


WAITS = {"an event": event, "a timer": sleeping, "a flow's event": a_flow, "a flow's child": calling}
LINEAR = {
    "at the top": lambda wait: wait,
    "a branch": lambda wait: branch("valid?", when=yes, then=[one, wait]),
    "a loop": lambda wait: loop("turns", do=[wait, one], until=yes),
    "a nested workflow": lambda wait: workflow(define_workflow("inner", [one, wait])),
    "all of them": lambda wait: loop("turns", do=[branch("valid?", when=yes, then=[wait])], until=yes),
}
LANES = {
    "a parallel": lambda wait: parallel("both", [[wait], [step(one, name="other")]]),
    "a for_each": lambda wait: for_each("lines", items=lambda: [1, 2], do=[wait]),
    "a loop in a parallel": lambda wait: parallel("both", [[loop("turns", do=[wait], until=yes)], [one]]),
    "a parallel in a branch": lambda wait: branch("valid?", when=yes, then=[parallel("both", [[wait], [one]])]),
}


#: What is the same on each store is tried on one, and by `make test-all` on both.
ON_POSTGRES_FIRST = pytest.mark.parametrize("inline", long_but_first("postgres", "sqlite"), indirect=True)


def started(inline: Inline, *steps: Any) -> str:
    define(inline, lambda ctx: ctx.await_event("go"), "child")
    inline.define("w", *steps)
    inline.rival.run("w", run_id="r")
    inline.drain()
    return inline.rival.state("r").status


@ON_POSTGRES_FIRST
@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("place", LINEAR)
def test_a_run_whose_one_open_step_waits_is_suspended_wherever_that_is(inline: Inline, place: str, wait: str) -> None:
    assert started(inline, step(one, name="first"), LINEAR[place](WAITS[wait]())) == "suspended"


@pytest.mark.parametrize("place", LANES)
def test_a_run_that_waits_in_one_of_several_lanes_stays_running(inline: Inline, place: str) -> None:
    assert started(inline, LANES[place](event())) == "running"
    assert "waiting" in {row.status for row in inline.rival.state("r").steps}


@ON_POSTGRES_FIRST
@pytest.mark.parametrize("place", LINEAR)
@pytest.mark.parametrize("wait", ["an event", "a flow's event", "a flow's child"])
def test_what_comes_sets_the_run_running_and_it_ends(inline: Inline, place: str, wait: str) -> None:
    seen: list[str] = []

    def look() -> None:
        seen.append(inline.rival.state("r").status)

    assert started(inline, LINEAR[place](WAITS[wait]()), step(look, name="look")) == "suspended"
    inline.rival.send_event("go", 1)
    inline.drain()
    assert (seen, inline.rival.state("r").status) == (["running"], "completed")


@pytest.mark.parametrize("place", LINEAR)
def test_a_timer_that_is_due_sets_the_run_running_and_it_ends(file_url: str, place: str) -> None:
    inline = Inline(file_url, clock=Clock())
    try:
        assert started(inline, LINEAR[place](sleeping())) == "suspended"
        later(inline, 3601)
        assert inline.rival.state("r").status == "completed"
    finally:
        inline.close()


def test_a_suspended_run_deep_within_can_be_cancelled_paused_and_rewound(inline: Inline) -> None:
    assert started(inline, step(one, name="first"), LINEAR["all of them"](event())) == "suspended"
    assert inline.rival.pause("r")
    assert inline.rival.resume("r")
    inline.rival.rewind("r", "first")
    assert inline.rival.state("r").status == "running"
    inline.drain()
    assert inline.rival.state("r").status == "suspended"
    assert inline.rival.cancel("r")


NEXT = {
    "a step": (lambda: step(one, name="next"), "running"),
    "a timer": (lambda: delay_step(seconds=3600, name="next"), "suspended"),
    "lanes that wait": (lambda: parallel("next", [[delay_step(seconds=3600, name=name)] for name in "ab"]), "running"),
}


@ON_POSTGRES_FIRST
@pytest.mark.parametrize("verb", ["skip", "set_result"])
@pytest.mark.parametrize("following", NEXT)
@pytest.mark.parametrize("wait", WAITS)
def test_a_suspended_run_is_what_follows_when_its_step_is_ended_by_hand(
    inline: Inline, wait: str, following: str, verb: str
) -> None:
    """The keeper does not look for attempts of suspended runs: one that dies in such a run would be lost."""
    make, status = NEXT[following]
    assert started(inline, WAITS[wait](), make()) == "suspended"
    path = inline.rival.state("r").steps[0].path
    by_hand = {
        "skip": inline.rival.skip,
        "set_result": lambda *at, reason: inline.rival.set_result(*at, 1, reason=reason),
    }
    by_hand[verb]("r", path, reason="enough")
    assert inline.rival.state("r").status == status
    with inline.store.database.autocommit() as connection:
        left = connection.execute(select(waits).where(waits.c.run_id == "r")).all()
    assert not left
