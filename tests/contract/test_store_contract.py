"""What every store does: each operation of the interface, on each backend, with the same words."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy.exc import IntegrityError

from rival_client.errors import DatabaseError
from rival_client.model.limits.idempotency_records import KeyName
from rival_client.model.limits.limit_options import limit
from rival_client.model.payload import Json
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.run_entries import LogEntry
from rival_client.model.statuses import STEP_STATUSES, STEP_TERMINAL
from rival_client.model.timers import NEVER_PUBLISHED
from rival_client.model.transitions import STEP_TRANSITIONS
from rival_client.sql.reads import state_reads
from rival_client.sql.reads.history_reads import read_history
from rival_client.sql.reads.logs import read_logs
from rival_client.sql.workflows import current_workflow
from rival_workers.engine.decisions import End, FallBack, Retry
from rival_workers.engine.effects import Advance, EndRun, FailRun, OpenRow
from rival_workers.engine.interpreter import first
from rival_workers.engine.nodes import StepNode
from rival_workers.engine.plan import Plan
from rival_workers.engine.replay import CheckpointRef, CheckpointWrite
from rival_workers.store.call_records import KeyClaim
from rival_workers.store.claim_records import BeginResult, Claim, Claimed, FinishResult, NotYet, Queued
from rival_workers.store.sweep_records import SweepOptions
from tests.contract.stage import (
    COMPLETES,
    DONE,
    ERROR,
    FAILED,
    FAILS,
    GOES_ON,
    PLAN,
    SKIPPED,
    SOON,
    TIMED,
    CountedDown,
    Stage,
)

EXPIRED = End("failed", error=ERROR, hard=True, outcome="expired")
ASLEEP = CheckpointWrite(CheckpointRef("a/sleep", "sleep", 0), "waiting", delay=60.0)
FALLEN = FallBack(ERROR, {"function": "f"})
FULL = limit("full", 1)
OWNED = KeyClaim(KeyName("k"), "a", "same input", 60.0)
LOOK = SweepOptions(limit=100, backoff=10.0, backoff_max=35.0)


# -- every status, every verb -----------------------------------------------------------------------------


def apply(stage: Stage, verb: str, claim: Claim) -> bool:
    """The verb with what is held; whether it was allowed."""
    store = stage.store
    timeout = Claim(claim.run_id, claim.path, claim.token, "timeout_token")
    found: object = {
        "claim_step": lambda: isinstance(store.claim_step(claim, None, "e2"), Claimed),
        "finish_step": lambda: store.finish_step(claim, DONE, COMPLETES, claim_for=None),
        "retry_step": lambda: store.retry_step(claim, SOON, published=True) is not None,
        "time_out_finish": lambda: store.finish_step(timeout, FAILED, FAILS, claim_for=None),
        "postpone_step": lambda: store.postpone_step(claim, 60.0, "bank", published=True) is not None,
        "expire_step": lambda: store.finish_step(timeout, EXPIRED, FAILS, claim_for=None),
        "time_out_retry": lambda: store.retry_step(timeout, SOON, published=True) is not None,
        "take_over_step": lambda: store.take_over_step(claim) is not None,
        "hand_back_step": lambda: store.hand_back_step(claim) is not None,
        "fall_back": lambda: store.finish_step(claim, FALLEN, Advance(()), claim_for=None),
        "time_out_fall_back": lambda: store.finish_step(timeout, FALLEN, Advance(()), claim_for=None),
        "suspend_external_step": lambda: store.suspend_external_step(claim, 1, StepConfig(), None) is not None,
        "suspend_step": lambda: store.suspend_step(claim, ASLEEP, 60.0) is not None,
        "beat_step": lambda: store.beat_step(claim, StepConfig(), Json("0.5")),
        "apply_policy": lambda: store.apply_policy(claim, 60.0, '{"fields":{}}'),
        "queue_step": lambda: isinstance(store.claim_step(claim, None, "e2", limits=[FULL]), Queued),
        "queue_running": lambda: (answer := store.own_key(claim, OWNED)) is not None and answer.state == "queued",
        "park_step": lambda: store.park_step(claim, "unknown here", 15.0),
    }[verb]()
    return bool(found)


def right_token(stage: Stage, verb: str, run_id: str = "r") -> Claim:
    guard = "timeout_token" if STEP_TRANSITIONS[verb].guard == "timeout_token" else "execution_token"
    return Claim(run_id, "a", stage.step("a", run_id)[guard])


#: Those that a message can bring about; the others are part of one of them.
ELSEWHERE = ("token", "child", "completion_token", "lock")
VERBS = [verb for verb, transition in STEP_TRANSITIONS.items() if transition.guard not in ELSEWHERE]
#: How many of the two tokens a verb moves; the others move both.
MOVES = {"park_step": (0, 0), "beat_step": (0, 0), "apply_policy": (0, 0), "queue_step": (1, 0)}


def fill(stage: Stage) -> None:
    """Another run has the only slot of the limit FULL, and the key OWNED."""
    holder = stage.begin("holder", executor=None)
    claimed = stage.store.claim_step(holder, None, "e1", limits=[FULL])
    assert isinstance(claimed, Claimed)
    answer = stage.store.own_key(replace(holder, token=claimed.token), OWNED)
    assert answer is not None
    assert answer.state == "owned"


@pytest.mark.parametrize("status", STEP_STATUSES)
def test_a_verb_with_the_right_token_is_allowed_exactly_where_the_table_says(stage: Stage, status: str) -> None:
    fill(stage)
    for verb in VERBS:
        stage.bring(status, verb)
        before, row = stage.everything(), stage.step("a", verb)
        transition = STEP_TRANSITIONS[verb]
        allowed = apply(stage, verb, right_token(stage, verb, verb))
        assert allowed == (status in transition.sources), verb
        if not allowed:
            assert stage.everything() == before, verb
            continue
        after = stage.step("a", verb)
        execution, timeout = MOVES.get(verb, (1, 1))
        assert after["status"] in transition.targets
        assert (verb, after["execution_token"]) == (verb, row["execution_token"] + execution)
        assert (verb, after["timeout_token"]) == (verb, row["timeout_token"] + timeout)


@pytest.mark.parametrize("status", STEP_STATUSES)
def test_a_verb_with_a_stale_token_changes_nothing_at_all(stage: Stage, status: str) -> None:
    fill(stage)
    stage.bring(status)
    before = stage.everything()
    for verb in VERBS:
        claim = right_token(stage, verb)
        for token in (claim.token - 1, claim.token + 1, -1, 10**6):
            assert not apply(stage, verb, Claim("r", "a", token)), verb
        assert not apply(stage, verb, Claim("r", "nobody", claim.token)), verb
        assert not apply(stage, verb, Claim("nobody", "a", claim.token)), verb
    assert stage.everything() == before


@pytest.mark.parametrize("status", STEP_STATUSES)
def test_cancel_takes_every_open_step_with_it_and_moves_its_tokens(stage: Stage, status: str) -> None:
    stage.bring(status)
    before, row = stage.everything(), stage.step()
    run_is_open = status not in ("failed", "cancelled")
    assert stage.cancel() is run_is_open
    if not run_is_open:
        assert stage.everything() == before
        return
    after = stage.step()
    if status in STEP_TERMINAL:
        assert after == row
    else:
        assert (after["status"], after["ring_at"], after["timeout_at"]) == ("cancelled", None, None)
        assert after["execution_token"] == row["execution_token"] + 1
        assert after["timeout_token"] == row["timeout_token"] + 1
    assert (stage.run()["status"], stage.run()["ring_at"]) == ("cancelled", None)
    assert not [s for s in _steps(stage) if s["status"] not in STEP_TERMINAL]
    assert stage.cancel() is False


def _steps(stage: Stage) -> list[dict[str, Any]]:
    return [stage.step(path) for path in ("a", "b") if stage.has_step(path)]


# -- definitions ------------------------------------------------------------------------------------------


def test_the_version_that_was_registered_last_is_the_one_that_new_runs_take(stage: Stage) -> None:
    other = Plan(nodes=(StepNode(name="z"),))
    stage.time_passes(1)
    stage.store.register_workflow("w", other, {"type": "object"}, "newer")
    assert _current(stage).version == other.version
    stage.time_passes(1)
    stage.store.register_workflow("w", PLAN, {"type": "string"}, "again")
    current = _current(stage)
    assert (current.version, current.description, current.input_schema) == (PLAN.version, "again", {"type": "string"})
    assert stage.count("rival_workflows") == 2


def _current(stage: Stage) -> Any:
    with stage.database.transaction() as connection:
        return current_workflow(connection, "w")


def test_a_plan_is_loaded_as_it_was_stored_and_an_unknown_one_is_none(stage: Stage) -> None:
    assert Plan.load(stage.workflow.plan) == PLAN
    assert stage.store.load_workflow("w", "other") is None
    assert stage.store.load_workflow("v", PLAN.version) is None


# -- beginning --------------------------------------------------------------------------------------------


def test_a_run_begins_with_its_first_step_claimed_in_the_same_commit(stage: Stage) -> None:
    stage.add_run()
    begun = stage.store.begin_run("r", 0, TIMED, claim_for="e1")
    assert begun == BeginResult({"x": 1}, FinishResult(claimed=TIMED.next_leaf))
    run, step = stage.run(), stage.step()
    assert (run["status"], run["token"], run["ring_at"]) == ("running", 1, None)
    assert run["started_at"] is not None
    assert (step["status"], step["attempts"], step["execution_token"], step["executor_id"]) == ("running", 1, 1, "e1")
    assert stage.now_plus("timeout_at") == CountedDown(60)
    assert stage.now_plus("ring_at") == CountedDown(60)


def test_a_run_can_begin_with_its_first_step_left_to_a_message(stage: Stage) -> None:
    stage.add_run()
    assert stage.store.begin_run("r", 0, TIMED, claim_for=None) is not None
    step = stage.step()
    assert (step["status"], step["attempts"], step["execution_token"], step["executor_id"]) == ("pending", 0, 0, None)
    assert stage.now_plus("ring_at") == CountedDown(10)
    assert step["timeout_at"] is None


@pytest.mark.parametrize("claim_for", ["e1", None])
def test_a_run_begins_once(stage: Stage, claim_for: str | None) -> None:
    stage.begin()
    before = stage.everything()
    for token in (0, 1, 2):
        assert stage.store.begin_run("r", token, first(PLAN), claim_for=claim_for) is None
    assert stage.store.begin_run("nobody", 0, first(PLAN), claim_for=claim_for) is None
    assert stage.everything() == before


# -- claiming ---------------------------------------------------------------------------------------------


def test_a_claim_counts_the_attempt_sets_its_timeout_and_brings_the_input(stage: Stage) -> None:
    stage.begin(executor=None)
    stage.store.park_step(Claim("r", "a", 0), "unknown here", 5)
    claimed = stage.store.claim_step(Claim("r", "a", 0), 30.0, "e1")
    assert claimed == Claimed("r", "a", 1, 1, 1, 0, {"x": 1})
    step = stage.step()
    assert (step["status"], step["executor_id"], step["parked"], step["rings"]) == ("running", "e1", None, 0)
    assert stage.now_plus("timeout_at") == CountedDown(30)


def test_a_claim_that_comes_too_early_says_by_how_much_and_changes_nothing(stage: Stage) -> None:
    token = stage.store.retry_step(stage.begin(), Retry(20.0, ERROR), published=True)
    assert token is not None
    before = stage.everything()
    early = stage.store.claim_step(Claim("r", "a", token), None, "e1")
    assert isinstance(early, NotYet)
    assert early.seconds == CountedDown(20)
    assert stage.everything() == before
    stage.time_passes(21)
    assert isinstance(stage.store.claim_step(Claim("r", "a", token), None, "e1"), Claimed)


def test_a_handlers_claim_says_what_it_is_and_the_run_says_what_failed(stage: Stage) -> None:
    advance = Advance((FailRun(), OpenRow("a!on_error", "handler")))
    assert stage.store.finish_step(stage.begin(), FAILED, advance, claim_for=None)
    claimed = stage.store.claim_step(Claim("r", "a!on_error", 0), None, "e1")
    assert isinstance(claimed, Claimed)
    assert claimed.kind == "handler"
    assert stage.store.failure_of("r") == ("a", ERROR)


# -- finishing --------------------------------------------------------------------------------------------


@pytest.fixture(params=["first attempt", "second attempt"])
def claim(request: pytest.FixtureRequest, stage: Stage) -> Claim:
    """The happy path has a statement of its own on Postgres; both ways must do the same."""
    return stage.begin() if request.param == "first attempt" else stage.retried()


def test_a_finish_stores_the_outcome_and_claims_the_next_step_in_the_same_commit(stage: Stage, claim: Claim) -> None:
    timed = Advance((OpenRow("b", "step"),), TIMED.config_of)
    assert stage.store.finish_step(claim, DONE, timed, claim_for="e9")
    step, following = stage.step("a"), stage.step("b")
    assert (step["status"], step["result"], step["state"]) == ("completed", {"n": 1}, {"description": "done"})
    assert (step["error"], step["ring_at"], step["timeout_at"]) == (None, None, None)
    assert (following["status"], following["attempts"], following["execution_token"]) == ("running", 1, 1)
    assert (following["executor_id"], following["timeout_token"], following["kind"]) == ("e9", 1, "step")
    assert stage.now_plus("timeout_at", "b") == CountedDown(60)
    assert stage.run()["status"] == "running"


def test_a_finish_can_leave_the_next_step_to_a_message(stage: Stage, claim: Claim) -> None:
    assert stage.store.finish_step(claim, DONE, GOES_ON, claim_for=None)
    following = stage.step("b")
    assert (following["status"], following["attempts"], following["execution_token"]) == ("pending", 0, 0)
    assert stage.now_plus("ring_at", "b") == CountedDown(10)


def test_the_last_finish_ends_the_run_with_the_last_result(stage: Stage, claim: Claim) -> None:
    assert stage.store.finish_step(claim, DONE, COMPLETES, claim_for="e9")
    run = stage.run()
    assert (run["status"], run["result"], run["error"], run["ring_at"]) == ("completed", {"n": 1}, None, None)
    assert run["completed_at"] is not None
    assert run["token"] == 2


def test_a_skip_is_a_finish_under_its_own_name(stage: Stage, claim: Claim) -> None:
    assert stage.store.finish_step(claim, SKIPPED, COMPLETES, claim_for=None)
    assert (stage.step()["status"], stage.step()["result"], stage.run()["result"]) == ("skipped", None, None)
    assert stage.run()["status"] == "completed"


def test_a_hard_failure_marks_the_run_and_opens_the_handler(stage: Stage, claim: Claim) -> None:
    advance = Advance((FailRun(), OpenRow("a!on_error", "handler")))
    assert stage.store.finish_step(claim, FAILED, advance, claim_for="e9")
    run = stage.run()
    assert (run["status"], run["failed_step"], run["error"]) == ("running", "a", ERROR)
    assert (stage.step()["status"], stage.step()["error"]) == ("failed", ERROR)
    assert stage.step("a!on_error")["status"] == "running"


def test_a_hard_failure_without_handlers_ends_the_run(stage: Stage, claim: Claim) -> None:
    assert stage.store.finish_step(claim, FAILED, FAILS, claim_for=None)
    run = stage.run()
    assert (run["status"], run["failed_step"], run["error"], run["result"]) == ("failed", "a", ERROR, None)


def test_after_its_handlers_the_run_ends_with_the_steps_error_and_not_the_handlers(stage: Stage) -> None:
    stage.store.finish_step(
        stage.begin(), FAILED, Advance((FailRun(), OpenRow("!on_error", "handler"))), claim_for="e1"
    )
    broken = End("failed", error={"type": "HandlerBroke", "message": "x", "attempt": 1}, hard=True)
    assert stage.store.finish_step(Claim("r", "!on_error", 1), broken, Advance((EndRun("failed"),)), claim_for=None)
    run = stage.run()
    assert (run["status"], run["failed_step"], run["error"]) == ("failed", "a", ERROR)


def test_a_handler_that_comes_last_does_not_lend_the_run_its_result(stage: Stage) -> None:
    soft = End("failed", error=ERROR, outcome="failed")
    stage.store.finish_step(stage.begin(), soft, Advance((OpenRow("a!on_error", "soft_handler"),)), claim_for="e1")
    assert stage.store.finish_step(Claim("r", "a!on_error", 1), DONE, COMPLETES, claim_for=None)
    assert (stage.run()["status"], stage.run()["result"]) == ("completed", None)
    assert stage.step("a!on_error")["result"] == {"n": 1}


@pytest.mark.parametrize("end", [DONE, FAILED], ids=["completed", "failed"])
def test_only_attempts_that_did_not_simply_succeed_first_time_are_listed(stage: Stage, end: End) -> None:
    advance = COMPLETES if end is DONE else FAILS
    stage.store.finish_step(stage.begin("once"), end, advance, claim_for=None)
    stage.store.finish_step(stage.retried("twice"), end, advance, claim_for=None)
    assert [a.outcome for a in _attempts(stage, "once")] == ([] if end is DONE else ["failed"])
    assert [(a.outcome, a.attempt, a.executor) for a in _attempts(stage, "twice")] == [
        ("failed", 1, "e1"),
        (end.outcome, 2, "e2"),
    ]


def _attempts(stage: Stage, run_id: str = "r") -> list[Any]:
    with stage.database.transaction() as connection:
        return state_reads.read_state(connection, run_id).attempts


# -- retrying, releasing, parking -------------------------------------------------------------------------


@pytest.mark.parametrize(("published", "ring_in", "rings"), [(True, 70, 0), (False, 55, NEVER_PUBLISHED)])
def test_a_retry_waits_in_the_table_and_is_due_after_its_message_or_shortly_before_its_time(
    stage: Stage, published: bool, ring_in: float, rings: int
) -> None:
    token = stage.store.retry_step(stage.begin(), Retry(60.0, ERROR, Json('{"page":2}')), published=published)
    step = stage.step()
    assert token == step["execution_token"] == 2
    assert (step["status"], step["error"], step["state"]) == ("waiting_retry", ERROR, {"page": 2})
    assert (step["attempts"], step["timeout_at"], step["rings"]) == (1, None, rings)
    assert stage.now_plus("due_at") == CountedDown(60)
    assert stage.now_plus("ring_at") == CountedDown(ring_in)
    assert [(a.outcome, a.attempt, a.error) for a in _attempts(stage)] == [("failed", 1, ERROR)]


@pytest.mark.parametrize(("verb", "outcome", "lost"), [("take_over", "taken_over", 1), ("hand_back", "handed_back", 0)])
def test_a_released_attempt_is_not_used_up(stage: Stage, verb: str, outcome: str, lost: int) -> None:
    claim = stage.retried()
    token = getattr(stage.store, f"{verb}_step")(claim)
    step = stage.step()
    assert token == step["execution_token"] == claim.token + 1
    assert (step["status"], step["attempts"], step["lost"]) == ("pending", 1, lost)
    assert stage.now_plus("due_at") == CountedDown(0)
    again = stage.store.claim_step(Claim("r", "a", token), None, "e3")
    assert isinstance(again, Claimed)
    assert (again.attempt, again.lost) == (2, lost)
    assert [(a.outcome, a.attempt, a.executor) for a in _attempts(stage)] == [("failed", 1, "e1"), (outcome, 2, "e2")]


def test_a_first_attempt_can_be_lost_and_lost_again(stage: Stage) -> None:
    claim = stage.begin()
    for times in (1, 2, 3):
        token = stage.store.take_over_step(claim)
        assert token is not None
        assert (stage.step()["attempts"], stage.step()["lost"]) == (0, times)
        claim = stage.claim(Claim("r", "a", token))
    assert len(_attempts(stage)) == 3


def test_a_parked_run_says_why_and_can_still_be_begun_by_others(stage: Stage) -> None:
    stage.add_run()
    assert stage.store.park_run("r", 0, "nobody has it", 15.0)
    assert not stage.store.park_run("r", 1, "stale", 15.0)
    assert (stage.run()["parked"], stage.run()["token"]) == ("nobody has it", 0)
    assert stage.now_plus("ring_at", None) == CountedDown(15)
    assert stage.store.begin_run("r", 0, first(PLAN), claim_for="e1") is not None
    assert stage.run()["parked"] is None
    assert not stage.store.park_run("r", 1, "too late", 15.0)


# -- reading ----------------------------------------------------------------------------------------------


def test_a_step_can_be_read_and_one_that_is_not_there_is_none(stage: Stage) -> None:
    stage.store.finish_step(stage.begin(), DONE, COMPLETES, claim_for=None)
    step = stage.store.read_step("r", "a")
    assert step is not None
    assert (step.result, step.description, step.status) == ({"n": 1}, "done", "completed")
    assert stage.store.read_step("r", "b") is None


def test_after_a_lost_reply_the_token_shows_what_happened(stage: Stage) -> None:
    claim = stage.begin()
    assert stage.store.token_of("r", "a") == ("running", 1, "e1")
    stage.store.finish_step(claim, DONE, COMPLETES, claim_for=None)
    assert stage.store.token_of("r", "a") == ("completed", 2, "e1")
    assert stage.store.token_of("r", "nobody") is None


def test_an_executors_running_attempts_are_its_own_and_running(stage: Stage) -> None:
    first_held, other = stage.begin("one"), stage.begin("two", "e2")
    stage.store.finish_step(stage.begin("three"), DONE, COMPLETES, claim_for=None)
    [attempt] = stage.store.running_on("e1")
    assert (attempt.claim, attempt.executor, attempt.workflow, attempt.version) == (
        first_held,
        "e1",
        "w",
        PLAN.version,
    )
    assert [a.claim for a in stage.store.running_on("e2")] == [other]
    assert stage.store.running_on("nobody") == []


# -- what is due ------------------------------------------------------------------------------------------


def test_what_is_due_is_given_once_and_then_put_off_longer_each_time(stage: Stage) -> None:
    stage.add_run()
    assert stage.store.due(LOOK) == []
    stage.time_passes(11)
    waits = []
    for looks in range(5):
        [due] = stage.store.due(LOOK)
        assert (due.run_id, due.path, due.status, due.token, due.rings) == ("r", None, "pending", 0, looks)
        assert stage.store.due(LOOK) == []
        waits.append(stage.now_plus("ring_at", None))
        stage.time_passes(36)
    assert waits == [CountedDown(seconds) for seconds in (10, 20, 35, 35, 35)]


def test_the_next_look_is_at_the_row_that_is_due_first(stage: Stage) -> None:
    assert stage.store.next_look() is None
    stage.add_run("late", grace=40)
    assert stage.store.next_look() == CountedDown(40)
    stage.store.retry_step(stage.begin(), Retry(25.0, ERROR), published=False)
    assert stage.store.next_look() == CountedDown(20)
    stage.time_passes(30)
    assert stage.store.next_look() == CountedDown(-10)


def test_a_run_without_a_message_is_due_at_once_and_says_so(stage: Stage) -> None:
    stage.add_run(grace=0)
    [due] = stage.store.due(LOOK)
    assert due.rings == NEVER_PUBLISHED
    assert stage.store.due(LOOK) == []
    stage.time_passes(11)
    [again] = stage.store.due(LOOK)
    assert again.rings == 0


def test_a_due_step_brings_what_its_message_needs(stage: Stage) -> None:
    token = stage.store.retry_step(stage.begin(), Retry(60.0, ERROR), published=False)
    assert stage.store.due(LOOK) == []
    stage.time_passes(56)
    [due] = stage.store.due(LOOK)
    assert (due.path, due.status, due.token, due.attempts, due.rings) == (
        "a",
        "waiting_retry",
        token,
        1,
        NEVER_PUBLISHED,
    )
    assert (due.workflow, due.version, due.kind, due.lost) == ("w", PLAN.version, "step", 0)
    assert due.due_in == CountedDown(4, most=3)


def test_a_running_step_is_due_at_its_timeout_with_its_timeout_token(stage: Stage) -> None:
    stage.begin(what=TIMED)
    stage.time_passes(59)
    assert stage.store.due(LOOK) == []
    stage.time_passes(2)
    [due] = stage.store.due(LOOK)
    assert (due.status, due.timeout_token, due.attempts) == ("running", 1, 1)


def test_a_running_step_without_a_timeout_and_ended_ones_are_never_due(stage: Stage) -> None:
    stage.begin("running")
    stage.store.finish_step(stage.begin("ended"), DONE, COMPLETES, claim_for=None)
    stage.begin("cancelled", executor=None)
    stage.cancel("cancelled")
    stage.time_passes(10**6)
    assert stage.store.due(LOOK) == []


def test_due_gives_at_most_the_limit_and_the_longest_waiting_first(stage: Stage) -> None:
    for name in ("old", "older", "young"):
        stage.add_run(name)
    stage.begin("with-step", executor=None)
    stage.force("UPDATE rival_runs SET rings = 0 WHERE id = 'young'")
    for name, seconds in (("older", 200), ("old", 100), ("young", 50)):
        stage.time_passes(0)
        stage.force(_earlier(stage, "rival_runs", "id = :name"), name=name, seconds=seconds)
    look = SweepOptions(limit=2, backoff=10, backoff_max=600)
    assert {due.run_id for due in stage.store.due(look)} == {"older", "old"}
    stage.time_passes(0.1)
    assert {due.run_id for due in stage.store.due(look)} == {"young"}


def _earlier(stage: Stage, table: str, where: str) -> str:
    moved = "ring_at - make_interval(secs => :seconds)" if stage.database.is_postgres else "ring_at - :seconds"
    return f"UPDATE {table} SET ring_at = {moved} WHERE {where}"


def test_after_broker_data_loss_all_that_waits_is_made_due_in_batches(stage: Stage) -> None:
    for number in range(5):
        stage.add_run(f"run-{number}")
    for number in range(3):
        stage.begin(f"step-{number}", executor=None)
    assert stage.store.due(LOOK) == []
    changed = []
    while (count := stage.store.make_all_due(within=600, limit=2)) > 0:
        changed.append(count)
        stage.time_passes(0.1)
    assert sum(changed) == 8
    assert max(changed) <= 4
    assert len(stage.store.due(LOOK)) == 8


def test_broker_data_loss_leaves_alone_what_is_parked_not_yet_due_running_or_far_away(stage: Stage) -> None:
    stage.add_run("parked")
    stage.store.park_run("parked", 0, "nobody has it", 15.0)
    stage.begin("parked-step", executor=None)
    stage.store.park_step(Claim("parked-step", "a", 0), "nobody has it", 15.0)
    stage.store.retry_step(stage.begin("later"), Retry(60.0, ERROR), published=True)
    stage.begin("running", what=TIMED)
    stage.add_run("far", grace=10_000)
    before = stage.everything()
    assert stage.store.make_all_due(within=600, limit=100) == 0
    assert stage.everything() == before


# -- executors --------------------------------------------------------------------------------------------


def test_an_executor_is_dead_when_it_has_not_beaten_within_its_lease(stage: Stage) -> None:
    stage.store.add_executor("gone", "host", 1, "w1", lease=10)
    stage.time_passes(8)
    stage.store.add_executor("alive", "host", 2, "w2", lease=10)
    assert stage.store.dead_executors() == []
    stage.time_passes(3)
    assert stage.store.dead_executors() == ["gone"]
    stage.store.delete_executors(["gone"])
    assert stage.store.dead_executors() == []
    assert stage.executor_ids() == {"alive"}


def test_what_dead_executors_were_running_is_lost_and_nothing_else(stage: Stage) -> None:
    for name in ("gone", "gone-too", "alive"):
        stage.begin(f"on-{name}", executor=name)
    stage.store.finish_step(stage.begin("ended", "gone"), DONE, COMPLETES, claim_for=None)
    stage.begin("cancelled", "gone")
    stage.cancel("cancelled")
    stage.store.retry_step(stage.begin("waiting", "gone"), SOON, published=True)
    lost = stage.store.lost_attempts(["gone", "gone-too"], 10)
    assert {(a.claim.run_id, a.claim.token, a.executor) for a in lost} == {
        ("on-gone", 1, "gone"),
        ("on-gone-too", 1, "gone-too"),
    }
    assert {(a.workflow, a.version, a.attempts, a.lost, a.kind) for a in lost} == {
        ("w", PLAN.version, 1, 0, "step"),
    }
    assert len(stage.store.lost_attempts(["gone", "gone-too"], 1)) == 1
    assert stage.store.lost_attempts([], 10) == []


def test_an_attempt_of_an_unknown_executor_is_a_stray(stage: Stage) -> None:
    stage.store.add_executor("expired", "host", 1, "w1", lease=10)
    stage.time_passes(11)
    stage.store.add_executor("alive", "host", 2, "w2", lease=10)
    for name in ("expired", "alive", "unknown"):
        stage.begin(f"on-{name}", executor=name)
    stage.store.finish_step(stage.begin("ended", "unknown"), DONE, COMPLETES, claim_for=None)
    assert [a.claim.run_id for a in stage.store.stray_attempts(10)] == ["on-unknown"]
    stage.store.delete_executors(["expired"])
    assert {a.claim.run_id for a in stage.store.stray_attempts(10)} == {"on-unknown", "on-expired"}
    assert len(stage.store.stray_attempts(1)) == 1


def test_an_executor_that_comes_back_under_a_new_id_keeps_what_was_not_taken_over(stage: Stage) -> None:
    kept, taken, other = stage.begin("kept", "old"), stage.begin("taken", "old"), stage.begin("other", "e2")
    token = stage.store.take_over_step(taken)
    assert token is not None
    stage.claim(Claim("taken", "a", token), "successor")
    stage.store.finish_step(stage.begin("ended", "old"), DONE, COMPLETES, claim_for=None)
    assert stage.store.adopt_attempts("old", "new") == 1
    assert [a.claim for a in stage.store.running_on("new")] == [kept]
    assert stage.store.running_on("old") == []
    assert [a.claim for a in stage.store.running_on("e2")] == [other]
    assert stage.step("a", "taken")["executor_id"] == "successor"
    assert stage.store.finish_step(kept, DONE, COMPLETES, claim_for=None)


def test_a_beat_prolongs_the_lease_and_after_expiry_is_refused_for_ever(stage: Stage) -> None:
    stage.store.add_executor("e1", "host", 1, "w1", lease=10)
    for _ in range(3):
        stage.time_passes(8)
        assert stage.store.beat("e1", 10)
    stage.time_passes(11)
    before = stage.everything()
    assert not stage.store.beat("e1", 10)
    assert not stage.store.beat("e1", 10_000)
    assert stage.everything() == before
    assert not stage.store.beat("nobody", 10)


def test_the_neighbours_of_a_machine_are_those_that_live_there(stage: Stage) -> None:
    stage.store.add_executor("e1", "here", 11, "w1", lease=10)
    stage.store.add_executor("e2", "here", 12, "w2", lease=100)
    stage.store.add_executor("e3", "there", 11, "w3", lease=100)
    assert {(e.id, e.pid, e.worker) for e in stage.store.executors_on("here")} == {("e1", 11, "w1"), ("e2", 12, "w2")}
    stage.time_passes(11)
    assert [e.id for e in stage.store.executors_on("here")] == ["e2"]


def test_a_dead_process_is_expired_without_waiting_for_its_lease(stage: Stage) -> None:
    stage.store.add_executor("e1", "here", 11, "w1", lease=100)
    stage.store.add_executor("e2", "there", 11, "w2", lease=100)
    stage.begin(executor="e1")
    assert stage.store.expire_executors("here", 11) == 1
    assert stage.store.expire_executors("here", 11) == 0
    assert not stage.store.beat("e1", 100)
    assert stage.store.beat("e2", 100)
    assert stage.store.dead_executors() == ["e1"]


# -- retention, logs, history -----------------------------------------------------------------------------


def test_retention_takes_ended_runs_with_all_that_hangs_on_them_and_nothing_else(stage: Stage) -> None:
    def populate(name: str, end: bool) -> None:
        claim = stage.retried(name)
        stage.store.append_logs(name, [LogEntry(dt.datetime.now(dt.UTC), "info", "a", 1, "hello", {})])
        if end:
            stage.store.finish_step(claim, DONE, COMPLETES, claim_for=None)

    populate("old", end=True)
    populate("open", end=False)
    stage.begin("cancelled")
    stage.cancel("cancelled")
    stage.time_passes(100)
    populate("young", end=True)
    assert stage.store.delete_ended_before(1000, 10, "w") == 0
    assert stage.store.delete_ended_before(50, 10, "w") == 2
    rows = stage.everything()
    tables = ("rival_steps", "rival_attempts", "rival_history", "rival_logs")
    position = {"rival_history": 1, "rival_logs": 1}
    for table in tables:
        assert {row[position.get(table, 0)] for row in rows[table]} == {"open", "young"}, table
    assert {row[0] for row in rows["rival_runs"]} == {"open", "young"}


def test_retention_deletes_in_bounded_batches_oldest_first(stage: Stage) -> None:
    for number in range(5):
        stage.store.finish_step(stage.begin(f"run-{number}"), DONE, COMPLETES, claim_for=None)
        stage.time_passes(10)
    assert [stage.store.delete_ended_before(5, 2, "w") for _ in range(4)] == [2, 2, 1, 0]


def test_logs_and_history_are_kept_in_order(stage: Stage) -> None:
    stage.begin()
    at = dt.datetime(2024, 5, 1, 12, 0, 0, 123456, tzinfo=dt.UTC)
    entries = [LogEntry(at, "info", "a", 1, f"line {n}", {"n": n, "t": '\\ " ü'}) for n in range(300)]
    stage.store.append_logs("r", entries)
    stage.store.record("r", "a", "late_result_refused", "e1", attempt=1)
    stage.store.record("r", None, "noted", None)
    with stage.database.transaction() as connection:
        found = read_logs(connection, "r")
        assert [replace(entry, id=0) for entry in found] == entries
        assert [entry.id for entry in found] == sorted({entry.id for entry in found})
        history = read_history(connection, "r")
    assert [(h.what, h.path, h.detail, h.by) for h in history[2:]] == [
        ("late_result_refused", "a", {"attempt": 1}, "e1"),
        ("noted", None, {}, None),
    ]


def test_what_a_run_went_through_is_in_its_history(stage: Stage) -> None:
    claim = stage.retried()
    token = stage.store.take_over_step(claim)
    assert token is not None
    stage.store.finish_step(stage.claim(Claim("r", "a", token)), FAILED, FAILS, claim_for=None)
    with stage.database.transaction() as connection:
        assert [h.what for h in read_history(connection, "r")] == [
            "started",
            "claimed",
            "retried",
            "claimed",
            "taken_over",
            "claimed",
            "failed",
            "failing",
            "failed",
        ]


# -- impossible rows --------------------------------------------------------------------------------------

STEP_LIES = [
    "status = 'asleep'",
    "status = 'completed'",
    "completed_at = created_at",
    "executor_id = NULL",
    "status = 'waiting_retry'",
    "status = 'failed', completed_at = created_at",
    "status = 'completed', completed_at = created_at, ring_at = created_at",
    "kind = NULL",
]
RUN_LIES = [
    "status = 'asleep'",
    "status = 'completed'",
    "completed_at = created_at",
    "status = 'failed', completed_at = created_at",
    "started_at = NULL",
    "status = 'cancelled', completed_at = created_at, ring_at = created_at",
    "workflow = NULL",
]


@pytest.mark.parametrize(("table", "lies"), [("rival_steps", STEP_LIES), ("rival_runs", RUN_LIES)])
def test_the_tables_refuse_impossible_rows(stage: Stage, table: str, lies: list[str]) -> None:
    stage.begin()
    before = stage.everything()
    for lie in lies:
        with pytest.raises(DatabaseError) as refused:
            stage.force(f"UPDATE {table} SET {lie}")
        assert isinstance(refused.value.__cause__, IntegrityError)
    assert stage.everything() == before
