"""The statements that read the registered workflows. They take an open connection."""

from __future__ import annotations

from sqlalchemy import Connection, RowMapping, select

from rival_client.db.run_tables import workflows
from rival_client.model.starts.priorities import given_priority
from rival_client.model.workflow_info import WorkflowInfo


def current_workflow(connection: Connection, name: str) -> WorkflowInfo | None:
    row = connection.execute(
        select(workflows)
        .where(workflows.c.name == name)
        .order_by(workflows.c.activated_at.desc(), workflows.c.version)
        .limit(1)
    ).mappings()
    return next((_workflow(r) for r in row), None)


def workflow_version(connection: Connection, name: str, version: str) -> WorkflowInfo | None:
    rows = connection.execute(
        select(workflows).where(workflows.c.name == name, workflows.c.version == version)
    ).mappings()
    return next((_workflow(r) for r in rows), None)


def list_workflows(connection: Connection) -> list[WorkflowInfo]:
    newest: dict[str, WorkflowInfo] = {}
    for row in connection.execute(
        select(workflows).order_by(workflows.c.name, workflows.c.activated_at.desc(), workflows.c.version)
    ).mappings():
        newest.setdefault(row["name"], _workflow(row))
    return list(newest.values())


def list_versions(connection: Connection, name: str) -> list[WorkflowInfo]:
    """Of one workflow, the one that new runs take first."""
    found = connection.execute(
        select(workflows).where(workflows.c.name == name).order_by(workflows.c.activated_at.desc(), workflows.c.version)
    ).mappings()
    return [_workflow(row) for row in found]


def workflow_names(connection: Connection) -> list[str]:
    return list(connection.scalars(select(workflows.c.name).distinct()))


def _workflow(row: RowMapping) -> WorkflowInfo:
    fields = {name: value for name, value in row.items() if name not in ("activated_at", "retention")}
    return WorkflowInfo(**{**fields, "priority": given_priority(row["priority"])})
