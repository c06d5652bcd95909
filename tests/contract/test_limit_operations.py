"""Operators list limits, see what waits, and change a maximum: both clients, and the command."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from rival_client import AsyncRival
from rival_client.errors import InvalidArgument, UnknownLimit
from rival_workers import limit, rate, step
from tests.support.inline import Inline
from tests.support.limits import Slots, assert_gates_are_consistent


@pytest.fixture
def slots(inline: Inline) -> Iterator[Slots]:
    yield Slots(inline)
    assert_gates_are_consistent(inline.store.database, at_rest=True)


def work(run: Any) -> str:
    return str(run.run_id)


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
    with pytest.raises(UnknownLimit, match="rival limit ls"):
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


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "many", None, True])
def test_a_wrong_maximum_is_refused(slots: Slots, wrong: Any) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", 1)))
    with pytest.raises(InvalidArgument):
        slots.inline.rival.set_limit("x", wrong)
