"""Fast path of many commits: those of several runs in one round trip and one commit. The statements are in
`groups.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rival_client.db.prepared import GroupValue, Row, Statement
from rival_client.errors import DatabaseBusy, DatabaseRefused
from rival_client.model.payload import load
from rival_workers.engine.decisions import End
from rival_workers.store.claim_records import BeginResult, FinishResult
from rival_workers.store.group_commits import ALONE, BeginRun, Commit, FinishStep
from rival_workers.store.postgres.claims import facts_of
from rival_workers.store.postgres.statements import load_statements
from rival_workers.store.postgres.steps import BEGIN_RUN, FINISH_STEP, BeginCall, FinishCall, PostgresSteps

STATEMENTS = load_statements("groups.sql")
SETTINGS = STATEMENTS["rival_group_settings"]
BEGIN_RUNS, FINISH_STEPS = STATEMENTS["rival_begin_runs"], STATEMENTS["rival_finish_steps"]

_AND_CLAIM, _AND_COMPLETE = FINISH_STEP[0], FINISH_STEP[2]

Columns = dict[str, GroupValue]


class PostgresGroups(PostgresSteps):
    def can_group(self, commit: Commit) -> bool:
        if isinstance(commit, BeginRun):
            return not commit.limits and BEGIN_RUN.applies(self._begin_call(commit))
        if not isinstance(commit.end, End) or commit.claim_for is None:
            return False
        call = self._finish_call(commit)
        return _AND_COMPLETE.applies(call) or _AND_CLAIM.applies(call)

    def commit_group(self, commits: Sequence[Commit]) -> list[Any]:
        """Only commits that `can_group` has accepted."""
        executor = commits[0].claim_for
        own = [number for number, commit in enumerate(commits) if commit.claim_for == executor]
        own.sort(key=lambda number: _run_of(commits[number]))
        begins = [number for number in own if isinstance(commits[number], BeginRun)]
        ends = [number for number in own if isinstance(commits[number], FinishStep)]
        calls: list[tuple[Statement, Columns]] = [(SETTINGS, {})]
        if begins:
            calls.append((BEGIN_RUNS, _begin_columns([self._begin_call(commits[n]) for n in begins], executor)))
        if ends:
            calls.append((FINISH_STEPS, _finish_columns([self._finish_call(commits[n]) for n in ends], executor)))
        answers: list[Any] = [ALONE] * len(commits)
        try:
            results = self._prepared.fetch_groups(calls)
        except (DatabaseBusy, DatabaseRefused):
            # A row is locked, or has a value that cannot be stored. Nothing was committed, and each finds out alone.
            return answers
        if begins:
            _read_begun(results[1], begins, commits, answers)
        if ends:
            _read_finished(results[-1], ends, commits, answers)
        return answers

    def _begin_call(self, commit: Any) -> BeginCall:
        claim_for = self._in_place(commit.claim_for)
        return BeginCall(commit.run_id, commit.token, commit.advance, claim_for, commit.of, commit.without)

    def _finish_call(self, commit: Any) -> FinishCall:
        claim_for = self._in_place(commit.claim_for)
        return FinishCall(commit.claim, commit.end, commit.advance, claim_for, self.ring_grace)


def _run_of(commit: Commit) -> str:
    return commit.run_id if isinstance(commit, BeginRun) else commit.claim.run_id


def _begin_columns(calls: Sequence[BeginCall], executor: str | None) -> Columns:
    return {
        "run_ids": [call.run_id for call in calls],
        "tokens": [call.token for call in calls],
        "workflows": [None if call.of is None else call.of.workflow for call in calls],
        "versions": [None if call.of is None else call.of.version for call in calls],
        "withouts": [call.without for call in calls],
        "executor": executor,
        **_next_columns(calls),
    }


def _finish_columns(calls: Sequence[FinishCall], executor: str | None) -> Columns:
    return {
        "run_ids": [call.claim.run_id for call in calls],
        "paths": [call.claim.path for call in calls],
        "tokens": [call.claim.token for call in calls],
        "statuses": [call.end.status for call in calls],
        "results": [call.end.result for call in calls],
        "states": [call.end.state for call in calls],
        "outcomes": [call.end.outcome for call in calls],
        "executor": executor,
        **_next_columns(calls),
    }


def _next_columns(calls: Sequence[BeginCall] | Sequence[FinishCall]) -> Columns:
    """Of the step that each goes on with; nothing if its run ends."""
    advances = [call.advance for call in calls]
    leaves = [advance.next_leaf for advance in advances]
    both = list(zip(advances, leaves, strict=True))
    return {
        "next_paths": [None if leaf is None else leaf.path for leaf in leaves],
        "next_kinds": [None if leaf is None else leaf.kind for leaf in leaves],
        "timeouts": [None if leaf is None else advance.config_of(leaf.path).limit for advance, leaf in both],
        "policies": [None if leaf is None else advance.policy_of(leaf.path) for advance, leaf in both],
    }


def _read_begun(rows: Sequence[Row], begins: Sequence[int], commits: Sequence[Any], answers: list[Any]) -> None:
    for row in rows:
        number = begins[int(row[0] or 0) - 1]
        commit = commits[number]
        finished = FinishResult(claimed=commit.advance.next_leaf, token=commit.token)
        answers[number] = BeginResult(load(row[1]), finished, facts_of(row[2], row[3], row[4], row[5], row[6]))


def _read_finished(rows: Sequence[Row], ends: Sequence[int], commits: Sequence[Any], answers: list[Any]) -> None:
    for row in rows:
        number = ends[int(row[0] or 0) - 1]
        opening = commits[number].advance.next_leaf
        ended = FinishResult(run_ended=True)
        answers[number] = ended if opening is None else FinishResult(claimed=opening, token=int(row[1] or 0))
