"""Decides which ends of steps the fast statements can commit, and gives their columns in a group: several lanes of one
`for_each` can end together. The statement for lanes is in `groups.sql`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rival_client.db.prepared_statement import GroupValue, Row
from rival_client.model import statuses
from rival_client.model.record import record
from rival_client.sql.history import result_details
from rival_workers.engine.decisions import End
from rival_workers.engine.effects import Advance, OpenRow
from rival_workers.engine.paths import is_handler
from rival_workers.store.claim_records import Claim, FinishResult
from rival_workers.store.group_commits import FinishStep
from rival_workers.store.postgres.statements import load_statements

FINISH_LANES = load_statements("groups.sql")["rival_finish_lanes"]

Columns = dict[str, GroupValue]


def has_succeeded(claim: Claim, end: End) -> bool:
    """False for a failed attempt, even if its step has not failed, because its error is recorded; for a handler,
    because its result is not the result of the run; and for a step with an idempotency key: others may wait for it."""
    if claim.guard != "execution_token" or end.outcome != statuses.COMPLETED or end.status == statuses.FAILED:
        return False
    return not end.keyed and not is_handler(claim.path)


def at_once(advance: Advance, opening: OpenRow | None) -> bool:
    return opening is not None and advance.goes_on(opening) and not advance.limits_of(opening)


def ended_columns(commits: Sequence[Any]) -> Columns:
    claims, ends = [commit.claim for commit in commits], [commit.end for commit in commits]
    return {
        "paths": [claim.path for claim in claims],
        "tokens": [claim.token for claim in claims],
        "statuses": [end.status for end in ends],
        "results": [end.result for end in ends],
        "states": [end.state for end in ends],
        "outcomes": [end.outcome for end in ends],
    }


@record(frozen=True)
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
            **ended_columns(commits),
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
