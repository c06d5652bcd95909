"""Why a run does not move: one test per case, and what holds for every combination of facts."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rival_client.model.kinds import KINDS
from rival_client.model.statuses import RUN_ACTIVE, RUN_STATUSES, RUN_TERMINAL
from rival_client.model.why.explain import explain
from rival_client.model.why.why_facts import (
    BreakerFacts,
    KeyFacts,
    LimitFacts,
    OpenStepFacts,
    QueueFacts,
    RunFacts,
    UsualFacts,
)
from rival_client.model.why.why_records import Reason

NOW = dt.datetime(2026, 11, 17, 12, 0, tzinfo=dt.UTC)
SOON, BEFORE = NOW + dt.timedelta(minutes=5), NOW - dt.timedelta(minutes=5)
RUN = RunFacts("r", "order", "ab12", "running", NOW, BEFORE, live_executors=2)


def step(kind: str = "step", status: str = "pending", path: str = "charge", **facts: Any) -> OpenStepFacts:
    return OpenStepFacts(path, kind, status, **facts)


def reasons(*steps: OpenStepFacts, **run: Any) -> tuple[Reason, ...]:
    return explain(replace(RUN, steps=steps, **run)).reasons


def only(*steps: OpenStepFacts, **run: Any) -> Reason:
    [reason] = reasons(*steps, **run)
    return reason


def test_a_run_that_has_not_begun_waits_for_a_worker() -> None:
    assert only(status="pending", live_executors=0).what == "no_worker"
    assert only(status="pending", ring_at=SOON).what == "queued"
    assert only(status="pending", ring_at=BEFORE).what == "not_published"
    parked = only(status="pending", parked="no worker here has version ab12")
    assert (parked.what, parked.do) == ("parked", "Start a worker that has version ab12 of order.")


def test_a_step_that_is_due_waits_for_a_worker() -> None:
    assert only(step(ring_at=SOON), live_executors=0).what == "no_worker"
    backlog = QueueFacts(waiting=31, oldest=BEFORE, workers=2, slots=16, busy=15)
    queued = only(step(ring_at=SOON, created_at=BEFORE), queues={"default": backlog})
    assert (queued.what, queued.step, queued.since) == ("queued", "charge", BEFORE)
    assert queued.evidence == (
        "31 runs and steps in queue default wait for a worker, the oldest since 2026-11-17 11:55:00 UTC",
        "2 live workers serve it: 15 of 16 slots were in use at the last heartbeats",
    )
    assert only(step(ring_at=BEFORE)).what == "not_published"
    assert only(step(parked="unknown step")).what == "parked"


def test_of_the_backlog_the_queue_of_the_step_counts() -> None:
    queues = {"default": QueueFacts(waiting=7, workers=1), "gpu": QueueFacts(waiting=1000, more=True, workers=1)}
    found = only(step(ring_at=SOON, queue="gpu"), queues=queues, served=frozenset({"gpu", "default"}))
    assert found.evidence == ("1,000+ runs and steps in queue gpu wait for a worker", "1 live worker serves it")
    one = only(step(ring_at=SOON), queues={"default": QueueFacts(waiting=1, workers=1)})
    assert one.evidence[0] == "1 run or step in queue default waits for a worker"


def test_a_queue_that_no_worker_serves_is_named() -> None:
    found = only(step(ring_at=SOON, queue="gpu"), served=frozenset({"default", "mail"}))
    assert (found.what, found.command) == ("no_worker", "rival worker --queues gpu")
    assert found.text == "charge waits in queue gpu, which no live worker serves."
    assert found.evidence == ("live workers serve default, mail",)
    assert only(step(ring_at=SOON, queue="gpu"), served=frozenset({"gpu"})).what == "queued"
    assert only(status="pending", ring_at=SOON, queue="gpu").what == "no_worker"
    assert (
        only(step(ring_at=SOON), served=frozenset({"gpu"})).text
        == "charge waits in queue default, which no live worker serves."
    )


def test_a_step_with_a_delay_waits_for_its_time() -> None:
    found = only(step("step", "waiting", due_at=SOON))
    assert (found.what, found.until, found.who) == ("delay", SOON, "the clock")
    assert only(step("step", "waiting")).what == "unknown"


def test_items_that_have_not_begun_are_not_open() -> None:
    found = only(step("for_each", "waiting", total=10, opened=4, remaining=8))
    assert found.evidence == ("2 are open", "6 have not begun")
    assert only(step("parallel", "waiting", total=3, remaining=2)).evidence == ("2 are open",)


def test_a_paused_run_says_so_and_names_no_step_that_would_start() -> None:
    paused = only(step(ring_at=SOON), paused_at=BEFORE)
    assert (paused.what, paused.command, paused.evidence) == ("paused", "rival resume r", ())
    by = only(step(ring_at=SOON), paused_at=BEFORE, paused_by="ann")
    assert (by.evidence, by.since) == (("ann has paused it",), BEFORE)
    running = step("step", "running", "other", executor="e", executor_alive=True)
    assert [one.what for one in reasons(running, paused_at=BEFORE)] == ["paused", "running"]


def test_a_retry_names_its_time_and_the_error() -> None:
    failed = step(status="waiting_retry", due_at=SOON, attempts=2, error="Declined: no", failed_at=NOW)
    found = only(failed)
    assert (found.what, found.since, found.until, found.who) == ("retry", NOW, SOON, "the clock")
    assert found.text == "charge is tried again: attempt 2 failed with Declined: no."
    due = replace(failed, due_at=BEFORE, ring_at=SOON)
    found = only(due)
    assert (found.what, found.since, found.until) == ("queued", BEFORE, None)
    assert found.evidence[-1] == "attempt 2 failed with Declined: no"
    assert only(due, live_executors=0).what == "no_worker"
    assert [one.what for one in reasons(due, paused_at=NOW)] == ["paused"], "nothing starts"


def test_an_open_circuit_breaker_is_named_and_no_failure_is() -> None:
    bank = BreakerFacts("bank", BEFORE, "open", SOON, "w1")
    refused = step(status="waiting_retry", due_at=SOON, attempts=1, breaker=bank)
    found = only(refused)
    assert (found.what, found.since, found.until, found.who) == ("breaker", BEFORE, SOON, "the clock")
    assert (found.text, found.command) == (
        "charge was not called: circuit breaker bank is open.",
        "rival breaker close bank",
    )
    assert found.evidence[0] == "it lets an attempt try at 2026-11-17 12:05:00 UTC"
    half = only(replace(refused, breaker=replace(bank, state="half_open", until=None)))
    assert (half.text, half.until) == ("charge was not called: circuit breaker bank is half-open.", SOON)


def test_a_circuit_breaker_that_an_operator_opened_is_closed_by_an_operator() -> None:
    found = only(step(status="waiting_retry", due_at=SOON, breaker=BreakerFacts("bank", BEFORE, "open", None, "ann")))
    assert (found.until, found.who) == (None, "an operator")
    assert found.evidence[0] == "ann has opened it until an operator closes it"


@pytest.mark.parametrize("state", ["closed", None])
def test_a_circuit_breaker_that_was_closed_since_is_not_called_open(state: str | None) -> None:
    found = only(step(status="waiting_retry", due_at=SOON, breaker=BreakerFacts("bank", BEFORE, state)))
    assert (found.until, found.do) == (SOON, None)
    assert found.text.endswith("bank was open. It is closed now.")


def test_a_delay_lasts_until_its_time() -> None:
    ahead = only(step("sleep", "waiting", due_at=SOON), status="suspended")
    assert (ahead.what, ahead.until, ahead.who) == ("delay", SOON, "the clock")
    over = step("sleep", "waiting", due_at=BEFORE, ring_at=SOON)
    found = only(over, status="suspended")
    assert (found.what, found.since, found.who) == ("queued", BEFORE, "a worker")
    assert found.evidence[-1] == "due since 2026-11-17 11:55:00 UTC"
    assert only(over, status="suspended", live_executors=0).what == "no_worker"
    assert [one.what for one in reasons(over, status="suspended", paused_at=NOW)] == ["paused"]


def test_what_the_clock_would_end_needs_a_worker_that_is_alive() -> None:
    nap = only(step("sleep", "waiting", due_at=SOON), status="suspended", live_executors=0)
    assert (nap.what, nap.until, nap.command) == ("delay", SOON, "rival worker")
    assert nap.evidence[-1] == "no executor has a valid lease"
    later = only(status="pending", due_at=SOON, live_executors=0)
    assert (later.what, later.command) == ("delay", "rival worker")


def test_a_wait_for_anything_else_than_an_event_names_its_limit() -> None:
    limited = only(step("wait", "waiting", due_at=SOON), status="suspended")
    assert (limited.what, limited.text, limited.until) == ("delay", "charge waits until its time.", SOON)
    assert only(step("wait", "waiting"), status="suspended").what == "unknown"


def test_an_event_names_topic_key_and_the_event_that_nearly_fits() -> None:
    wait = step("wait", "waiting", topic="reply", key="ann", near_event="e-91", near_differs=("key",), due_at=SOON)
    found = only(wait, status="suspended")
    assert (found.what, found.until) == ("event", SOON)
    assert found.text == "charge waits for an event of topic reply with key ann."
    assert found.evidence == ("no event of topic reply that fits has come", "kept event e-91 differs in key")
    filtered = only(replace(wait, near_differs=(), asks=("/ok", "/customer/id")), status="suspended")
    assert filtered.evidence[-1] == "its payload must fit the filter of /ok, /customer/id"
    assert found.command == "rival emit reply --key ann --run-id r"
    assert only(step("wait", "waiting", topic="a b"), status="suspended").command == "rival emit 'a b' --run-id r"
    late = only(replace(wait, due_at=BEFORE, ring_at=SOON), status="suspended")
    assert (late.what, late.evidence[-1]) == ("queued", "no event of topic reply came in time")


def test_a_command_can_be_pasted_whatever_the_run_is_called() -> None:
    assert only(run_id="x; reboot", status="pending", paused_at=BEFORE).command == "rival resume 'x; reboot'"
    for status, verb in (("failed", "retry"), ("cancelled", "retry")):
        assert only(run_id="x; reboot", status=status).command == f"rival {verb} 'x; reboot'"
    assert only(run_id="--help", status="failed").command == "rival retry -- --help"
    child = step("child", "waiting", child="$(reboot)", child_status="failed")
    assert only(child, status="suspended").command == "rival why '$(reboot)'"


def test_a_child_is_named_with_its_status() -> None:
    found = only(step("child", "waiting", child="c-1", child_status="failed"), status="suspended")
    assert (found.what, found.command) == ("child", "rival why c-1")
    assert found.text == "charge waits for run c-1, which is failed."
    why = step("child", "waiting", child="c-1", child_status="suspended", child_why="w waits for an event.")
    assert only(why, status="suspended").evidence == ("run c-1: w waits for an event.",)


def test_an_external_step_waits_until_its_deadline() -> None:
    asked = step("external", "waiting", timeout_at=SOON, started_at=BEFORE, heartbeat_at=NOW)
    found = only(asked, status="suspended")
    assert (found.what, found.until) == ("external", SOON)
    assert found.evidence == ("no heartbeat since 2026-11-17 12:00:00 UTC",)
    assert only(step("external", "waiting", due_at=SOON), status="suspended").what == "delay", "it was not called yet"
    late = only(replace(asked, due_at=BEFORE, ring_at=SOON), status="suspended")
    assert (late.what, late.evidence[-1]) == ("queued", "no answer came in time")


def test_a_full_limit_and_a_start_at_a_later_time_are_named() -> None:
    full = LimitFacts("mail", "ann", 2, 2, BEFORE, granted=False)
    found = only(step(status="waiting", limit=full))
    assert (found.what, found.since) == ("limit", BEFORE)
    assert found.text == "charge waits for a slot of limit mail of key ann."
    assert found.evidence == ("2 of 2 slots are in use",)
    assert found.command == "rival limit show mail --key ann"
    granted = step(status="waiting", limit=replace(full, granted=True, ring_at=SOON))
    assert only(granted).what == "queued"
    assert only(granted, live_executors=0).what == "no_worker"
    assert only(status="pending", limit=full).what == "limit"
    none = only(step(status="waiting", limit=replace(full, maximum=0, used=0)))
    assert (none.who, none.do) == ("an operator", "Raise the limit.")
    assert only(status="pending", due_at=SOON, ring_at=SOON).what == "delay"


def test_an_idempotency_key_names_the_step_that_has_it() -> None:
    taken = KeyFacts("pay-7", "r2", "charge", BEFORE, granted=False, ring_at=SOON)
    found = only(step(status="waiting", idempotency_key=taken))
    assert (found.what, found.since, found.command) == ("idempotency_key", BEFORE, "rival why r2")
    assert found.text == (
        "charge waits for the result of step charge of run r2, which has the same idempotency key pay-7."
    )
    assert only(step(status="waiting", idempotency_key=replace(taken, granted=True))).what == "queued"
    assert only(step(status="waiting", idempotency_key=replace(taken, owner_run=None))).what == "queued"


def test_a_rate_lets_a_step_start_at_its_time_and_has_no_slots() -> None:
    rated = LimitFacts("mail!rate", "", 2, 1, BEFORE, granted=True, due_at=SOON, is_rate=True)
    found = only(step(status="waiting", limit=rated))
    assert (found.what, found.since, found.until, found.who) == ("limit", BEFORE, SOON, "the clock")
    assert found.evidence == ("its start is at 2026-11-17 12:05:00 UTC",)
    queued = only(step(status="waiting", limit=replace(rated, granted=False, due_at=None)))
    assert (queued.what, queued.until, queued.who) == ("limit", None, "the clock")
    assert not any("slots" in text for text in (queued.text, *queued.evidence))
    due = only(step(status="waiting", limit=replace(rated, due_at=BEFORE, ring_at=SOON)))
    assert (due.what, due.who) == ("queued", "a worker")


def test_a_run_that_waits_for_its_singleton_key_waits_for_another_run() -> None:
    found = only(status="pending", limit=LimitFacts("order!singleton", "k", 1, 1, BEFORE, granted=False))
    assert (found.what, found.who) == ("limit", "another run that ends")
    assert found.command == "rival limit show 'order!singleton' --key k"
    assert found.evidence == ("1 of 1 slots are in use",)


def test_a_run_that_gathers_starts_says_how_many_and_until_when() -> None:
    found = only(status="pending", due_at=SOON, gathered=3)
    assert (found.what, found.until, found.evidence[0]) == ("gathering", SOON, "starts so far: 3")
    assert only(status="pending", due_at=BEFORE, ring_at=SOON, gathered=3).what == "queued"


def test_a_version_that_no_live_worker_of_the_queue_has_is_named() -> None:
    has = {"able": frozenset[str](), "versions": {"ef34": ["w1", "w2"]}}
    found = only(step(ring_at=SOON), **has)
    assert (found.what, found.do) == ("no_worker", "Start a worker that has version ab12 of order.")
    assert found.evidence == ("live workers have order at version ef34 (w1, w2)",)
    assert only(step(ring_at=SOON), able=frozenset({"default"})).what == "queued"
    elsewhere = only(step(ring_at=SOON, queue="gpu"), served=frozenset({"gpu", "default"}), able=frozenset({"default"}))
    assert (elsewhere.what, elsewhere.do) == ("no_worker", "Start a worker that has version ab12 of order.")


def test_of_many_workers_with_a_version_some_are_named() -> None:
    versions = {"cd56": ["w1"], "ef34": [f"w{number}" for number in range(1, 6)]}
    found = only(step(parked="no worker here has version ab12"), able=frozenset(), versions=versions)
    assert found.evidence[-1] == "live workers have order at version cd56 (w1), version ef34 (w1, w2, w3 and 2 more)"


def test_a_parked_step_is_taken_by_a_worker_that_has_come_since() -> None:
    it = step(parked="worker does not have workflow 'order'", ring_at=SOON)
    none = only(it, able=frozenset())
    assert (none.what, none.until, none.evidence[1]) == ("parked", SOON, "no live worker has order")
    came = only(it, able=frozenset({"default"}))
    assert (came.what, came.until, came.do) == ("parked", SOON, None)
    assert only(it, able=frozenset({"default"}), live_executors=0).do is not None


def test_a_broker_that_does_not_answer_is_the_reason() -> None:
    for at in (SOON, BEFORE):
        found = only(step(ring_at=at), broker_away=True)
        assert (found.what, found.evidence) == ("broker_away", ("the broker does not answer",))
    assert only(step(ring_at=SOON), broker_away=True, live_executors=0).what == "no_worker"


def test_a_deadline_is_said_and_what_ends_the_run_when_it_has_passed() -> None:
    ahead = only(step(ring_at=SOON), deadline_at=SOON)
    assert (ahead.what, ahead.evidence[-1]) == ("queued", "the run must have ended by 2026-11-17 12:05:00 UTC")
    over = reasons(step(ring_at=SOON), deadline_at=BEFORE)
    assert [(one.what, one.who) for one in over] == [("deadline", "a keeper"), ("queued", "a worker")]
    assert reasons(step(ring_at=SOON), deadline_at=BEFORE, live_executors=0)[0].command == "rival worker"
    of_step = only(step(ring_at=SOON, deadline_at=SOON))
    assert of_step.evidence[-1] == "it must have ended by 2026-11-17 12:05:00 UTC"


def test_a_step_that_must_begin_soon_says_until_when() -> None:
    found = only(step(ring_at=SOON, start_by=SOON))
    assert (found.what, found.until) == ("queued", SOON)
    assert found.evidence[-1] == "it fails if no attempt has begun by 2026-11-17 12:05:00 UTC"
    at_limit = only(step(status="waiting", start_by=SOON, limit=LimitFacts("m", "", 1, 1, BEFORE, granted=False)))
    assert (at_limit.what, at_limit.until) == ("limit", SOON)


def test_a_callback_of_a_composite_is_what_it_waits_for() -> None:
    branch, when = step("branch", "waiting", "valid?"), step("condition", "pending", "valid?!when", ring_at=SOON)
    assert [(one.what, one.step) for one in reasons(branch, when)] == [("queued", "valid?!when")]


def test_a_checkpoint_is_continued_by_a_worker_of_the_queue_of_its_flow() -> None:
    flow = step("flow", "waiting", "fl", queue="gpu", ring_at=SOON, started_at=BEFORE)
    found = only(flow, step("sleep", "waiting", "fl/nap", due_at=BEFORE), status="suspended")
    assert (found.what, found.step, found.command) == ("no_worker", "fl/nap", "rival worker --queues gpu")
    assert only(replace(flow, due_at=SOON), status="suspended").what == "unknown", "its checkpoint was not found"
    both = reasons(replace(flow, status="pending"), step("flow_wait", "waiting", "fl/reply", topic="t"))
    assert [one.step for one in both] == ["fl", "fl/reply"], "the flow itself goes on"


def test_a_composite_counts_what_has_ended_and_its_open_steps_say_more() -> None:
    lines = step("for_each", "waiting", "lines", total=10, remaining=4)
    inside = step("step", "running", "lines[3]/pack", executor="e", executor_alive=True)
    found = reasons(lines, inside)
    assert [one.what for one in found] == ["steps", "running"]
    assert found[0].text == "lines has ended 6 of 10."
    branch = step("branch", "waiting", "valid?")
    assert [one.step for one in reasons(branch, step("sleep", "waiting", "valid?/nap", due_at=SOON))] == ["valid?/nap"]
    assert only(branch).what == "steps"


def test_a_flow_is_explained_by_its_checkpoint() -> None:
    flow = step("flow", "waiting", "fl")
    assert [one.step for one in reasons(flow, step("flow_wait", "waiting", "fl/reply", topic="t"))] == ["fl/reply"]
    assert only(flow).what == "unknown"


def test_a_running_step_is_on_a_live_executor_or_is_taken_over() -> None:
    alive = only(step(status="running", executor="w1", executor_alive=True, started_at=BEFORE, timeout_at=SOON))
    assert (alive.what, alive.since, alive.until) == ("running", BEFORE, SOON)
    assert alive.text == "charge runs on executor w1: its attempt has not ended."
    lost = only(step(status="running", executor="w1", executor_alive=False))
    assert (lost.what, lost.who, lost.do) == ("lost_executor", "a keeper", None)
    alone = only(step(status="running", executor="w1", executor_alive=False), live_executors=0)
    assert (alone.what, alone.command) == ("lost_executor", "rival worker")
    assert alone.text.endswith("no other one is alive that takes it over.")


def test_a_running_step_names_its_worker_lease_log_and_what_is_usual() -> None:
    its = step(
        status="running",
        attempts=2,
        executor="e1",
        executor_alive=True,
        worker="w1@a",
        lease_until=SOON,
        heartbeat_at=BEFORE,
        logged_at=BEFORE,
        is_log_known=True,
        usual=UsualFacts(20, 0.9),
    )
    found = only(its)
    assert found.text == "charge runs on w1@a: attempt 2 has not ended."
    assert found.evidence == (
        "w1@a is alive: its lease ends at 2026-11-17 12:05:00 UTC",
        "last heartbeat 2026-11-17 11:55:00 UTC",
        "last log entry 2026-11-17 11:55:00 UTC",
        "95 % of its last 20 took at most 0.9 s",
    )
    silent = replace(its, logged_at=None, heartbeat_at=None, usual=None, lease_until=None)
    assert only(silent).evidence == ("w1@a is alive", "this attempt has no log entry")
    assert only(replace(silent, is_log_known=False)).evidence == ("w1@a is alive",)


def test_of_a_composite_what_has_been_open_the_longest_is_named() -> None:
    lines = step("for_each", "waiting", "lines", total=10, opened=2, remaining=10)
    first = step(status="pending", path="lines[0]/pack", created_at=NOW, ring_at=SOON)
    second = step(status="running", path="lines[1]/pack", started_at=BEFORE, executor="e", executor_alive=True)
    found = reasons(lines, first, second)[0]
    assert found.evidence[-1] == "open the longest: lines[1]/pack, since 2026-11-17 11:55:00 UTC"
    assert reasons(lines, first)[0].evidence == ("2 are open", "8 have not begun")
    assert reasons(lines, first, second, more=True)[0].evidence == ("2 are open", "8 have not begun")


def test_compensations_are_counted() -> None:
    found = only(step("compensating", "waiting", "!compensate", total=3, remaining=2, opened=2))
    assert found.what == "compensating"
    assert found.text == "!compensate undoes what was done: 1 of 3 compensations have ended."


def test_an_ended_run_says_how_it_ended() -> None:
    failed = only(status="failed", completed_at=NOW, failed_step="charge", error="Declined: no", attempts=3)
    assert failed.text == "charge failed after 3 attempts: Declined: no."
    assert failed.command == "rival retry r"
    assert failed.evidence == ("the run ended with status failed at 2026-11-17 12:00:00 UTC",)
    more = {"first_error": "Timeout: 5 s", "not_reached": ("ship", "mail"), "not_reached_count": 5}
    told = only(status="failed", failed_step="charge", error="Declined: no", attempts=3, **more)
    assert told.evidence[1:] == (
        "its first attempt failed with Timeout: 5 s",
        "never reached: ship, mail and 3 more",
    )
    assert only(status="cancelled", ended_by="ann").text == "It was cancelled by ann."
    assert only(status="completed").what == "completed"


# -- whatever the facts are -------------------------------------------------------------------------------

TIMES = st.sampled_from([None, BEFORE, SOON])
TEXTS = st.sampled_from([None, "x"])
STEPS = st.builds(
    OpenStepFacts,
    path=st.sampled_from(["a", "a/b", "a[0]", "a[0]/b", "c", "c!compensate"]),
    kind=st.sampled_from(sorted(KINDS)),
    status=st.sampled_from(["pending", "running", "waiting_retry", "waiting"]),
    due_at=TIMES,
    timeout_at=TIMES,
    ring_at=TIMES,
    parked=TEXTS,
    executor=TEXTS,
    executor_alive=st.sampled_from([None, True, False]),
    total=st.sampled_from([None, 0, 10]),
    remaining=st.sampled_from([None, 0, 4]),
    topic=TEXTS,
    child=TEXTS,
)
RUNS = st.builds(
    RunFacts,
    run_id=st.just("r"),
    workflow=st.just("w"),
    version=st.just("v"),
    status=st.sampled_from(RUN_STATUSES),
    now=st.just(NOW),
    created_at=st.just(BEFORE),
    paused_at=TIMES,
    parked=TEXTS,
    ring_at=TIMES,
    live_executors=st.integers(0, 2),
    steps=st.lists(STEPS, max_size=5),
)


@given(RUNS)
def test_it_is_never_silent_and_names_only_open_steps(run: RunFacts) -> None:
    found = explain(run)
    assert found.reasons
    assert found.sentence
    open_paths = {one.path for one in run.steps} if run.status in RUN_ACTIVE else set()
    assert {one.step for one in found.reasons if one.step is not None} <= open_paths
    if run.status in RUN_TERMINAL:
        assert found.reasons[0].what == run.status
    for one in found.reasons:
        assert one.text.endswith(".")
        assert one.what == "unknown" or one.known


@pytest.mark.parametrize("status", ["pending", "running", "waiting_retry", "waiting"])
@given(kind=st.sampled_from(sorted(KINDS)))
def test_a_hint_is_never_given_for_facts_that_are_missing(status: str, kind: str) -> None:
    for one in reasons(step(kind, status)):
        assert not (one.what == "event" and "None" in one.text)
        assert not (one.what == "child" and "None" in one.text)
