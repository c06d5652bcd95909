"""Keys, several limits of one step, fairness, rates, and what a full limit does instead of waiting."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from sqlalchemy import select, update

from rival_client.db.limit_tables import gates, tickets
from rival_client.db.types import clock
from rival_workers import DefinitionError, delay_step, for_each, limit, rate, step
from rival_workers.definition.define import define_workflow
from rival_workers.store.claim_records import Claimed, NotYet, Queued
from tests.support.inline import Inline
from tests.support.limits import Slots, assert_gates_are_consistent, work
from tests.support.output import whole

pytestmark = pytest.mark.usefixtures("locks_in_order")


@pytest.fixture
def slots(inline: Inline) -> Iterator[Slots]:
    yield Slots(inline)
    assert_gates_are_consistent(inline.store.database, at_rest=True)


def begin(slots: Slots, run_id: str, input: Any = None) -> Any:
    slots.start(run_id, input)
    return slots.claim(run_id)


# -- keys ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tenants", [("a", "b"), (1, 2), (True, False), (1.5, "1"), ({"x": 1}, {"x": 2})], ids=str)
def test_each_key_has_its_own_slots(slots: Slots, tenants: tuple[Any, Any]) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit(1, key="input.tenant")))
    first, second = tenants
    assert isinstance(begin(slots, "1", {"tenant": first}), Claimed)
    assert isinstance(begin(slots, "2", {"tenant": second}), Claimed)
    assert isinstance(begin(slots, "3", {"tenant": first}), Queued)


@pytest.mark.parametrize("input", [None, {}, {"tenant": None}, [], "text", {"tenant": {}}], ids=str)
def test_runs_without_the_key_share_one_gate(slots: Slots, input: Any) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit(1, key="input.tenant.name")))
    assert isinstance(begin(slots, "1", input), Claimed)
    assert isinstance(begin(slots, "2", {"tenant": {"name": None}}), Queued)


def test_a_key_can_be_a_label_or_the_run(slots: Slots) -> None:
    by_label, by_run = limit("by-label", 1, key="labels.tenant"), limit("by-run", 1, key="run.id")
    slots.inline.define("w", step(work, concurrency_limit=[by_label, by_run]))
    for name, tenant in (("1", "acme"), ("2", "acme"), ("3", "other")):
        slots.inline.rival.run("w", None, run_id=name, labels={"tenant": tenant})
    slots.inline.drain()
    assert {"acme", "other", "1", "2", "3"} <= slots.used.keys()


def region_of(input: Any) -> Any:
    return {"berlin": "eu", "paris": "eu"}.get(input["city"], input["city"].upper())


def test_a_function_can_make_the_key(inline: Inline) -> None:
    """Also one of a rule, beside another limit; it can read what the step's function can."""
    seen: list[dict[str, int]] = []

    def note() -> None:
        seen.append({key: used for key, used in Slots(inline).used.items() if used})

    rules = [("ruled", {"rate_limit": rate(100, per=60, key=lambda steps: steps["owned"].result)})]
    owned = step(lambda: note() or "done", name="owned", concurrency_limit=[limit(1, key=region_of), limit("all", 5)])
    inline.define("w", owned, step(note, name="ruled"), policies=rules)
    for n, city in enumerate(("berlin", "rome")):
        inline.rival.run("w", {"city": city}, run_id=f"r{n}")
    inline.drain()
    assert {one.status for one in inline.rival.runs()} == {"completed"}
    assert {"eu": 1, "all": 1} in seen
    assert {"ROME": 1, "all": 1} in seen
    assert set(Slots(inline).used) == {"eu", "ROME", "all", "done"}
    assert [one.name for one in inline.rival.limits()] == ["all", "w/owned[region_of]", "w/ruled!rate[<lambda>]"]


def test_steps_whose_functions_make_the_same_key_wait_for_one_another(inline: Inline) -> None:
    waited: list[str] = []

    def work(run: Any) -> None:
        if run.run_id == "a":
            for run_id, city in (("b", "paris"), ("c", "rome")):
                inline.rival.run("w", {"city": city}, run_id=run_id)
            inline.drain()
            waited.extend(inline.rival.state(run_id).steps[0].status for run_id in "bc")

    inline.define("w", step(work, concurrency_limit=limit(1, key=region_of)))
    inline.rival.run("w", {"city": "berlin"}, run_id="a")
    inline.drain()
    assert waited == ["waiting", "completed"]
    assert {one.status for one in inline.rival.runs()} == {"completed"}
    assert_gates_are_consistent(inline.store.database, at_rest=True)


