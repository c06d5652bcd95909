"""Events that are delivered in one group: each comes to the wait that it would come to alone, once, and what needs more
than the statement does is left to the single path."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import text

from rival_client.broker.message import EventMessage
from rival_client.errors import DatabaseUnavailable
from rival_workers import flow, step, wait_event_step
from rival_workers.runtime.attempt.runs_in_hand import RunInHand
from rival_workers.runtime.attempt.step_scheduler import StepScheduler
from rival_workers.store.claim_records import ClaimBy, Delivered
from rival_workers.store.group_commits import ALONE, DeliverEvent
from rival_workers.store.postgres import groups
from rival_workers.store.sql_store import SqlStore
from tests.support.inline import Inline
from tests.support.locks import until_blocked
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


def claim_by(inline: Inline) -> ClaimBy:
    return inline.coordinator._claim_by(inline.coordinator.transitions.options.book())


def run_with(inline: Inline, event_id: str, *, group: bool) -> Any:
    """Deliver one event and run what it wakes: as a group, or alone in portable SQL. Returns the answer."""
    commits = inline.coordinator.delivering(event_id)
    commit = next(commits)
    assert isinstance(commit, DeliverEvent)
    [answer] = inline.store.commit_group([commit]) if group else [SqlStore.deliver_event(inline.store, event_id)]  # type: ignore[arg-type]
    with suppress(StopIteration):
        commit = commits.send(answer)
        while True:
            commit = commits.send(commit.apply(inline.store))
    return answer


def all_rows(inline: Inline, run_id: str) -> list[str]:
    """As `flow_rows`, with the orders and numbers of checkpoints. Values of `ctx.uuid` differ."""
    orders = "SELECT path, status, end_order, begun_after, opened, state::text FROM rival_steps WHERE run_id = :run"
    with inline.store.database.autocommit() as connection:
        more = connection.execute(text(f"{orders} ORDER BY path"), {"run": run_id})
        found = [*flow_rows(inline, run_id), [tuple(row) for row in more]]
    return [re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "-", str(row)) for rows in found for row in rows]


def many_calls(ctx: Any, input: Any) -> Any:
    """A step, a state and a value before the wait, and a step after it."""
    first = ctx.step(lambda: 1, name="first")
    ctx.state["first"] = first
    ctx.uuid()
    event = ctx.await_event("go", key=input["id"])
    return ctx.step(lambda: event, name="last")


@pytest.mark.parametrize("function", [many_calls, lambda ctx, input: ctx.await_event("go", key=input["id"])])
def test_flows_that_are_claimed_with_their_events_leave_the_rows_of_single_commits(
    inline: Inline, function: Any
) -> None:
    inline.define("flows", flow("f", register=False)(function))
    waiting(inline, "run-1", "run-2", workflow="flows")
    one, two = sent(inline, "run-1", "run-2")
    answer = run_with(inline, one.event_id, group=True)
    assert (answer.claimed.run_id, answer.claimed.stored is not None, answer.ready) == ("run-1", True, ())
    assert run_with(inline, two.event_id, group=False).claimed is None
    inline.drain()
    assert all_rows(inline, "run-1") == all_rows(inline, "run-2")
    assert [inline.rival.result(name).result for name in ("run-1", "run-2")] == ["run-1", "run-2"]


def test_a_claimed_flow_has_its_checkpoints_and_its_input_without_reading_them(
    inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline.define("flows", flow("f", register=False)(many_calls))
    waiting(inline, "run-1", workflow="flows")
    [commit] = sent(inline, "run-1")
    for name in ("read_checkpoints", "read_item", "claim_step", "commit_flow"):
        monkeypatch.setattr(inline.store, name, None)
    claimed = run_with(inline, commit.event_id, group=True).claimed
    assert [
        (one.path, one.status, one.end_order) for one in sorted(claimed.stored.checkpoints, key=lambda one: one.number)
    ] == [
        ("f/first", "completed", 0),
        ("f/uuid", "completed", None),
        ("f/event:go", "completed", 1),
    ]
    assert claimed.stored.state == {"first": 1}
    assert inline.rival.result("run-1").result == "run-1"


def test_a_flow_that_has_continued_is_claimed_with_its_new_input(inline: Inline) -> None:
    def function(ctx: Any, input: Any) -> Any:
        if "turn" not in input:
            ctx.continue_as({**input, "turn": 2})
        return [input["turn"], ctx.await_event("go", key=input["id"])]

    inline.define("flows", flow("f", register=False)(function))
    waiting(inline, "a", workflow="flows")
    [commit] = sent(inline, "a")
    assert run_with(inline, commit.event_id, group=True).claimed.item == {"id": "a", "turn": 2}
    assert inline.rival.result("a").result == [2, "a"]


@pytest.mark.parametrize("first", ["event", "sleep"])
def test_a_flow_that_waits_for_more_than_the_event_receives_it_by_itself(inline: Inline, first: str) -> None:
    """The order of two ends is that of their times: the statement does not decide it."""

    def function(ctx: Any, input: Any) -> Any:
        event, nap = ctx.start.await_event("go", key=input["id"]), ctx.start.sleep(30)
        return ctx.first(event, nap).index

    inline.define("flows", flow("f", register=False)(function))
    waiting(inline, "a", workflow="flows")
    [commit] = sent(inline, "a")
    if first == "sleep":
        with inline.store.database.autocommit() as connection:
            earlier = "UPDATE rival_steps SET due_at = now() - interval '1 hour' WHERE run_id = 'a' AND kind = 'sleep'"
            connection.execute(text(earlier))
    claimed = run_with(inline, commit.event_id, group=True).claimed
    assert [one.end_order for one in claimed.stored.checkpoints] == [None, None]
    assert inline.rival.result("a").result == (0 if first == "event" else 1)


@pytest.mark.parametrize("hindrance", ["rules of the run", "another queue", "unknown", "start too late"])
def test_a_flow_that_cannot_be_claimed_here_is_only_woken(inline: Inline, hindrance: str) -> None:
    define_flow(inline)
    waiting(inline, "a", workflow="flows")
    [commit] = sent(inline, "a")
    by = claim_by(inline)
    assert list(by.flows) == [f"flows@{inline.registry.newest('flows').version}/f"]  # type: ignore[union-attr]
    if hindrance == "another queue":
        inline.store._queues = "{elsewhere}"  # type: ignore[attr-defined]
    elif hindrance == "unknown":
        by = replace(by, flows={})
    else:
        change = {
            "rules of the run": "UPDATE rival_runs SET policies = '{}' WHERE id = 'a'",
            "start too late": "UPDATE rival_steps SET start_by = now() WHERE run_id = 'a' AND path = 'f'",
        }
        with inline.store.database.autocommit() as connection:
            connection.execute(text(change[hindrance]))
    [answer] = together(inline, [replace(commit, claim=by)])
    assert (answer.claimed, [one.path for one in answer.ready]) == (None, ["f"])
    state = {one.path: one.status for one in inline.rival.state("a").steps}
    assert state == {"f": "pending", "f/event:go": "completed"}


def test_only_flows_that_need_nothing_else_are_claimed_with_their_events(inline: Inline) -> None:
    define_flow(inline)
    inline.define("limited", flow("g", register=False)(step(concurrency_limit=2)(lambda ctx: None)))
    inline.define("timed", flow("h", register=False)(step(timeout=30)(lambda ctx: None)))
    flows = {place.split("@")[0]: limit for place, limit in claim_by(inline).flows.items()}
    assert flows == {"flows": None, "timed": 30.0}
    assert claim_by(inline) is claim_by(inline)
    # A definition that replaces another one of the same version may have other options.
    inline.registry.renew(inline.registry.newest("timed"))  # type: ignore[arg-type]
    by = claim_by(inline)
    assert by.flows[next(iter(place for place in by.flows if place.startswith("timed")))] == 30.0


def test_flows_whose_claim_was_not_answered_are_handed_back_and_receive_their_events_once(inline: Inline) -> None:
    inline.define("flows", flow("f", register=False)(many_calls))
    waiting(inline, "a", "b", workflow="flows")
    runs = [inline.coordinator.delivering(commit.event_id) for commit in sent(inline, "a", "b")]
    answers = inline.store.commit_group([next(run) for run in runs])
    assert [answer.claimed.run_id for answer in answers] == ["a", "b"]
    for run in runs:
        with pytest.raises(DatabaseUnavailable):
            run.throw(DatabaseUnavailable("no answer"))
    assert {inline.store.token_of(name, "f")[0] for name in "ab"} == {"running"}  # type: ignore[index]
    inline.process.executor.hand_back_strays()
    inline.drain()
    assert [inline.rival.result(name).result for name in "ab"] == ["a", "b"]
    received = "SELECT path, detail ->> 'end_order' FROM rival_history WHERE what = 'received' ORDER BY id"
    with inline.store.database.autocommit() as connection:
        assert [tuple(row) for row in connection.execute(text(received))] == [("f/event:go", "1")] * 2


def test_a_flow_whose_attempt_ran_in_the_meantime_is_left_to_the_single_path(
    inline: Inline, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checkpoints are those of the moment at which the statement began."""
    define_flow(inline)
    waiting(inline, "a", "b", workflow="flows")
    commits = [replace(commit, claim=claim_by(inline)) for commit in sent(inline, "a", "b")]
    patient = replace(groups.LOCK_EVENTS, name=b"patient", sql=groups.LOCK_EVENTS.sql.replace("100ms", "20s"))
    monkeypatch.setattr(groups, "LOCK_EVENTS", patient)
    with ThreadPoolExecutor(1) as pool:
        with inline.store.database.transaction() as other:
            raised = "UPDATE rival_steps SET execution_token = execution_token + 2 WHERE run_id = 'a' AND path = 'f'"
            other.execute(text(raised))
            answers = pool.submit(together, inline, commits)
            until_blocked(inline.store.database)
        left, made = answers.result()
    assert (left, made.claimed.run_id) == (ALONE, "b")
    assert {one.path: one.status for one in inline.rival.state("a").steps}["f/event:go"] == "waiting"


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
    inline.coordinator.settings = replace(inline.settings, continuation_budget=60)  # a slow machine ends them here, too
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
