"""Rules of the fleet, queues, priorities and inline steps on workers that are killed or lose their database."""

from __future__ import annotations

import time
from typing import Any

import pytest
from sqlalchemy import select, text

from rival_client import Rival
from rival_client.db.run_tables import steps
from rival_client.model.policies.matchers import labelled
from rival_workers.dev.postgres_server import PostgresServer
from tests.support.chaos import Ledger, assert_nothing_is_stuck, wait_for_all
from tests.support.workers import Workers, wait_until

RULED = 'name = "ruled"\nsteps = [step(work, name="only")]'
ROUTED = """
name = "routed"
steps = [step(work, name="first"), step(work, name="render", queue="gpu", priority="low"),
         step(work, name="check", execution_mode="inline"), step(work, name="last", delay=0.1)]
"""
QUICK = """
name = "quick"
steps = [step(work, name="first"), *(step(work, name=f"i{n}", execution_mode="inline") for n in range(8)),
         step(work, name="last")]
"""
#: Seconds after which every process follows a rule.
SEEN = 1.0


def moment(rival: Rival) -> Any:
    with rival.database.autocommit() as connection:
        return connection.scalar(text("SELECT clock_timestamp()"))


def timeouts(rival: Rival, run_ids: list[str], since: Any) -> list[float | None]:
    """What rules have given to the steps that began after a rule was set, and had been seen by all."""
    found = select(steps.c.started_at, steps.c.policy).where(steps.c.run_id.in_(run_ids))
    with rival.database.autocommit() as connection:
        rows = [row for row in connection.execute(found) if (row.started_at - since).total_seconds() > SEEN]
    return [row.policy and row.policy["fields"]["timeout"]["value"] for row in rows]


@pytest.mark.slow
def test_workers_that_lose_their_database_keep_the_rules_and_then_follow_new_ones(
    own_postgres: PostgresServer, rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    workers.start(ledger.workflow(RULED), 2, pool="prefork", concurrency=2)
    rival.set_policy("only", {"timeout": 77}, workflow="ruled")
    since = moment(rival)
    before = [one.run_id for one in rival.run_many("ruled", [{"seconds": 0.1}] * 80)]
    wait_until(lambda: len(ledger.lines()) > 60, 60, "attempts of all processes")
    own_postgres.kill()
    time.sleep(0.5)
    own_postgres.start()
    wait_for_all(rival, before)
    assert set(timeouts(rival, before, since)) == {77}, "no attempt has forgotten the rule"
    rival.set_policy("only", {"timeout": 88}, workflow="ruled")
    since = moment(rival)
    after = [one.run_id for one in rival.run_many("ruled", [{"seconds": 0.1}] * 80)]
    wait_for_all(rival, after)
    assert set(timeouts(rival, after, since)) == {88}


@pytest.mark.slow
def test_steps_stay_on_their_queue_and_follow_rules_for_labels_while_workers_are_killed(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    file = ledger.workflow(ROUTED)
    common = workers.start(file, 2, concurrency=3, lease=2)
    gpu = workers.start(file, 2, concurrency=3, lease=2, queues="gpu")
    rival.set_policy(labelled(tenant="acme"), {"timeout": 44})
    since = moment(rival)
    inputs = [{"seconds": 0.05}] * 25
    acme = [one.run_id for one in rival.run_many("routed", inputs, labels={"tenant": "acme"})]
    others = [one.run_id for one in rival.run_many("routed", inputs, labels={"tenant": "x"}, priority="high")]
    wait_until(lambda: len(ledger.lines(step="render")) > 5, 60, "the first steps on both queues")
    common[0].kill()
    gpu[0].kill()
    wait_for_all(rival, acme + others)
    pids = {one.pid for one in gpu}
    assert {(line.step == "render", line.pid in pids) for line in ledger.lines()} == {(True, True), (False, False)}
    assert set(timeouts(rival, acme, since)) == {44}
    assert set(timeouts(rival, others, since)) == {None}
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
def test_inline_steps_that_are_committed_together_run_again_together_after_a_kill(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    file = ledger.workflow(QUICK)
    fleet = workers.start(file, 2, concurrency=3, lease=2)
    run_ids = [one.run_id for one in rival.run_many("quick", [{"seconds": 0.004}] * 150)]
    for number in (0, 1):
        seen = len(ledger.lines())
        wait_until(lambda seen=seen: len(ledger.lines()) > seen + 300, 60, "steps of both workers")
        fleet[number].kill()
        workers.start(file, concurrency=3, lease=2)
    wait_for_all(rival, run_ids)
    lines = {line.nonce: line for line in ledger.lines()}
    for run_id in run_ids:
        rows = rival.state(run_id).steps
        assert [row.attempts for row in rows] == [1] * 10
        nonces = [row.result["nonce"] for row in rows]
        assert [lines[one].saw for one in nonces] == ["-", *nonces[:-1]], "each has seen what was stored"
    assert len(lines) > 10 * len(run_ids), "no worker was killed in the middle"
    assert_nothing_is_stuck(rival)
