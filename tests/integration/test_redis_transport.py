"""Several messages per round trip, as long as there is room for them, past garbage, and one by one before Redis 7."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import kombu
import pytest
import redis

from rival_client.broker.message import RUN_TASK, AnyMessage, StepMessage
from rival_client.broker.redis_doorbell import RedisDoorbell
from rival_workers.runtime.celery.redis_transport import ValidatingTransport
from rival_workers.runtime.celery.run_intake import MOST_AT_ONCE, RunIntake


class Intake(RunIntake):
    """Takes the starts of runs while there is room, and begins none."""

    def __init__(self, room: int) -> None:
        self._lock, self._asked_for, self._has_backlog = threading.Lock(), 0, False
        self.places, self.taken = room, list[str]()

    @property
    def room(self) -> int:
        return self.places - len(self.taken)

    def take(self, envelope: dict[str, Any]) -> bool:
        if envelope["headers"]["task"] != RUN_TASK:
            return False
        self.taken.append(envelope["properties"]["correlation_id"])
        return True


class Reader:
    """A consumer of one queue."""

    def __init__(self, url: str, queue: str, intake: Intake, prefix: str) -> None:
        options = {"intake": intake, "ack_emulation": False, "global_keyprefix": prefix}
        self.connection = kombu.Connection(url, transport=ValidatingTransport, transport_options=options)
        self.others: list[Any] = []
        self.channel = self.connection.channel()
        queues = [kombu.Queue(queue, channel=self.channel)]
        self.consumer = kombu.Consumer(self.channel, queues, on_message=self.others.append, no_ack=True)
        self.consumer.consume()

    def drain(self) -> None:
        with suppress(TimeoutError):
            while True:
                self.connection.drain_events(timeout=0.3)

    def close(self) -> None:
        self.connection.release()


@pytest.fixture
def queue() -> str:
    return f"many-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def readers() -> Iterator[list[Reader]]:
    opened: list[Reader] = []
    yield opened
    for one in opened:
        one.close()


def starts(count: int) -> list[AnyMessage]:
    return [StepMessage(f"run-{number}", None, 0, "w", "v") for number in range(count)]


@pytest.mark.parametrize("prefix", ["", "team:"])
@pytest.mark.parametrize(("room", "popped"), [(1, 1), (5, 4), (50, MOST_AT_ONCE)])
def test_an_answer_has_several_messages_and_leaves_a_place_and_the_rest_to_others(
    broker_url: str, queue: str, readers: list[Reader], prefix: str, room: int, popped: int
) -> None:
    doorbell = RedisDoorbell(broker_url, queue, prefix)
    doorbell.publish(starts(10))
    intake = Intake(room)
    readers.append(Reader(broker_url, queue, intake, prefix))
    readers[0].connection.drain_events(timeout=5)  # reads one answer
    assert [name.split(":")[0] for name in intake.taken] == [f"run-{number}" for number in range(popped)]
    assert doorbell.backlog() == 10 - popped
    doorbell.close()


def test_at_most_as_many_messages_are_popped_as_there_is_room_for(
    broker_url: str, queue: str, readers: list[Reader]
) -> None:
    doorbell = RedisDoorbell(broker_url, queue)
    doorbell.publish(starts(7))
    intake = Intake(room=5)
    readers.append(Reader(broker_url, queue, intake, ""))
    readers[0].drain()
    assert len(intake.taken) == 5
    assert doorbell.backlog() == 2
    doorbell.close()


def test_garbage_and_other_tasks_among_them_do_not_stop_the_others(
    broker_url: str, queue: str, readers: list[Reader]
) -> None:
    doorbell, client = RedisDoorbell(broker_url, queue), redis.Redis.from_url(broker_url)
    one, two = starts(2)
    doorbell.publish([one])
    client.lpush(queue, "garbage", "[1]")
    doorbell.publish([StepMessage("r", "a", 1, "w", "v"), two])
    intake = Intake(room=10)
    readers.append(Reader(broker_url, queue, intake, ""))
    readers[0].drain()
    assert len(intake.taken) == 2
    assert len(readers[0].others) == 1
    doorbell.close()
    client.close()


def test_a_broker_without_the_command_gives_its_messages_one_by_one(
    broker_url: str, queue: str, readers: list[Reader]
) -> None:
    client = redis.Redis.from_url(broker_url)
    client.execute_command("ACL", "SETUSER", "old", "on", ">secret", "~*", "&*", "+@all", "-blmpop")
    doorbell = RedisDoorbell(broker_url, queue)
    doorbell.publish(starts(3))
    intake = Intake(room=10)
    readers.append(Reader(_as_user(broker_url, "old", "secret"), queue, intake, ""))
    readers[0].drain()
    assert len(intake.taken) == 3
    client.acl_deluser("old")
    doorbell.close()
    client.close()


def _as_user(url: str, user: str, password: str) -> str:
    scheme, _, rest = url.partition("://")
    return f"{scheme}://{user}:{password}@{rest.rpartition('@')[2]}"
