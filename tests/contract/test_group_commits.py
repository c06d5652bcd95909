"""A group of commits does what its commits do one by one: each row has its own guard, and a bad row fails alone."""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import select, text

from rival_client.db import metadata
from rival_client.db.run_tables import runs, steps
from rival_client.errors import DatabaseRefused, DatabaseUnavailable
from rival_client.model.payload import Json
from rival_client.sql.history import NAMED_ABOVE
from rival_client.sql.runs import pause_run
from rival_workers.engine.decisions import End, EndStatus
from rival_workers.engine.effects import Advance, OpenRow
from rival_workers.engine.interpreter import advance, first
from rival_workers.engine.nodes import ForEachNode, StepNode
from rival_workers.engine.plan import Plan
from rival_workers.store.claim_records import (
    BeginResult,
    Claim,
    ClaimBy,
    Expired,
    FinishResult,
    NotYet,
    WorkflowVersion,
)
from rival_workers.store.flow_records import FlowClaim
from rival_workers.store.group_commits import ALONE, BeginRun, Commit, DeliverEvent, FinishStep
from rival_workers.store.postgres import PostgresStore
from rival_workers.store.postgres.flow_groups import ContinueCall, commit_flows
from rival_workers.store.sql_store import SqlStore
from tests.contract import test_fast_paths as fast_paths
from tests.contract.stage import COMPLETES, DONE, GOES_ON, PLAN, Stage
from tests.support.effort import examples
from tests.support.inline import Clock
from tests.support.locks import until_blocked
from tests.support.shared_database import database_at
from tests.support.threads import join_all

ANY = OpenRow("b", "step")
LARGE = Json('"' + "é" * NAMED_ABOVE + '"')


@pytest.fixture
def store(postgres_url: str) -> Iterator[PostgresStore]:
    opened = PostgresStore(database_at(postgres_url))
    yield opened
    opened._prepared.close()
    opened._groups.close()


@pytest.fixture
def rows(store: PostgresStore) -> Stage:
    return Stage(store, Clock())


def finish(run_id: str, token: int = 1, after: Advance = GOES_ON, end: End = DONE) -> FinishStep:
    return FinishStep(Claim(run_id, "a", token), end, after, "e1")


def begin(run_id: str, token: int = 0, of: WorkflowVersion | None = None) -> BeginRun:
    return BeginRun(run_id, token, first(PLAN), "e1", of)


def in_a_group(store: PostgresStore, *commits: Commit) -> list[Any]:
    assert all(store.can_group(commit) for commit in commits)
    return store.commit_group(commits)


# -- rows that do not fit ---------------------------------------------------------------------------------


def test_begins_and_ends_of_many_runs_are_one_transaction(rows: Stage, store: PostgresStore) -> None:
    rows.add_run("new")
    rows.begin("goes on")
    rows.begin("ends")
    begun, goes_on, ended = in_a_group(store, begin("new"), finish("goes on"), finish("ends", after=COMPLETES))
    assert begun == BeginResult({"x": 1}, FinishResult(claimed=first(PLAN).next_leaf))
    assert goes_on == FinishResult(claimed=GOES_ON.next_leaf)
    assert ended == FinishResult(run_ended=True)
    assert rows.step("b", "goes on")["status"] == "running"
    assert (rows.run("ends")["status"], rows.run("ends")["result"]) == ("completed", {"n": 1})
    with store.database.transaction() as connection:
        inserted = "(run_id, path) IN (('new', 'a'), ('goes on', 'b'))"
        transactions = f"SELECT count(DISTINCT xmin::text) FROM rival_steps WHERE {inserted}"
        assert connection.scalar(text(transactions)) == 1


def test_large_results_of_a_group_are_written_once(rows: Stage, store: PostgresStore) -> None:
    rows.begin("goes on")
    rows.begin("ends")
    end = replace(DONE, result=LARGE)
    in_a_group(store, finish("goes on", end=end), finish("ends", after=COMPLETES, end=end))
    with store.database.transaction() as connection:
        stored = connection.scalar(text("SELECT max(length(detail::text)) FROM rival_history"))
        assert stored < NAMED_ABOVE
        connection.execute(text("DELETE FROM rival_steps"))
        kept = text("SELECT count(*) FROM rival_history WHERE detail ->> 'result' = :large")
        assert connection.scalar(kept, {"large": "é" * NAMED_ABOVE}) == 3


