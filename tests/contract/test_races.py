"""Two operations at once on Postgres, each interleaving forced by a lock that the test holds."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from rival_client import Rival, RunConflict, Started
from rival_client.db.database_urls import libpq_url
from rival_client.db.locks import SHARED_RUN_LOCK_SQL
from rival_client.model.statuses import STEP_TERMINAL
from rival_client.settings import Settings
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance, EndRun, FailRun
from rival_workers.engine.interpreter import first
from rival_workers.engine.nodes import ParallelNode, StepNode
from rival_workers.engine.plan import Plan
from rival_workers.store.claim_records import BudgetSpent, Claim, Claimed, NotYet
from rival_workers.store.sweep_records import SweepOptions
from tests.contract.stage import COMPLETES, DONE, FAILED, FAILS, GOES_ON, PLAN, SOON, TIMED, Stage
from tests.support.inline import CollectingDoorbell

pytestmark = pytest.mark.usefixtures("locks_in_order")

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND state = 'active' AND query LIKE %(query)s
"""


class Crossing:
    """Operations that wait, in order, for rows that another transaction has locked; then that lock is released."""

    def __init__(self, url: str) -> None:
        self._threads = ThreadPoolExecutor(8)
        self._holder = psycopg.connect(libpq_url(url))
        self._watcher = psycopg.connect(libpq_url(url), autocommit=True)

    def hold(self, statement: str) -> None:
        self._holder.execute(statement)

    def arrive(self, operation: Callable[[], Any]) -> Future[Any]:
        """Start it and wait until it hangs on a lock: the next to arrive is behind it."""
        before = self._waiting()
        future = self._threads.submit(operation)
        until = time.monotonic() + 10
        while self._waiting() == before and not future.done():
            assert time.monotonic() < until, "it neither waits nor ends"
            threading.Event().wait(0.005)
        return future

    def until_one_waits_for(self, query: str) -> None:
        until = time.monotonic() + 10
        while self._waiting(query) == 0:
            assert time.monotonic() < until, f"nobody waits for {query}"
            threading.Event().wait(0.005)

    def clear(self) -> None:
        self._holder.rollback()

    def commit(self) -> None:
        self._holder.commit()

    def _waiting(self, query: str = "%") -> int:
        row = self._watcher.execute(WAITING, {"query": query}).fetchone()
        assert row is not None
        return int(row[0])

    def close(self) -> None:
        self._holder.close()
        self._threads.shutdown()
        self._watcher.close()


_A, _B = StepNode(name="a"), StepNode(name="b")
#: Two steps at once.
LANES = Plan(nodes=(ParallelNode(type="parallel", name="both", branches=((_A,), (_B,))),))


@pytest.fixture
def crossing(pg_stage: Stage) -> Iterator[Crossing]:
    crossing = Crossing(pg_stage.database.url)
    yield crossing
    crossing.close()


HOLD_STEP = "SELECT 1 FROM rival_steps WHERE run_id = 'r' FOR UPDATE"
HOLD_RUN = "SELECT 1 FROM rival_runs WHERE id = 'r' FOR UPDATE"


def cross(crossing: Crossing, lock: str, *operations: Callable[[], Any]) -> list[Any]:
    """All of them at the held row, in this order; what each of them said."""
    crossing.hold(lock)
    futures = [crossing.arrive(operation) for operation in operations]
    crossing.clear()
    return [future.result(timeout=10) for future in futures]


def rival_on(stage: Stage) -> Rival:
    return Rival(settings=Settings(database_url=stage.database.url), doorbell=CollectingDoorbell())


def cancel(stage: Stage) -> Callable[[], bool]:
    """As a producer does it, with its tries."""
    return lambda: rival_on(stage).cancel("r")


def assert_consistent(stage: Stage) -> None:
    """An ended run has no open step, and an open run has exactly one."""
    rows = [
        dict(zip(("run", "path", "kind", "status"), row, strict=False)) for row in stage.everything()["rival_steps"]
    ]
    still_open = [row for row in rows if row["status"] not in STEP_TERMINAL]
    assert len(still_open) == (1 if stage.run()["status"] == "running" else 0), rows


