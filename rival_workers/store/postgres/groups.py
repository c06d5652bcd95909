"""Fast path of group commits: the commits of several runs, and of several lanes of a run, in one round trip and one
transaction. The statements are in `groups.sql`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rival_client.db.prepared import PreparedPool
from rival_client.db.prepared_statement import Row, Statement
from rival_client.errors import DatabaseBusy, DatabaseRefused
from rival_client.model.payload import load
from rival_workers.engine.decisions import End, FallBack
from rival_workers.store.claim_records import BeginResult, FinishResult
from rival_workers.store.group_commits import (
    ALONE,
    BeginRun,
    Commit,
    DeliverEvent,
    FinishStep,
    FinishSteps,
    StepCommit,
    claim_of_next,
)
from rival_workers.store.postgres import limited_groups
from rival_workers.store.postgres.claims import facts_of
from rival_workers.store.postgres.endings import FINISH_LANES, Columns, Lane, ended_columns, has_succeeded
from rival_workers.store.postgres.events import DELIVER_EVENTS, DELIVER_TO_FLOWS, LOCK_EVENTS, Deliverer
from rival_workers.store.postgres.limited_begins import BeginGate
from rival_workers.store.postgres.limited_groups import (
    BEGIN_LIMITED_RUNS,
    BEGIN_QUEUED_RUNS,
    CARRY_LIMITED_STEPS,
    FINISH_LIMITED_STEPS,
    LOCK_FAIR_GROUPS,
    Contention,
)
from rival_workers.store.postgres.statements import FastPath, load_statements
from rival_workers.store.postgres.steps import FINISH_STEP, FinishCall, PostgresSteps
from rival_workers.store.sql.sweeps import SweepsSql

STATEMENTS = load_statements("groups.sql")
GROUP_SETTINGS = STATEMENTS["rival_group_settings"].sql
BEGIN_RUNS, FINISH_STEPS = STATEMENTS["rival_begin_runs"], STATEMENTS["rival_finish_steps"]

#: An end of a step, and the statement that commits it.
FastEnd = tuple[FastPath[FinishCall, FinishResult], FinishCall]


class PostgresGroups(PostgresSteps, SweepsSql):
    #: Connections with the settings that the plans of groups need.
    _groups: PreparedPool
    #: Limits at which the last start had to wait.
    _full_limits: set[BeginGate]
    _contention: Contention

    def can_group(self, commit: Commit) -> bool:
        if isinstance(commit, DeliverEvent):
            return commit.claim is not None
        if isinstance(commit, FinishSteps):
            return False
        advance = commit.advance
        if self._in_place(commit.claim_for) is None:
            return False
        if isinstance(commit, BeginRun):
            return not commit.limits and (advance.claims_next or self._can_begin_limited(commit))
        if not isinstance(commit.end, End) or not has_succeeded(commit.claim, commit.end):
            return False
        if commit.is_limited:
            return limited_groups.can_finish(commit) and self._contention.allows(commit)
        return advance.claims_next or advance.completes_run or Lane.of(commit) is not None

    def finish_steps(self, steps: Sequence[FinishStep], *, next_has_run: bool = False) -> list[FinishResult]:
        ends = self._fast_ends(steps)
        if ends is None:
            return super().finish_steps(steps, next_has_run=next_has_run)
        rows = self._prepared.fetch_each([(path.statement, path.values(call)) for path, call in ends])
        done: list[FinishResult] = []
        for (path, call), row in zip(ends, rows, strict=True):
            finished = None if row is None else path.result(call, row)
            if finished is None:
                break
            done.append(finished)
        left = steps[len(done) :]
        # What the statements do not match is stale, or has another token than the first one.
        claim = claim_of_next(done[-1], left[0].claim) if done and left else None
        if done and claim is None:
            return done
        first = replace(left[0], claim=claim or left[0].claim)
        return done + super().finish_steps([first, *left[1:]], next_has_run=next_has_run)

    def _fast_ends(self, steps: Sequence[FinishStep]) -> list[FastEnd] | None:
        """None: the end of one of them has no fast statement."""
        found: list[FastEnd] = []
        for step in steps:
            if isinstance(step.end, FallBack):
                return None
            call = FinishCall(step.claim, step.end, step.advance, self._in_place(step.claim_for), self.ring_grace)
            found += [(path, call) for path in FINISH_STEP if path.applies(call)][:1]
        return found if len(found) == len(steps) else None

    def may_wait(self, commit: Commit) -> bool:
        return isinstance(commit, DeliverEvent) or commit.is_limited

    def _can_begin_limited(self, commit: BeginRun) -> bool:
        can_begin = limited_groups.can_begin(commit) or self._will_queue(commit)
        return can_begin and self._contention.allows(commit)

    def _will_queue(self, commit: Commit) -> bool:
        """True if the gate of its first step is probably full, as it was for the last start, and the step can wait
        there."""
        if not isinstance(commit, BeginRun) or not limited_groups.can_queue(commit):
            return False
        return limited_groups.gate_of_first(commit) in self._full_limits

    def commit_group(self, commits: Sequence[Commit]) -> list[Any]:
        """`commits`: only commits that `can_group` has accepted."""
        executor = commits[0].claim_for
        # Of two commits of one step, the second is committed alone, where it is found to be stale.
        own = {_place_of(commit): number for number, commit in enumerate(commits) if commit.claim_for == executor}
        limited = [number for number in own.values() if commits[number].is_limited]
        queued = {number for number in limited if self._will_queue(commits[number])}
        answers: list[Any] = [ALONE] * len(commits)
        parts = self._parts(commits, [own[place] for place in sorted(own)], queued)
        try:
            results = self._groups.fetch_groups([part.call(commits, executor) for part in parts])
        except (DatabaseBusy, DatabaseRefused):
            # A row is locked, or a value cannot be stored. Nothing was committed; each commit is repeated alone.
            return answers
        freed: dict[int, int] = {}
        for part, rows in zip(parts, results, strict=True):
            for row in rows:
                number = part.numbers[int(row[0] or 0) - 1]
                answers[number] = part.answer(commits[number], row)
                if part.frees and row[2] is not None:
                    freed[int(row[2])] = number
        for number in limited:
            if isinstance(commit := commits[number], BeginRun | FinishStep):
                self._contention.add(commit, was_made=answers[number] is not ALONE)
        self._drop_full([commits[number] for number in queued if answers[number] is ALONE])
        self._look_again(freed, answers)
        return answers

    def _drop_full(self, commits: Sequence[Any]) -> None:
        for commit in commits:
            self._full_limits.discard(limited_groups.gate_of_first(commit))

    def _parts(self, commits: Sequence[Any], own: Sequence[int], queued: Collection[int]) -> list[Part]:
        events = [number for number in own if isinstance(commits[number], DeliverEvent)]
        if not events and not queued:
            return _parts(commits, own, self._contention)
        others = [number for number in own if number not in events]
        fair = [number for number in others if number in queued and limited_groups.is_fair(commits[number])]
        parts = [
            Part(fair, LOCK_FAIR_GROUPS, _with_gates(self._contention, _begin_columns), _waits),  # returns no row
            *self._deliveries(commits, events),
            *_parts(commits, others, self._contention, queued),
        ]
        return [part for part in parts if part.numbers]

    def _deliveries(self, commits: Sequence[Any], events: list[int]) -> Iterator[Part]:
        if events:
            claim = commits[events[0]].claim
            same = [number for number in events if commits[number].claim == claim]
            deliverer = Deliverer(claim, self.ring_grace, self._queues)
            yield Part(same, LOCK_EVENTS, deliverer.columns, Deliverer.delivered)  # returns no row
            yield Part(same, DELIVER_EVENTS, deliverer.columns, Deliverer.delivered)
            yield Part(same, DELIVER_TO_FLOWS, deliverer.columns, Deliverer.flow_delivered)

    def _look_again(self, freed: dict[int, int], answers: list[Any]) -> None:
        """Grant waiting tickets, as after a single finish. `freed`: the gates that were full, and the commits that
        freed a slot."""
        grants = self.look_again(list(freed))
        if grants:
            number = next(iter(freed.values()))
            answers[number] = replace(answers[number], grants=grants)


# -- parts of a group: one statement each -----------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """The commits of a group, by their indexes, that one statement executes."""

    numbers: list[int]
    statement: Statement
    columns: Callable[[Sequence[Any]], Columns]
    #: Converts a row to an answer. The first column of the row is the index of its commit.
    answer: Callable[[Any, Row], Any]
    #: True if the third column is a gate that was full and has room now.
    frees: bool = False

    def call(self, commits: Sequence[Commit], executor: str | None) -> tuple[Statement, Columns]:
        return self.statement, {"executor": executor, **self.columns([commits[number] for number in self.numbers])}


def _parts(
    commits: Sequence[Any], own: Sequence[int], contention: Contention, queued: Collection[int] = ()
) -> list[Part]:
    """`queued`: begins that will probably find their gate full."""
    limited, begins, ends, lanes = list[int](), list[int](), list[int](), dict[Lane, list[int]]()
    for number in own:
        commit = commits[number]
        if commit.is_limited:
            limited.append(number)
        elif isinstance(commit, BeginRun):
            begins.append(number)
        else:
            lane = None if commit.advance.next_leaf or commit.advance.completes_run else Lane.of(commit)
            (ends if lane is None else lanes.setdefault(lane, [])).append(number)
    at_begin, at_end = _limited_parts(commits, limited, contention, queued) if limited else ([], [])
    parts = [
        Part(begins, BEGIN_RUNS, _begin_columns, _begun),
        *at_begin,
        Part(ends, FINISH_STEPS, _finish_columns, _finished),
        *at_end,
        *(Part(numbers, FINISH_LANES, lane.columns, lane.answer) for lane, numbers in lanes.items()),
    ]
    return [part for part in parts if part.numbers]


def _limited_parts(
    commits: Sequence[Any], limited: Sequence[int], contention: Contention, queued: Collection[int]
) -> tuple[list[Part], list[Part]]:
    """The parts of a group for rows with limits: the parts that begin runs, and those that end steps."""
    with_gates = partial(_with_gates, contention)
    begins = [one for one in limited if isinstance(commits[one], BeginRun)]
    at_gates, waits = [one for one in begins if one not in queued], [one for one in begins if one in queued]
    carried = [one for one in limited if limited_groups.carries(commits[one])]
    others = [one for one in limited if one not in begins and one not in carried]
    return [
        Part(at_gates, BEGIN_LIMITED_RUNS, with_gates(_begin_columns), _begun),
        Part(waits, BEGIN_QUEUED_RUNS, with_gates(_begin_columns), _waits),
    ], [
        Part(carried, CARRY_LIMITED_STEPS, with_gates(_finish_columns), _finished),
        Part(others, FINISH_LIMITED_STEPS, with_gates(_finish_columns), _finished, frees=True),
    ]


def _place_of(commit: Commit) -> tuple[str, str]:
    """The sort key: rows are locked in this order; those of events in the order of the runs that they wake."""
    if isinstance(commit, DeliverEvent):
        return ("", commit.event_id)
    return (commit.run_id, "") if isinstance(commit, BeginRun) else commit.claim.where


def _begin_columns(commits: Sequence[BeginRun]) -> Columns:
    return {
        "run_ids": [commit.run_id for commit in commits],
        "tokens": [commit.token for commit in commits],
        "workflows": [None if commit.of is None else commit.of.workflow for commit in commits],
        "versions": [None if commit.of is None else commit.of.version for commit in commits],
        "withouts": [commit.without for commit in commits],
        **_next_columns(commits),
    }


def _finish_columns(commits: Sequence[Any]) -> Columns:
    run_ids = [commit.claim.run_id for commit in commits]
    return {"run_ids": run_ids, **ended_columns(commits), **_next_columns(commits)}


def _with_gates(contention: Contention, columns: Callable[[Any], Columns]) -> Callable[[Any], Columns]:
    return lambda commits: columns(commits) | limited_groups.gate_columns(commits, contention)


def _next_columns(commits: Sequence[StepCommit]) -> Columns:
    """The columns of the step that follows each commit; null if its run ends."""
    paths, kinds, timeouts, policies = zip(*(commit.advance.next_values for commit in commits), strict=True)
    return {"next_paths": paths, "next_kinds": kinds, "timeouts": timeouts, "policies": policies}


def _begun(commit: BeginRun, row: Row) -> BeginResult:
    finished = FinishResult(claimed=commit.advance.next_leaf, token=commit.token)
    return BeginResult(load(row[1]), finished, facts_of(row[2], row[3], row[4], row[5], row[6]))


def _waits(commit: BeginRun, row: Row) -> BeginResult:
    return BeginResult(load(row[1]), FinishResult(token=commit.token), facts_of(*row[2:]))


def _finished(commit: FinishStep, row: Row) -> FinishResult:
    opening = commit.advance.next_leaf
    return FinishResult(run_ended=True) if opening is None else FinishResult(claimed=opening, token=int(row[1] or 0))
