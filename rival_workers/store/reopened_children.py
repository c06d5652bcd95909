"""Finds the child runs that a retry or rewind of their parent is about: those of undone checkpoints, and the spawned
ones that must be retried with their parent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from rival_client.db.tables import runs, steps
from rival_client.model.kinds import CHILD_RESULT
from rival_client.model.transitions import run_sources


def children_of(connection: Connection, run_id: str, undone: Sequence[str]) -> tuple[str, ...]:
    """The children that the undone steps have started."""
    found = connection.execute(
        select(runs.c.id, runs.c.parent_path)
        .where(runs.c.parent_run_id == run_id)
        .order_by(runs.c.created_at, runs.c.id)
    )
    gone = set(undone)
    return tuple(row.id for row in found if row.parent_path in gone)


def children_to_retry(connection: Connection, run: Any, undone: Sequence[str]) -> tuple[str, ...]:
    """Spawned children that were cancelled with their parent, and those whose failures its flow would receive again.
    A child of `ctx.call` is not among them: its checkpoint is undone, and starts another one."""
    found = connection.execute(
        select(runs.c.id, runs.c.parent_path, runs.c.status, runs.c.completed_at)
        .where(runs.c.parent_run_id == run.id, runs.c.status.in_(run_sources("retry_run")))
        .order_by(runs.c.created_at, runs.c.id)
    ).all()
    gone = set(undone)
    spawned = [one for one in found if one.parent_path not in gone]
    failures = _received_failures(connection, run.id, gone) if spawned else set()
    return tuple(one.id for one in spawned if one.id in failures or _was_cancelled_with(one, run))


def _was_cancelled_with(child: Any, run: Any) -> bool:
    """A parent's cancel comes first, and cancels its open children after its commit."""
    return bool(run.status == child.status == "cancelled" and child.completed_at >= run.completed_at)


def _received_failures(connection: Connection, run_id: str, undone: set[str]) -> set[str]:
    """The children whose failures the undone checkpoints have received."""
    found = connection.execute(
        select(steps.c.path, steps.c.item).where(
            steps.c.run_id == run_id, steps.c.kind == CHILD_RESULT, steps.c.status == "failed"
        )
    )
    return {row.item for row in found if row.path in undone and isinstance(row.item, str)}
