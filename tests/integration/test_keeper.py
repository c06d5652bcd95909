"""The keeper on a real Postgres and a real Redis: it publishes lost messages again, and only those."""

from __future__ import annotations

import base64
import json
import re
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import func, select, text

from rival_client import DatabaseUnavailable, Rival
from rival_client.broker.doorbell import open_doorbell
from rival_client.broker.message import StepMessage
from rival_client.broker.outages import Missed
from rival_client.broker.redis_doorbell import EPOCH_KEY
from rival_client.db.log_tables import history, logs
from rival_client.db.run_tables import runs, steps
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.settings import Settings
from rival_workers import StepError, step
from rival_workers.definition.define import define_workflow
from rival_workers.definition.registry import Registry
from rival_workers.dev.broker_server import BrokerServer
from rival_workers.engine.nodes import StepNode
from rival_workers.engine.plan import Plan
from rival_workers.runtime import keeper as keeper_module
from rival_workers.runtime.celery.worker import StalledConsumerWatch
from rival_workers.runtime.process import Process
from rival_workers.settings import WorkerSettings
from tests.support.chaos import Ledger, start_many, wait_for_all
from tests.support.workers import Workers, wait_until


def once() -> dict[str, int]:
    return {"done": 1}


def in_an_hour() -> None:
    raise StepError("much later", behavior="retry")


class Queue:
    """The broker's side: what is waiting there, and for whom."""

    def __init__(self, settings: Settings) -> None:
        self._name = settings.queue
        self._redis = redis.Redis.from_url(settings.broker_url or "")

    def __len__(self) -> int:
        return int(self._redis.llen(self._name))

    def messages(self) -> Counter[tuple[Any, ...]]:
        """(run, path, token) -> how many messages say so."""
        envelopes = [json.loads(raw) for raw in self._redis.lrange(self._name, 0, -1)]
        return Counter(tuple(json.loads(base64.b64decode(e["body"]))[0][:3]) for e in envelopes)

    def etas(self) -> list[str | None]:
        return [json.loads(raw)["headers"]["eta"] for raw in self._redis.lrange(self._name, 0, -1)]

    def lose(self) -> None:
        """The messages are gone, the broker does not know."""
        self._redis.delete(self._name)

    def lose_data(self) -> None:
        """As after a restart without its data."""
        self._redis.delete(self._name, EPOCH_KEY + self._name)


@pytest.fixture
def queue_of(settings: Settings) -> Queue:
    return Queue(settings)


@pytest.fixture
def process(settings: Settings) -> Iterator[Process]:
    """The parts of a worker, without Celery: its keeper runs when the test calls it."""
    worker = _process(settings)
    worker.keeper.run_once()  # a new queue has no epoch yet: the first round sets it
    yield worker
    worker.close()


def _process(settings: Settings) -> Process:
    registry = Registry()
    registry.add(define_workflow("once", [once]))
    hour = step(in_an_hour, max_attempts=2, base_delay=3600, max_delay=3600)
    registry.add(define_workflow("hourly", [hour]))
    own = WorkerSettings(
        database_url=settings.database_url,
        broker_url=settings.broker_url,
        queue=settings.queue,
        ring_grace=settings.ring_grace,
        retention=3600,
    )
    process = Process(own, registry, "keeper@test")
    process.register_workflows()
    return process


def _age(rival: Rival, seconds: float) -> None:
    """What waits has been waiting for that much longer."""
    with rival.database.transaction() as connection:
        for table in ("rival_runs", "rival_steps"):
            columns = "ring_at = ring_at - make_interval(secs => :s)"
            if table == "rival_steps":
                columns += ", due_at = due_at - make_interval(secs => :s)"
            connection.execute(text(f"UPDATE {table} SET {columns} WHERE ring_at IS NOT NULL"), {"s": seconds})


def test_a_message_that_was_lost_is_published_again_after_its_grace(
    rival: Rival, process: Process, queue_of: Queue
) -> None:
    run_id = rival.run("once").run_id
    queue_of.lose()
    assert process.keeper.run_once().published == 0, "within its grace a ring is not held to be lost"
    _age(rival, 11)
    assert process.keeper.run_once().published == 1
    assert queue_of.messages() == {(run_id, None, 0): 1}
    assert process.keeper.run_once().published == 0


def test_a_message_that_is_merely_old_is_not_published_again_while_the_queue_has_a_backlog(
    settings: Settings, queue_of: Queue
) -> None:
    settings = settings.with_(ring_grace=1.0)
    process = _process(settings)
    process.keeper.run_once()
    with Rival(settings=settings) as rival:
        rival.run("once")
        time.sleep(1.1)
        done = process.keeper.run_once()
    assert (done.published, done.still_queued) == (0, 1)
    assert len(queue_of) == 1
    process.close()


