"""The broker loses everything, restarts, is away, or does not answer: it takes longer, and nothing else changes."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
import redis

from rival_client import Rival
from rival_workers.dev.broker_server import BrokerServer
from tests.support.chaos import Ledger, Producer, assert_chain_is_right, mixed_fleet, start_many, wait_for_all
from tests.support.effort import long_but_first
from tests.support.workers import Workers, wait_until

#: Seconds for which the broker is away.
AWAY = 20

Harm = Callable[[BrokerServer], None]


def empty(broker: BrokerServer) -> None:
    with redis.Redis.from_url(broker.url) as client:
        client.flushall()


def restart(broker: BrokerServer) -> None:
    broker.kill()
    broker.start()


@pytest.mark.slow
@pytest.mark.parametrize("harm", long_but_first(empty, restart))
def test_broker_data_loss_loses_no_run(
    own_broker: BrokerServer, rival: Rival, workers: Workers, ledger: Ledger, harm: Harm
) -> None:
    mixed_fleet(workers, ledger.workflow())
    run_ids = start_many(rival, 60, seconds=0.05)
    with Producer(rival, seconds=0.02) as producer:
        wait_until(lambda: len(ledger.lines()) > 30)
        harm(own_broker)
        time.sleep(0.5)
        harm(own_broker)
        time.sleep(0.5)
    wait_for_all(rival, run_ids + producer.run_ids)
    assert_chain_is_right(rival, run_ids + producer.run_ids, ledger)


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("frozen", [False, True], ids=["down", "frozen"])
def test_runs_are_started_and_go_on_after_the_broker_was_away_for_20_seconds(
    own_broker: BrokerServer, rival: Rival, workers: Workers, ledger: Ledger, frozen: bool
) -> None:
    mixed_fleet(workers, ledger.workflow(), {"pool": "threads"}, {"pool": "prefork"})
    run_ids = start_many(rival, 60, seconds=0.05)
    with Producer(rival, seconds=0.02, every=0.3) as producer:
        wait_until(lambda: len(ledger.lines()) > 30)
        own_broker.freeze() if frozen else own_broker.kill()
        time.sleep(AWAY)
        taken = len(producer.run_ids)
        own_broker.thaw() if frozen else own_broker.start()
    assert producer.refused == 0
    assert taken > 10, "runs are taken while the broker is away"
    assert producer.slowest < AWAY, "`run` does not wait for the broker"
    wait_for_all(rival, run_ids + producer.run_ids)
    assert_chain_is_right(rival, run_ids + producer.run_ids, ledger)
    assert all(worker.process.poll() is None for worker in workers.all), "no worker has left"
