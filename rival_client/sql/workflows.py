"""The statements that read the registered workflows. They take an open connection."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from sqlalchemy import Connection, RowMapping, select

from rival_client.db.run_tables import earlier_policies, workflows
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


def workflow_at(connection: Connection, name: str, version: str, at: dt.datetime) -> WorkflowInfo | None:
    """The version with the policies that were registered at this time. The current ones are read first: policies that
    are replaced in between are then found among the earlier ones."""
    info, earlier = workflow_version(connection, name, version), earlier_policies.c
    its = (earlier.workflow == name, earlier.version == version, earlier.until > at)
    found = connection.execute(select(earlier.policies).where(*its).order_by(earlier.until).limit(1)).first()
    return info if info is None or found is None else replace(info, policies=found.policies)


def list_workflows(connection: Connection) -> list[WorkflowInfo]:
    newest: dict[str, WorkflowInfo] = {}
    for row in connection.execute(
        select(workflows).order_by(workflows.c.name, workflows.c.activated_at.desc(), workflows.c.version)
    ).mappings():
        newest.setdefault(row["name"], _workflow(row))
    return list(newest.values())


def list_versions(connection: Connection, name: str) -> list[WorkflowInfo]:
    """The versions of one workflow; the version that new runs take is the first."""
    found = connection.execute(
        select(workflows).where(workflows.c.name == name).order_by(workflows.c.activated_at.desc(), workflows.c.version)
    ).mappings()
    return [_workflow(row) for row in found]


def workflow_names(connection: Connection) -> list[str]:
    return list(connection.scalars(select(workflows.c.name).distinct()))


def _workflow(row: RowMapping) -> WorkflowInfo:
    fields = {name: value for name, value in row.items() if name not in ("activated_at", "retention")}
    return WorkflowInfo(**{**fields, "priority": given_priority(row["priority"])})