def test_of_two_claims_of_one_token_one_wins(pg_stage: Stage, crossing: Crossing) -> None:
    pg_stage.begin(executor=None)
    claim = Claim("r", "a", 0)
    found = cross(
        crossing,
        HOLD_STEP,
        lambda: pg_stage.store.claim_step(claim, None, "e1"),
        lambda: pg_stage.store.claim_step(claim, None, "e2"),
    )
    assert sorted(isinstance(claim, Claimed) for claim in found) == [False, True]
    assert pg_stage.step()["attempts"] == 1


def test_of_many_claims_at_once_one_wins(pg_stage: Stage) -> None:
    pg_stage.begin(executor=None)
    gate = threading.Barrier(8)

    def claim(number: int) -> bool:
        gate.wait()
        return isinstance(pg_stage.store.claim_step(Claim("r", "a", 0), None, f"e{number}"), Claimed)

    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(claim, range(8))) == 1
    assert (pg_stage.step()["attempts"], pg_stage.step()["execution_token"]) == (1, 1)


def test_of_two_begins_of_one_run_one_wins(pg_stage: Stage, crossing: Crossing) -> None:
    pg_stage.add_run()
    found = cross(
        crossing,
        HOLD_RUN,
        lambda: pg_stage.store.begin_run("r", 0, first(PLAN), claim_for="e1"),
        lambda: pg_stage.store.begin_run("r", 0, first(PLAN), claim_for="e2"),
    )
    assert [claim is not None for claim in found] == [True, False]
    assert pg_stage.step()["executor_id"] == "e1"


@pytest.mark.parametrize("following", ["claimed", "opened", "none"])
@pytest.mark.parametrize("first_comes", ["finish", "cancel"])
def test_finish_and_cancel_in_either_order_leave_one_truth(
    pg_stage: Stage, crossing: Crossing, first_comes: str, following: str
) -> None:
    claim = pg_stage.begin()
    advance = COMPLETES if following == "none" else GOES_ON
    claim_for = "e1" if following == "claimed" else None

    def finish() -> bool:
        return pg_stage.store.finish_step(claim, DONE, advance, claim_for=claim_for) is not None

    operations = [finish, cancel(pg_stage)] if first_comes == "finish" else [cancel(pg_stage), finish]
    found = cross(crossing, HOLD_STEP, *operations)
    if first_comes == "cancel":
        assert found == [True, False]
        assert pg_stage.step()["status"] == "cancelled"
        assert not pg_stage.has_step("b")
    elif following == "none":
        assert found == [True, False]
        assert (pg_stage.run()["status"], pg_stage.run()["result"]) == ("completed", {"n": 1})
    else:
        assert found == [True, True]
        assert (pg_stage.step("a")["status"], pg_stage.step("b")["status"]) == ("completed", "cancelled")
    assert_consistent(pg_stage)


@pytest.mark.parametrize("first_comes", ["fail", "cancel"])
def test_failing_and_cancel_in_either_order_leave_one_truth(
    pg_stage: Stage, crossing: Crossing, first_comes: str
) -> None:
    claim = pg_stage.begin()

    def fail() -> bool:
        return pg_stage.store.finish_step(claim, FAILED, FAILS, claim_for=None) is not None

    operations = [fail, cancel(pg_stage)] if first_comes == "fail" else [cancel(pg_stage), fail]
    assert cross(crossing, HOLD_STEP, *operations) == [True, False]
    assert pg_stage.run()["status"] == ("failed" if first_comes == "fail" else "cancelled")
    assert_consistent(pg_stage)


@pytest.mark.parametrize("first_comes", ["claim", "cancel"])
def test_claim_and_cancel_in_either_order_end_cancelled(pg_stage: Stage, crossing: Crossing, first_comes: str) -> None:
    pg_stage.begin(executor=None)

    def claim() -> bool:
        return isinstance(pg_stage.store.claim_step(Claim("r", "a", 0), None, "e1"), Claimed)

    operations = [claim, cancel(pg_stage)] if first_comes == "claim" else [cancel(pg_stage), claim]
    assert cross(crossing, HOLD_STEP, *operations) == [True, first_comes == "claim"]
    assert (pg_stage.run()["status"], pg_stage.step()["status"]) == ("cancelled", "cancelled")
    assert not pg_stage.store.finish_step(Claim("r", "a", 1), DONE, COMPLETES, claim_for=None)
    assert_consistent(pg_stage)