def test_a_stale_token_among_fresh_ones_changes_nothing_of_its_own(rows: Stage, store: PostgresStore) -> None:
    for run_id in ("r1", "r2", "r3"):
        rows.begin(run_id)
    one, stale, three = in_a_group(store, finish("r1"), finish("r2", token=0), finish("r3"))
    assert (one.claimed, three.claimed, stale) == (ANY, ANY, ALONE)
    assert finish("r2", token=0).apply(store) is None
    assert rows.step("a", "r2")["status"] == "running"


def test_two_messages_of_one_run_in_one_group_start_it_once(rows: Stage, store: PostgresStore) -> None:
    rows.add_run("r")
    answers = in_a_group(store, begin("r"), begin("r"))
    assert sorted(answer is ALONE for answer in answers) == [False, True]
    assert begin("r").apply(store) is None
    assert rows.step("a")["attempts"] == 1


@pytest.mark.parametrize("what", ["paused", "cancelled", "not due", "expired", "of another workflow"])
def test_a_run_that_must_not_begin_is_left_out_and_says_why_alone(rows: Stage, store: PostgresStore, what: str) -> None:
    rows.add_run("fits")
    rows.add_run("r")
    change = {"not due": "due_at = now() + interval '1 hour'", "expired": "deadline_at = now() - interval '1 hour'"}
    if what == "paused":
        with store.database.transaction() as connection:
            pause_run(connection, "r", "operator")
    elif what == "cancelled":
        rows.cancel("r")
    elif what in change:
        rows.force(f"UPDATE rival_runs SET {change[what]} WHERE id = 'r'")
    named = WorkflowVersion("other" if what == "of another workflow" else "w", PLAN.version)
    fits, left = in_a_group(store, begin("fits"), begin("r", of=named))
    assert (type(fits), left) == (BeginResult, ALONE)
    before = rows.everything()
    alone = begin("r", of=named).apply(store)
    expected = {"not due": NotYet, "expired": Expired, "of another workflow": WorkflowVersion}
    assert type(alone) is expected.get(what, type(None))
    assert rows.everything() == before


@pytest.mark.parametrize("what", ["paused", "cancelled", "child", "slots", "gone"])
def test_a_step_that_needs_more_than_the_statement_does_is_left_to_the_single_path(
    rows: Stage, store: PostgresStore, what: str
) -> None:
    for run_id in ("fits", "r"):
        rows.begin(run_id)
    if what == "paused":
        with store.database.transaction() as connection:
            pause_run(connection, "r", "operator")
        rows.force("UPDATE rival_steps SET paused = true WHERE run_id = 'r'")
    elif what == "cancelled":
        rows.cancel("r")
    elif what == "child":
        rows.force("UPDATE rival_runs SET parent_run_id = 'fits' WHERE id = 'r'")
    elif what == "slots":
        rows.force("UPDATE rival_steps SET slots = '{}' WHERE run_id = 'r'")
    else:
        rows.force("DELETE FROM rival_steps WHERE run_id = 'r'")
    fits, left = in_a_group(store, finish("fits", after=COMPLETES), finish("r", after=COMPLETES))
    assert (fits, left) == (FinishResult(run_ended=True), ALONE)


def test_a_value_that_cannot_be_stored_fails_alone(rows: Stage, store: PostgresStore) -> None:
    for run_id in ("r1", "r2", "r3"):
        rows.begin(run_id)
    bad = finish("r2", end=replace(DONE, result=Json("{not json")))
    before = rows.everything()
    assert in_a_group(store, finish("r1"), bad, finish("r3")) == [ALONE] * 3
    assert rows.everything() == before
    with pytest.raises(DatabaseRefused):
        bad.apply(store)
    assert finish("r1").apply(store) is not None
    assert rows.step("a", "r2")["status"] == "running"


def test_commits_of_another_executor_are_not_made_in_its_name(rows: Stage, store: PostgresStore) -> None:
    for run_id in ("r1", "r2"):
        rows.begin(run_id)
    other = replace(finish("r2"), claim_for="e2")
    assert [answer is ALONE for answer in in_a_group(store, finish("r1"), other)] == [False, True]


# -- lanes of one for_each --------------------------------------------------------------------------------

LANES = Plan(nodes=(ForEachNode(type="for_each", name="all", do=(StepNode(name="b"),), concurrency=4), PLAN.nodes[0]))


