"""A wait gets the event that was sent first, of all its topics and keys, whatever order the messages come in."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from rival_client.broker.message import AnyMessage, EventMessage
from rival_workers import flow, wait_event_step
from rival_workers.definition.registry import Registry
from tests.support.inline import Inline

TOPICS = ["zeta", "alpha"]


def loop(ctx: Any, input: dict[str, Any]) -> list[Any]:
    """A signal loop."""
    got = []
    for _ in range(input["count"]):
        received = ctx.await_event(input.get("topics", TOPICS), key=input.get("key"))
        got.append([received.topic, received.key, received.payload])
    return got


@pytest.fixture
def listening(inline: Inline) -> Inline:
    made = flow("loop", registry=Registry())(loop)
    assert made.definition is not None
    inline.registry.renew(made.definition)
    inline.process.register_workflows()
    return inline


def send(inline: Inline, topic: str, payload: Any, key: str | None = "k", **options: Any) -> str:
    return inline.rival.send_event(topic, payload, key=key, **options).event_id


def event_messages(inline: Inline) -> list[EventMessage]:
    messages = inline.doorbell.take()
    inline.doorbell.messages += [message for message in messages if not isinstance(message, EventMessage)]
    return [message for message in messages if isinstance(message, EventMessage)]


def payloads(inline: Inline, run_id: str = "r") -> list[Any]:
    return [payload for _, _, payload in inline.rival.result(run_id).result]


def test_of_events_that_are_there_before_the_wait_the_one_sent_first_comes_first(listening: Inline) -> None:
    for number, topic in enumerate(["zeta", "alpha", "zeta", "zeta", "alpha"]):
        send(listening, topic, number)
    listening.drain()
    listening.rival.run("loop", {"count": 5, "key": "k"}, run_id="r")
    listening.drain()
    assert payloads(listening) == [0, 1, 2, 3, 4]


def test_events_whose_messages_come_in_reverse_come_in_the_order_in_which_they_were_sent(listening: Inline) -> None:
    listening.rival.run("loop", {"count": 4, "key": "k"}, run_id="r")
    listening.drain()
    for number, topic in enumerate(["zeta", "alpha", "zeta", "alpha"]):
        send(listening, topic, number)
    for message in reversed(event_messages(listening)):
        listening.deliver(message)
        listening.drain()
    assert payloads(listening) == [0, 1, 2, 3]


def test_a_wait_for_any_key_gets_events_of_all_keys_in_the_order_in_which_they_were_sent(listening: Inline) -> None:
    listening.rival.run("loop", {"count": 4, "topics": ["zeta"]}, run_id="r")
    listening.drain()
    for number, key in enumerate(["k", "l", None, "k"]):
        send(listening, "zeta", number, key=key)
    for message in reversed(event_messages(listening)):
        listening.deliver(message)
        listening.drain()
    assert payloads(listening) == [0, 1, 2, 3]


def test_a_step_that_waits_for_any_key_gets_the_event_that_was_sent_first(inline: Inline) -> None:
    inline.define("w", wait_event_step("zeta"))
    inline.rival.run("w", run_id="r")
    inline.drain()
    for number, key in enumerate(["k", "l"]):
        send(inline, "zeta", number, key=key)
    for message in reversed(event_messages(inline)):
        inline.deliver(message)
    inline.drain()
    assert inline.rival.result("r").result == 0


def test_an_older_event_that_does_not_fit_is_left_to_others(listening: Inline) -> None:
    listening.rival.run("loop", {"count": 1, "key": "k"}, run_id="r")
    listening.drain()
    send(listening, "alpha", "for another key", key="l")
    send(listening, "alpha", "for another run", run_id="another")
    send(listening, "zeta", "mine")
    for message in reversed(event_messages(listening)):
        listening.deliver(message)
    listening.drain()
    assert payloads(listening) == ["mine"]
    assert [one.kept for one in listening.rival.topics()] == [2]


def test_events_for_all_come_once_to_each_run_in_their_order(listening: Inline) -> None:
    for run_id in ("r", "s"):
        listening.rival.run("loop", {"count": 3, "key": "k"}, run_id=run_id)
    listening.drain()
    for number, topic in enumerate(["zeta", "alpha", "zeta"]):
        send(listening, topic, number, delivery="all")
    for message in reversed(event_messages(listening)):
        listening.deliver(message)
        listening.drain()
    assert payloads(listening, "r") == payloads(listening, "s") == [0, 1, 2]


def test_events_of_one_moment_come_in_the_order_in_which_a_process_sent_them(listening: Inline) -> None:
    """Ids decide then: those of one process rise."""
    ids = [send(listening, "zeta", number) for number in range(200)]
    assert ids == sorted(ids)
    assert len(set(ids)) == 200


@pytest.mark.slow
def test_a_signal_loop_gets_all_events_in_order_while_several_threads_deliver(listening: Inline) -> None:
    """Locks of several topics, taken by deliveries and by the flow's next wait: nothing is lost, and none deadlocks."""
    rounds, each, chance = 6, 6, random.Random(11)
    listening.rival.run("loop", {"count": rounds * each, "key": "k"}, run_id="r")
    listening.rival.run("loop", {"count": rounds * each}, run_id="s")
    listening.drain()

    def deliver(message: AnyMessage) -> None:
        listening.deliver(message)

    with ThreadPoolExecutor(4) as pool:
        for number in range(rounds):
            for place in range(each):
                for target in ("r", "s"):
                    key = "k" if target == "r" else chance.choice(["k", "l", None])
                    send(listening, chance.choice(TOPICS), number * each + place, key=key, run_id=target)
            while messages := listening._ready():
                chance.shuffle(messages)
                list(pool.map(deliver, messages))
    assert payloads(listening, "r") == payloads(listening, "s") == list(range(rounds * each))