@pytest.mark.parametrize("claim_for", ["e1", None])
@pytest.mark.parametrize("first_comes", ["begin", "cancel"])
def test_begin_and_cancel_in_either_order_end_cancelled(
    pg_stage: Stage, crossing: Crossing, first_comes: str, claim_for: str | None
) -> None:
    pg_stage.add_run()

    def begin() -> bool:
        return pg_stage.store.begin_run("r", 0, first(PLAN), claim_for=claim_for) is not None

    operations = [begin, cancel(pg_stage)] if first_comes == "begin" else [cancel(pg_stage), begin]
    assert cross(crossing, HOLD_RUN, *operations) == [True, first_comes == "begin"]
    assert pg_stage.run()["status"] == "cancelled"
    assert pg_stage.has_step("a") == (first_comes == "begin")
    assert_consistent(pg_stage)


@pytest.mark.parametrize("first_comes", ["retry", "cancel"])
def test_retry_and_cancel_in_either_order_end_cancelled(pg_stage: Stage, crossing: Crossing, first_comes: str) -> None:
    claim = pg_stage.begin()

    def retry() -> bool:
        return pg_stage.store.retry_step(claim, SOON, published=True) is not None

    operations = [retry, cancel(pg_stage)] if first_comes == "retry" else [cancel(pg_stage), retry]
    assert cross(crossing, HOLD_STEP, *operations) == [True, first_comes == "retry"]
    assert (pg_stage.run()["status"], pg_stage.step()["status"]) == ("cancelled", "cancelled")
    assert not isinstance(pg_stage.store.claim_step(Claim("r", "a", 2), None, "e2"), Claimed)
    assert_consistent(pg_stage)


@pytest.mark.parametrize("first_comes", ["finish", "time_out"])
def test_of_finish_and_timeout_one_wins(pg_stage: Stage, crossing: Crossing, first_comes: str) -> None:
    claim = pg_stage.begin(what=TIMED)

    def finish() -> bool:
        return pg_stage.store.finish_step(claim, DONE, COMPLETES, claim_for=None) is not None

    def time_out() -> bool:
        late = Claim("r", "a", 1, "timeout_token")
        return pg_stage.store.finish_step(late, FAILED, FAILS, claim_for=None) is not None

    operations = [finish, time_out] if first_comes == "finish" else [time_out, finish]
    assert cross(crossing, HOLD_STEP, *operations) == [True, False]
    assert pg_stage.run()["status"] == ("completed" if first_comes == "finish" else "failed")
    assert_consistent(pg_stage)


@pytest.mark.parametrize("first_comes", ["finish", "take_over"])
def test_of_finish_and_takeover_one_wins(pg_stage: Stage, crossing: Crossing, first_comes: str) -> None:
    claim = pg_stage.begin()

    def finish() -> bool:
        return pg_stage.store.finish_step(claim, DONE, COMPLETES, claim_for=None) is not None

    def take_over() -> bool:
        return pg_stage.store.take_over_step(claim) is not None

    operations = [finish, take_over] if first_comes == "finish" else [take_over, finish]
    assert cross(crossing, HOLD_STEP, *operations) == [True, False]
    assert pg_stage.step()["status"] == ("completed" if first_comes == "finish" else "pending")
    assert_consistent(pg_stage)


def test_two_takeovers_of_one_attempt_count_it_lost_once(pg_stage: Stage, crossing: Crossing) -> None:
    claim = pg_stage.begin()
    twice = [lambda: pg_stage.store.take_over_step(claim)] * 2
    assert cross(crossing, HOLD_STEP, *twice) == [2, None]
    assert (pg_stage.step()["lost"], pg_stage.count("rival_attempts")) == (1, 1)


def test_two_keepers_share_what_is_due_and_neither_waits_for_the_other(pg_stage: Stage, crossing: Crossing) -> None:
    look = SweepOptions(limit=100, backoff=10.0, backoff_max=600.0)
    for number in range(4):
        pg_stage.add_run(f"r{number}", grace=0)
    crossing.hold("SELECT 1 FROM rival_runs WHERE id IN ('r0', 'r1') FOR UPDATE")
    found = crossing.arrive(lambda: pg_stage.store.due(look)).result(timeout=5)
    assert {due.run_id for due in found} == {"r2", "r3"}
    crossing.clear()
    assert {due.run_id for due in pg_stage.store.due(look)} == {"r0", "r1"}


