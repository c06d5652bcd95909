"""Messages with a countdown stay in their process until they are due."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from rival_client.broker.message import AnyMessage, StepMessage
from rival_workers.runtime.attempt.timers import CountdownDoorbell
from tests.support.inline import CollectingDoorbell


def message(name: str, countdown: float) -> StepMessage:
    return StepMessage(name, "a", 1, "w", "v", countdown=countdown)


class Recorder(CollectingDoorbell):
    """Notes when each message came."""

    def __init__(self) -> None:
        super().__init__()
        self.came: list[tuple[str, float, float]] = []
        self.batches: list[int] = []
        self.arrived = threading.Semaphore(0)

    def publish(self, messages: Sequence[AnyMessage], changed: Sequence[str] = ()) -> bool:
        self.batches.append(len(messages))
        for one in messages:
            self.came.append((one.run_id or "", one.countdown, time.monotonic()))
            self.arrived.release()
        return True

    def wait_for(self, count: int) -> list[str]:
        for _ in range(count):
            assert self.arrived.acquire(timeout=20)
        return [name for name, _, _ in self.came]


def test_messages_are_published_in_the_order_of_their_times_and_never_early() -> None:
    broker = Recorder()
    doorbell, began = CountdownDoorbell(broker), time.monotonic()
    wanted = {"far": 0.3, "near": 0.05, "middle": 0.15}
    for name, seconds in wanted.items():
        assert doorbell.publish([message(name, seconds)])
    doorbell.publish([message("now", 0.0)])
    assert broker.wait_for(4) == ["now", "near", "middle", "far"]
    for name, countdown, at in broker.came[1:]:
        assert countdown == 0.0, "Celery must not wait again"
        assert at - began >= wanted[name]


def test_what_is_due_together_is_published_together() -> None:
    broker = Recorder()
    doorbell = CountdownDoorbell(broker)
    doorbell.publish([message(str(n), 0.1) for n in range(300)])
    broker.wait_for(300)
    assert len(broker.batches) < 30


def test_a_notification_does_not_wait_with_a_countdown() -> None:
    broker = CollectingDoorbell()
    CountdownDoorbell(broker).publish([message("later", 30.0)], changed=["ended"])
    assert (broker.messages, broker.changed) == ([], ["ended"])


def test_a_process_that_stops_hands_its_countdowns_over_with_the_time_that_is_left() -> None:
    broker = Recorder()
    doorbell = CountdownDoorbell(broker)
    doorbell.publish([message("a", 30.0), message("b", 20.0)])
    doorbell.hand_over()
    left = {name: countdown for name, countdown, _ in broker.came}
    assert set(left) == {"a", "b"}
    assert 29 < left["a"] <= 30
    assert 19 < left["b"] <= 20
    doorbell.publish([message("c", 10.0)])
    assert broker.came[-1][:2] == ("c", 10.0), "a process that has stopped keeps nothing"


def test_a_due_message_that_the_process_takes_itself_is_not_published() -> None:
    broker, taken = Recorder(), list[AnyMessage]()
    doorbell = CountdownDoorbell(broker)

    def take(due: AnyMessage) -> bool:
        if due.run_id == "here":
            taken.append(due)
        return due.run_id == "here"

    doorbell.take = take
    doorbell.publish([message("here", 0.05), message("elsewhere", 0.05)])
    assert broker.wait_for(1) == ["elsewhere"]
    assert taken == [message("here", 0.0)]
