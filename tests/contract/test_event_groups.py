"""Events that are delivered in one group: each comes to the wait that it would come to alone, once, and what needs more
than the statement does is left to the single path."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from rival_client.broker.message import EventMessage
from rival_workers import flow, step, wait_event_step
from rival_workers.runtime.attempt.runs_in_hand import RunInHand
from rival_workers.runtime.attempt.step_scheduler import StepScheduler
from rival_workers.store.claim_records import ClaimBy, Delivered
from rival_workers.store.group_commits import ALONE, DeliverEvent
from rival_workers.store.sql_store import SqlStore
from tests.support.inline import Inline
from tests.support.workers import wait_until


@pytest.fixture
def inline(postgres_url: str) -> Iterator[Inline]:
    opened = Inline(postgres_url)
    yield opened
    opened.close()


def own_id(input: Any) -> str:
    return str(input["id"])


def waiting(inline: Inline, *run_ids: str, workflow: str = "w") -> None:
    for run_id in run_ids:
        inline.rival.run(workflow, {"id": run_id}, run_id=run_id)
        inline.drain()


def define(inline: Inline, **options: Any) -> None:
    wait = wait_event_step("go", key=own_id, name="wait", **options)
    inline.define("w", wait, step(lambda last_step: last_step.result, name="end"))


def sent(inline: Inline, *keys: str | None, topic: str = "go", **options: Any) -> list[DeliverEvent]:
    """One event for each key. Their payloads are the keys."""
    by = ClaimBy(inline.coordinator.executor.id, inline.registry.versions)
    commits = [DeliverEvent(inline.rival.send_event(topic, key, key=key, **options).event_id, by) for key in keys]
    inline.doorbell.take()
    return commits


def together(inline: Inline, commits: list[DeliverEvent]) -> list[Any]:
    assert all(inline.store.can_group(commit) for commit in commits)
    return inline.store.commit_group(commits)


def rows_about(inline: Inline, run_id: str) -> list[Any]:
    """All that the database holds of a run, without names and moments."""
    questions = (
        "SELECT status, token FROM rival_runs WHERE id = :run",
        "SELECT path, kind, status, attempts, execution_token, timeout_token, executor_id, rings, item ->> 'topic', "
        "item ->> 'payload' = :run, started_at IS NULL, ring_at IS NULL FROM rival_steps WHERE run_id = :run",
        "SELECT path, what, replace(replace(detail::text, :run, '-'), :event, '-'), replace(actor, :event, '-') "
        "FROM rival_history WHERE run_id = :run ORDER BY id",
        "SELECT path FROM rival_deliveries WHERE run_id = :run AND event_id = :event",
        "SELECT status, ring_at IS NULL FROM rival_events WHERE id = :event",
        "SELECT count(*) FROM rival_waits WHERE run_id = :run",
    )
    with inline.store.database.autocommit() as connection:
        event = connection.scalar(text("SELECT id FROM rival_events WHERE key = :run"), {"run": run_id})
        values = {"run": run_id, "event": event}
        return [[tuple(row) for row in connection.execute(text(one), values)] for one in questions]


def test_many_runs_are_woken_and_claimed_in_one_transaction_as_one_by_one(inline: Inline) -> None:
    define(inline)
    waiting(inline, "run-1", "run-2", "run-3")
    commits = sent(inline, "run-3", "run-1", "run-2")
    alone = commits[2].apply(inline.store)
    answers = together(inline, commits[:2])
    assert [answer.claimed.run_id for answer in answers] == ["run-3", "run-1"]
    assert [answer.claimed.item["payload"] for answer in answers] == ["run-3", "run-1"]
    assert rows_about(inline, "run-1") == rows_about(inline, "run-2")
    assert rows_about(inline, "run-3") == rows_about(inline, "run-2")
    assert (alone.claimed.token, alone.claimed.attempt) == (answers[1].claimed.token, answers[1].claimed.attempt)
    with inline.store.database.autocommit() as connection:
        written = (
            "SELECT count(DISTINCT xmin::text) FROM rival_steps WHERE run_id IN ('run-1', 'run-3') AND path = 'wait'"
        )
        assert connection.scalar(text(written)) == 1


@pytest.mark.parametrize("hindrance", ["another workflow", "another queue", "paused"])
def test_a_step_that_cannot_be_claimed_here_is_only_woken(inline: Inline, hindrance: str) -> None:
    define(inline)
    waiting(inline, "run-1", "run-2")
    [one, two] = sent(inline, "run-1", "run-2")
    if hindrance == "another workflow":
        one, two = (DeliverEvent(commit.event_id, ClaimBy("e", ())) for commit in (one, two))
    elif hindrance == "another queue":
        inline.store._queues = "{elsewhere}"  # type: ignore[attr-defined]
    else:
        assert inline.rival.pause("run-1")
        # A paused step does not take its event: the single path keeps it.
        answers = together(inline, [one, two])
        assert (answers[0], answers[1].claimed.run_id) == (ALONE, "run-2")
        return
    answers = together(inline, [one, two])
    assert [(answer.claimed, answer.ready[0].run_id) for answer in answers] == [(None, "run-1"), (None, "run-2")]
    assert rows_about(inline, "run-1") == rows_about(inline, "run-2")
    assert {one.path: one.status for one in inline.rival.state("run-1").steps}["wait"] == "pending"


def test_of_events_with_one_key_a_group_delivers_the_oldest(inline: Inline) -> None:
    define(inline)
    waiting(inline, "a")
    first, second = sent(inline, "a", "a")
    answers = together(inline, [second, first])
    assert sorted(answer is ALONE for answer in answers) == [False, True]
    [delivered] = [answer for answer in answers if answer is not ALONE]
    assert delivered.claimed.item["id"] == first.event_id
    assert second.apply(inline.store) == Delivered()
    assert sorted(event.status for event in inline.rival.events()) == ["consumed", "kept"]


@pytest.mark.parametrize("what", ["no key", "for all", "no wait", "any key", "another run", "gone", "locked"])
def test_what_needs_more_is_left_to_the_single_path(inline: Inline, what: str) -> None:
    define(inline)
    inline.define("any", wait_event_step("go", name="wait"))
    waiting(inline, "a")
    workflow = {"any key": "any", "no wait": None}.get(what, "w")
    if workflow:
        waiting(inline, "b", workflow=workflow)
    options = {"for all": {"delivery": "all"}, "another run": {"run_id": "a"}}.get(what, {})
    [odd] = sent(inline, None if what == "no key" else "b", **options)
    [plain] = sent(inline, "a")
    if what == "gone":
        inline.rival.cancel("b")
    with inline.store.database.transaction() as other:
        if what == "locked":
            other.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('b', 726356))"))
        left, made = together(inline, [odd, plain])
    assert left is ALONE
    # A wait for any key may be older than the one for the key: then none is delivered in a group.
    assert (made is ALONE) == (what == "any key")
    odd.apply(inline.store)
    if made is ALONE:
        plain.apply(inline.store)


# -- flows ------------------------------------------------------------------------------------------------


def define_flow(inline: Inline, *topics: str) -> None:
    topic = topics if len(topics) > 1 else topics[0] if topics else "go"
    inline.define("flows", flow("f", register=False)(lambda ctx, input: ctx.await_event(topic, key=input["id"])))


def flow_rows(inline: Inline, run_id: str) -> list[Any]:
    questions = (
        "SELECT status, token FROM rival_runs WHERE id = :run",
        "SELECT path, kind, status, attempts, execution_token, timeout_token, executor_id, rings, error IS NULL, "
        "result ->> 'topic', result ->> 'payload' = :run, due_at IS NULL, ring_at IS NULL, completed_at IS NULL "
        "FROM rival_steps WHERE run_id = :run ORDER BY path",
        "SELECT path, what, replace(replace(detail::jsonb::text, :run, '-'), :event, '-'), replace(actor, :event, '-') "
        "FROM rival_history WHERE run_id = :run ORDER BY id",
        "SELECT path FROM rival_deliveries WHERE run_id = :run AND event_id = :event",
        "SELECT status, ring_at IS NULL FROM rival_events WHERE id = :event",
        "SELECT count(*) FROM rival_waits WHERE run_id = :run",
    )
    with inline.store.database.autocommit() as connection:
        event = connection.scalar(text("SELECT id FROM rival_events WHERE key = :run"), {"run": run_id})
        values = {"run": run_id, "event": event}
        return [[tuple(row) for row in connection.execute(text(one), values)] for one in questions]


def test_flows_are_woken_together_as_one_by_one(inline: Inline) -> None:
    define(inline)
    define_flow(inline)
    waiting(inline, "run-1", "run-2", "run-3", workflow="flows")
    waiting(inline, "run-4")
    one, two, three, four = sent(inline, "run-1", "run-2", "run-3", "run-4")
    answers = together(inline, [three, four, one])
    alone = SqlStore.deliver_event(inline.store, two.event_id, two.claim)  # type: ignore[arg-type]
    assert flow_rows(inline, "run-1") == flow_rows(inline, "run-2")
    assert flow_rows(inline, "run-3") == flow_rows(inline, "run-2")
    assert [answer.ready[0].run_id if answer.ready else None for answer in answers] == ["run-3", None, "run-1"]
    assert answers[1].claimed.run_id == "run-4"
    assert replace(answers[2].ready[0], run_id="run-2") == alone.ready[0]
    inline.doorbell.publish([answer.ready[0].message for answer in answers if answer.ready])
    inline.drain()
    assert [inline.rival.result(name).result for name in ("run-1", "run-3")] == ["run-1", "run-3"]


def test_events_of_one_key_come_to_a_step_and_a_flow_in_their_order(inline: Inline) -> None:
    define(inline)
    define_flow(inline)
    inline.rival.run("w", {"id": "k"}, run_id="first")
    inline.drain()
    inline.rival.run("flows", {"id": "k"}, run_id="second")
    inline.drain()
    early, late = sent(inline, "k", "k")
    answers = together(inline, [early, late])
    assert (answers[0].claimed.run_id, answers[1].ready[0].run_id) == ("first", "second")
    assert answers[0].claimed.item["id"] == early.event_id


@pytest.mark.parametrize("what", ["several topics", "paused", "does not wait", "a name with a slash", "locked"])
def test_a_flow_that_needs_more_is_left_to_the_single_path(inline: Inline, what: str) -> None:
    topic = "orders/paid" if what == "a name with a slash" else "go"
    define_flow(inline, *([topic, "other"] if what == "several topics" else [topic]))
    inline.rival.run("flows", {"id": "k"}, run_id="r")
    inline.drain()
    [commit] = sent(inline, "k", topic=topic)
    set_status = "UPDATE rival_steps SET status = :status WHERE run_id = 'r' AND path = 'f'"
    if what == "paused":
        inline.rival.pause("r")
    with inline.store.database.autocommit() as connection:
        connection.execute(text(set_status), {"status": "pending" if what == "does not wait" else "waiting"})
    before = flow_rows(inline, "r")
    with inline.store.database.transaction() as other:
        if what == "locked":
            other.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('r', 726356))"))
        assert together(inline, [commit]) == [ALONE]
    assert flow_rows(inline, "r") == before
    with inline.store.database.autocommit() as connection:
        connection.execute(text(set_status), {"status": "waiting"})
    commit.apply(inline.store)
    assert [event.status for event in inline.rival.events()] == ["consumed"]


# -- several at once --------------------------------------------------------------------------------------


def test_a_key_that_another_transaction_has_locked_is_not_waited_for(inline: Inline) -> None:
    define(inline)
    waiting(inline, "a", "b")
    commits = sent(inline, "a", "b")
    lock = "SELECT pg_advisory_xact_lock(726355, hashtext('go' || E'\\x1f' || 'a'))"
    with inline.store.database.transaction() as other:
        other.execute(text(lock))
        answers = together(inline, commits)
    assert (answers[0], answers[1].claimed.run_id) == (ALONE, "b")
    assert commits[0].apply(inline.store).claimed.run_id == "a"


def test_groups_of_several_threads_deliver_each_event_once(inline: Inline) -> None:
    define(inline)
    names = [f"r{number:02}" for number in range(24)]
    waiting(inline, *names)
    commits = sent(inline, *names)
    orders = [commits, commits[::-1], commits[12:] + commits[:12]]
    start = threading.Barrier(len(orders))

    def deliver(order: list[DeliverEvent]) -> list[str]:
        start.wait(10)
        parts = [order[at : at + 6] for at in range(0, len(order), 6)]
        pairs = [pair for part in parts for pair in zip(part, together(inline, part), strict=True)]
        found = [commit.apply(inline.store) if answer is ALONE else answer for commit, answer in pairs]
        return [one.claimed.run_id for one in found if one.claimed is not None]

    with ThreadPoolExecutor(len(orders)) as pool:
        claimed = [run_id for part in pool.map(deliver, orders) for run_id in part]
    assert sorted(claimed) == names


def test_events_in_hand_are_delivered_together_and_their_runs_end_together(inline: Inline) -> None:
    define(inline)
    names = [f"r{number}" for number in range(8)]
    waiting(inline, *names)
    for name in names:
        inline.rival.send_event("go", name, key=name)
    inline.rival.send_event("go", "r0 again", key="r0")
    scheduler = StepScheduler(inline.store, inline.coordinator.doorbell, 9)
    for message in inline.doorbell.take():
        assert isinstance(message, EventMessage)
        scheduler.add(RunInHand(inline.coordinator.delivering(message.event_id), None))
    sizes: list[int] = []
    commit_group = inline.store.commit_group
    inline.store.commit_group = lambda commits: (sizes.append(len(commits)), commit_group(commits))[1]  # type: ignore
    threads = [threading.Thread(target=scheduler.work, daemon=True) for _ in range(9)]
    for thread in threads:
        thread.start()
    wait_until(lambda: scheduler.in_hand == 0, 20, "an empty hand")
    scheduler.end(len(threads))
    assert [inline.rival.result(name).result for name in names] == names
    assert [event.status for event in inline.rival.events()].count("kept") == 1
    assert max(sizes) >= 5
