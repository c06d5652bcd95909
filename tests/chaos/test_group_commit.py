"""Workers that carry many runs at once are killed, lose their database, and meet operators in the middle of a group."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import text

from rival_client import Rival
from rival_client.settings import Settings
from rival_workers.dev.postgres_server import PostgresServer
from tests.support.chaos import Ledger, assert_nothing_is_stuck, start_many, wait_for_all
from tests.support.effort import long_but_first
from tests.support.workers import Workers, wait_until

LEASE = 2.0
#: Quick steps, so that a process commits the outcomes of all its runs together.
QUICK = """
name = "quick"
steps = [step(work, name=f"s{number}") for number in range(5)]
"""


def assert_all_are_right(rival: Rival, run_ids: list[str], ledger: Ledger) -> None:
    """Every step saw the committed result of the one before it, and was executed again only if it was lost."""
    for run_id in run_ids:
        result = rival.result(run_id)
        assert (result.status, result.result["count"]) == ("completed", 5)
        assert len({line.step for line in ledger.lines(run_id)}) == 5
    accepted = {state["nonce"] for run_id in run_ids for state in rival.result(run_id).results.values()}
    assert {line.saw for run_id in run_ids for line in ledger.lines(run_id)} <= {*accepted, "-"}
    assert_nothing_is_stuck(rival)


@pytest.fixture
def settings(database_url: str, broker_url: str, queue: str, request: pytest.FixtureRequest) -> Settings:
    """The grace period is so long that nothing can wait for it."""
    url = request.getfixturevalue("own_postgres").url if "own_postgres" in request.fixturenames else database_url
    return Settings(database_url=url, broker_url=broker_url, queue=queue, ring_grace=120.0)


@pytest.fixture
def patient(workers: Workers) -> Workers:
    workers.env["RIVAL_RING_GRACE"] = "120"
    return workers


@pytest.mark.slow
@pytest.mark.parametrize("round_", long_but_first(*range(3)))
def test_a_worker_killed_under_load_is_drained_within_its_lease_and_five_seconds(
    rival: Rival, patient: Workers, ledger: Ledger, round_: int
) -> None:
    """Also the messages that it had taken and not begun."""
    first, _ = patient.start(ledger.workflow(QUICK), 2, pool="threads", concurrency=8)
    with rival.database.transaction() as connection:
        connection.exec_driver_sql("UPDATE rival_executors SET host = 'elsewhere'")
    run_ids = start_many(rival, 400, "quick")
    wait_until(lambda: len(ledger.lines()) > 150 + 100 * round_, 30)
    first.kill()
    killed = time.monotonic()

    def left() -> int:
        with rival.database.autocommit() as connection:
            open_ = "SELECT count(*) FROM rival_runs WHERE completed_at IS NULL"
            return int(connection.scalar(text(open_)) or 0)

    # What the dead worker had in hand is all that is left once the queue is empty.
    wait_until(lambda: left() <= 16, 40, "a drained queue")
    drained = max(time.monotonic() - killed, 0)
    took = f"runs of a dead worker; the queue took {drained:.1f} s"
    wait_until(lambda: left() == 0, LEASE + 5, lambda: f"{left()} {took}")
    assert_all_are_right(rival, run_ids, ledger)


@pytest.mark.long
@pytest.mark.slow
def test_a_database_that_restarts_under_load_loses_nothing(
    own_postgres: PostgresServer, rival: Rival, patient: Workers, ledger: Ledger
) -> None:
    """Also the messages that were taken meanwhile, which could not be begun."""
    patient.start(ledger.workflow(QUICK), 2, pool="threads", concurrency=8)
    run_ids = start_many(rival, 300, "quick")
    wait_until(lambda: len(ledger.lines()) > 200, 30)
    own_postgres.stop()
    own_postgres.start()
    wait_for_all(rival, run_ids)
    assert_all_are_right(rival, run_ids, ledger)


@pytest.mark.slow
def test_runs_that_are_cancelled_and_paused_in_the_middle_of_groups_do_not_disturb_the_others(
    rival: Rival, patient: Workers, ledger: Ledger
) -> None:
    patient.start(ledger.workflow(QUICK), 2, pool="threads", concurrency=8)
    run_ids = start_many(rival, 300, "quick", seconds=0.0005)
    cancelled, paused = [], []
    for number, run_id in enumerate(run_ids):
        if number % 10 == 3 and rival.cancel(run_id):
            cancelled.append(run_id)
        if number % 10 == 7 and rival.pause(run_id):
            paused.append(run_id)
    for run_id in paused:
        rival.resume(run_id)
    wait_for_all(rival, run_ids)
    assert {rival.result(run_id).status for run_id in cancelled} <= {"cancelled"}
    assert_all_are_right(rival, [run_id for run_id in run_ids if run_id not in cancelled], ledger)