FINISHES_A = """
UPDATE rival_steps SET status = 'completed', completed_at = now(), execution_token = 2 WHERE run_id = 'r'
"""
OPENS_B = """
INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id, created_at)
VALUES ('r', 'b', 'step', 'running', 1, 1, 1, 'e1', now())
"""


SHARE_RUN = SHARED_RUN_LOCK_SQL.replace("%(run_id)s", "'r'")


def test_cancel_sees_the_step_that_a_transition_opens_while_the_cancel_waits(
    pg_stage: Stage, crossing: Crossing
) -> None:
    """The transition has the shared lock of the run, so the cancel waits before it looks at any row."""
    pg_stage.begin()
    for statement in (f"SELECT {SHARE_RUN}", FINISHES_A, OPENS_B):
        crossing.hold(statement)
    cancelling = crossing.arrive(cancel(pg_stage))
    crossing.until_one_waits_for("%pg_advisory_xact_lock(%")
    crossing.hold(HOLD_RUN)
    crossing.commit()
    assert cancelling.result(timeout=10) is True
    assert (pg_stage.step("a")["status"], pg_stage.step("b")["status"]) == ("completed", "cancelled")
    assert_consistent(pg_stage)


def test_a_transition_that_comes_while_a_cancel_has_the_run_changes_nothing(
    pg_stage: Stage, crossing: Crossing
) -> None:
    claim = pg_stage.begin()
    crossing.hold(HOLD_STEP)
    cancelling = crossing.arrive(cancel(pg_stage))
    finishing = crossing.arrive(lambda: pg_stage.store.finish_step(claim, DONE, GOES_ON, claim_for="e1"))
    crossing.until_one_waits_for("%pg_advisory_xact_lock_shared%")
    crossing.clear()
    assert (cancelling.result(timeout=10), finishing.result(timeout=10)) == (True, None)
    assert_consistent(pg_stage)


# -- two producers ----------------------------------------------------------------------------------------


def start(stage: Stage, its_input: Any) -> Callable[[], Any]:
    def run() -> Any:
        try:
            return rival_on(stage).run("w", its_input, run_id="same")
        except RunConflict as error:
            return error

    return run


HOLD_ID = """
INSERT INTO rival_runs (id, workflow, version, status, created_at) VALUES ('same', 'w', 'v', 'pending', now())
"""


def test_of_two_producers_with_the_same_run_id_and_input_one_starts_and_one_finds_it_running(
    pg_stage: Stage, crossing: Crossing
) -> None:
    found = cross(crossing, HOLD_ID, start(pg_stage, {"x": 1}), start(pg_stage, {"x": 1}))
    assert sorted(found, key=lambda started: started.status) == [Started("same", "running"), Started("same", "started")]
    assert pg_stage.count("rival_runs") == 1


def test_of_two_producers_with_the_same_run_id_and_another_input_one_starts_and_one_is_refused(
    pg_stage: Stage, crossing: Crossing
) -> None:
    found = cross(crossing, HOLD_ID, start(pg_stage, {"x": 1}), start(pg_stage, {"x": 2}))
    assert sorted(type(one).__name__ for one in found) == ["RunConflict", "Started"]
    assert pg_stage.count("rival_runs") == 1


def test_many_producers_many_finishes_and_cancels_at_once_do_not_deadlock(pg_stage: Stage) -> None:
    """A short storm over few rows; a deadlock would surface as DatabaseUnavailable in one of the threads."""
    runs = [f"r{number}" for number in range(6)]
    for run_id in runs:
        pg_stage.begin(run_id)
    rival = rival_on(pg_stage)

    def move(run_id: str) -> None:
        claim = Claim(run_id, "a", 1)
        pg_stage.store.retry_step(claim, SOON, published=True)
        claimed = pg_stage.store.claim_step(Claim(run_id, "a", 2), None, "e1")
        if isinstance(claimed, Claimed) and pg_stage.store.finish_step(
            Claim(run_id, "a", claimed.token), DONE, GOES_ON, claim_for="e1"
        ):
            pg_stage.store.finish_step(Claim(run_id, "b", 1), DONE, COMPLETES, claim_for=None)

    with ThreadPoolExecutor(12) as threads:
        moves = [threads.submit(move, run_id) for run_id in runs]
        cancels = [threads.submit(rival.cancel, run_id) for run_id in runs for _ in range(2)]
        for future in moves + cancels:
            future.result(timeout=20)
    for run_id in runs:
        assert pg_stage.run(run_id)["status"] in ("completed", "cancelled")