@pytest.fixture
def lanes(rows: Stage, store: PostgresStore) -> Callable[..., list[FinishStep]]:
    """Begins a run with four lanes; returns their first ends."""

    def begin_lanes(run_id: str, items: int) -> list[FinishStep]:
        rows.add_run(run_id)
        begun = store.begin_run(run_id, 0, first(LANES), claim_for="e1")
        assert isinstance(begun, BeginResult)
        given = End("completed", Json("null"), items=tuple(Json(str(n)) for n in range(items)))
        opens = advance(LANES, "all!items", given, "items")
        assert store.finish_step(Claim(run_id, "all!items", 1), given, opens, claim_for=None)
        for number in range(4):
            assert store.claim_step(Claim(run_id, f"all[{number}]/b", 0), None, "e1")
        return [lane_end(run_id, number) for number in range(4)]

    return begin_lanes


def lane_end(run_id: str, item: int, token: int = 1, end: End = DONE) -> FinishStep:
    path = f"all[{item}]/b"
    return FinishStep(Claim(run_id, path, token), end, advance(LANES, path, end, "step"), "e1")


def next_items(answers: Sequence[Any]) -> list[str | None]:
    return [None if one.claimed is None else one.claimed.path for one in answers]


def joined(rows: Stage, run_id: str) -> tuple[int, int]:
    row = rows.step("all", run_id)
    return row["opened"], row["remaining"]


def test_lanes_of_one_run_end_and_take_the_next_items_in_one_statement(
    rows: Stage, store: PostgresStore, lanes: Callable[..., list[FinishStep]]
) -> None:
    ends, others = lanes("r", 20), lanes("s", 20)
    answers = in_a_group(store, *reversed(ends), others[2])
    assert next_items(answers) == [*(f"all[{n}]/b" for n in (7, 6, 5, 4)), "all[4]/b"]
    assert (joined(rows, "r"), joined(rows, "s")) == ((8, 16), (5, 19))
    for item in range(4):
        assert rows.step(f"all[{item}]", "r")["status"] == rows.step(f"all[{item}]/b", "r")["status"] == "completed"
    again = in_a_group(store, *(lane_end("r", item) for item in range(4, 8)))
    assert next_items(again) == [f"all[{n}]/b" for n in range(8, 12)]
    with store.database.transaction() as connection:
        written = text("SELECT path FROM rival_history WHERE run_id = 'r' ORDER BY id DESC LIMIT 12")
        recorded = list(connection.scalars(written))[::-1]
    assert recorded[:4] == ["all[4]/b", "all[4]", "all[8]/b", "all[5]/b"]


def test_a_lane_that_is_stale_or_cannot_be_stored_leaves_the_others_as_they_are(
    rows: Stage, store: PostgresStore, lanes: Callable[..., list[FinishStep]]
) -> None:
    one, two, three, four = lanes("r", 20)
    stale = replace(two, claim=replace(two.claim, token=0))
    answers = in_a_group(store, one, stale, three)
    assert answers[1] is ALONE
    assert next_items([answers[0], answers[2]]) == ["all[4]/b", "all[5]/b"]
    assert (stale.apply(store), joined(rows, "r")) == (None, (6, 18))
    bad = lane_end("r", 3, end=replace(DONE, result=Json("{not json")))
    before = rows.everything()
    assert in_a_group(store, two, bad) == [ALONE, ALONE]
    assert rows.everything() == before
    assert next_items([two.apply(store), four.apply(store)]) == ["all[6]/b", "all[7]/b"]


def test_the_last_items_go_to_the_first_lanes_and_the_last_lanes_end_the_composite_one_by_one(
    rows: Stage, store: PostgresStore, lanes: Callable[..., list[FinishStep]]
) -> None:
    ends = lanes("r", 6)
    assert next_items(in_a_group(store, *ends)) == ["all[4]/b", "all[5]/b", None, None]
    assert joined(rows, "r") == (6, 2)
    last = [lane_end("r", item) for item in (4, 5)]
    assert in_a_group(store, *last) == [ALONE, ALONE]
    assert next_items([one.apply(store) for one in last]) == [None, "a"]
    assert rows.step("all", "r")["result"] == [{"n": 1}] * 6


