"""Limits, rates and rules of the fleet on real workers that are killed: never exceeded, nothing left over, and a rule
is effective everywhere within a second."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from sqlalchemy import select, text, union

from rival_client import Rival
from rival_client.db.run_tables import attempts, steps
from rival_client.errors import RivalError
from tests.support.chaos import Ledger, assert_nothing_is_stuck, wait_for_all
from tests.support.effort import long_but_first
from tests.support.limits import assert_gates_are_consistent
from tests.support.workers import Workers, wait_until

LIMITED = """
from rival_workers import limit, rate
name = "limited"
steps = [step(work, name="first", concurrency_limit=limit("five", 5)),
         step(work, name="second", concurrency_limit=limit("each", 2, key="input.key")),
         step(work, name="third", concurrency_limit=limit("five", 5))]
"""
REPEATED = """
from rival_workers import flow, limit

@flow("again", register=False)
def again(ctx, input):
    ctx.step(time.sleep, 0.05)
    if input["left"]:
        ctx.continue_as({**input, "left": input["left"] - 1})
    return "done"

name = "repeated"
three = limit("three", 3)
steps = [step(work, name="first", concurrency_limit=three), step(again, concurrency_limit=three)]
"""
PACED = """
from rival_workers import rate
name = "paced"
steps = [step(work, name="only", rate_limit=rate(20, per=1))]
"""
RULED = """
name = "ruled"
steps = [step(work, name="only")]
"""


def start(rival: Rival, workflow: str, count: int, **its_input: Any) -> list[str]:
    inputs = [{**its_input, "key": f"k{n % 3}"} for n in range(count)]
    return [one.run_id for one in rival.run_many(workflow, inputs)]


def intervals(rival: Rival, path: str) -> list[tuple[float, float]]:
    """When each attempt of the step has used its slot, by the clock of the database."""
    earlier = select(attempts.c.started_at, attempts.c.ended_at).where(attempts.c.path == path)
    last = select(steps.c.started_at, steps.c.completed_at).where(
        steps.c.path == path, steps.c.completed_at.is_not(None)
    )
    with rival.database.autocommit() as connection:
        found = connection.execute(union(earlier, last)).all()
    return [(begin.timestamp(), end.timestamp()) for begin, end in found]


def most_at_once(found: Sequence[tuple[float, float]]) -> int:
    moments = sorted([(end, -1) for _, end in found] + [(begin, 1) for begin, _ in found])
    most = now = 0
    for _, change in moments:
        now += change
        most = max(most, now)
    return most


@pytest.mark.slow
def test_workers_that_are_killed_again_and_again_never_exceed_a_limit_and_leave_no_slot(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    file = ledger.workflow(LIMITED)
    fleet = workers.start(file, 3, concurrency=4, lease=2)
    run_ids = start(rival, "limited", 60, seconds=0.05)
    for number in range(3):
        time.sleep(1.5)
        fleet[number].kill()
        fleet += workers.start(file, 1, concurrency=4, lease=2)
    wait_for_all(rival, run_ids)
    both = intervals(rival, "first") + intervals(rival, "third")
    assert most_at_once(both) <= 5
    assert_gates_are_consistent(rival.database, at_rest=True)
    with rival.database.autocommit() as connection:
        assert connection.scalar(text("SELECT sum(used) FROM rival_gates")) == 0
        assert connection.scalar(text("SELECT count(*) FROM rival_tickets")) == 0
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
def test_flows_that_start_over_operators_and_killed_workers_never_exceed_a_limit(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    """Takeovers, rewinds, pauses, retries and continue_as at the same time: at the end no slot is in use."""
    file = ledger.workflow(REPEATED)
    fleet = workers.start(file, 2, concurrency=4, lease=2)
    run_ids = start(rival, "repeated", 24, seconds=0.05, left=2)
    chance = random.Random(1717)
    for number in range(60):
        run_id = chance.choice(run_ids)
        # Suppressed: it is not in a status in which this is possible.
        with suppress(RivalError):
            match chance.choice(["pause", "rewind", "cancel"]):
                case "pause":
                    rival.pause(run_id)
                    rival.resume(run_id)
                case "rewind":
                    rival.rewind(run_id, chance.choice(["first", "again"]))
                case "cancel":
                    rival.cancel(run_id)
                    rival.retry(run_id)
        assert_gates_are_consistent(rival.database)
        if number in (20, 40):
            fleet[number // 20 - 1].kill()
            fleet += workers.start(file, 1, concurrency=4, lease=2)
    wait_for_all(rival, run_ids)
    assert most_at_once(intervals(rival, "first") + intervals(rival, "again")) <= 3
    assert_gates_are_consistent(rival.database, at_rest=True)
    with rival.database.autocommit() as connection:
        assert connection.scalar(text("SELECT sum(used) FROM rival_gates")) == 0
        assert connection.scalar(text("SELECT count(*) FROM rival_tickets")) == 0
    assert_nothing_is_stuck(rival)


@pytest.mark.slow
@pytest.mark.parametrize("point", long_but_first("after_claim_commit", "after_finish_commit"))
def test_a_worker_killed_between_a_commit_and_its_messages_holds_up_nothing(
    rival: Rival, workers: Workers, ledger: Ledger, point: str
) -> None:
    file = ledger.workflow(LIMITED)
    [doomed] = workers.start(file, concurrency=3, lease=2, failpoint=point)
    run_ids = start(rival, "limited", 12, seconds=0.01)
    wait_until(lambda: doomed.process.poll() is not None, 40, "the worker's end")
    workers.start(file, 1, concurrency=4, lease=2)
    wait_for_all(rival, run_ids)
    assert_gates_are_consistent(rival.database, at_rest=True)


@pytest.mark.long
@pytest.mark.slow
def test_no_second_of_a_rate_has_more_starts_while_a_worker_is_killed(
    rival: Rival, workers: Workers, ledger: Ledger
) -> None:
    fleet = workers.start(ledger.workflow(PACED), 3, concurrency=2, lease=2)
    run_ids = start(rival, "paced", 100)
    time.sleep(2.0)
    fleet[0].kill()
    wait_for_all(rival, run_ids)
    starts = sorted(begin for begin, _ in intervals(rival, "only"))
    assert max(sum(at <= other < at + 1.0 for other in starts) for at in starts) <= 20


@pytest.mark.slow
@pytest.mark.parametrize("pool", ["threads", "prefork"])
def test_a_rule_of_the_fleet_is_effective_in_every_process_within_a_second(
    rival: Rival, workers: Workers, ledger: Ledger, pool: str
) -> None:
    workers.start(ledger.workflow(RULED), 2, pool=pool, concurrency=2)
    wait_for_all(rival, start(rival, "ruled", 10))
    rival.set_policy("only", {"timeout": 77}, workflow="ruled")
    with rival.database.autocommit() as connection:
        since = connection.scalar(text("SELECT clock_timestamp()"))
    # More than a second of work for all processes.
    run_ids = start(rival, "ruled", 60, seconds=0.15)
    wait_for_all(rival, run_ids)
    with rival.database.autocommit() as connection:
        found = connection.execute(select(steps.c.started_at, steps.c.policy).where(steps.c.run_id.in_(run_ids))).all()
    later = [row for row in found if (row.started_at - since).total_seconds() > 1.0]
    assert later
    assert all(row.policy for row in later), [row for row in later if not row.policy]