def test_a_message_that_was_published_well_before_the_queues_oldest_one_is_lost_behind_a_backlog_too(
    rival: Rival, process: Process, queue_of: Queue
) -> None:
    lost = rival.run("once").run_id
    queue_of.lose()
    _age(rival, 11)
    waiting = rival.run("once").run_id
    assert process.keeper.run_once().published == 1
    assert queue_of.messages() == {(lost, None, 0): 1, (waiting, None, 0): 1}


def test_a_far_timer_stays_in_postgres_until_it_is_near(rival: Rival, process: Process, queue_of: Queue) -> None:
    run_id = rival.run("hourly").run_id
    queue_of.lose()
    [definition] = [w for w in process.coordinator.registry if w.name == "hourly"]
    process.executor.start()
    process.coordinator.begin(run_id, 0, "hourly", definition.version)
    assert [s.status for s in rival.state(run_id).steps] == ["waiting_retry"]
    assert len(queue_of) == 0
    process.keeper.run_once()
    _age(rival, 3500)
    assert process.keeper.run_once().published == 0
    assert len(queue_of) == 0
    _age(rival, 96)
    assert process.keeper.run_once().published == 1
    process.hand_over_countdowns()  # until then the process keeps the last seconds itself
    assert queue_of.messages() == {(run_id, "in_an_hour", 2): 1}
    assert queue_of.etas() != [None], "the last seconds ride a countdown"
    process.executor.stop()