def test_groups_of_two_processes_share_the_items_of_a_for_each(
    rows: Stage, store: PostgresStore, lanes: Callable[..., list[FinishStep]]
) -> None:
    """Each takes what it is given, and no item is taken twice: the second group waits for the row of the composite."""
    ends = lanes("r", 60)
    taken: list[str | None] = []

    def go_on(mine: list[FinishStep]) -> None:
        for _ in range(10):
            answers = store.commit_group(mine)
            alone = [one.apply(store) if answer is ALONE else answer for one, answer in zip(mine, answers, strict=True)]
            taken.extend(next_items(alone))
            mine = [lane_end("r", int(re.findall(r"\d+", path)[0])) for path in next_items(alone) if path]

    threads = [threading.Thread(target=go_on, args=(ends[at : at + 2],)) for at in (0, 2)]
    for thread in threads:
        thread.start()
    join_all(threads)
    assert sorted(taken, key=str) == sorted((f"all[{n}]/b" for n in range(4, 44)), key=str)
    assert joined(rows, "r") == (44, 20)


@pytest.mark.parametrize("what", ["paused", "the composite is locked", "an operator has locked the run"])
def test_lanes_that_cannot_end_now_are_left_to_the_single_path(
    rows: Stage, store: PostgresStore, lanes: Callable[..., list[FinishStep]], what: str
) -> None:
    ends = lanes("r", 20)
    before = rows.everything()
    with store.database.transaction() as other:
        if what == "paused":
            with store.database.transaction() as connection:
                pause_run(connection, "r", "operator")
            before = rows.everything()
        elif what == "the composite is locked":
            other.execute(text("SELECT FROM rival_steps WHERE run_id = 'r' AND path = 'all' FOR UPDATE"))
        else:
            other.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('r', 726356))"))
        assert in_a_group(store, *ends) == [ALONE] * 4
    assert rows.everything() == before


# -- locks ------------------------------------------------------------------------------------------------


def test_a_group_does_not_wait_for_a_run_that_an_operator_has_locked(rows: Stage, store: PostgresStore) -> None:
    for run_id in ("r1", "r2"):
        rows.begin(run_id)
    with store.database.transaction() as operator:
        operator.execute(text("SELECT pg_advisory_xact_lock(hashtextextended('r1', 726356))"))
        locked, free = in_a_group(store, finish("r1"), finish("r2"))
    assert (locked, free.claimed) == (ALONE, ANY)


def test_a_row_that_is_locked_for_long_leaves_each_commit_to_itself(rows: Stage, store: PostgresStore) -> None:
    for run_id in ("r1", "r2"):
        rows.begin(run_id)
    with store.database.transaction() as other:
        other.execute(text("SELECT FROM rival_steps WHERE run_id = 'r1' FOR UPDATE"))
        assert in_a_group(store, finish("r1"), finish("r2")) == [ALONE, ALONE]
        assert finish("r2").apply(store) is not None


def test_two_groups_that_lock_the_same_rows_in_opposite_orders_do_not_deadlock(
    rows: Stage, store: PostgresStore
) -> None:
    """Both wait for the last row of the other if they lock in the order given."""
    names = [f"r{number:02}" for number in range(40)]
    for run_id in names:
        rows.begin(run_id)
    answers: list[list[Any]] = []
    groups = [[finish(one) for one in names], [finish(one) for one in reversed(names)]]
    with store.database.transaction() as other:
        # Both queue up behind the row in the middle, with half of the rows locked.
        other.execute(text("SELECT FROM rival_steps WHERE run_id = 'r20' FOR UPDATE"))
        threads = [threading.Thread(target=lambda one=one: answers.append(store.commit_group(one))) for one in groups]
        for thread in threads:
            thread.start()
        until_blocked(store.database)
    join_all(threads)
    # One lands as a whole; the other, which comes second, finds stale tokens only.
    assert sorted(sum(answer is not ALONE for answer in group) for group in answers) == [0, 40]
    assert rows.count("rival_steps") == 80


def test_the_order_of_locks_does_not_depend_on_the_order_given(rows: Stage, store: PostgresStore) -> None:
    """Holds a row late in the order, and sees that the earlier ones are locked by then, whatever was given first."""
    for run_id in ("r1", "r2", "r3"):
        rows.begin(run_id)
    with store.database.transaction() as other:
        other.execute(text("SELECT FROM rival_steps WHERE run_id = 'r3' FOR UPDATE"))
        thread = threading.Thread(target=lambda: store.commit_group([finish(one) for one in ("r3", "r2", "r1")]))
        thread.start()
        until_blocked(store.database)
        free = "SELECT run_id FROM rival_steps WHERE run_id IN ('r1', 'r2') FOR UPDATE SKIP LOCKED"
        assert other.execute(text(free)).all() == []
    join_all([thread])


