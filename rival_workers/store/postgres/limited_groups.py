"""Group commits of steps that have a limit: which commits a group can contain, and the columns of their limits. The
statements are in `limit_groups.sql`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from rival_client.db.prepared_statement import GroupValue
from rival_client.model.limits.limit_shards import MAX_SHARDS
from rival_client.model.limits.limits import Limit
from rival_workers.engine.effects import OpenRow
from rival_workers.store.group_commits import BeginRun, FinishStep, StepCommit
from rival_workers.store.postgres.limited_begins import BeginGate, begin_gate, may_enter
from rival_workers.store.postgres.limited_finishes import gate_values, the_gate, the_limit
from rival_workers.store.postgres.statements import load_statements

STATEMENTS = load_statements("limit_groups.sql")
BEGIN_LIMITED_RUNS, BEGIN_QUEUED_RUNS = STATEMENTS["rival_begin_limited_runs"], STATEMENTS["rival_begin_queued_runs"]
LOCK_FAIR_GROUPS = STATEMENTS["rival_lock_fair_groups"]
FINISH_LIMITED_STEPS = STATEMENTS["rival_finish_limited_steps"]
CARRY_LIMITED_STEPS = STATEMENTS["rival_carry_limited_steps"]
_COLUMNS = {
    "limit": "limits",
    "limit_suffix": "limit_suffixes",
    "key_source": "key_sources",
    "key_path": "key_paths",
    "fair_source": "fair_sources",
    "fair_path": "fair_paths",
    "shard": "shards",
}


def names_of(commit: StepCommit) -> tuple[str, ...]:
    """The names of the limits of a commit; the path of the step for a limit without a name."""
    leaf, advance = commit.advance.next_leaf, commit.advance
    paths = () if leaf is None else (leaf.path,)
    paths = paths if isinstance(commit, BeginRun) else (*paths, commit.claim.path)
    return tuple(limit.name or path for path in paths for limit in advance.config_of(path).limits)


class Contention:
    """Remembers the limits whose gates other transactions used at the same moment, so that group commits had to be
    repeated alone. Commits with such a limit are executed alone at once, and now and then in a group again.

    A group uses one shard of a limit for all steps that it starts. If another process uses the same shard, the group
    takes another one.
    """

    def __init__(self) -> None:
        #: The share of the last commits that succeeded in groups, by the name of the limit; absent if it is 1.
        self._made: dict[str, float] = {}
        self._asked = 0
        self._shard = random.randrange(MAX_SHARDS)

    def add(self, commit: StepCommit, *, was_made: bool) -> None:
        if was_made and not self._made:
            return
        for name in names_of(commit):
            made = self._made.pop(name, 1.0)
            made += 0.1 * (was_made - made)
            if made < 0.99:
                self._made[name] = made
            self._shard += not was_made

    def shard_of(self, shards: int) -> int:
        return self._shard % shards

    def allows(self, commit: StepCommit) -> bool:
        if not self._made or all(self._made.get(name, 1.0) >= 0.5 for name in names_of(commit)):
            return True
        self._asked += 1
        return self._asked // 8 % 8 == 0


def can_begin(commit: BeginRun) -> bool:
    leaf = commit.advance.next_leaf
    return leaf is not None and commit.advance.goes_on(leaf) and _next_limit(commit, leaf) is not None


def can_queue(commit: BeginRun) -> bool:
    """True if its first step can wait at a full gate."""
    limit = _first_gate(commit)
    return limit is not None and may_enter(limit)


def is_fair(commit: BeginRun) -> bool:
    limit = _first_gate(commit)
    return limit is not None and limit.fair is not None


def can_finish(commit: FinishStep) -> bool:
    """False with a successor, because steps wait for the slot: the single path passes it on."""
    advance, leaf = commit.advance, commit.advance.next_leaf
    if commit.successor is not None or len(advance.config_of(commit.claim.path).limits) > 1:
        return False
    if leaf is None:
        return advance.completes_run
    return advance.goes_on(leaf) and (not advance.limits_of(leaf) or _next_limit(commit, leaf) is not None)


def carries(commit: StepCommit) -> bool:
    """True if the step that follows has the same limit, so that it probably takes over the slot."""
    leaf, advance = commit.advance.next_leaf, commit.advance
    if leaf is None or isinstance(commit, BeginRun):
        return False
    limit, own = _next_limit(commit, leaf), advance.config_of(commit.claim.path).limits
    return limit is not None and limit.name is not None and own == (limit,)


def gate_of_first(commit: BeginRun) -> BeginGate:
    return begin_gate(_first_gate(commit), commit.of)


def _first_gate(commit: BeginRun) -> Limit | None:
    leaf = commit.advance.next_leaf
    return None if leaf is None else the_gate(commit.advance.limits_of(leaf))


def gate_columns(commits: Sequence[StepCommit], contention: Contention) -> dict[str, GroupValue]:
    """The columns for the limits of the steps that open."""
    rows = [_gate(commit, contention) for commit in commits]
    return {column: [row[name] for row in rows] for name, column in _COLUMNS.items()}  # type: ignore[misc]


def _gate(commit: StepCommit, contention: Contention) -> dict[str, str | int | float | None]:
    leaf = commit.advance.next_leaf
    limit = None if leaf is None else the_gate(commit.advance.limits_of(leaf))
    values = gate_values(limit, "", "" if leaf is None else leaf.path)
    return {**values, "shard": 0 if limit is None else contention.shard_of(limit.shards)}


def _next_limit(commit: StepCommit, leaf: OpenRow) -> Limit | None:
    return the_limit(commit.advance.limits_of(leaf))
