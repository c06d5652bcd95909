"""Events and waits in any order, with messages that are late, lost or doubled, on the engine and in a model that only
counts: the same comes of both, and so no event is lost, and none comes twice.

What the model promises: an event that has not expired comes to the wait that fits and has waited longest; "one" to one
wait, "all" to each run once; in the order in which they were sent, of all topics that a wait is for; and never to a
wait that was cancelled or is over time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import delete, select, update

from rival_client import EventConflict
from rival_client.broker.message import EventMessage
from rival_client.db.event_tables import deliveries, events, waits
from rival_client.db.log_tables import history
from rival_client.db.run_tables import attempts, runs, steps
from rival_client.db.types import after
from rival_workers import flow, wait_event_step
from rival_workers.definition.registry import Registry
from rival_workers.testing.world import migrated
from tests.support.effort import examples
from tests.support.inline import Clock, Inline

TOPICS = ["a", "b"]
WAIT_SECONDS, KEPT_SECONDS = 20.0, 30.0
#: No sum of these is one of those two: what is due at the very same moment has no order.
PASSING = [7.0, 7.0, 7.0, 25.0, 60.0]
EVER = 1e9

# -- the model --------------------------------------------------------------------------------------------


@dataclass
class Sent:
    """An event."""

    id: str
    topic: str
    key: str | None
    run_id: str | None
    ok: bool
    delivery: str
    expires_at: float
    status: str = "sent"
    had: set[str] = field(default_factory=set)


@dataclass
class Waiter:
    """A run that waits, `turns` times one after the other."""

    run_id: str
    topics: list[str]
    key: str | None
    picky: bool
    timeout: float | None
    turns: int
    began: float = 0.0
    waiting: bool = False
    cancelled: bool = False
    got: list[str | None] = field(default_factory=list)

    def fits(self, event: Sent) -> bool:
        mine = event.run_id in (None, self.run_id) and self.run_id not in event.had
        its_key = self.key is None or self.key == event.key
        return event.topic in self.topics and its_key and mine and (event.ok or not self.picky)


class Model:
    """Who gets what. Nothing here knows of messages, tokens or rows."""

    def __init__(self) -> None:
        self.events: list[Sent] = []
        self.runs: list[Waiter] = []

    def begin(self, run: Waiter, now: float) -> None:
        """Of all topics together, the event that was sent first."""
        there = (
            event
            for event in self.events
            if event.status in ("sent", "kept") and event.expires_at > now and run.fits(event)
        )
        event = next(there, None)
        if event is None:
            run.began, run.waiting = now, True
            # The wait that began last has waited shortest.
            self.runs.remove(run)
            self.runs.append(run)
        else:
            self._give(event, run)
            self._go_on(run, now)

    def deliver(self, asked: str, now: float) -> None:
        sent = next(event for event in self.events if event.id == asked)
        alike = (e for e in self.events if (e.topic, e.key, e.status) == (sent.topic, sent.key, "sent"))
        event = next(alike, None)
        if event is None:
            return
        fit = [run for run in self.runs if run.waiting and run.fits(event) and run.began <= event.expires_at]
        event.status, ready = "kept", []
        for run in fit:
            # Older events of its other topics or keys may still be on their way: they come first.
            first = self._first_sent(run, event)
            self._give(first, run)
            ready.append(run)
            if first is event and event.delivery == "one":
                break
        for run in ready:
            self._go_on(run, now)

    def _first_sent(self, run: Waiter, event: Sent) -> Sent:
        older = self.events[: self.events.index(event)]
        sent = (e for e in older if e.status == "sent" and run.fits(e) and run.began <= e.expires_at)
        return next(sent, event)

    def time_out(self, now: float) -> None:
        for run in self.runs:
            if run.waiting and run.timeout is not None and run.began + run.timeout <= now:
                run.waiting, run.turns = False, 0
                run.got.append(None)

    def expire(self, now: float) -> None:
        for event in self.events:
            if event.status in ("kept", "consumed") and event.expires_at < now:
                event.status = "deleted"

    def _give(self, event: Sent, run: Waiter) -> None:
        event.had.add(run.run_id)
        event.status = "consumed" if event.delivery == "one" else event.status
        run.got.append(event.id)
        run.waiting, run.turns = False, run.turns - 1

    def _go_on(self, run: Waiter, now: float) -> None:
        if run.turns > 0:
            self.begin(run, now)


# -- the engine -------------------------------------------------------------------------------------------


class Ticking(Clock):
    """No two moments are the same."""

    def __call__(self) -> float:
        self.advance(1e-6)
        return super().__call__()


def listen(ctx: Any, input: dict[str, Any]) -> list[str | None]:
    got: list[str | None] = []
    for _ in range(input["turns"]):
        where = {"ok": True} if input["picky"] else None
        event = ctx.await_event(input["topics"], key=input["key"], where=where, timeout=input["timeout"])
        got.append(event and event.payload["id"])
        if event is None:
            break
    return got


def own_key(input: dict[str, Any]) -> str:
    return str(input["key"])


def plan_name(run: Waiter) -> str:
    words = (run.topics[0], "keyed" if run.key else "", "picky" if run.picky else "", "timed" if run.timeout else "")
    return "-".join(filter(None, words))


def define_all(inline: Inline) -> None:
    made = flow("listen", registry=Registry())(listen)
    assert made.definition is not None
    inline.registry.renew(made.definition)
    for topic in TOPICS:
        for key in (None, "k"):
            for picky in (False, True):
                for timeout in (None, WAIT_SECONDS):
                    like = Waiter("", [topic], key, picky, timeout, 1)
                    waiting = wait_event_step(
                        topic,
                        key=key and own_key,
                        where={"ok": True} if picky else None,
                        timeout=timeout,
                        on_timeout="continue",
                        name="wait",
                    )
                    inline.define(plan_name(like), waiting)


A_RUN = st.fixed_dictionaries(
    {
        "topics": st.sampled_from([["a"], ["a"], ["a"], ["b", "a"]]),
        "key": st.sampled_from([None, "k", "k"]),
        "picky": st.sampled_from([False, False, True]),
        "timeout": st.sampled_from([None, None, WAIT_SECONDS]),
        "turns": st.sampled_from([1, 1, 2, 3]),
    }
)
AN_EVENT = st.fixed_dictionaries(
    {
        "topic": st.sampled_from(["a", "a", "a", "b"]),
        "key": st.sampled_from([None, "k", "k", "l"]),
        "ok": st.booleans(),
        "to": st.sampled_from([None] * 6 + ["r0", "r3"]),
        "delivery": st.sampled_from(["one", "one", "all"]),
        "kept": st.sampled_from([0.0, KEPT_SECONDS, EVER, EVER]),
        "fate": st.sampled_from(["at once", "at once", "late", "lost"]),
    }
)
MANY = st.integers(1, 3)
HAPPENS = ["begin"] * 4 + ["send"] * 3 + ["deliver_late"] * 2 + ["time_passes", "cancel", "keeper_sweeps", "send_again"]
EMPTIED = (deliveries, waits, events, history, attempts, steps, runs)


class Events(RuleBasedStateMachine):
    """Each rule is done to both. Messages about steps come at once, those about events when a rule says so."""

    inline: Inline
    timed: bool

    @initialize(plain=st.booleans())
    def empty(self, plain: bool) -> None:
        """`plain`: each run waits once, for a topic and a key, so that Postgres delivers in the short way."""
        self.plain = plain
        with self.inline.store.database.transaction() as connection:
            for table in EMPTIED:
                connection.execute(delete(table))
        self.inline.doorbell.take()
        self.inline.later.clear()
        self.model, self.claim, self.numbers = Model(), list[str](), count()
        self.run_numbers, self.moments = count(), count(1)

    @property
    def now(self) -> float:
        return self.inline.clock() if self.inline.clock else float(next(self.moments))

    def settle(self) -> None:
        while ready := self.inline._ready():
            self.claim += [message.event_id for message in ready if isinstance(message, EventMessage)]
            for message in ready:
                if not isinstance(message, EventMessage):
                    self.inline.deliver(message)

    # One rule for all: Hypothesis leaves some rules out of most examples, and here each needs the others.
    @rule(what=st.sampled_from(HAPPENS), data=st.data())
    def happens(self, what: str, data: st.DataObject) -> None:
        getattr(self, what)(data)

    def begin(self, data: st.DataObject) -> None:
        like = data.draw(A_RUN)
        for _ in range(data.draw(MANY)):
            self.begin_one(**like)

    def begin_one(self, topics: list[str], key: str | None, picky: bool, timeout: float | None, turns: int) -> None:
        run_id = f"r{next(self.run_numbers)}"
        if self.plain:
            topics, key, turns = topics[-1:], key or "k", 1
        run = Waiter(run_id, topics, key, picky, timeout if self.timed else None, turns)
        self.model.runs.append(run)
        is_plan = turns == 1 and len(topics) == 1
        input = {"topics": topics, "key": key, "picky": picky, "timeout": run.timeout, "turns": turns}
        self.model.begin(run, self.now)
        self.inline.rival.run(plan_name(run) if is_plan else "listen", input, run_id=run_id)
        self.settle()

    def send(self, data: st.DataObject) -> None:
        like = data.draw(AN_EVENT)
        target = next((run for run in self.model.runs if run.waiting), None)
        if target and data.draw(st.sampled_from([True, True, False]), "aimed at somebody who waits"):
            like |= {"topic": target.topics[0], "key": target.key}
        for _ in range(data.draw(MANY)):
            self.send_one(**like)

    def send_one(
        self, topic: str, key: str | None, ok: bool, to: str | None, delivery: str, kept: float, fate: str
    ) -> None:
        event_id, key = f"e{next(self.numbers)}", key or ("k" if self.plain else None)
        expires = EVER if kept and not self.timed else kept
        self.model.events.append(Sent(event_id, topic, key, to, ok, delivery, self.now + expires))
        self.inline.rival.send_event(
            topic,
            {"id": event_id, "ok": ok},
            key=key,
            run_id=to,
            delivery=delivery,
            expires=expires,
            event_id=event_id,
        )
        self.settle()
        if fate == "lost":
            self.claim.remove(event_id)
        elif fate == "at once":
            self.deliver(event_id, twice=False)

    def send_again(self, data: st.DataObject) -> None:
        there = [event for event in self.model.events if event.status != "deleted"]
        if there:
            first = data.draw(st.sampled_from(there))
            again = partial(self.inline.rival.send_event, payload=1, event_id=first.id)
            assert again(first.topic, key=first.key, run_id=first.run_id).status == "duplicate"
            with pytest.raises(EventConflict):
                again(f"not-{first.topic}", key=first.key, run_id=first.run_id)

    def deliver_late(self, data: st.DataObject) -> None:
        if self.claim:
            self.deliver(data.draw(st.sampled_from(self.claim)), twice=data.draw(st.booleans()))

    def deliver(self, event_id: str, twice: bool) -> None:
        if not twice:
            self.claim.remove(event_id)
        if any(event.id == event_id and event.status != "deleted" for event in self.model.events):
            self.model.deliver(event_id, self.now)
        self.inline.coordinator.deliver(event_id)
        self.settle()

    def time_passes(self, data: st.DataObject) -> None:
        if self.inline.clock is not None:
            self.inline.clock.advance(data.draw(st.sampled_from(PASSING)))
            self.model.time_out(self.now)
            self.settle()

    def cancel(self, data: st.DataObject) -> None:
        if self.model.runs:
            run = data.draw(st.sampled_from(self.model.runs))
            assert self.inline.rival.cancel(run.run_id) is run.waiting, "one that does not wait has ended"
            run.cancelled, run.waiting = run.cancelled or run.waiting, False

    def keeper_sweeps(self, _: st.DataObject | None = None) -> None:
        self.inline.keeper.run_once()
        self.settle()
        # The keeper does this now and then; here always.
        self.inline.store.delete_expired_events(100)
        self.model.expire(self.now)

    @invariant()
    def the_tables_say_what_the_model_says(self) -> None:
        with self.inline.store.database.autocommit() as connection:
            delivered = {(row.event_id, row.run_id) for row in connection.execute(select(deliveries))}
            status = {row.id: row.status for row in connection.execute(select(events.c.id, events.c.status))}
            waiting = select(waits.c.run_id).join(
                steps,
                (steps.c.run_id == waits.c.run_id) & (steps.c.path == waits.c.path) & (steps.c.status == "waiting"),
            )
            who = set(connection.scalars(waiting))
        there = [event for event in self.model.events if event.status != "deleted"]
        assert status == {event.id: event.status for event in there}
        assert delivered == {(event.id, run_id) for event in there for run_id in event.had}
        assert who == {run.run_id for run in self.model.runs if run.waiting}

    def teardown(self) -> None:
        """In the end the keeper finds what was lost, and each run has got what the model says."""
        with self.inline.store.database.transaction() as connection:
            connection.execute(update(events).where(events.c.ring_at.is_not(None)).values(ring_at=after(-1)))
        self.claim.clear()
        self.keeper_sweeps()
        while self.claim:
            self.deliver(self.claim[0], twice=False)
        self.the_tables_say_what_the_model_says()
        for run in self.model.runs:
            state = self.inline.rival.state(run.run_id)
            ended = "cancelled" if run.cancelled else "suspended" if run.waiting else "completed"
            assert (state.status, run.run_id) == (ended, run.run_id)
            if ended == "completed":
                flows = isinstance(state.result, list)
                assert (state.result if flows else [state.result and state.result["id"]]) == run.got


@pytest.fixture(scope="module")
def shared_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("any-events") / "rival.db"
    file.write_bytes(migrated())
    return f"sqlite:///{file}"


@pytest.fixture(params=["sqlite", "postgres"])
def machine(request: pytest.FixtureRequest) -> Iterator[type[Events]]:
    on_sqlite = request.param == "sqlite"
    url = request.getfixturevalue("shared_file" if on_sqlite else "postgres_url")
    opened = Inline(url, clock=Ticking() if on_sqlite else None)
    define_all(opened)
    yield type("Events", (Events,), {"inline": opened, "timed": on_sqlite})
    opened.close()


#: So few that a slow machine is done in a minute; RIVAL_EFFORT makes it more. What fails is not made smaller
#: by itself, since that may take as long as ten times all of them.
EXAMPLES = examples(3)


@pytest.mark.slow
@pytest.mark.timeout(120 if EXAMPLES <= 8 else 3600)
def test_events_and_waits_in_any_order_meet_as_the_model_says(machine: type[Events]) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            phases=[Phase.explicit, Phase.reuse, Phase.generate],
        ),
    )
