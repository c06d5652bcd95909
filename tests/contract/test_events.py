"""Events and waits, on every store: whatever the order, each event comes to whom it is for, once, and none is lost."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import psycopg
import pytest
from pydantic import BaseModel
from sqlalchemy import Connection, select, update
from sqlalchemy.orm import Session

from rival_client import EventConflict, TopicFull
from rival_client.broker.message import EventMessage
from rival_client.db.database_urls import libpq_url
from rival_client.db.event_tables import events, waits
from rival_client.db.run_tables import steps
from rival_client.db.types import after
from rival_workers import flow, parallel, step, wait_event_step
from rival_workers.store.claim_records import ClaimBy
from rival_workers.store.sql import event_waits, locks
from rival_workers.store.sql import events as eventing
from tests.support.effort import examples
from tests.support.inline import Clock, Inline
from tests.support.locks import until_blocked
from tests.support.output import whole


def settle(inline: Inline) -> None:
    """Deliver all published messages that are due, events too."""
    inline.drain()


def started(inline: Inline, *ids: str, workflow: str = "w", **input: Any) -> None:
    for run_id in ids:
        inline.rival.run(workflow, {"id": run_id, **input}, run_id=run_id)
        settle(inline)
        if inline.clock is not None:
            inline.clock.advance(0.001)


def status(inline: Inline, run_id: str) -> str:
    return inline.rival.state(run_id).status


def got(inline: Inline, run_id: str) -> Any:
    state = inline.rival.state(run_id)
    return state.result if state.status == "completed" else None


def own_id(input: Any) -> str:
    return str(input["id"])


# -- order ------------------------------------------------------------------------------------------------


def test_an_event_wakes_the_step_that_waits_for_it_and_its_payload_is_the_result(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"), step(lambda last_step: last_step.result["n"] + 1, name="end"))
    started(inline, "r")
    assert status(inline, "r") == "suspended"
    inline.rival.send_event("paid", {"n": 1})
    settle(inline)
    assert got(inline, "r") == 2


def test_an_event_that_comes_before_the_wait_is_kept_for_it(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    inline.rival.send_event("paid", 7)
    settle(inline)
    assert [event.status for event in inline.rival.events()] == ["kept"]
    started(inline, "r")
    assert got(inline, "r") == 7
    assert [event.status for event in inline.rival.events()] == ["consumed"]


def test_an_event_that_was_not_delivered_yet_is_there_for_a_wait_that_begins(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    inline.rival.send_event("paid", 7)
    late = inline.doorbell.take()
    started(inline, "r", "other")
    assert got(inline, "r") == 7
    for message in late:
        inline.coordinator.deliver(message.event_id)  # type: ignore[union-attr]
    settle(inline)
    assert status(inline, "other") == "suspended", "it was consumed"


def test_kept_events_are_taken_in_the_order_they_were_sent(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    for n in range(3):
        inline.rival.send_event("paid", n)
        settle(inline)
    started(inline, "a", "b", "c", "d")
    assert [got(inline, run_id) for run_id in "abcd"] == [0, 1, 2, None]


def test_a_lost_event_message_is_published_again_by_the_keeper(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    started(inline, "r")
    inline.doorbell.down = True
    inline.rival.send_event("paid", 1)
    inline.doorbell.down = False
    with inline.store.database.transaction() as connection:
        connection.execute(update(events).values(ring_at=after(-1)))
    inline.keeper.run_once()
    settle(inline)
    assert got(inline, "r") == 1


def test_an_event_that_was_published_is_not_published_again_while_the_queue_has_a_backlog(inline: Inline) -> None:
    inline.rival.send_event("paid", 1)
    for backlog, published in ((3600.0, 0), (0.0, 1)):
        inline.doorbell.age = backlog
        inline.doorbell.take()
        with inline.store.database.transaction() as connection:
            connection.execute(update(events).values(ring_at=after(-1)))
        inline.keeper.run_once()
        assert len(inline.doorbell.take()) == published


# -- who gets it ------------------------------------------------------------------------------------------


def test_a_key_chooses_the_run(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid", key=own_id))
    started(inline, "a", "b")
    inline.rival.send_event("paid", 1, key="b")
    inline.rival.send_event("paid", 2)
    settle(inline)
    assert (status(inline, "a"), got(inline, "b")) == ("suspended", 1)


def test_a_wait_without_a_key_takes_any(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    started(inline, "a", "b")
    inline.rival.send_event("paid", 1, key="x")
    inline.rival.send_event("paid", 2)
    settle(inline)
    assert [got(inline, "a"), got(inline, "b")] == [1, 2]


def test_another_topic_wakes_no_run(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    started(inline, "r")
    inline.rival.send_event("paid.back", 1)
    settle(inline)
    assert status(inline, "r") == "suspended"


@pytest.mark.parametrize(
    ("where", "payload", "fits"),
    [
        ({"ok": True}, {"ok": True, "n": 1}, True),
        ({"ok": True}, {"ok": 1}, False),
        ({"order": {"id": 7}}, {"order": {"id": 7, "x": 1}}, True),
        ({"order": {"id": 7}}, {"order": 7}, False),
        ({"tags": ["a"]}, {"tags": ["b", "a"]}, True),
        ({"tags": ["a"]}, {"tags": ["b"]}, False),
    ],
)
def test_the_payload_must_hold_what_the_wait_asks_for(
    inline: Inline, where: dict[str, Any], payload: Any, fits: bool
) -> None:
    inline.define("w", wait_event_step("paid", where=where))
    started(inline, "r")
    inline.rival.send_event("paid", payload)
    settle(inline)
    assert (status(inline, "r") == "completed") is fits
    started(inline, "later")
    assert status(inline, "later") == "suspended", "consumed, or still not fitting"


def test_an_event_for_one_run_is_for_no_other(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    started(inline, "a", "b")
    inline.rival.send_event("paid", 1, run_id="b")
    settle(inline)
    assert (status(inline, "a"), got(inline, "b")) == ("suspended", 1)


def test_one_goes_to_the_run_that_has_waited_longest(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    started(inline, "b", "a", "c")
    inline.rival.send_event("paid", 1)
    settle(inline)
    assert [status(inline, run_id) for run_id in "bac"] == ["completed", "suspended", "suspended"]


def test_all_goes_to_all_waits_and_to_those_that_begin_before_it_expires(inline: Inline) -> None:
    inline.define("w", wait_event_step("news"))
    names = [f"r{n}" for n in range(5)]
    started(inline, *names)
    inline.rival.send_event("news", "!", delivery="all")
    settle(inline)
    started(inline, "later")
    assert [got(inline, run_id) for run_id in (*names, "later")] == ["!"] * 6


def test_all_comes_to_each_run_once(inline: Inline) -> None:
    inline.define("w", wait_event_step("news", name="one"), wait_event_step("news", name="two"))
    started(inline, "r")
    inline.rival.send_event("news", 1, delivery="all")
    settle(inline)
    assert inline.rival.state("r").current_step == "two"
    inline.rival.send_event("news", 2, delivery="all")
    settle(inline)
    assert got(inline, "r") == 2


def test_all_comes_to_one_of_two_waits_of_a_run(inline: Inline) -> None:
    inline.define("w", parallel("both", [wait_event_step("news", name="one"), wait_event_step("news", name="two")]))
    started(inline, "r")
    inline.rival.send_event("news", 1, delivery="all")
    settle(inline)
    assert sorted(found.status for found in inline.rival.state("r").steps) == ["completed", "waiting", "waiting"]


def test_more_waits_than_a_batch_that_do_not_fit_do_not_hide_one_that_does(
    inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eventing, "_BATCH", 2)
    inline.define("picky", wait_event_step("paid", where={"n": -1}))
    inline.define("w", wait_event_step("paid"))
    started(inline, *"abcde", workflow="picky")
    started(inline, "r")
    inline.rival.send_event("paid", {"n": 1})
    settle(inline)
    assert status(inline, "r") == "completed"


# -- once -------------------------------------------------------------------------------------------------


def test_the_same_event_id_twice_is_one_event(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    started(inline, "a", "b")
    sent = [inline.rival.send_event("paid", n, event_id="e1").status for n in range(2)]
    settle(inline)
    assert sent == ["sent", "duplicate"]
    assert [status(inline, run_id) for run_id in "ab"] == ["completed", "suspended"]


@pytest.mark.parametrize(
    ("topic", "other"), [("refunded", {}), ("paid", {"key": "8"}), ("paid", {"key": "7", "run_id": "r"}), ("paid", {})]
)
def test_the_id_of_an_event_for_others_is_refused(inline: Inline, topic: str, other: dict[str, Any]) -> None:
    inline.rival.send_event("paid", 1, key="7", event_id="e1")
    with pytest.raises(
        EventConflict,
        match=whole(
            "Event 'e1' exists already, with another topic, key or run: this one, of topic '…', was not sent. "
            "Ids of events are unique in all topics: put the topic in front of an id from elsewhere, as in "
            'event_id=f"{topic}:{order_id}".'
        ),
    ) as caught:
        inline.rival.send_event(topic, 1, event_id="e1", **other)
    assert (caught.value.event_id, caught.value.topic) == ("e1", topic)
    assert [(one.topic, one.key, one.run_id) for one in inline.rival.events()] == [("paid", "7", None)]
    assert inline.rival.send_event("paid", 1, key="7", event_id="e1").status == "duplicate"


def test_an_event_delivered_twice_wakes_one(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    started(inline, "a", "b")
    event = inline.rival.send_event("paid", 1).event_id
    for _ in range(3):
        inline.coordinator.deliver(event)
    settle(inline)
    assert [status(inline, run_id) for run_id in "ab"] == ["completed", "suspended"]


def test_a_cancelled_wait_leaves_the_event_to_the_next(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    started(inline, "a", "b")
    assert inline.rival.cancel("a")
    inline.rival.send_event("paid", 1)
    settle(inline)
    assert (status(inline, "a"), got(inline, "b")) == ("cancelled", 1)


def test_an_expired_event_comes_to_no_run_and_is_deleted(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    inline.rival.send_event("paid", 1, expires=0)
    settle(inline)
    started(inline, "r")
    assert status(inline, "r") == "suspended"
    with inline.store.database.transaction() as connection:
        connection.execute(update(events).values(expires_at=after(-1)))
    assert inline.store.delete_expired_events(10) == 1
    assert inline.rival.events() == []


# -- time -------------------------------------------------------------------------------------------------


@pytest.fixture
def timed(file_url: str) -> Iterator[Inline]:
    opened = Inline(file_url, clock=Clock())
    yield opened
    opened.close()


def pass_time(inline: Inline, seconds: float) -> None:
    assert inline.clock is not None
    inline.clock.advance(seconds)
    inline.keeper.run_once()
    inline.drain()


def test_a_wait_that_is_over_time_fails_and_says_so(timed: Inline) -> None:
    timed.define("w", wait_event_step("paid", timeout=3600))
    started(timed, "r")
    pass_time(timed, 3596)
    assert status(timed, "r") == "suspended"
    pass_time(timed, 10)
    state = timed.rival.state("r")
    assert (state.status, state.failed_step) == ("failed", "wait_paid")
    assert state.error is not None
    assert (state.error["type"], state.error["message"]) == ("EventTimeout", "no event 'paid' within 1 h")


def test_a_wait_may_go_on_without_its_event(timed: Inline) -> None:
    timed.define("w", wait_event_step("paid", timeout=20, on_timeout="continue"), step(lambda: "on", name="end"))
    started(timed, "r")
    timed.clock.advance(21)  # type: ignore[union-attr]
    timed.drain()
    assert got(timed, "r") == "on"


def test_a_wait_whose_time_is_up_is_deleted_and_makes_no_room_in_a_full_topic(timed: Inline) -> None:
    timed.define("w", wait_event_step("paid", timeout=20, on_timeout="continue"))
    started(timed, "r")
    pass_time(timed, 31)
    assert status(timed, "r") == "completed"
    assert timed.rival.recover().waiting_for_events == 0
    bounded(timed, 1)
    timed.rival.send_event("paid", 1)
    settle(timed)
    with pytest.raises(TopicFull):
        timed.rival.send_event("paid", 2)


def test_a_cancelled_run_waits_for_no_event(inline: Inline) -> None:
    inline.define("w", parallel("all", [[wait_event_step("paid")], [wait_event_step("sent")]]))
    started(inline, "r")
    assert inline.rival.recover().waiting_for_events == 2
    inline.rival.cancel("r")
    assert inline.rival.recover().waiting_for_events == 0


def test_of_timeout_and_delivery_the_first_wins(timed: Inline) -> None:
    timed.define("w", wait_event_step("paid", timeout=20, on_timeout="continue"))
    started(timed, "late", "early")
    timed.clock.advance(21)  # type: ignore[union-attr]
    messages = timed._ready()
    timed.rival.send_event("paid", 1, run_id="early")
    settle(timed)
    assert got(timed, "early") == 1
    for message in messages:
        timed.deliver(message)
    timed.rival.send_event("paid", 2, run_id="late")
    settle(timed)
    assert (status(timed, "late"), got(timed, "late")) == ("completed", None)
    assert [event.status for event in timed.rival.events()] == ["kept", "consumed"]


def until(inline: Inline, is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < end, "it did not happen in time"
        inline.drain()
        time.sleep(0.01)


# -- at the same moment -----------------------------------------------------------------------------------


@pytest.fixture
def pg(postgres_url: str) -> Iterator[Inline]:
    opened = Inline(postgres_url)
    yield opened
    opened.close()


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("first", ["wait", "deliver"])
def test_a_wait_that_begins_while_an_event_is_delivered_is_not_missed(
    pg: Inline, monkeypatch: pytest.MonkeyPatch, first: str, key: str | None
) -> None:
    """The second transaction waits for the lock of the first, and then sees what the first has left."""
    pg.define("w", wait_event_step("paid", key=key))
    event = pg.rival.send_event("paid", 1, key=key).event_id
    pg.doorbell.take()
    pg.rival.run("w", {}, run_id="r")
    [message] = pg.doorbell.take()
    acts: dict[str, Callable[[], object]] = {
        "wait": lambda: pg.deliver(message),
        "deliver": lambda: pg.coordinator.deliver(event),
    }
    locked, go_on = threading.Event(), threading.Event()

    def slowly(real: Callable[..., Any]) -> Callable[..., Any]:
        def lock(*arguments: Any) -> Any:
            result = real(*arguments)
            if not locked.is_set():
                locked.set()
                assert go_on.wait(20)
            return result

        return lock

    monkeypatch.setattr(eventing, "lock_topics", slowly(eventing.lock_topics))
    monkeypatch.setattr(event_waits, "need_topic", slowly(event_waits.need_topic))
    with ThreadPoolExecutor(2) as threads:
        one = threads.submit(acts.pop(first))
        assert locked.wait(5)
        other = threads.submit(next(iter(acts.values())))
        assert not other.done()
        go_on.set()
        one.result(10)
        other.result(10)
    settle(pg)
    assert got(pg, "r") == 1
    with pg.store.database.transaction() as connection:
        assert connection.execute(select(waits)).all() == []


@pytest.mark.slow
@pytest.mark.parametrize("turn", range(examples(1)))
def test_many_events_and_many_waits_at_once_meet_one_to_one(pg: Inline, turn: int) -> None:
    pg.define("w", parallel("both", [wait_event_step("paid", name="a"), wait_event_step("paid", name="b")]))
    count = 20

    def send(n: int) -> None:
        pg.rival.send_event("paid", n)

    with ThreadPoolExecutor(8) as threads:
        jobs = [threads.submit(send, n) for n in range(count * 2)]
        jobs += [threads.submit(pg.rival.run, "w", {}, f"r{n}") for n in range(count)]
        for job in jobs:
            job.result(20)
        while messages := pg.doorbell.take():
            deliveries = [
                threads.submit(pg.coordinator.deliver, message.event_id)
                if isinstance(message, EventMessage)
                else threads.submit(pg.deliver, message)
                for message in messages
            ]
            for delivery in deliveries:
                delivery.result(20)
    results = [pg.rival.result(f"r{n}").result for n in range(count)]
    assert sorted(n for result in results for n in result.values()) == list(range(count * 2))


def test_of_two_senders_of_one_event_id_one_sends_it(pg: Inline) -> None:
    with ThreadPoolExecutor(8) as threads:
        sent = list(threads.map(lambda n: pg.rival.send_event("paid", n, event_id="e").status, range(8)))
    assert sorted(sent) == ["duplicate"] * 7 + ["sent"]


def test_of_cancel_and_delivery_at_once_one_wins_and_nothing_is_lost(pg: Inline) -> None:
    pg.define("w", wait_event_step("paid"))
    for n in range(10):
        started(pg, f"r{n}")
        event = pg.rival.send_event("paid", n, run_id=f"r{n}").event_id
        with ThreadPoolExecutor(2) as threads:
            cancelled = threads.submit(pg.rival.cancel, f"r{n}")
            threads.submit(pg.coordinator.deliver, event).result(10)
            settle(pg)
            ended = status(pg, f"r{n}")
            assert ended == ("cancelled" if cancelled.result(10) else "completed")


@pytest.mark.parametrize("again", ["rewind", "continue"])
def test_an_event_on_its_way_to_a_wait_that_comes_again_with_another_key_is_not_taken_for_that(
    pg: Inline, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    """The delivery has found the wait, and is slow; meanwhile the flow is at the same place with another key."""
    keys = ["first", "second"]

    def body(ctx: Any) -> Any:
        key = keys.pop(0) if keys else "second"
        got = ctx.await_event("paid", key=key, timeout=0.2 if key == "first" else None)
        return ctx.continue_as(1) if got is None else got

    def overtaken(connection: Connection, run_id: str) -> None:
        monkeypatch.setattr(eventing, "share_run", real)
        if again == "rewind":
            pg.rival.rewind("r", "f")
        until(pg, lambda: not keys)
        real(connection, run_id)

    real = eventing.share_run
    pg.define("w", flow("f", register=False)(body))
    started(pg, "r")
    monkeypatch.setattr(eventing, "share_run", overtaken)
    sent = pg.rival.send_event("paid", "old", key="first")
    pg.doorbell.take()
    pg.store.deliver_event(sent.event_id)
    assert [event.status for event in pg.rival.events()] == ["kept"]
    pg.rival.send_event("paid", "new", key="second")
    until(pg, lambda: status(pg, "r") == "completed")
    assert got(pg, "r") == "new"


@pytest.mark.parametrize("key", [None, "k"])
@pytest.mark.parametrize("waiter", ["a step", "a flow"])
def test_of_timeout_and_delivery_at_once_one_wins_and_nothing_is_lost(pg: Inline, waiter: str, key: str | None) -> None:
    waiting = flow("waiting", register=False)(lambda ctx: ctx.await_event("paid", key=key, timeout=0.5))
    options = {"key": key, "timeout": 0.5, "on_timeout": "continue", "name": "waiting"}
    pg.define("w", waiting if waiter == "a flow" else wait_event_step("paid", **options))
    won = Counter[str]()
    for n in range(examples(4)):
        pg.rival.run("w", {}, run_id=f"r{n}")
        pg.drain()
        [(_, timer)], pg.later = pg.later, []
        event = pg.rival.send_event("paid", n, run_id=f"r{n}", key=key).event_id
        pg.doorbell.take()
        time.sleep(0.51)
        begin = threading.Barrier(2)
        # Which of the two is a little ahead changes from round to round.
        acts = [partial(pg.coordinator.deliver, event), partial(pg.deliver, timer)]
        with ThreadPoolExecutor(2) as threads:
            jobs = [threads.submit(_after_all, begin, act) for act in (acts if n % 2 else acts[::-1])]
            for job in jobs:
                job.result(10)
        settle(pg)
        assert status(pg, f"r{n}") == "completed"
        taken = {one.event_id: one.status for one in pg.rival.events()}[event] == "consumed"
        assert got(pg, f"r{n}") == (n if taken else None), "the event was consumed by the wait that has its payload"
        won["delivery" if taken else "timeout"] += 1
    assert won.total() == examples(4)


def _after_all(begin: threading.Barrier, act: Callable[[], object]) -> None:
    begin.wait(10)
    act()


# -- sending ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
def test_an_event_in_the_producers_own_transaction_exists_if_and_only_if_it_commits(
    inline: Inline, commits: bool
) -> None:
    inline.define("w", wait_event_step("paid"))
    started(inline, "r")
    with Session(inline.store.database.engine) as session:
        inline.rival.send_event("paid", 1, connection=session)
        session.commit() if commits else session.rollback()
    settle(inline)
    assert (status(inline, "r") == "completed") is commits


class Paid(BaseModel):
    topic: ClassVar[str] = "order.paid"
    amount: int


class OrderShipped(BaseModel):
    number: int


def test_a_model_is_an_event_with_its_topic(inline: Inline) -> None:
    inline.define("w", wait_event_step(Paid, name="paid"), wait_event_step(OrderShipped, name="shipped"))
    started(inline, "r")
    inline.rival.send_event(Paid(amount=7))
    settle(inline)
    inline.rival.send_event(OrderShipped(number=3))
    settle(inline)
    assert [event.topic for event in inline.rival.events()] == ["order-shipped", "order.paid"]
    assert inline.rival.result("r").results == {"paid": {"amount": 7}, "shipped": {"number": 3}}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            {"topic": ""},
            "Invalid argument topic: '' is not a usable text: give 1 to 200 characters, not only white space.",
        ),
        ({"topic": "t", "delivery": "some"}, "Invalid argument delivery: 'some' is not one of 'one', 'all'."),
        ({"topic": "t", "payload": {1, 2}}, "the payload of event 't' is not JSON: set is not JSON"),
        (
            {"topic": Paid(amount=1), "payload": 1},
            "Invalid argument payload: a typed event is its own payload: give no other.",
        ),
    ],
)
def test_an_event_that_makes_no_sense_is_refused_and_nothing_is_sent(
    inline: Inline, arguments: dict[str, Any], says: str
) -> None:
    with pytest.raises(Exception, match=whole(says)):
        inline.rival.send_event(**arguments)
    assert inline.rival.events() == []


# -- bounds -----------------------------------------------------------------------------------------------


def bounded(inline: Inline, most: int) -> None:
    inline.rival.settings = inline.rival.settings.with_(max_events_per_topic=most)


def kept(inline: Inline, topic: str) -> int:
    return sum(one.kept for one in inline.rival.topics(topic))


def fill(inline: Inline, topic: str, count: int, **options: Any) -> None:
    for n in range(count):
        inline.rival.send_event(topic, n, **options)
    settle(inline)


def test_a_full_topic_refuses_events_without_a_wait_and_nothing_is_lost(inline: Inline) -> None:
    bounded(inline, 3)
    fill(inline, "paid", 3)
    with pytest.raises(
        TopicFull,
        match=whole(
            "Topic 'paid' keeps 3 events that no run has received: this one was not sent. Start what waits for "
            "them, send with a shorter `expires`, or raise RIVAL_MAX_EVENTS_PER_TOPIC (0: no bound). `rival "
            "events --topic paid` lists them."
        ),
    ):
        inline.rival.send_event("paid", 3)
    inline.rival.send_event("other", 1)
    inline.define("w", wait_event_step("paid"))
    started(inline, "a", "b", "c", "d")
    assert [got(inline, run_id) for run_id in "abcd"] == [0, 1, 2, None]
    assert inline.rival.send_event("paid", 4).status == "sent", "there is room again"


def test_a_full_topic_takes_events_that_a_run_waits_for(inline: Inline) -> None:
    bounded(inline, 2)
    fill(inline, "paid", 2, key="old")
    inline.define("w", wait_event_step("paid", key=own_id))
    started(inline, "r", "s")
    inline.rival.send_event("paid", 7, key="r")
    inline.rival.send_event("paid", 8, run_id="s", key="s")
    settle(inline)
    assert (got(inline, "r"), got(inline, "s"), kept(inline, "paid")) == (7, 8, 2)
    for options in ({"key": "r"}, {}, {"key": "s", "run_id": "x"}, {"delivery": "all"}):
        with pytest.raises(TopicFull):
            inline.rival.send_event("paid", 9, **options)  # type: ignore[arg-type]


def test_an_event_on_its_way_takes_no_room(inline: Inline) -> None:
    bounded(inline, 2)
    for n in range(5):
        inline.rival.send_event("paid", n)
    assert [(one.sent, one.kept, one.is_nearly_full) for one in inline.rival.topics()] == [(5, 0, False)]


def test_an_event_for_all_is_kept_although_a_run_waits_and_so_counts(inline: Inline) -> None:
    bounded(inline, 1)
    fill(inline, "news", 1, delivery="all")
    inline.define("w", wait_event_step("news", where={"n": 1}))
    started(inline, "r")
    with pytest.raises(TopicFull):
        inline.rival.send_event("news", {"n": 1}, delivery="all")


def test_the_same_event_again_is_a_duplicate_in_a_full_topic_too(inline: Inline) -> None:
    bounded(inline, 1)
    fill(inline, "paid", 1, event_id="e1")
    assert inline.rival.send_event("paid", 1, event_id="e1").status == "duplicate"


def test_what_has_expired_takes_no_room_even_before_it_is_deleted(inline: Inline) -> None:
    bounded(inline, 1)
    fill(inline, "paid", 1)
    with inline.store.database.transaction() as connection:
        connection.execute(update(events).values(expires_at=after(-1)))
    assert inline.rival.send_event("paid", 2).status == "sent"
    assert kept(inline, "paid") == 0


def test_a_bound_of_zero_is_not_a_bound(inline: Inline) -> None:
    bounded(inline, 0)
    fill(inline, "paid", 3)
    assert [(one.kept, one.is_nearly_full) for one in inline.rival.topics()] == [(3, False)]


def test_a_full_topic_refuses_within_the_producers_own_transaction_and_leaves_it_open(pg: Inline) -> None:
    bounded(pg, 1)
    fill(pg, "paid", 1)
    with Session(pg.store.database.engine) as session:
        with pytest.raises(TopicFull):
            pg.rival.send_event("paid", 1, connection=session)
        pg.rival.send_event("other", 1, connection=session)
        session.commit()
    with psycopg.connect(libpq_url(pg.settings.require_database())) as connection:
        with pytest.raises(TopicFull):
            pg.rival.send_event("paid", 1, connection=connection)
        pg.rival.send_event("third", 1, connection=connection)
    assert [event.topic for event in pg.rival.events()] == ["third", "other", "paid"]


def test_an_event_is_kept_as_long_as_the_settings_say_unless_its_sender_does(inline: Inline) -> None:
    inline.rival.settings = inline.rival.settings.with_(event_retention=60.0)
    inline.rival.send_event("paid", 1)
    inline.rival.send_event("paid", 2, expires=5)
    later, sooner = (
        round((one.expires_at - one.created_at).total_seconds()) for one in reversed(inline.rival.events())
    )
    assert (later, sooner) == (60, 5)


# -- with a key, which has a shorter way on Postgres ---------------------------------------------------------


def test_a_wait_that_begins_after_an_event_has_expired_does_not_get_it_however_late_its_message_is(
    inline: Inline,
) -> None:
    inline.define("w", wait_event_step("paid", key="k"))
    inline.rival.send_event("paid", 1, key="k")
    with inline.store.database.transaction() as connection:
        connection.execute(update(events).values(expires_at=after(-5)))
    late = inline.doorbell.take()
    started(inline, "r")
    for message in late:
        inline.deliver(message)
    assert status(inline, "r") == "suspended"


def test_of_a_wait_for_any_key_and_one_for_this_key_the_older_gets_the_event(inline: Inline) -> None:
    inline.define("any", wait_event_step("paid"))
    inline.define("this", wait_event_step("paid", key="k"))
    started(inline, "first", workflow="any")
    started(inline, "second", workflow="this")
    inline.rival.send_event("paid", 1, key="k")
    settle(inline)
    assert (got(inline, "first"), status(inline, "second")) == (1, "suspended")


@pytest.mark.parametrize(
    ("wait", "event"),
    [({"where": {"n": 2}}, {}), ({}, {"run_id": "another"})],
    ids=["it asks for another payload", "the event is for another run"],
)
def test_a_wait_that_an_event_of_its_key_is_not_for_goes_on_waiting(
    inline: Inline, wait: dict[str, Any], event: dict[str, Any]
) -> None:
    inline.define("w", wait_event_step("paid", key="k", **wait))
    started(inline, "r")
    inline.rival.send_event("paid", {"n": 1}, key="k", **event)
    settle(inline)
    assert status(inline, "r") == "suspended"


def test_of_two_that_wait_for_a_key_the_older_gets_the_event(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid", key="k"))
    started(inline, "b", "a")
    inline.rival.send_event("paid", 1, key="k")
    settle(inline)
    assert (got(inline, "b"), status(inline, "a")) == (1, "suspended")


def test_a_wait_that_its_step_has_left_behind_wakes_it_not(inline: Inline) -> None:
    """As a race would leave it: the step waits, but by another token than the wait has."""
    inline.define("w", wait_event_step("paid", key="k"))
    started(inline, "r")
    with inline.store.database.transaction() as connection:
        connection.execute(update(waits).values(token=waits.c.token - 1))
    inline.rival.send_event("paid", 1, key="k")
    settle(inline)
    assert status(inline, "r") == "suspended"


def test_what_is_for_all_wakes_all_that_wait_for_its_key(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid", key="k"))
    started(inline, "r", "s")
    inline.rival.send_event("paid", 1, key="k", delivery="all")
    settle(inline)
    assert [got(inline, run_id) for run_id in ("r", "s")] == [1, 1]


# -- going on in place ------------------------------------------------------------------------------------


def test_an_event_on_its_way_is_not_deleted_before_it_was_delivered_once(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid"))
    started(inline, "r")
    inline.rival.send_event("paid", 1, expires=0)
    with inline.store.database.transaction() as connection:
        connection.execute(update(waits).values(created_at=after(-9)))
        connection.execute(update(events).values(expires_at=after(-5)))
    assert inline.store.delete_expired_events(10) == 0
    settle(inline)
    assert got(inline, "r") == 1


def test_of_one_key_the_event_sent_first_comes_first_whichever_message_does(inline: Inline) -> None:
    inline.define("w", wait_event_step("paid", key="k", name="one"), wait_event_step("paid", key="k", name="two"))
    started(inline, "r")
    for n in (1, 2):
        inline.rival.send_event("paid", n, key="k")
        if inline.clock is not None:
            inline.clock.advance(0.001)
    for message in reversed(inline.doorbell.take()):
        inline.deliver(message)
    settle(inline)
    assert inline.rival.result("r").results == {"one": 1, "two": 2}


def test_a_step_that_was_claimed_with_its_event_is_started_again_when_its_executor_dies(pg: Inline) -> None:
    pg.define("w", wait_event_step("paid", key="k"))
    started(pg, "r")
    event = pg.rival.send_event("paid", 7, key="k").event_id
    pg.store.add_executor("doomed", "elsewhere", 1, "w", -1)
    delivered = pg.store.deliver_event(event, ClaimBy("doomed", pg.registry.versions))
    assert delivered.claimed is not None
    assert pg.rival.state("r").status == "running"
    pg.keeper.clock = lambda: 1e9  # a whole lease has passed
    pg.keeper._steady_since = 0.0
    pg.keeper.run_once()
    settle(pg)
    assert got(pg, "r") == 7


@pytest.mark.parametrize("hindrance", ["paused", "unknown", "no worker goes on"])
def test_a_step_is_only_woken_where_it_cannot_be_gone_on_with(pg: Inline, hindrance: str) -> None:
    pg.define("w", wait_event_step("paid", key="k"))
    started(pg, "r")
    if hindrance == "paused":
        pg.rival.pause("r")
    event = pg.rival.send_event("paid", 7, key="k").event_id
    known = () if hindrance == "unknown" else pg.registry.versions
    claim = None if hindrance == "no worker goes on" else ClaimBy("me", known)
    delivered = pg.store.deliver_event(event, claim)
    assert delivered.claimed is None
    assert [one.path for one in delivered.ready] == ["wait_paid"]
    [found] = pg.rival.state("r").steps
    assert (found.status, found.attempts) == ("pending", 0)
    pg.rival.resume("r")
    for one in delivered.ready:
        pg.deliver(one.message)
    assert got(pg, "r") == 7


def test_a_flow_that_begins_to_wait_holds_no_step_while_it_waits_for_the_topic(pg: Inline) -> None:
    """A delivery locks the topic and then steps; in the other order the two transactions would deadlock."""
    pg.define("w", flow("f", register=False)(lambda ctx: ctx.await_event("paid")))
    pg.rival.run("w", run_id="r")
    with pg.store.database.transaction() as connection:
        locks.lock_topic(connection, "paid", None)
        beginning = threading.Thread(target=pg.drain)
        beginning.start()
        until_blocked(pg.store.database)
        row = select(steps.c.path).where(steps.c.run_id == "r", steps.c.path == "f")
        assert connection.scalar(row.with_for_update(nowait=True)) == "f"
    beginning.join()
    pg.rival.send_event("paid", 1)
    pg.drain()
    assert got(pg, "r") == 1


@pytest.mark.parametrize("key", [None, "k"])
def test_an_operator_who_opens_a_wait_again_holds_no_step_while_another_has_the_topic(
    pg: Inline, key: str | None
) -> None:
    pg.define("w", wait_event_step("paid", key=key))
    started(pg, "r")
    with pg.store.database.transaction() as connection:
        locks.lock_topic(connection, "paid", key)
        rewinding = threading.Thread(target=pg.rival.rewind, args=("r", "wait_paid"))
        rewinding.start()
        until_blocked(pg.store.database)
        row = select(steps.c.path).where(steps.c.run_id == "r", steps.c.path == "wait_paid")
        assert connection.scalar(row.with_for_update(nowait=True)) == "wait_paid"
    rewinding.join()
    pg.rival.send_event("paid", 1, key=key)
    pg.drain()
    assert got(pg, "r") == 1
