"""A run and its family: its ancestors, and the child runs below, level by level. It takes an open connection.

What is read is bounded in depth, in width and as a whole; what is left out is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, RowMapping, Select, case, func, literal, select

from rival_client.db.run_tables import runs
from rival_client.errors import RunNotFound
from rival_client.model.run_node import RunNode
from rival_client.sql.reads.capped_counts import Count, capped

DEPTH, WIDTH = 10, 20
#: A tree is walked recursively, also by callers that print it.
MAX_DEPTH = 100
#: Runs in one tree, whatever depth and width would allow.
MOST = 2000
#: How far up the ancestors are followed.
_HEIGHT = 1000

_COLUMNS = tuple(
    runs.c[name]
    for name in (
        "id",
        "workflow",
        "version",
        "status",
        "failed_step",
        "created_at",
        "started_at",
        "completed_at",
        "paused_at",
        "parent_run_id",
        "parent_path",
    )
)


def read_tree(connection: Connection, run_id: str, *, below: bool, depth: int, width: int) -> RunNode:
    """From the root ancestor, or only from the run itself. The way down to the run is there in any case."""
    line = list(connection.execute(line_of(run_id, *_COLUMNS)).mappings())
    if not line:
        raise RunNotFound(run_id)
    # The line of ancestors ends at a parent that retention has deleted.
    root = line[0] if below else line[-1]
    return _Descent(connection, {row["id"] for row in line}, depth, width).tree(root)


def line_of(run_id: str, *columns: ColumnElement[Any]) -> Select[Any]:
    """The run, its parent, the parent's parent, and so on."""
    itself = select(runs.c.id, runs.c.parent_run_id, literal(0).label("height")).where(runs.c.id == run_id)
    line = itself.cte("line", recursive=True)
    up = select(runs.c.id, runs.c.parent_run_id, line.c.height + 1).where(
        runs.c.id == line.c.parent_run_id, line.c.height < _HEIGHT
    )
    line = line.union_all(up)
    return select(*columns).join(line, runs.c.id == line.c.id).order_by(line.c.height)


class _Descent:
    """Goes down from level to level, with two statements for each."""

    def __init__(self, connection: Connection, line: set[str], depth: int, width: int) -> None:
        self._connection, self._line, self._depth, self._width = connection, line, depth, width
        self._rows: dict[str, list[RowMapping]] = {}
        self._counts: dict[str, dict[str, int]] = {}
        self._left = MOST

    def tree(self, root: RowMapping) -> RunNode:
        level, depth = [str(root["id"])], 0
        while level:
            self._count(level)
            level = self._children(level) if depth < self._depth and self._left > 0 else []
            depth += 1
        return self._node(root)

    def _count(self, parents: Sequence[str]) -> None:
        counted = select(runs.c.parent_run_id, runs.c.status, func.count().label("number"))
        of_all = counted.where(runs.c.parent_run_id.in_(parents)).group_by(runs.c.parent_run_id, runs.c.status)
        for row in self._connection.execute(of_all):
            self._counts.setdefault(row.parent_run_id, {})[row.status] = row.number

    def _children(self, parents: Sequence[str]) -> list[str]:
        """The first children of each run, and those that lead to the requested run."""
        parents = [parent for parent in parents if parent in self._counts]
        if not parents:
            return []
        wanted = case((runs.c.id.in_(self._line), 0), else_=1)
        ranked = (
            select(
                runs.c.id,
                func.row_number()
                .over(partition_by=runs.c.parent_run_id, order_by=(wanted, runs.c.created_at, runs.c.id))
                .label("rank"),
            )
            .where(runs.c.parent_run_id.in_(parents))
            .subquery()
        )
        found = self._connection.execute(
            select(*_COLUMNS)
            .join(ranked, runs.c.id == ranked.c.id)
            .where(ranked.c.rank <= self._width)
            .order_by(ranked.c.rank, runs.c.created_at, runs.c.id)
            .limit(self._left)
        )
        rows = list(found.mappings())
        self._left -= len(rows)
        for row in rows:
            self._rows.setdefault(row["parent_run_id"], []).append(row)
        return [str(row["id"]) for row in rows]

    def _node(self, row: RowMapping) -> RunNode:
        fields = {name: value for name, value in row.items() if name != "id"}
        node = RunNode(run_id=row["id"], **fields)
        shown = sorted(self._rows.get(node.run_id, []), key=lambda one: (one["created_at"], one["id"]))
        more = dict(self._counts.get(node.run_id, {}))
        for one in shown:
            more[one["status"]] = more.get(one["status"], 0) - 1
        return replace(
            node, children=tuple(map(self._node, shown)), more={name: n for name, n in more.items() if n > 0}
        )


def children_of(connection: Connection, run_id: str) -> Count:
    return capped(connection, runs.c.parent_run_id == run_id, order=())


def children_started_by(connection: Connection, run_id: str, path: str, limit: int) -> Sequence[str]:
    """The runs that one step has started."""
    wanted = (runs.c.parent_run_id == run_id, runs.c.parent_path == path)
    return connection.scalars(select(runs.c.id).where(*wanted).order_by(runs.c.created_at).limit(limit)).all()