def test_after_broker_data_loss_everything_is_published_once_in_bounded_batches(
    rival: Rival, settings: Settings, process: Process, queue_of: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_ids = start_many(rival, 1200, "once")
    queue_of.lose_data()
    sizes: list[int] = []
    publish = process.doorbell.publish
    monkeypatch.setattr(
        process.doorbell,
        "publish",
        lambda step_messages, *a: sizes.append(len(step_messages)) or publish(step_messages, *a),
    )
    neighbour = _process(settings)
    done = process.keeper.run_once()
    assert done.broker_lost_data
    assert not neighbour.keeper.run_once().broker_lost_data, "one of them has noticed, and that is enough"
    assert not process.keeper.run_once().broker_lost_data
    assert queue_of.messages() == {(run_id, None, 0): 1 for run_id in run_ids}
    assert max(sizes) <= 2 * keeper_module.BATCH
    neighbour.close()


def test_a_republish_that_the_database_interrupted_is_completed(
    rival: Rival, process: Process, queue_of: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = rival.run("once").run_id
    queue_of.lose_data()
    with monkeypatch.context() as patched:
        patched.setattr(process.store, "make_all_due", _raising(DatabaseUnavailable("away")))
        with pytest.raises(DatabaseUnavailable):
            process.keeper.run_once()
    assert process.keeper.run_once().broker_lost_data
    assert queue_of.messages() == {(run_id, None, 0): 1}


def _raising(error: Exception) -> Any:
    def raise_it(*_: Any) -> None:
        raise error

    return raise_it


def test_messages_that_a_frozen_broker_did_not_take_are_published_when_it_is_back(tmp_path: Path) -> None:
    broker = BrokerServer(tmp_path)
    broker.start()
    settings = Settings(broker_url=broker.url, queue="q")
    doorbell, queue = open_doorbell(broker.url, "q"), Queue(settings)
    assert doorbell.check_epoch(), "its first sight of a broker"
    broker.freeze()
    # They are sent without waiting for a reply, so a frozen broker delays no commit.
    doorbell.publish([StepMessage("held", None, 0, "w", "v")])
    doorbell.publish([StepMessage("skipped", "a", 1, "w", "v", countdown=5)])
    broker.thaw()
    time.sleep(1.1)  # the second of the cooldown
    assert not doorbell.check_epoch(), "a broker that was frozen has not forgotten: what is queued is not rung again"
    assert set(queue.messages()) == {("held", None, 0), ("skipped", "a", 1)}
    doorbell.close()
    broker.stop()


@pytest.mark.slow
def test_after_a_freeze_of_the_broker_waiting_rows_are_not_all_published_again(
    tmp_path: Path, settings: Settings
) -> None:
    broker = BrokerServer(tmp_path)
    broker.start()
    settings = settings.with_(broker_url=broker.url)
    process, queue = _process(settings), Queue(settings)
    process.keeper.run_once()
    with Rival(settings=settings) as rival:
        start_many(rival, 3000, "once")
        broker.freeze()
        _age(rival, 11)
        process.keeper.run_once()
        broker.thaw()
    time.sleep(1.1)  # the second of the cooldown
    assert not process.keeper.run_once().broker_lost_data
    assert 3000 <= len(queue) <= 3000 + Missed.LIMIT
    process.close()
    broker.stop()


@pytest.mark.long
@pytest.mark.slow
def test_100_000_pending_runs_and_a_slow_worker_make_no_message_storm(
    settings: Settings, workers: Workers, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    workers.start(ledger.workflow('name = "slow"\nsteps = [step(work, name="only")]'), concurrency=1, ring_grace=1)
    queue = Queue(settings)
    with Rival(settings=settings.with_(ring_grace=1.0)) as rival:
        start_many(rival, 100_000, "slow", seconds=0.2)
        until = time.monotonic() + 6
        while time.monotonic() < until:
            with rival.database.autocommit() as connection:
                pending = connection.scalar(select(func.count()).select_from(runs).where(runs.c.status == "pending"))
            assert len(queue) <= pending
            time.sleep(0.25)
        assert pending > 99_000, "the worker is slow"
        assert len(queue) > 99_000, "and nothing was lost"


TIMED = """
name = "timed"
steps = [step(work, name="only", timeout=1, on_timeout="retry", max_attempts=2, base_delay=0)]
"""


@pytest.mark.slow
def test_a_frozen_workers_timeout_is_applied_by_another_workers_keeper(
    rival: Rival, workers: Workers, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    file = ledger.workflow(TIMED)
    [frozen] = workers.start(file, concurrency=1, lease=60)
    [run_id] = start_many(rival, 1, "timed", seconds=0.9)
    wait_until(lambda: ledger.lines(run_id))
    frozen.freeze()
    workers.start(file, concurrency=1, lease=60)
    wait_for_all(rival, [run_id])
    [only] = rival.state(run_id).steps
    assert (only.status, only.attempts, only.lost) == ("completed", 2, 0)
    assert [attempt.outcome for attempt in rival.state(run_id).attempts] == ["timed_out", "completed"]
    assert only.result["nonce"] == ledger.lines(run_id)[1].nonce


@pytest.mark.slow
def test_a_run_that_no_worker_knows_is_parked_and_taken_up_by_one_that_does(
    rival: Rival, workers: Workers, process: Process, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "ledger.txt")
    [other] = workers.start(ledger.workflow('name = "both"\nsteps = [step(work, name="old")]'))
    process.store.register_workflow("both", Plan(nodes=(StepNode(name="new"),)), None, None)
    run_id = rival.run("both", {}).run_id
    wait_until(lambda: rival.state(run_id).parked)
    parked = rival.state(run_id).parked or ""
    assert re.fullmatch(r"worker has 'both' at version [0-9a-f]{12}, not [0-9a-f]{12}", parked), parked
    assert other.terminate() == 0
    workers.start(ledger.workflow('name = "both"\nsteps = [step(work, name="new")]'))
    _age(rival, 16)
    wait_for_all(rival, [run_id])
    state = rival.state(run_id)
    assert (state.status, state.parked) == ("completed", None)
    assert [line.step for line in ledger.lines()] == ["new"]


def test_retention_deletes_ended_runs_in_batches_and_nothing_else(
    rival: Rival, process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_module, "_RETENTION_BATCH", 10)
    old, young, still_open = (start_many(rival, count, "once") for count in (25, 3, 4))
    for run_id in old + young:
        rival.cancel(run_id)
    with rival.database.transaction() as connection:
        connection.execute(
            text("UPDATE rival_runs SET completed_at = completed_at - interval '2 hours' WHERE id = ANY(:ids)"),
            {"ids": old},
        )
        connection.execute(text("UPDATE rival_runs SET created_at = created_at - interval '2 days'"))
    sizes: list[int] = []
    delete = process.store.delete_ended_before
    monkeypatch.setattr(process.store, "delete_ended_before", lambda *args: sizes.append(delete(*args)) or sizes[-1])
    process.keeper._clean_up_at = 0.0
    assert process.keeper.run_once().deleted == 25
    assert [size for size in sizes if size] == [10, 10, 5]
    with rival.database.autocommit() as connection:
        left = set(connection.scalars(select(runs.c.id)))
        hanging = {
            run_id
            for table in (steps, history, logs)
            for run_id in connection.scalars(select(table.c.run_id).distinct())
        }
        ended = connection.scalar(select(func.count()).select_from(runs).where(runs.c.status.in_(RUN_TERMINAL)))
    assert left == set(young + still_open)
    assert hanging <= left
    assert ended == len(young)


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def test_a_consumer_is_stalled_only_when_messages_waited_at_every_check(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("rival_workers.runtime.celery.worker.time.monotonic", clock)
    watch = StalledConsumerWatch(60)

    def look(messages: int, backlog: int | None, busy: bool = False, later: float = 31.0) -> bool:
        clock.at += later
        return watch.is_stalled(messages, busy, lambda: backlog)

    assert not look(5, 0)
    assert not look(5, 0), "idle is not stalled"
    assert not look(5, 0)
    assert not look(5, 3), "a backlog that has just begun"
    assert not look(6, 3), "messages come"
    assert not look(6, 3, busy=True), "all hands are busy"
    assert not look(6, None), "nobody can say"
    assert not look(6, 3)
    assert look(6, 3), "for longer than the limit there was a backlog, hands were free, and nothing came"