def test_what_a_function_that_makes_a_key_raises_is_the_failure_of_the_step(inline: Inline) -> None:
    calls: list[str] = []

    def broken(ctx: Any) -> str:
        calls.append("key")
        if len(calls) == 1:
            raise ValueError("no region")
        return "eu"

    for name, retries in (("once", 0), ("twice", 1)):
        calls.clear()
        work = step(lambda: calls.append("step"), name="s", concurrency_limit=limit(1, key=broken), max_retries=retries)
        inline.define(name, step(work, backoff="none"))
        inline.rival.run(name, None, run_id=name)
        inline.drain()
    failed, retried = inline.rival.state("once"), inline.rival.state("twice")
    assert failed.error is not None
    assert (failed.status, failed.error["type"], failed.steps[0].attempts) == ("failed", "ValueError", 1)
    assert (retried.status, retried.steps[0].attempts, calls) == ("completed", 2, ["key", "key", "step"])
    assert_gates_are_consistent(inline.store.database, at_rest=True)


def test_a_function_is_a_key_of_steps_only() -> None:
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': a limit of whole runs cannot have a function as its key: give input.…, labels.… or run.id"
        ),
    ):
        define_workflow("w", [work], concurrency_limit=limit(1, key=region_of))
    both = [limit("a", 1, key=lambda: 1), limit("b", 1, key=lambda: 2)]
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': steps[0]: two limits have keys by functions of the same name: give the functions "
            "other names (…)"
        ),
    ):
        define_workflow("w", [step(work, concurrency_limit=both)])
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': steps[0]: work's limit key: cannot inject parameters 'unknown', 'other': a step may "
            "ask for any of ctx, input, steps, last_step, state, log, run, or take the whole context as its "
            "only argument. Rename it, or give it a default. (…)"
        ),
    ):
        define_workflow("w", [step(work, concurrency_limit=limit(1, key=lambda unknown, other: 1))])


def test_items_of_a_for_each_can_be_the_key(slots: Slots) -> None:
    most: Counter[str] = Counter()

    def items() -> list[dict[str, str]]:
        return [{"shop": "a"}, {"shop": "b"}, {"shop": "a"}]

    def pack(item: Any) -> None:
        most[item["shop"]] += 1

    slots.inline.define(
        "w", for_each("lines", items=items, do=[step(pack, concurrency_limit=limit(1, key="item.shop"))])
    )
    slots.inline.rival.run("w", None, run_id="r")
    slots.inline.drain()
    assert slots.run("r").status == "completed"
    assert most == {"a": 2, "b": 1}
    assert slots.used == {"a": 0, "b": 0}


# -- several limits -----------------------------------------------------------------------------------------


def test_a_step_that_waits_for_one_limit_holds_no_slot_of_another(slots: Slots) -> None:
    wide, narrow = limit("wide", 2), limit("narrow", 1)
    slots.inline.define("w", step(work, concurrency_limit=[wide, narrow]))
    slots.hold("a", "b")
    assert slots.used == {"wide": 1, "narrow": 1}
    assert slots.status("b") == "waiting"
    slots.finish("a")
    assert slots.granted == ["b"]
    assert slots.used == {"wide": 0, "narrow": 1}
    assert isinstance(slots.claim("b"), Claimed)
    assert slots.used == {"wide": 1, "narrow": 1}


def test_a_grant_at_one_gate_that_meets_another_full_gate_gives_its_slot_on(slots: Slots) -> None:
    first, second = limit("first", 1), limit("second", 1)
    slots.inline.define("both", step(work, concurrency_limit=[first, second]))
    slots.inline.define("one", step(work, concurrency_limit=first))
    slots.inline.define("two", step(work, concurrency_limit=second))
    slots.start("holds-first", workflow="one")
    slots.claim("holds-first", workflow="one")
    slots.start("waits", workflow="both")
    assert isinstance(slots.claim("waits", workflow="both"), Queued)
    slots.start("next", workflow="one")
    assert isinstance(slots.claim("next", workflow="one"), Queued)
    slots.start("holds-second", workflow="two")
    assert isinstance(slots.claim("holds-second", workflow="two"), Claimed)
    slots.finish("holds-first", workflow="one")
    assert slots.granted == ["waits"]
    assert isinstance(slots.claim("waits", workflow="both"), Queued)
    assert slots.granted == ["next"]
    assert slots.waiting == ["waits"]
    slots.finish("holds-second", workflow="two")
    slots.claim("next", workflow="one")
    slots.finish("next", workflow="one")
    assert isinstance(slots.claim("waits", workflow="both"), Claimed)