# -- the answer is lost -----------------------------------------------------------------------------------


def test_an_answer_that_is_lost_is_an_error_of_the_whole_group(
    rows: Stage, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("r1", "r2"):
        rows.begin(run_id)
    real = store._groups.fetch_groups

    def lost(calls: Any) -> Any:
        real(calls)
        raise DatabaseUnavailable("the answer was lost")

    monkeypatch.setattr(store._groups, "fetch_groups", lost)
    with pytest.raises(DatabaseUnavailable):
        in_a_group(store, finish("r1"), finish("r2"))
    assert store.token_of("r1", "a") == ("completed", 2, "e1")


# -- what can be grouped ----------------------------------------------------------------------------------


def test_only_what_one_statement_can_do_is_grouped(store: PostgresStore) -> None:
    failed = End("failed", error={"type": "E"}, hard=True, outcome="failed")
    assert not store.can_group(finish("r", end=failed))
    assert not store.can_group(replace(finish("r"), claim_for=None))
    assert not store.can_group(replace(finish("r"), claim=Claim("r", "a", 1, "timeout_token")))
    assert not store.can_group(finish("r", after=Advance((OpenRow("b", "step"), OpenRow("c", "step")))))
    assert not store.can_group(replace(begin("r"), claim_for=None))
    assert not SqlStore.can_group(store, finish("r"))


# -- one by one -------------------------------------------------------------------------------------------


@dataclass
class GroupWalk(fast_paths.Walk):
    """As the walk of the fast paths; starts and ends are committed in groups on one copy, one by one on the other."""

    grouped: int = 0

    def executor(self) -> str | None:
        return self.random.choice([fast_paths.EXECUTOR] * 9 + [None])

    def commit(self, commits: Sequence[Commit]) -> None:
        if not commits:
            return
        ordered = sorted(commits, key=_place_of)
        # What a group cannot make comes after it, on both copies.
        ordered.sort(key=lambda one: (not self.fast.can_group(one), isinstance(one, FinishStep)))

        def made(store: SqlStore) -> Any:
            fits = [one for one in ordered if store.can_group(one)]
            answers = dict(zip(map(id, fits), store.commit_group(fits) if len(fits) > 1 else [ALONE], strict=False))
            self.grouped += sum(answer is not ALONE for answer in answers.values())
            return [self.continued(store, one, answers.get(id(one), ALONE)) for one in ordered]

        self.both(made)

    def continued(self, store: SqlStore, commit: Commit, answer: Any) -> Any:
        """What was not made with the others is made alone, and claims a next step with limits by itself."""
        answer = commit.apply(store) if answer is ALONE else answer
        finished = answer.finished if isinstance(answer, BeginResult) else answer
        if not isinstance(finished, FinishResult) or isinstance(commit, DeliverEvent):
            return answer
        run_id = commit.run_id if isinstance(commit, BeginRun) else commit.claim.run_id
        workflow = self.a_run(runs.c.id == run_id).workflow
        going = self.going_on(store, finished, run_id, workflow, commit.claim_for)
        return replace(answer, finished=going) if isinstance(answer, BeginResult) else going

    def begin_run(self) -> None:
        with self.fast.database.transaction() as connection:
            pending = connection.execute(select(runs).where(runs.c.status == "pending")).all()
        chosen = sorted(pending, key=lambda run: run.id)[: self.random.randint(1, 4)]
        self.commit([self.beginning(run) for run in chosen])

    def beginning(self, run: Any) -> BeginRun:
        named = WorkflowVersion(run.workflow, run.version)
        of = self.random.choice([None, named, named, WorkflowVersion("other", "1")])
        begins = first(fast_paths.PLANS[run.workflow]).with_options(fast_paths.timed)
        return BeginRun(run.id, run.token - self.random.choice([0, 0, 0, 1]), begins, fast_paths.EXECUTOR, of)

    def finish_step(self) -> None:
        running = self.rows(steps.c.status == "running")
        # Lanes of a run are in one group; of other runs with several steps, one is.
        found = {(row.run_id, row.path if "[" in row.path else ""): row for row in running if self.can_finish(row)}
        chosen = self.random.sample(sorted(found), min(len(found), self.random.randint(1, 6)))
        self.commit([self.finishing(found[place]) for place in chosen])

    def can_finish(self, row: Any) -> bool:
        """Not a checkpoint of a flow, and a flow only now and then."""
        return not row.path.startswith("f/") and (row.kind != "flow" or self.random.random() < 0.3)

    def finishing(self, row: Any) -> FinishStep:
        items = tuple(Json(str(n)) for n in range(self.random.choice([0, 1, 5]))) if row.kind == "items" else ()
        status: EndStatus = self.random.choice(["completed"] * 7 + ["skipped", "failed"])
        state = self.random.choice([None, Json('{"n":1}')])
        result = self.random.choice([Json(str(len(items) or 7)), None])
        end = End(status, result, state, items=items)
        if status == "failed":
            end = End("failed", error=fast_paths.ERROR, hard=True, outcome="failed")
        follows = advance(self.plan_of(row), row.path, end, row.kind).with_options(fast_paths.timed)
        return FinishStep(self.claim_of(row), end, follows, self.executor())

    def continue_flow(self) -> None:
        if found := self.flow():
            claim, state = found[0], self.state()
            by = FlowClaim(fast_paths.EXECUTOR, self.random.choice([None, fast_paths.TIMEOUT]))
            call = ContinueCall(claim, Json("[3]"), state, fast_paths.GRACE, by, self.fast._queues)

            def made(store: SqlStore) -> Any:
                [done] = commit_flows(store._groups, [call]) if isinstance(store, PostgresStore) else [ALONE]
                self.grouped += done is not ALONE
                return store.continue_flow(claim, Json("[3]"), state, by) if done is ALONE else done

            self.both(made)

    def send_event(self) -> None:
        """Two events at once; the first wakes a run that waits. It is not claimed: one of the stores cannot."""
        if self.a_step(steps.c.status == "waiting", steps.c.kind == "wait") is None and self.random.random() < 0.9:
            return
        key, by = self.random.choice(["k"] * 5 + [None]), ClaimBy(fast_paths.EXECUTOR, ())
        delivery = self.random.choice(["one"] * 4 + ["all"])
        made = [self.insert_event("t", key, delivery) for _ in range(2)]
        self.commit([DeliverEvent(event_id, by) for event_id in made])


def _place_of(commit: Commit) -> tuple[str, str]:
    if isinstance(commit, DeliverEvent):
        return "", commit.event_id
    return (commit.run_id, "") if isinstance(commit, BeginRun) else commit.claim.where


copies = fast_paths.copies


def by_run(store: SqlStore) -> dict[str, list[dict[str, Any]]]:
    """Groups write the histories of runs in another order; that of each run is the same."""
    found = real_rows_of(store)
    found["rival_history"].sort(key=lambda row: row["run_id"])
    return found


real_rows_of = fast_paths.rows_of


@pytest.mark.parametrize("seed", range(examples(1)))
def test_a_group_leaves_the_same_rows_as_its_commits_one_by_one(
    copies: tuple[PostgresStore, SqlStore], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    grouped, alone = copies
    for one in copies:
        with one.database.autocommit() as connection:
            tables = (table.name for table in metadata.sorted_tables if table.name != "rival_workflows")
            connection.exec_driver_sql("; ".join(f"DELETE FROM {name}" for name in tables))
    monkeypatch.setattr(fast_paths, "rows_of", by_run)
    # Most runs have plain steps, which groups take.
    plans = [*["steps"] * 12, *["wait"] * 4, *["lanes"] * 6, *["roomy"] * 16, *fast_paths.PLAIN_PLANS]
    walk = GroupWalk(grouped, alone, random.Random(seed), plans)
    for _ in range(8):
        walk.add_run()
    weights = Counter(fast_paths.CALLS_BY_WEIGHT) + Counter(
        add_run=20, begin_run=30, finish_step=50, send_event=20, continue_flow=5
    )
    while walk.calls < fast_paths.CALLS:
        [name] = walk.random.choices([*weights], [*weights.values()])
        getattr(walk, name)()
        if walk.calls % fast_paths.COMPARED == 0:
            fast_paths.compare(grouped, alone)
    fast_paths.compare(grouped, alone)
    assert walk.grouped > 10
