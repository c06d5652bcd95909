"""Every message three times and in any order: all but one of each are stale, and stale is a no-op. And messages
from other programs: none of them stops or silences a worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest
import redis
from celery import Celery

from rival_client import Rival, WaitTimeout
from rival_client.broker.message import StepMessage
from rival_client.broker.redis_doorbell import RedisDoorbell
from rival_client.settings import Settings
from rival_workers import step
from rival_workers.definition.define import define_workflow
from rival_workers.definition.registry import Registry
from rival_workers.dev.broker_server import BrokerServer
from rival_workers.library import embedded
from rival_workers.library.inproc_broker import broker_named
from tests.support.chaos import CHAIN, Ledger, assert_chain_is_right, mixed_fleet, start_many, thrice, wait_for_all
from tests.support.effort import long_but_first
from tests.support.hostile_messages import CONTROL, ENVELOPES, HARMLESS, NOBODY
from tests.support.workers import WorkerProcess, Workers, wait_until

#: The file is loaded before the worker opens its doorbell.
TRIPLED = """
from rival_client.broker.doorbell import RedisDoorbell
from tests.support.chaos import thrice
RedisDoorbell._send = thrice(RedisDoorbell._send)
"""


@pytest.mark.slow
def test_every_message_three_times_and_shuffled_changes_nothing(
    rival: Rival, workers: Workers, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RedisDoorbell, "_send", thrice(RedisDoorbell._send))
    mixed_fleet(workers, ledger.workflow(TRIPLED + CHAIN))
    # 150 attempts and some 500 messages: a few seconds, and on a machine with ten times the load well below the limit.
    run_ids = start_many(rival, 30, seconds=0.01)
    wait_for_all(rival, run_ids, timeout=90)
    assert_chain_is_right(rival, run_ids, ledger)
    assert len(ledger.lines()) == 30 * 5, "nothing ran twice"


# -- messages that Rival has not written ----------------------------------------------------------------------

ECHO = """
from rival_workers import create_workflow

def echo(input): return input

create_workflow("echo").step(echo).register()
"""
POOLS = long_but_first("prefork", "threads", "solo")
#: What the log of a healthy worker does not have; a stalled one leaves to be restarted.
TROUBLE = ("Traceback", "onnection to broker lost", "leaving to be restarted", "Unrecoverable", "a round failed")


@pytest.fixture
def echo_file(tmp_path: Path) -> Path:
    path = tmp_path / "echo.py"
    path.write_text(ECHO)
    return path


class Victim:
    """A worker of which is checked, after each message, that it still works and has not been restarted."""

    def __init__(self, rival: Rival, worker: WorkerProcess, queue: str, broker: redis.Redis) -> None:
        self.rival, self.worker, self.queue, self.broker = rival, worker, queue, broker
        self.children = self._children()

    def _children(self) -> set[int]:
        return {child.pid for child in self.worker.children()}

    def push(self, message: bytes) -> None:
        self.broker.lpush(self.queue, message)

    def start_held(self, what: str) -> StepMessage:
        """A run whose own message is kept back, for a test that sends another in its place."""
        with patch.object(RedisDoorbell, "_send", lambda *_: None):
            run = self.rival.run("echo", what)
        version = self.rival.versions("echo")[0].version
        return StepMessage(run.run_id, None, 0, "echo", version)

    def assert_works(self, what: str) -> None:
        run = self.rival.run("echo", what)
        try:
            assert self.rival.wait("echo", run.run_id, timeout=20).result == what
        except WaitTimeout:
            raise AssertionError(f"silent after {what}:\n{self.worker.log[-3000:]}") from None
        assert self.worker.process.poll() is None, f"{what} ended the worker:\n{self.worker.log[-3000:]}"

    def assert_unharmed(self) -> None:
        """All messages are gone, no process was replaced, the connection was never made again."""
        wait_until(lambda: self.broker.llen(self.queue) == 0, what="an empty queue")
        assert self._children() == self.children
        log = self.worker.log
        for trouble in TROUBLE:
            assert trouble not in log, log[log.index(trouble) - 1000 :][:3000]


@pytest.fixture(params=POOLS)
def victim(
    request: pytest.FixtureRequest, rival: Rival, workers: Workers, echo_file: Path, settings: Settings
) -> Iterator[Victim]:
    # A long grace: no keeper helps where a message was lost.
    [worker] = workers.start(echo_file, pool=request.param, concurrency=2, ring_grace=600)
    with redis.Redis.from_url(settings.broker_url or "") as broker:
        yield Victim(rival, worker, settings.queue, broker)


@pytest.mark.slow
def test_no_message_stops_or_silences_a_worker(victim: Victim) -> None:
    for what, make in ENVELOPES.items():
        victim.push(make(NOBODY))
        victim.assert_works(what)
    victim.assert_unharmed()
    assert len(victim.rival.runs(limit=1000)) == len(ENVELOPES), "nothing else was started"


@pytest.mark.slow
def test_what_else_is_in_a_good_message_has_no_effect(victim: Victim) -> None:
    for what, make in HARMLESS.items():
        step_message = victim.start_held(what)
        victim.push(make(step_message))
        result = victim.rival.wait("echo", step_message.run_id, timeout=20)
        assert (result.status, result.result) == ("completed", what), what
        assert [step.attempts for step in victim.rival.state(step_message.run_id).steps] == [1], what
    victim.assert_works("all of them")
    victim.assert_unharmed()


@pytest.mark.slow
def test_no_broadcast_stops_or_silences_a_worker(own_broker: BrokerServer, victim: Victim) -> None:
    """On a broker of its own: broadcasts reach every worker of a broker, whatever its queue."""
    database = victim.broker.connection_pool.connection_kwargs.get("db", 0)
    app = Celery(broker=victim.rival.settings.broker_url, set_as_current=False)
    for what, message in CONTROL.items():
        assert victim.broker.publish(f"/{database}.celery.pidbox", message) >= 1, "the worker listens"
        victim.assert_works(what)
        answers = app.control.ping(destination=[f"{victim.worker.name}@test"], timeout=10, limit=1)
        assert answers, f"no reply to commands after {what}:\n{victim.worker.log[-3000:]}"
    assert victim.worker.process.poll() is None
    assert victim._children() == victim.children


@pytest.mark.long
@pytest.mark.slow
def test_no_message_stops_or_silences_the_worker_of_library_mode(tmp_path: Path) -> None:
    registry = Registry()
    registry.add(define_workflow("echo", [step(lambda input: input, name="echo")]))
    for pool in ("threads", "solo"):
        with embedded(tmp_path / f"{pool}.db", registry=registry, pool=pool, ring_grace=600) as rival:
            broker, queue = broker_named(rival._namespace), rival.settings.queue
            for what, make in (ENVELOPES | HARMLESS).items():
                message = make(NOBODY)
                with suppress(ValueError, RecursionError):  # what is not JSON cannot get into this queue
                    broker.put(queue, json.loads(message))
                run = rival.run("echo", what)
                # A message that was lost is not published again (ring_grace), so a long limit hides nothing.
                assert rival.wait("echo", run.run_id, timeout=120).result == what
            assert rival._worker.running
            wait_until(lambda: broker.size(queue) == 0, 60)  # noqa: B023
            assert len(rival.runs(limit=1000)) == len(ENVELOPES | HARMLESS)


def test_the_list_is_long() -> None:
    assert len(ENVELOPES) + len(HARMLESS) + len(CONTROL) >= 75
