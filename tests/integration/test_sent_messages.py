"""A doorbell that does not wait for the broker's replies still loses no message that a reply would have saved."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator

import pytest
import redis

from rival_client.broker.message import StepMessage
from rival_client.broker.redis_doorbell import RedisDoorbell
from rival_client.broker.run_end import RedisRunEndNotifier
from rival_workers.dev.stack import Stack
from tests.support.workers import wait_until


def message(number: int) -> StepMessage:
    return StepMessage(f"run-{number}", None, 0, "w", "v")


@pytest.fixture
def queue() -> str:
    return f"sent-{uuid.uuid4().hex}"


@pytest.fixture
def doorbell(stack: Stack, queue: str) -> Iterator[RedisDoorbell]:
    opened = RedisDoorbell(stack.broker_url, queue)
    yield opened
    opened.close()


@pytest.fixture
def broker(stack: Stack, queue: str) -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(stack.broker_url)
    yield client
    client.delete(queue)
    client.close()


def sending_connection(broker: redis.Redis) -> list[str]:
    """The ids of connections whose last command was a push."""
    return [one["id"] for one in broker.client_list() if one["cmd"] == "lpush"]


def test_many_single_messages_arrive_once_each_and_in_order(
    doorbell: RedisDoorbell, broker: redis.Redis, queue: str
) -> None:
    for number in range(1000):
        assert doorbell.publish([message(number)])
    doorbell.close()
    arrived = broker.lrange(queue, 0, -1)
    assert len(arrived) == 1000
    assert b'"run-999"' in arrived[0]
    assert b'"run-0"' in arrived[-1]


def test_a_connection_that_the_broker_closes_costs_no_message(
    doorbell: RedisDoorbell, broker: redis.Redis, queue: str
) -> None:
    doorbell.publish([message(0)])
    while not broker.llen(queue):
        pass
    for client_id in sending_connection(broker):
        broker.client_kill_filter(_id=client_id)
    assert doorbell.publish([message(1)])
    assert doorbell.publish([message(2)])
    doorbell.close()
    assert {f"run-{n}" for n in range(3)} == {
        name for name in ("run-0", "run-1", "run-2") for one in broker.lrange(queue, 0, -1) if name.encode() in one
    }


def test_a_message_that_the_broker_refuses_is_published_again_by_the_next_publish(
    doorbell: RedisDoorbell, broker: redis.Redis, queue: str
) -> None:
    broker.set(queue, "not a list")
    doorbell.publish([message(0)])
    broker.delete(queue)
    # The refusal is read by one of these. If the first publish has read it, the next ones skip the broker for a second.
    wait_until(lambda: doorbell.publish([], changed=["run-9"]) and broker.llen(queue), 10, "the refused message")
    assert doorbell.publish([message(1)])
    doorbell.close()
    assert [sum(text in one for one in broker.lrange(queue, 0, -1)) for text in (b'"run-0"', b'"run-1"')] == [1, 1]


def test_a_message_does_not_wait_for_the_replies_to_earlier_ones(
    doorbell: RedisDoorbell, broker: redis.Redis, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    doorbell.publish([message(0)])
    sender, arrived = doorbell._sender, list[int]()
    assert sender is not None
    read = sender._read

    def read_later() -> None:
        wait_until(lambda: broker.llen(queue) == 2, 10, "the second message")
        arrived.append(2)
        read()

    monkeypatch.setattr(sender, "_read", read_later)
    sender._looked_at = 0.0
    assert doorbell.publish([message(1)])
    assert arrived == [2]


def test_a_process_that_ends_right_after_its_publish_has_published(
    stack: Stack, broker: redis.Redis, queue: str
) -> None:
    program = (
        "import sys\n"
        "from rival_client.broker.doorbell import RedisDoorbell\n"
        "from rival_client.broker.message import StepMessage\n"
        "bell = RedisDoorbell(sys.argv[1], sys.argv[2])\n"
        "for n in range(200):\n"
        "    bell.publish([StepMessage(f'run-{n}', None, 0, 'w', 'v')])\n"
    )
    subprocess.run([sys.executable, "-c", program, stack.broker_url, queue], check=True, timeout=60)
    assert broker.llen(queue) == 200


def test_a_subscription_that_is_used_again_hears_only_its_own_run(doorbell: RedisDoorbell, stack: Stack) -> None:
    """A wait that is not woken lasts longer than a test may."""
    notifier = RedisRunEndNotifier(stack.broker_url)
    with notifier.listen("first") as listener:
        doorbell.publish([], changed=["first", "first"])
        listener.wait(600)
    with notifier.listen("second") as again:
        assert again._pubsub is listener._pubsub  # type: ignore[attr-defined]
        doorbell.publish([], changed=["first", "second"])
        again.wait(600)
        said = again._pubsub.get_message(timeout=0.2)  # type: ignore[attr-defined]
    assert said is None, "it was not woken by the other run"