# -- deadlines ------------------------------------------------------------------------------------------------

EXPIRES = Advance((FailRun(), EndRun("failed")))


def begun_and_over(stage: Stage) -> None:
    stage.begin("r")
    stage.force("UPDATE rival_runs SET deadline_at = now() - interval '1 s', ring_at = now() WHERE id = 'r'")


def test_a_finish_before_the_deadline_of_its_run_is_applied_wins(pg_stage: Stage, crossing: Crossing) -> None:
    begun_and_over(pg_stage)
    finished, expired = cross(
        crossing,
        HOLD_STEP,
        lambda: pg_stage.store.finish_step(Claim("r", "a", 1), DONE, COMPLETES, claim_for=None),
        lambda: pg_stage.store.expire_run("r", EXPIRES),
    )
    assert finished is not None
    assert (expired, pg_stage.run("r")["status"]) == (None, "completed")


def test_a_finish_after_the_deadline_of_its_run_was_applied_is_stale(pg_stage: Stage, crossing: Crossing) -> None:
    begun_and_over(pg_stage)
    expired, finished = cross(
        crossing,
        HOLD_STEP,
        lambda: pg_stage.store.expire_run("r", EXPIRES),
        lambda: pg_stage.store.finish_step(Claim("r", "a", 1), DONE, COMPLETES, claim_for=None),
    )
    assert (expired.ended_as, finished) == ("failed", None)
    assert pg_stage.run("r")["status"] == "failed"
    assert_consistent(pg_stage)


def test_two_that_apply_one_deadline_apply_it_once(pg_stage: Stage, crossing: Crossing) -> None:
    begun_and_over(pg_stage)
    expire = lambda: pg_stage.store.expire_run("r", EXPIRES)  # noqa: E731
    first_one, second = cross(crossing, HOLD_STEP, expire, expire)
    assert (first_one.ended_as, second) == ("failed", None)
    assert_consistent(pg_stage)


# -- starts that share a run -----------------------------------------------------------------------------------


def due_debounced(stage: Stage) -> tuple[str, Callable[[], Any], Callable[[], Any]]:
    """A debounced run that is due: its id, its begin, and another start."""
    rival = rival_on(stage)
    run_id = rival.run("w", 1, debounce=5, key="k", collect=True).run_id
    stage.force("UPDATE rival_runs SET due_at = now()")
    begin = lambda: stage.store.begin_run(run_id, 0, first(PLAN), claim_for="e1")  # noqa: E731
    return run_id, begin, lambda: rival.run("w", 2, debounce=5, key="k", collect=True)


HOLD_RUNS = "SELECT 1 FROM rival_runs FOR UPDATE"


def test_a_start_before_its_debounced_run_begins_is_in_that_run(pg_stage: Stage, crossing: Crossing) -> None:
    run_id, begin, start = due_debounced(pg_stage)
    started, begun = cross(crossing, HOLD_RUNS, start, begin)
    assert (started.run_id, started.status) == (run_id, "gathered")
    assert isinstance(begun, NotYet), "the start has postponed it"
    assert pg_stage.run(run_id)["input"] == [1, 2]


def test_a_start_after_its_debounced_run_has_begun_is_another_run(pg_stage: Stage, crossing: Crossing) -> None:
    run_id, begin, start = due_debounced(pg_stage)
    begun, started = cross(crossing, HOLD_RUNS, begin, start)
    assert begun is not None
    assert (started.run_id != run_id, started.status) == (True, "started")
    assert [pg_stage.run(one)["input"] for one in (run_id, started.run_id)] == [[1], [2]]


# -- deadlines and budgets --------------------------------------------------------------------------------


