"""Fast path of many commits: those of several runs, and of several lanes of a run, in one round trip and one commit.
The statements are in `groups.sql`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rival_client.db.prepared import PreparedPool
from rival_client.db.prepared_statement import GroupValue, Row, Statement
from rival_client.errors import DatabaseBusy, DatabaseRefused
from rival_client.model.payload import load
from rival_client.sql.history import result_details
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import OpenRow
from rival_workers.store.claim_records import BeginResult, FinishResult
from rival_workers.store.group_commits import ALONE, BeginRun, Commit, FinishStep
from rival_workers.store.postgres import limited_groups
from rival_workers.store.postgres.claims import facts_of
from rival_workers.store.postgres.endings import at_once, has_succeeded
from rival_workers.store.postgres.limited_begins import BeginGate
from rival_workers.store.postgres.limited_groups import BEGIN_LIMITED_RUNS, FINISH_LIMITED_STEPS
from rival_workers.store.postgres.statements import load_statements
from rival_workers.store.postgres.steps import PostgresSteps
from rival_workers.store.sql.sweeps import SweepsSql

STATEMENTS = load_statements("groups.sql")
GROUP_SETTINGS = STATEMENTS["rival_group_settings"].sql
BEGIN_RUNS, FINISH_STEPS = STATEMENTS["rival_begin_runs"], STATEMENTS["rival_finish_steps"]
FINISH_LANES = STATEMENTS["rival_finish_lanes"]

Columns = dict[str, GroupValue]


class PostgresGroups(PostgresSteps, SweepsSql):
    #: Connections with the settings that the plans of groups need.
    _groups: PreparedPool
    #: Limits at which the last start had to wait.
    _full_limits: set[BeginGate]

    def can_group(self, commit: Commit) -> bool:
        advance = commit.advance
        if self._in_place(commit.claim_for) is None:
            return False
        if isinstance(commit, BeginRun):
            return not commit.limits and (advance.claims_next or self._can_begin_limited(commit))
        if not isinstance(commit.end, End) or not has_succeeded(commit.claim, commit.end):
            return False
        if limited_groups.is_limited(commit):
            return limited_groups.can_finish(commit)
        return advance.claims_next or advance.completes_run or Lane.of(commit) is not None

    def _can_begin_limited(self, commit: BeginRun) -> bool:
        """A run that begins at a full gate waits, which the single path does in one commit."""
        return limited_groups.can_begin(commit) and limited_groups.gate_of_first(commit) not in self._full_limits

    def commit_group(self, commits: Sequence[Commit]) -> list[Any]:
        """Only commits that `can_group` has accepted."""
        executor = commits[0].claim_for
        own = [number for number, commit in enumerate(commits) if commit.claim_for == executor]
        own.sort(key=lambda number: _place_of(commits[number]))
        answers: list[Any] = [ALONE] * len(commits)
        parts = [part for part in _parts(commits, own) if part.numbers]
        try:
            results = self._groups.fetch_groups([part.call(commits, executor) for part in parts])
        except (DatabaseBusy, DatabaseRefused):
            # A row is locked, or has a value that cannot be stored. Nothing was committed, and each finds out alone.
            return answers
        freed: dict[int, int] = {}
        for part, rows in zip(parts, results, strict=True):
            for row in rows:
                number = part.numbers[int(row[0] or 0) - 1]
                answers[number] = part.answer(commits[number], row)
                if part.frees and row[2] is not None:
                    freed[int(row[2])] = number
        self._look_again(freed, answers)
        return answers

    def _look_again(self, freed: dict[int, int], answers: list[Any]) -> None:
        """As after a single finish. `freed`: the gates that were full, and the commits that have freed a slot."""
        grants = self.look_again(list(freed))
        if grants:
            number = next(iter(freed.values()))
            answers[number] = replace(answers[number], grants=grants)


# -- parts of a group: one statement each -----------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """The commits of a group, by their numbers, that one statement makes."""

    numbers: list[int]
    statement: Statement
    columns: Callable[[Sequence[Any]], Columns]
    #: The first column of a row is the place of its commit.
    answer: Callable[[Any, Row], Any]
    #: The third column is a gate that was full, and has room now.
    frees: bool = False

    def call(self, commits: Sequence[Commit], executor: str | None) -> tuple[Statement, Columns]:
        return self.statement, {"executor": executor, **self.columns([commits[number] for number in self.numbers])}


def _parts(commits: Sequence[Commit], own: Sequence[int]) -> list[Part]:
    limited = [number for number in own if limited_groups.is_limited(commits[number])]
    begins = [number for number in own if isinstance(commits[number], BeginRun)]
    ends, lanes = list[int](), dict[Lane, list[int]]()
    for number in own:
        commit = commits[number]
        if isinstance(commit, FinishStep) and number not in limited:
            lane = None if commit.advance.next_leaf or commit.advance.completes_run else Lane.of(commit)
            (ends if lane is None else lanes.setdefault(lane, [])).append(number)
    return [
        Part([one for one in begins if one not in limited], BEGIN_RUNS, _begin_columns, _begun),
        Part([one for one in begins if one in limited], BEGIN_LIMITED_RUNS, _limited_begin_columns, _begun),
        Part(ends, FINISH_STEPS, _finish_columns, _finished),
        Part(
            [one for one in limited if one not in begins],
            FINISH_LIMITED_STEPS,
            _limited_finish_columns,
            _finished,
            frees=True,
        ),
        *(Part(numbers, FINISH_LANES, lane.columns, lane.answer) for lane, numbers in lanes.items()),
    ]


def _place_of(commit: Commit) -> tuple[str, str]:
    """Rows are locked in this order."""
    return (commit.run_id, "") if isinstance(commit, BeginRun) else commit.claim.where


@dataclass(frozen=True)
class Lane:
    """The `for_each` that a lane belongs to, and the step that opens for its next item."""

    run_id: str
    join: str
    opening: OpenRow
    timeout: float | None
    policy: str | None

    @classmethod
    def of(cls, commit: FinishStep) -> Lane | None:
        """None: the step is not the last one of its lane, or what follows needs more than one statement."""
        found, advance = commit.advance.lane, commit.advance
        if found is None or not at_once(advance, found[2]):
            return None
        _, join, opening = found
        config, policy = advance.config_of(opening.path), advance.policy_of(opening.path)
        return cls(commit.claim.run_id, join, opening, config.limit, policy)

    def columns(self, commits: Sequence[FinishStep]) -> Columns:
        details = [
            result_details(one.claim.path, one.claim.token + 1, one.end.result, one.end.state)  # type: ignore[union-attr]
            for one in commits
        ]
        return {
            **_ended_columns(commits),
            "run_id": self.run_id,
            "join": self.join,
            "items": [_item_of(one) for one in commits],
            "own_details": [own for own, _ in details],
            "upper_details": [upper for _, upper in details],
            "next_path": self.opening.path.removeprefix(f"{self.join}["),
            "next_kind": self.opening.kind,
            "timeout": self.timeout,
            "policy": self.policy,
        }

    def answer(self, commit: FinishStep, row: Row) -> FinishResult:
        if row[1] is None:
            return FinishResult()
        return FinishResult(claimed=self.opening.at_item(self.join, int(row[1])), token=int(row[2] or 0))


def _item_of(commit: FinishStep) -> str:
    lane = commit.advance.lane
    assert lane is not None
    return lane[0]


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
    return {"run_ids": run_ids, **_ended_columns(commits), **_next_columns(commits)}


def _limited_begin_columns(commits: Sequence[Any]) -> Columns:
    return _begin_columns(commits) | limited_groups.gate_columns(commits)


def _limited_finish_columns(commits: Sequence[Any]) -> Columns:
    return _finish_columns(commits) | limited_groups.gate_columns(commits)


def _ended_columns(commits: Sequence[Any]) -> Columns:
    claims, ends = [commit.claim for commit in commits], [commit.end for commit in commits]
    return {
        "paths": [claim.path for claim in claims],
        "tokens": [claim.token for claim in claims],
        "statuses": [end.status for end in ends],
        "results": [end.result for end in ends],
        "states": [end.state for end in ends],
        "outcomes": [end.outcome for end in ends],
    }


def _next_columns(commits: Sequence[Commit]) -> Columns:
    """Of the step that each goes on with; nothing if its run ends."""
    paths, kinds, timeouts, policies = zip(*(commit.advance.next_values for commit in commits), strict=True)
    return {"next_paths": paths, "next_kinds": kinds, "timeouts": timeouts, "policies": policies}


def _begun(commit: BeginRun, row: Row) -> BeginResult:
    finished = FinishResult(claimed=commit.advance.next_leaf, token=commit.token)
    return BeginResult(load(row[1]), finished, facts_of(row[2], row[3], row[4], row[5], row[6]))


def _finished(commit: FinishStep, row: Row) -> FinishResult:
    opening = commit.advance.next_leaf
    return FinishResult(run_ended=True) if opening is None else FinishResult(claimed=opening, token=int(row[1] or 0))
