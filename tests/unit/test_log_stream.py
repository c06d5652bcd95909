"""Entries reach the store while their step still runs, in batches, and never at the cost of the step."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from rival_client.errors import DatabaseUnavailable
from rival_client.model.run_entries import LogEntry
from rival_workers.runtime.logs.redaction import DEFAULT
from rival_workers.runtime.logs.step_log import StepLog
from rival_workers.runtime.logs.stream import BATCH, LogStream
from tests.support.threads import join_all
from tests.support.workers import wait_until


class Store:
    def __init__(self) -> None:
        self.calls: list[list[str]] = []
        self.problem: Exception | None = None
        self.gate = threading.Event()
        self.gate.set()

    def append(self, run_id: str, entries: Sequence[LogEntry], again: bool) -> None:
        assert self.gate.wait(20)
        if self.problem is not None:
            raise self.problem
        self.calls.append([entry.message for entry in entries])

    @property
    def messages(self) -> list[str]:
        return [message for call in self.calls for message in call]


class Impatient:
    """Tries once."""

    def keep(self, operation: Any) -> Any:
        return operation()


PATIENCE: Any = Impatient()


@pytest.fixture
def store() -> Store:
    return Store()


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "rival-logs"]


def opened(stream: LogStream) -> StepLog:
    return stream.open("r", "w", "a", 1)


def test_a_quick_step_is_stored_in_one_go_at_its_end(store: Store) -> None:
    stream = LogStream(store.append, DEFAULT, interval=60)
    log = opened(stream)
    log.info("one")
    log.info("two")
    assert store.calls == []
    stream.finish(log, PATIENCE)
    assert store.calls == [["one", "two"]]


def test_a_step_that_does_not_log_costs_neither_a_call_nor_a_thread(store: Store) -> None:
    before = len(threads())
    stream = LogStream(store.append, DEFAULT)
    stream.finish(opened(stream), PATIENCE)
    assert (store.calls, len(threads())) == ([], before)


def test_entries_of_a_running_step_are_stored_after_the_interval(store: Store) -> None:
    stream = LogStream(store.append, DEFAULT, interval=0.02)
    one, other = opened(stream), opened(stream)
    one.info("one")
    other.info("other")
    wait_until(lambda: sorted(store.messages) == ["one", "other"])
    one.info("more")
    wait_until(lambda: store.messages[-1] == "more")
    stream.finish(one, PATIENCE)
    assert len(store.messages) == 3


def test_a_full_batch_does_not_wait_for_the_interval(store: Store) -> None:
    stream = LogStream(store.append, DEFAULT, interval=60)
    log = opened(stream)
    for number in range(BATCH):
        log.info(f"{number}")
    wait_until(lambda: len(store.messages) == BATCH, 5)


def test_the_thread_lives_only_while_something_waits(store: Store) -> None:
    stream = LogStream(store.append, DEFAULT, interval=0.02)
    log = opened(stream)
    log.info("one")
    assert len(threads()) >= 1
    wait_until(lambda: stream._thread is None)
    log.info("two")
    wait_until(lambda: store.messages == ["one", "two"])


def test_order_is_kept_when_the_end_meets_a_flush_that_is_under_way(store: Store) -> None:
    stream = LogStream(store.append, DEFAULT, interval=0.01)
    log = opened(stream)
    store.gate.clear()
    log.info("first")
    wait_until(log._storing.locked)
    log.info("second")
    end = threading.Thread(target=stream.finish, args=(log, PATIENCE))
    end.start()
    store.gate.set()
    join_all([end])
    assert store.messages == ["first", "second"]


def test_a_step_that_logs_is_not_held_up_by_a_slow_store(store: Store) -> None:
    stream = LogStream(store.append, DEFAULT, interval=0.01)
    log = opened(stream)
    store.gate.clear()
    log.info("first")
    wait_until(log._storing.locked)
    for _ in range(10):
        log.info("more")  # returns although the store does not
    store.gate.set()
    wait_until(lambda: len(store.messages) == 11)


def test_what_meets_a_database_that_is_away_is_stored_when_it_is_back(store: Store) -> None:
    stream = LogStream(store.append, DEFAULT, interval=0.01)
    log = opened(stream)
    store.problem = DatabaseUnavailable("away")
    log.info("one")
    stream.flush()
    assert log.waiting == 1
    store.problem = None
    wait_until(lambda: store.messages == ["one"])


@pytest.mark.parametrize("problem", [DatabaseUnavailable("away for good"), RuntimeError("odd")])
def test_what_cannot_be_stored_does_not_cost_the_outcome(
    store: Store, problem: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stream = LogStream(store.append, DEFAULT, interval=60)
    log = opened(stream)
    log.info("one")
    store.problem = problem
    stream.finish(log, PATIENCE)
    assert log.waiting == 0
    assert caplog.messages == ["1 log entries could not be stored"]


def test_an_entry_that_the_store_refuses_does_not_hold_up_what_comes_after_it(store: Store) -> None:
    stream = LogStream(store.append, DEFAULT, interval=60)
    log = opened(stream)
    store.problem = RuntimeError("refused")
    log.info("bad")
    stream.flush()
    store.problem = None
    log.info("good")
    stream.finish(log, PATIENCE)
    assert store.messages == ["good"]


def test_many_threads_of_one_step_lose_no_entry(store: Store) -> None:
    stream = LogStream(store.append, DEFAULT, interval=0.001)
    log = opened(stream)
    writers = [
        threading.Thread(target=lambda n=n: [log.info(f"{n}.{i}") for i in range(300)])  # type: ignore[misc]
        for n in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    stream.finish(log, PATIENCE)
    assert sorted(store.messages) == sorted(f"{n}.{i}" for n in range(4) for i in range(300))
    for n in range(4):
        own = [message for message in store.messages if message.startswith(f"{n}.")]
        assert own == [f"{n}.{i}" for i in range(300)]