@pytest.mark.parametrize("faster", ["finish", "deadline"])
def test_of_a_finish_and_the_deadline_of_the_run_the_first_one_counts(
    pg_stage: Stage, crossing: Crossing, faster: str
) -> None:
    claim = pg_stage.begin()
    pg_stage.force("UPDATE rival_runs SET deadline_at = now() - interval '1 s', ring_at = now() WHERE id = 'r'")
    operations = {
        "finish": lambda: pg_stage.store.finish_step(claim, DONE, COMPLETES, claim_for=None),
        "deadline": lambda: pg_stage.store.expire_run("r", FAILS),
    }
    crossing.hold("SELECT 1 FROM rival_steps WHERE run_id = 'r' FOR UPDATE")
    done = {name: crossing.arrive(operations[name]) for name in sorted(operations, key=lambda one: one != faster)}
    crossing.clear()
    found = {name: future.result(10) is not None for name, future in done.items()}
    assert found == {name: name == faster for name in operations}
    status = "completed" if faster == "finish" else "failed"
    assert (pg_stage.run()["status"], pg_stage.step()["status"]) == (
        status,
        "completed" if faster == "finish" else "cancelled",
    )


@pytest.mark.parametrize("faster", ["finish", "deadline"])
def test_of_a_finish_and_the_deadline_of_the_step_the_first_one_counts(
    pg_stage: Stage, crossing: Crossing, faster: str
) -> None:
    claim = pg_stage.begin()
    late = End("failed", error={"type": "DeadlineExceeded", "message": "x"}, hard=True, outcome="timed_out")
    by_timer = Claim("r", "a", claim.token, "timeout_token")
    operations = {
        "finish": lambda: pg_stage.store.finish_step(claim, DONE, COMPLETES, claim_for=None),
        "deadline": lambda: pg_stage.store.finish_step(by_timer, late, FAILS, claim_for=None),
    }
    crossing.hold("SELECT 1 FROM rival_steps WHERE run_id = 'r' FOR UPDATE")
    done = {name: crossing.arrive(operations[name]) for name in sorted(operations, key=lambda one: one != faster)}
    crossing.clear()
    found = {name: future.result(10) is not None for name, future in done.items()}
    assert found == {name: name == faster for name in operations}
    assert pg_stage.run()["status"] == ("completed" if faster == "finish" else "failed")


@pytest.mark.parametrize("faster", ["claim", "queue timeout"])
def test_of_a_claim_and_the_queue_timeout_of_the_step_the_first_one_counts(
    pg_stage: Stage, crossing: Crossing, faster: str
) -> None:
    """With a limit: test_limit_races.py."""
    pg_stage.begin(executor=None)
    late = End("failed", error={"type": "QueueTimeout", "message": "x"}, hard=True, outcome="expired")
    by_keeper = Claim("r", "a", pg_stage.step()["timeout_token"], "timeout_token")
    operations: dict[str, Callable[[], object]] = {
        "claim": lambda: pg_stage.store.claim_step(Claim("r", "a", 0), None, "e1"),
        "queue timeout": lambda: pg_stage.store.finish_step(by_keeper, late, FAILS, claim_for=None),
    }
    crossing.hold(HOLD_STEP)
    done = {name: crossing.arrive(operations[name]) for name in sorted(operations, key=lambda one: one != faster)}
    crossing.clear()
    found = {name: future.result(10) is not None for name, future in done.items()}
    assert found == {name: name == faster for name in operations}
    statuses = ("running", "running") if faster == "claim" else ("failed", "failed")
    assert (pg_stage.run()["status"], pg_stage.step()["status"]) == statuses


def test_of_two_retries_at_once_only_as_many_are_made_as_the_budget_allows(pg_stage: Stage, crossing: Crossing) -> None:
    pg_stage.begin(what=first(LANES))
    claims = [Claim("r", "both/a", 1), pg_stage.claim(Claim("r", "both/b", 0), "e2")]
    retry = replace(SOON, budget=1)
    crossing.hold("SELECT 1 FROM rival_runs WHERE id = 'r' FOR UPDATE")
    done = [
        crossing.arrive(lambda claim=claim: pg_stage.store.retry_step(claim, retry, published=True)) for claim in claims
    ]  # type: ignore[misc]
    crossing.clear()
    found = [future.result(10) for future in done]
    assert sorted(isinstance(one, BudgetSpent) for one in found) == [False, True]
    assert pg_stage.run()["retries"] == 1
    assert sorted(pg_stage.step(f"both/{name}")["status"] for name in "ab") == ["running", "waiting_retry"]