# -- order --------------------------------------------------------------------------------------------------


def test_groups_take_turns(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("fair", 1, fair="input.tenant")))
    slots.hold("running")
    for n in range(5):
        begin(slots, f"big{n}", {"tenant": "big"})
    begin(slots, "small0", {"tenant": "small"})
    begin(slots, "small1", {"tenant": "small"})
    order = []
    slots.finish("running")
    while slots.granted:
        [run_id] = slots.granted
        slots.claim(run_id)
        order.append(run_id)
        slots.finish(run_id)
    assert order == ["big0", "small0", "big1", "small1", "big2", "big3", "big4"]


def served(slots: Slots) -> str:
    """Ends the step that runs, and starts the one that follows it."""
    [run_id] = slots.granted
    slots.claim(run_id)
    slots.finish(run_id)
    return run_id


def test_a_group_that_comes_later_joins_the_turn_that_is_being_served(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("fair", 1, fair="input.tenant")))
    slots.hold("running")
    for n in range(7):
        begin(slots, f"early{n}", {"tenant": "early"})
    slots.finish("running")
    assert [served(slots) for _ in range(3)] == ["early0", "early1", "early2"]
    for n in range(3):
        begin(slots, f"late{n}", {"tenant": "late"})
    assert [served(slots) for _ in range(7)] == ["early3", "early4", "late0", "early5", "late1", "early6", "late2"]


def test_a_group_that_sends_one_step_after_the_other_has_one_in_each_round(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("fair", 1, fair="input.tenant")))
    slots.hold("running")
    for n in range(5):
        for tenant in "abc":
            begin(slots, f"{tenant}{n}", {"tenant": tenant})
    slots.finish("running")
    assert [served(slots) for _ in range(3)] == ["a0", "b0", "c0"]
    order = []
    for n in range(3):
        begin(slots, f"single{n}", {"tenant": "single"})
        order += [served(slots) for _ in range(4)]
    assert order == ["a1", "b1", "c1", "single0", "a2", "b2", "c2", "single1", "a3", "b3", "c3", "single2"]


# -- rates --------------------------------------------------------------------------------------------------


def later(slots: Slots, seconds: float) -> None:
    """The clock goes on; where it cannot be set, the gates have been used earlier."""
    if slots.inline.clock is not None:
        slots.inline.clock.advance(seconds)
        return
    with slots.database.transaction() as connection:
        connection.execute(update(gates).values(next_start=gates.c.next_start - seconds))


def test_a_rate_allows_so_many_starts_and_calls_the_rest_in_time(slots: Slots) -> None:
    slots.inline.define("w", step(work, rate_limit=rate(1, per=60)))
    assert isinstance(begin(slots, "a"), Claimed)
    countdowns: dict[str, float] = {}
    for name in "bc":
        assert isinstance(begin(slots, name), Queued)
        countdowns |= {one.run_id: one.countdown for one in slots.inline.doorbell.take()}
    assert slots.granted == ["b", "c"]  # called in advance, each with its time
    assert 55 < countdowns["b"] <= 60
    assert 115 < countdowns["c"] <= 120
    assert isinstance(slots.claim("b"), NotYet)
    later(slots, 60)
    assert isinstance(slots.claim("c"), Claimed)
    assert isinstance(slots.claim("b"), NotYet)
    later(slots, 60)
    assert isinstance(slots.claim("b"), Claimed)


def test_no_window_has_more_starts_than_the_rate(slots: Slots) -> None:
    if slots.inline.clock is None:
        pytest.skip("needs a clock that can be set")
    slots.inline.define("w", step(work, rate_limit=rate(20, per=10)))
    starts: list[float] = []
    for n in range(45):
        slots.start(f"r{n}")
        slots.claim(f"r{n}")
    starts += [slots.inline.clock()] * len(slots.running)
    while slots.granted:
        slots.inline.clock.advance(0.1)
        before = len(slots.running)
        for run_id in slots.granted:
            slots.claim(run_id)
        starts += [slots.inline.clock()] * (len(slots.running) - before)
    assert len(starts) == 45
    worst = max(sum(1 for other in starts if at <= other < at + 10) for at in starts)
    assert worst <= 20
    assert starts[-1] - starts[0] < 45 / 20 * 10 * 1.15


