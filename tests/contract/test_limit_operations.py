"""Operators list limits, see what waits, and change a maximum: both clients, and the command."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from rival_client import AsyncRival
from rival_client.errors import InvalidArgument, UnknownLimit
from rival_workers import limit, rate, step
from rival_workers.store.claim_records import Claimed
from tests.support.inline import Inline
from tests.support.limits import Slots, assert_gates_are_consistent, work
from tests.support.output import whole


@pytest.fixture
def slots(inline: Inline) -> Iterator[Slots]:
    yield Slots(inline)
    assert_gates_are_consistent(inline.store.database, at_rest=True)


def test_an_operator_sees_what_uses_a_limit_and_what_waits(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", 1, key="input.k")))
    slots.inline.define("v", step(work, rate_limit=rate(5, per=1)))
    for name, key in (("a", "one"), ("b", "one"), ("c", "two")):
        slots.start(name, {"k": key})
        slots.claim(name)
    rival = slots.inline.rival
    by_name = {one.name: one for one in rival.limits()}
    assert (by_name["x"].max, by_name["x"].keys, by_name["x"].used, by_name["x"].waiting) == (1, 2, 2, 1)
    assert (by_name["v/work!rate"].max, by_name["v/work!rate"].per) == (5, 1.0)
    found = rival.limit("x", key="one")
    assert [(one.key, one.used, one.waiting) for one in found.keys] == [("one", 1, 1)]
    assert [(one.run_id, one.path, one.granted) for one in found.waiting] == [("b", "work", False)]
    with pytest.raises(UnknownLimit, match=whole("Unknown limit 'y'. `rival limit ls` lists them.")):
        rival.limit("y")


def test_a_raised_limit_lets_more_through_and_a_lowered_one_drains(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", 1)))
    slots.hold("a", "b", "c", "d")
    rival = slots.inline.rival
    assert rival.set_limit("x", 3, by="ana").set_by == "ana"
    assert slots.granted == ["b", "c"]
    slots.claim("b")
    # A registration does not change what an operator has set.
    slots.inline.process.register_workflows()
    assert rival.limit("x").limit.max == 3
    assert rival.reset_limit("x").max == 1
    slots.finish("a")
    assert slots.waiting == ["d"]
    slots.finish("b")
    slots.claim("c")
    assert slots.waiting == ["d"]
    slots.finish("c")
    assert slots.granted == ["d"]


def test_the_async_client_does_the_same(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", 1)))
    slots.hold("a", "b")

    async def change() -> int:
        async with AsyncRival(slots.database.url) as rival:
            await rival.set_limit("x", 2)
            assert (await rival.limit("x")).limit.used == 2
            await rival.reset_limit("x")
            return len(await rival.limits())

    assert asyncio.run(change()) == 1
    slots.inline.rival.cancel("b")


@pytest.mark.parametrize("wrong", [-1, 1.5, "many", None, True])
def test_a_wrong_maximum_is_refused(slots: Slots, wrong: Any) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", 1)))
    with pytest.raises(InvalidArgument):
        slots.inline.rival.set_limit("x", wrong)


@pytest.mark.parametrize("most", [1, 32])
def test_a_limit_of_0_stops_what_starts_until_it_is_raised(slots: Slots, most: int) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", most)))
    rival = slots.inline.rival
    slots.hold("a")
    assert rival.set_limit("x", 0, by="ana").max == 0
    slots.hold("b", "c")
    slots.finish("a")
    assert (sorted(slots.waiting), slots.granted) == (["b", "c"], [])
    [why] = rival.why("b").reasons
    assert (why.text, why.who) == (
        "work waits for limit x, of which an operator lets nothing start: it is set to 0.",
        "an operator",
    )
    assert rival.reset_limit("x").max == most
    assert "b" in slots.granted
    slots.claim("b")
    slots.finish("b")
    slots.claim("c")
    slots.finish("c")


def test_a_run_does_not_start_its_next_step_at_a_limit_of_0(inline: Inline) -> None:
    def lowers() -> None:
        inline.rival.set_limit("x", 0)

    one, two = (
        step(each, name=name, concurrency_limit=limit("x", 2)) for each, name in ((lowers, "one"), (work, "two"))
    )
    inline.define("w", one, two)
    inline.rival.run("w", None, run_id="a")
    inline.drain()
    assert [(each.path, each.status) for each in inline.rival.state("a").steps] == [
        ("one", "completed"),
        ("two", "waiting"),
    ]
    inline.rival.set_limit("x", 2)
    inline.keeper.run_once()
    inline.drain()
    assert inline.rival.state("a").status == "completed"


def test_a_rate_of_0_stops_what_it_has_called_too(slots: Slots) -> None:
    slots.inline.define("w", step(work, rate_limit=rate("r", 1, per=60)))
    rival = slots.inline.rival
    slots.hold("a", "b", "c", "d")
    assert (slots.granted, slots.waiting) == (["b", "c"], ["d"])
    rival.set_limit("r", 0)
    slots.inline.time_passes(600)
    assert [isinstance(slots.claim(name), Claimed) for name in "bcd"] == [False, False, False]
    slots.hold("e")
    assert sorted(slots.running) == ["a"]
    [why] = rival.why("b").reasons
    assert (why.who, why.until, why.do) == ("an operator", None, "Raise the limit.")
    rival.set_limit("r", 60)
    for name in ("b", "c", "d", "e"):
        slots.claim(name)
        slots.inline.time_passes(2)
    assert sorted(slots.running) == ["a", "b", "c", "d", "e"]
    for name in list(slots.running):
        slots.finish(name)


def test_the_numbers_of_a_rate_are_those_of_its_definition(slots: Slots) -> None:
    slots.inline.define("w", step(work, rate_limit=rate("r", 1, per=60)))
    slots.hold("a", "b", "c", "d")
    found = slots.inline.rival.limit("r")
    assert (found.limit.max, found.limit.used, found.limit.waiting) == (1, 0, 3)
    assert [(one.max, one.used, one.waiting) for one in found.keys] == [(1, 0, 3)]
    assert [(one.run_id, one.granted) for one in found.waiting] == [("b", False), ("c", False), ("d", False)]
    for name in "bcd":
        slots.inline.rival.cancel(name)
    slots.finish("a")
