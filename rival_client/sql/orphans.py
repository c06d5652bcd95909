"""Orphans: child runs whose parent does not wait for them any more, since it was cancelled, failed or was rewound.

Locks go from a child to its parent and never back, so a parent's transition cannot cancel its children. It enters them
here in its own commit; the process that committed cancels them at once, and if it dies, a keeper does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, Select, delete, literal, select
from sqlalchemy.dialects import postgresql, sqlite

from rival_client.db.run_tables import orphans, runs, steps
from rival_client.db.types import now
from rival_client.model import statuses
from rival_client.model.kinds import CHILD
from rival_client.model.statuses import RUN_TERMINAL


def leave_all(connection: Connection, run_id: str, by: str) -> None:
    """Enters all open children of the run as orphans, awaited or not."""
    _enter(connection, _open_children(run_id), by)


def leave_started_by(connection: Connection, run_id: str, paths: Sequence[str]) -> None:
    """Enters the open children that the given steps of the run have started, awaited or not."""
    _enter(connection, _open_children(run_id).where(runs.c.parent_path.in_(paths)), f"its parent {run_id}")


def leave_awaited(connection: Connection, run_id: str, which: Any) -> None:
    """Enters the children that the given steps of the run wait for. Call it while they still wait."""
    awaits = select(steps.c.path).where(
        steps.c.run_id == run_id, which, steps.c.kind == CHILD, steps.c.status == statuses.WAITING
    )
    _enter(connection, _open_children(run_id).where(runs.c.parent_path.in_(awaits)), f"its parent {run_id}")


def delete_orphan(connection: Connection, run_id: str) -> None:
    """It has been cancelled, or has ended before."""
    connection.execute(delete(orphans).where(orphans.c.run_id == run_id))


def list_orphans(connection: Connection, limit: int, after: str = "") -> list[tuple[str, str]]:
    """A page of orphans after the given run id: (run id, name of the operator for the history)."""
    orphaned = select(orphans.c.run_id, orphans.c.by).where(orphans.c.run_id > after)
    found = connection.execute(orphaned.order_by(orphans.c.run_id).limit(limit))
    return [(row.run_id, row.by) for row in found]


def orphans_of(connection: Connection, run_id: str, limit: int) -> list[tuple[str, str]]:
    """The orphans of one run."""
    mine = select(orphans.c.run_id, orphans.c.by).join(runs, runs.c.id == orphans.c.run_id)
    found = connection.execute(mine.where(runs.c.parent_run_id == run_id).limit(limit))
    return [(row.run_id, row.by) for row in found]


def _open_children(run_id: str) -> Select[Any]:
    return select(runs.c.id).where(runs.c.parent_run_id == run_id, runs.c.status.not_in(RUN_TERMINAL))


def _enter(connection: Connection, children: Select[Any], by: str) -> None:
    dialect: Any = postgresql if connection.dialect.name == "postgresql" else sqlite
    entered = children.add_columns(literal(by), now())
    connection.execute(dialect.insert(orphans).from_select(["run_id", "by", "at"], entered).on_conflict_do_nothing())
