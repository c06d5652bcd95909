"""Groups of commits of steps that have a limit: which ones a group can take, and what their statements need to know of
the limits. The statements are in `limit_groups.sql`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rival_client.db.prepared_statement import GroupValue
from rival_client.model.limits import Limit
from rival_workers.engine.effects import OpenRow
from rival_workers.store.group_commits import BeginRun, Commit, FinishStep
from rival_workers.store.postgres.limited_begins import BeginGate, begin_gate
from rival_workers.store.postgres.limited_finishes import gate_values, the_limit
from rival_workers.store.postgres.statements import load_statements

STATEMENTS = load_statements("limit_groups.sql")
BEGIN_LIMITED_RUNS, FINISH_LIMITED_STEPS = (
    STATEMENTS["rival_begin_limited_runs"],
    STATEMENTS["rival_finish_limited_steps"],
)
_COLUMNS = {
    "limit": "limits",
    "limit_suffix": "limit_suffixes",
    "key_source": "key_sources",
    "key_path": "key_paths",
    "shard": "shards",
}


def is_limited(commit: Commit) -> bool:
    """The step that opens has limits, or the one that ends."""
    leaf, advance = commit.advance.next_leaf, commit.advance
    if leaf is not None and advance.limits_of(leaf):
        return True
    return isinstance(commit, FinishStep) and bool(advance.config_of(commit.claim.path).limits)


def names_of(commit: Commit) -> tuple[str, ...]:
    """What the limits of a commit are remembered by: their names, or the paths of steps whose limit has none."""
    leaf, advance = commit.advance.next_leaf, commit.advance
    paths = () if leaf is None else (leaf.path,)
    paths = paths if isinstance(commit, BeginRun) else (*paths, commit.claim.path)
    return tuple(limit.name or path for path in paths for limit in advance.config_of(path).limits)


class Contention:
    """Which limits had gates that others used at the same moment, so that the commits of a group were made alone after
    all. They are made alone at once then, and now and then in a group again."""

    def __init__(self) -> None:
        #: The share of the last commits that groups have made, by the name of the limit.
        self._made: dict[str, float] = {}
        self._asked = 0

    def add(self, names: Iterable[str], *, was_made: bool) -> None:
        for name in names:
            made = self._made.get(name, 1.0)
            self._made[name] = made + 0.1 * (was_made - made)

    def allows(self, names: Iterable[str]) -> bool:
        if all(self._made.get(name, 1.0) >= 0.5 for name in names):
            return True
        self._asked += 1
        return self._asked // 8 % 8 == 0


def can_begin(commit: BeginRun) -> bool:
    leaf = commit.advance.next_leaf
    return leaf is not None and commit.advance.goes_on(leaf) and _next_limit(commit, leaf) is not None


def can_finish(commit: FinishStep) -> bool:
    """With a successor, steps wait for its slot: the single path hands it on."""
    advance, leaf = commit.advance, commit.advance.next_leaf
    if commit.successor is not None or len(advance.config_of(commit.claim.path).limits) > 1:
        return False
    if leaf is None:
        return advance.completes_run
    return advance.goes_on(leaf) and (not advance.limits_of(leaf) or _next_limit(commit, leaf) is not None)


def gate_of_first(commit: BeginRun) -> BeginGate:
    leaf = commit.advance.next_leaf
    return begin_gate(None if leaf is None else _next_limit(commit, leaf), commit.of)


def gate_columns(commits: Sequence[Commit]) -> dict[str, GroupValue]:
    """The limits of the steps that open."""
    rows = [_gate(commit) for commit in commits]
    columns = {column: [row[name] for row in rows] for name, column in _COLUMNS.items()}
    return {**columns, "shards": [int(shard or 0) for shard in columns["shards"]]}  # type: ignore[dict-item]


def _gate(commit: Commit) -> dict[str, str | int | float | None]:
    leaf = commit.advance.next_leaf
    run_id = commit.run_id if isinstance(commit, BeginRun) else commit.claim.run_id
    return gate_values(None if leaf is None else _next_limit(commit, leaf), run_id, "" if leaf is None else leaf.path)


def _next_limit(commit: Commit, leaf: OpenRow) -> Limit | None:
    return the_limit(commit.advance.limits_of(leaf))