def test_a_burst_comes_on_top_after_a_quiet_time(slots: Slots) -> None:
    slots.inline.define("w", step(work, rate_limit=rate(1, per=60, burst=2)))
    assert [type(begin(slots, name)) for name in "abcd"] == [Claimed, Claimed, Claimed, Queued]


def test_a_step_that_is_withdrawn_is_replaced_by_the_next(slots: Slots) -> None:
    slots.inline.define("w", step(work, rate_limit=rate(1, per=60)))
    for name in "abcd":
        begin(slots, name)
    assert (slots.granted, slots.waiting) == (["b", "c"], ["d"])
    slots.inline.rival.cancel("b")
    assert (slots.granted, slots.waiting) == (["c", "d"], [])


def test_what_a_rate_has_called_starts_sooner_when_those_before_it_are_withdrawn(slots: Slots) -> None:
    slots.inline.define("w", step(work, rate_limit=rate(1, per=60)))
    for name in "abcde":
        begin(slots, name)
    for name in "bc":
        slots.inline.rival.cancel(name)
    with slots.database.autocommit() as connection:
        left = {
            row.run_id: (row.due_at - row.at).total_seconds()
            for row in connection.execute(
                select(tickets.c.run_id, tickets.c.due_at, clock().label("at")).where(tickets.c.granted_at.is_not(None))
            )
        }
    assert 50 < left["d"] <= 60
    assert 110 < left["e"] <= 120


# -- when it is full ----------------------------------------------------------------------------------------


