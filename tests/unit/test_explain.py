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
from rival_client.model.why.why_facts import KeyFacts, LimitFacts, OpenStepFacts, RunFacts
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
    queued = only(step(ring_at=SOON, created_at=BEFORE), waiting=31)
    assert (queued.what, queued.step, queued.since) == ("queued", "charge", BEFORE)
    assert "31" in queued.evidence[0]
    assert only(step(ring_at=BEFORE)).what == "not_published"
    assert only(step(parked="unknown step")).what == "parked"


def test_a_queue_that_no_worker_serves_is_named() -> None:
    found = only(step(ring_at=SOON, queue="gpu"), served=frozenset({"default", "mail"}))
    assert (found.what, found.command) == ("no_worker", "rival worker --queues gpu")
    assert found.text == "charge waits in queue gpu, which no live worker serves."
    assert found.evidence == ("live workers serve default, mail",)
    assert only(step(ring_at=SOON, queue="gpu"), served=frozenset({"gpu"})).what == "queued"
    assert only(status="pending", ring_at=SOON, queue="gpu").what == "no_worker"
    assert "queue default" in only(step(ring_at=SOON), served=frozenset({"gpu"})).text


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
    assert (paused.what, paused.command) == ("paused", "rival resume r")
    running = step("step", "running", "other", executor="e", executor_alive=True)
    assert [one.what for one in reasons(running, paused_at=BEFORE)] == ["paused", "running"]


def test_a_retry_names_its_time_and_the_error() -> None:
    found = only(step(status="waiting_retry", due_at=SOON, attempts=2, max_attempts=5, error="Declined: no"))
    assert (found.what, found.until, found.who) == ("retry", SOON, "the clock")
    assert "attempt 2 of 5 failed with Declined: no" in found.text


def test_an_open_circuit_breaker_is_named_and_no_failure_is() -> None:
    found = only(step(status="waiting_retry", due_at=SOON, attempts=1, breaker="bank"))
    assert (found.what, found.until) == ("breaker", SOON)
    assert "failed" not in found.text


def test_a_delay_lasts_until_its_time() -> None:
    ahead = only(step("sleep", "waiting", due_at=SOON), status="suspended")
    assert (ahead.what, ahead.until, ahead.who) == ("delay", SOON, "the clock")
    assert only(step("sleep", "waiting", due_at=BEFORE), status="suspended").who == "a keeper"


def test_an_event_names_topic_key_and_the_event_that_nearly_fits() -> None:
    wait = step("wait", "waiting", topic="reply", key="ann", near_event="e-91", near_differs=("key",), due_at=SOON)
    found = only(wait, status="suspended")
    assert (found.what, found.until) == ("event", SOON)
    assert "topic reply with key ann" in found.text
    assert any("e-91 differs in key" in text for text in found.evidence)
    assert found.command == "rival emit reply --key ann"
    assert only(step("wait", "waiting", topic="a b"), status="suspended").command == "rival emit 'a b'"


def test_a_command_can_be_pasted_whatever_the_run_is_called() -> None:
    assert only(run_id="x; reboot", status="pending", paused_at=BEFORE).command == "rival resume 'x; reboot'"


def test_a_child_is_named_with_its_status() -> None:
    found = only(step("child", "waiting", child="c-1", child_status="failed"), status="suspended")
    assert (found.what, found.command) == ("child", "rival why c-1")
    assert "which is failed" in found.text


def test_an_external_step_waits_until_its_deadline() -> None:
    found = only(step("external", "waiting", timeout_at=SOON, heartbeat_at=BEFORE), status="suspended")
    assert (found.what, found.until) == ("external", SOON)
    assert "11:55:00" in found.evidence[0]


def test_a_full_limit_and_a_start_at_a_later_time_are_named() -> None:
    full = LimitFacts("mail", "ann", 2, 2, BEFORE, granted=False)
    found = only(step(status="waiting", limit=full))
    assert (found.what, found.since) == ("limit", BEFORE)
    assert found.text == "charge waits for a slot of limit mail of key ann."
    assert found.evidence == ("2 of 2 slots are in use",)
    assert only(step(status="waiting", limit=replace(full, granted=True))).what == "queued"
    assert only(status="pending", limit=full).what == "limit"
    assert only(status="pending", due_at=SOON, ring_at=SOON).what == "delay"


def test_an_idempotency_key_names_the_step_that_has_it() -> None:
    taken = KeyFacts("pay-7", "r2", "charge", BEFORE, granted=False)
    found = only(step(status="waiting", idempotency_key=taken))
    assert (found.what, found.since, found.command) == ("idempotency_key", BEFORE, "rival why r2")
    assert found.text == (
        "charge waits for the result of step charge of run r2, which has the same idempotency key pay-7."
    )
    assert only(step(status="waiting", idempotency_key=replace(taken, granted=True))).what == "queued"
    assert only(step(status="waiting", idempotency_key=replace(taken, owner_run=None))).what == "queued"


def test_a_composite_counts_what_has_ended_and_its_open_steps_say_more() -> None:
    lines = step("for_each", "waiting", "lines", total=10, remaining=4)
    inside = step("step", "running", "lines[3]/pack", executor="e", executor_alive=True)
    found = reasons(lines, inside)
    assert [one.what for one in found] == ["steps", "running"]
    assert "6 of 10" in found[0].text
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
    assert only(step(status="running", executor="w1", executor_alive=False)).what == "lost_executor"


def test_a_compensation_is_named() -> None:
    assert only(step("compensating", "waiting", "!compensate")).what == "compensating"


def test_an_ended_run_says_how_it_ended() -> None:
    failed = only(status="failed", completed_at=NOW, failed_step="charge", error="Declined: no", attempts=3)
    assert failed.text == "charge failed after 3 attempts: Declined: no."
    assert failed.command == "rival retry r"
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
