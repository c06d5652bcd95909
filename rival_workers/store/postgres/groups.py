"""Fast path of many commits: those of several runs in one round trip and one commit. The statements are in
`groups.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rival_client.db.prepared import GroupValue, PreparedPool, Row, Statement
from rival_client.errors import DatabaseBusy, DatabaseRefused
from rival_client.model.payload import load
from rival_workers.engine.decisions import End
from rival_workers.store.claim_records import BeginResult, FinishResult
from rival_workers.store.group_commits import ALONE, BeginRun, Commit, FinishStep
from rival_workers.store.postgres.claims import facts_of
from rival_workers.store.postgres.statements import load_statements
from rival_workers.store.postgres.steps import PostgresSteps, has_succeeded

STATEMENTS = load_statements("groups.sql")
GROUP_SETTINGS = STATEMENTS["rival_group_settings"].sql
BEGIN_RUNS, FINISH_STEPS = STATEMENTS["rival_begin_runs"], STATEMENTS["rival_finish_steps"]

Columns = dict[str, GroupValue]


class PostgresGroups(PostgresSteps):
    #: Connections with the settings that the plans of groups need.
    _groups: PreparedPool

    def can_group(self, commit: Commit) -> bool:
        advance = commit.advance
        if self._in_place(commit.claim_for) is None:
            return False
        if isinstance(commit, BeginRun):
            return advance.claims_next and not commit.limits
        follows = advance.claims_next or advance.completes_run
        return follows and isinstance(commit.end, End) and has_succeeded(commit.claim, commit.end)

    def commit_group(self, commits: Sequence[Commit]) -> list[Any]:
        """Only commits that `can_group` has accepted."""
        executor = commits[0].claim_for
        own = [number for number, commit in enumerate(commits) if commit.claim_for == executor]
        own.sort(key=lambda number: _run_of(commits[number]))
        begins = [number for number in own if isinstance(commits[number], BeginRun)]
        ends = [number for number in own if isinstance(commits[number], FinishStep)]
        calls: list[tuple[Statement, Columns]] = []
        if begins:
            calls.append((BEGIN_RUNS, _begin_columns([commits[number] for number in begins], executor)))
        if ends:
            calls.append((FINISH_STEPS, _finish_columns([commits[number] for number in ends], executor)))
        answers: list[Any] = [ALONE] * len(commits)
        try:
            results = self._groups.fetch_groups(calls)
        except (DatabaseBusy, DatabaseRefused):
            # A row is locked, or has a value that cannot be stored. Nothing was committed, and each finds out alone.
            return answers
        if begins:
            _read_begun(results[0], begins, commits, answers)
        if ends:
            _read_finished(results[-1], ends, commits, answers)
        return answers


def _run_of(commit: Commit) -> str:
    return commit.run_id if isinstance(commit, BeginRun) else commit.claim.run_id


def _begin_columns(commits: Sequence[Any], executor: str | None) -> Columns:
    return {
        "run_ids": [commit.run_id for commit in commits],
        "tokens": [commit.token for commit in commits],
        "workflows": [None if commit.of is None else commit.of.workflow for commit in commits],
        "versions": [None if commit.of is None else commit.of.version for commit in commits],
        "withouts": [commit.without for commit in commits],
        "executor": executor,
        **_next_columns(commits),
    }


def _finish_columns(commits: Sequence[Any], executor: str | None) -> Columns:
    claims, ends = [commit.claim for commit in commits], [commit.end for commit in commits]
    return {
        "run_ids": [claim.run_id for claim in claims],
        "paths": [claim.path for claim in claims],
        "tokens": [claim.token for claim in claims],
        "statuses": [end.status for end in ends],
        "results": [end.result for end in ends],
        "states": [end.state for end in ends],
        "outcomes": [end.outcome for end in ends],
        "executor": executor,
        **_next_columns(commits),
    }


def _next_columns(commits: Sequence[Commit]) -> Columns:
    """Of the step that each goes on with; nothing if its run ends."""
    paths, kinds, timeouts, policies = zip(*(commit.advance.next_values for commit in commits), strict=True)
    return {"next_paths": paths, "next_kinds": kinds, "timeouts": timeouts, "policies": policies}


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