def test_a_full_limit_can_skip_the_step(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", 1, on_full="skip")))
    slots.hold("a")
    slots.inline.rival.run("w", None, run_id="b")
    slots.inline.drain()
    assert (slots.status("b"), slots.run("b").status) == ("skipped", "completed")


def test_a_full_limit_can_fail_the_step(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", 1, on_full="fail")))
    slots.hold("a")
    slots.inline.rival.run("w", None, run_id="b")
    slots.inline.drain()
    error = slots.run("b").error
    assert error["type"] == "LimitReached"
    assert error["message"] == (
        "limit 'x' is full: all 1 are in use. Retry the step with max_retries, or raise "
        "the limit with `rival limit set x N`."
    )


def test_a_full_queue_fails_the_step(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", 1, max_waiting=1)))
    slots.hold("a", "b")
    slots.inline.rival.run("w", None, run_id="c")
    slots.inline.drain()
    assert slots.run("c").error["type"] == "LimitReached"
    assert slots.waiting == ["b"]


def test_steps_that_a_rate_has_called_count_as_waiting(slots: Slots) -> None:
    slots.inline.define("w", step(work, rate_limit=rate("r", 1, per=60, max_waiting=1)))
    slots.hold("a", "b")
    assert slots.granted == ["b"]
    slots.inline.rival.run("w", None, run_id="c")
    slots.inline.drain()
    assert slots.run("c").error["message"] == (
        "limit 'r' is full: max_waiting steps wait for it already. Retry the step with max_retries, or raise the limit "
        "with `rival limit set r N`."
    )


def test_a_rate_that_refuses_a_start_names_its_pace(slots: Slots) -> None:
    slots.inline.define("w", step(work, rate_limit=rate("r", 10, per=600, on_full="fail")))
    slots.hold("a")
    slots.inline.rival.run("w", None, run_id="b")
    slots.inline.drain()
    message = slots.run("b").error["message"]
    assert re.sub(r"in [\d.]+ s", "in N s", message) == (
        "limit 'r' is full: it allows 10 starts per 600 s, one every 60 s, and the next one in N s. Retry the step "
        "with max_retries, or raise the limit with `rival limit set r N`."
    )


def test_a_burst_of_one_less_than_the_maximum_starts_all_at_once_after_a_quiet_time(slots: Slots) -> None:
    slots.inline.define("w", step(work, rate_limit=rate(3, per=60, burst=2)))
    assert [type(begin(slots, name)) for name in "abcd"] == [Claimed, Claimed, Claimed, Queued]


# -- large limits -------------------------------------------------------------------------------------------


def test_a_large_limit_has_shards_and_is_as_strict(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=20))
    slots.hold(*(f"r{n}" for n in range(25)))
    assert slots.used == {"w/work": 20}
    assert len(slots.waiting) == 5
    assert_gates_are_consistent(slots.database, at_rest=True)
    for run_id in list(slots.running):
        slots.finish(run_id)
        for granted in slots.granted:
            slots.claim(granted)
    while slots.running:
        slots.finish(next(iter(slots.running)))
    assert slots.used == {"w/work": 0}
    assert slots.waiting == []


def register_elsewhere(slots: Slots, most: int) -> None:
    """As a worker that has other code does."""
    slots.inline.registry.renew(define_workflow("v", [step(work, concurrency_limit=limit("x", most))]))
    slots.inline.process.register_workflows()


def test_a_registration_that_raises_a_limit_lets_more_through(slots: Slots) -> None:
    slots.inline.define("w", step(work, concurrency_limit=limit("x", 1)))
    slots.hold("a", "b", "c")
    register_elsewhere(slots, 2)
    assert slots.granted == ["b"]
    register_elsewhere(slots, 1)
    slots.finish("a")
    assert (slots.granted, slots.waiting) == (["b"], ["c"])


# -- whole runs ---------------------------------------------------------------------------------------------


def test_a_limit_of_runs_lets_so_many_run_at_once_and_holds_its_slot_to_the_end(slots: Slots) -> None:
    inline = slots.inline
    inline.define("w", step(work), delay_step(seconds=60, name="pause"), step(work, name="after"), concurrency_limit=1)
    for name in "abc":
        inline.rival.run("w", None, run_id=name)
    inline.drain()
    assert [slots.run(name).status for name in "abc"] == ["suspended", "pending", "pending"]
    assert slots.used == {"w": 1}
    assert slots.waiting == ["b", "c"]
    inline.rival.cancel("a")
    inline.keeper.run_once()
    inline.drain()
    assert [slots.run(name).status for name in "abc"] == ["cancelled", "suspended", "pending"]
    inline.rival.cancel("c")
    assert slots.waiting == []
    inline.rival.cancel("b")
    assert slots.used == {"w": 0}


def test_runs_that_wait_begin_one_after_the_other(slots: Slots) -> None:
    slots.inline.define("w", step(work), concurrency_limit=limit(1, key="input.tenant"))
    for n in range(6):
        slots.inline.rival.run("w", {"tenant": "ab"[n % 2]}, run_id=f"r{n}")
    messages = slots.inline.doorbell.take()
    for message in reversed(messages):
        slots.inline.deliver(message)
    slots.inline.drain()
    assert {slots.run(f"r{n}").status for n in range(6)} == {"completed"}
    assert slots.used == {"a": 0, "b": 0}


def test_a_paused_run_gives_up_its_place(slots: Slots) -> None:
    inline = slots.inline
    inline.define("w", step(work), delay_step(seconds=60, name="pause"), concurrency_limit=1)
    for name in "ab":
        inline.rival.run("w", None, run_id=name)
    inline.drain()
    inline.rival.pause("b")
    assert slots.waiting == []
    inline.rival.cancel("a")
    inline.rival.resume("b")
    inline.drain()
    assert slots.run("b").status == "suspended"


def test_a_rate_of_runs_begins_them_in_time(slots: Slots) -> None:
    slots.inline.define("w", step(work), rate_limit=rate(1, per=20))
    for name in "ab":
        slots.inline.rival.run("w", None, run_id=name)
    slots.inline.drain()
    assert [slots.run(name).status for name in "ab"] == ["completed", "pending"]
    later(slots, 20)
    for _, message in slots.inline.later:
        slots.inline.deliver(message)
    assert slots.run("b").status == "completed"


@pytest.mark.parametrize("made", [b"x", object(), "a\x00b", [1], {"a": 1}, True], ids=lambda made: type(made).__name__)
def test_a_function_that_returns_no_key_is_named_by_the_error(inline: Inline, made: Any) -> None:
    inline.define("w", step(lambda: 1, name="a", concurrency_limit=limit(1, key=lambda: made)))
    inline.rival.run("w", {}, "r")
    inline.drain()
    error = inline.rival.state("r").error or {}
    assert error["message"].startswith("the function of the key of a limit must return a text"), error
