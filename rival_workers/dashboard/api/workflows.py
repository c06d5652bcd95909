"""Routes of workflows: what is registered, each version's plan, and how two versions differ."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from rival_client.errors import UnknownWorkflow
from rival_client.model.workflow_info import WorkflowInfo
from rival_client.sql.reads.capped_counts import Count
from rival_client.sql.reads.executors import ExecutorRecord, list_executors
from rival_client.sql.reads.schedule_reads import list_schedules
from rival_client.sql.reads.workflow_reads import (
    VersionHead,
    count_since,
    failed_since,
    list_versions_of,
    open_by_version,
)
from rival_client.sql.workflows import workflow_names, workflow_version
from rival_workers.dashboard.graph import graph, plan_difference
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Call, Form, Route
from rival_workers.dashboard.usual import usual
from rival_workers.dashboard.values import moment
from rival_workers.dashboard.views import count_view
from rival_workers.drawing.plan_charts import lines
from rival_workers.drawing.plan_outline import outline
from rival_workers.engine.policies import load_policies

DAY = dt.timedelta(days=1)


def list_workflows(call: Call) -> dict[str, Any]:
    with call.board.database.snapshot() as connection:
        heads = list_versions_of(connection)
        opened, more_open = open_by_version(connection)
        failed, more_failed = failed_since(connection, dt.datetime.now(dt.UTC) - DAY)
    by_name: dict[str, list[VersionHead]] = {}
    for head in heads:
        by_name.setdefault(head.name, []).append(head)
    items = []
    for name, versions in by_name.items():
        open_runs = sum(count for (workflow, _), count in opened.items() if workflow == name)
        items.append(
            _head(versions[0])
            | {
                "steps": call.board.step_count(name, versions[0].version),
                "versions": len(versions),
                "open": count_view(Count(open_runs, more_open)),
                "failed_24h": count_view(Count(failed.get(name, 0), more_failed)),
            }
        )
    return {"items": items}


def _head(head: VersionHead) -> dict[str, Any]:
    return {
        "name": head.name,
        "version": head.version,
        "description": head.description,
        "registered_at": moment(head.registered_at),
        "has_input": head.has_input,
    }


class VersionQuery(Form):
    version: str | None = None


def read_workflow(call: Call) -> dict[str, Any]:
    name = call.names["workflow"]
    with call.board.database.snapshot() as connection:
        heads = list_versions_of(connection, name)
        if not heads:
            raise UnknownWorkflow(name, workflow_names(connection))
        info = _version(connection, name, call.query.version or heads[0].version)
        opened, more = open_by_version(connection)
        schedules = [one.name for one in list_schedules(connection, name)]
        alive = [one for one in list_executors(connection) if one.is_alive]
    policies, veil = load_policies(info.name, info.plan, info.policies), call.board.veil_of(name, info.version)
    return {
        "name": name,
        "version": info.version,
        "current": heads[0].version,
        "description": info.description,
        "registered_at": moment(info.registered_at),
        "input_schema": info.input_schema,
        "graph": graph(policies, veil),
        "text": veil.text("\n".join(lines(outline(policies.plan, policies.shown())))),
        "versions": [
            _version_view(head, heads[0], opened, more) | {"workers": _workers(alive, head)} for head in heads
        ],
        "schedules": schedules,
    }


def _version(connection: Any, name: str, version: str) -> WorkflowInfo:
    info = workflow_version(connection, name, version)
    if info is None:
        raise Refused(404, "NotFound", f"Workflow {name!r} has no version {version!r}.")
    return info


def _version_view(
    head: VersionHead, current: VersionHead, opened: dict[tuple[str, str], int], more: bool
) -> dict[str, Any]:
    return {
        "version": head.version,
        "registered_at": moment(head.registered_at),
        "activated_at": moment(head.activated_at),
        "current": head.version == current.version,
        "open": count_view(Count(opened.get((head.name, head.version), 0), more)),
    }


def _workers(alive: Sequence[ExecutorRecord], head: VersionHead) -> list[str] | None:
    """The live workers that have this version; None: they do not say."""
    reporting = [one for one in alive if one.workflows is not None]
    having = {
        str(one.worker or one.host) for one in reporting if head.version in (one.workflows or {}).get(head.name, ())
    }
    return sorted(having) if reporting or not alive else None


def diff(call: Call) -> dict[str, Any]:
    name, old, new = (call.names[one] for one in ("workflow", "old", "new"))
    with call.board.database.snapshot() as connection:
        found = [_version(connection, name, version) for version in (old, new)]
    before, after = (load_policies(info.name, info.plan, info.policies) for info in found)
    return {"from": old, "to": new, **plan_difference(before, after)}


def stats(call: Call) -> dict[str, Any]:
    name, since = call.names["workflow"], dt.datetime.now(dt.UTC) - DAY
    with call.board.database.snapshot() as connection:
        if not list_versions_of(connection, name):
            raise UnknownWorkflow(name, workflow_names(connection))
        started = count_since(connection, name, since)
        failed, more = failed_since(connection, since)
    lately = {"runs": count_view(started), "failed": count_view(Count(failed.get(name, 0), more))}
    found = usual(call.board, name)
    return {**found, "runs": {**found["runs"], "last_24h": lately}}


ROUTES = (
    Route("GET", "/workflows", "viewer", list_workflows, "List workflows", does="workflows"),
    Route("GET", "/workflows/{workflow}", "viewer", read_workflow, "Read a workflow", query=VersionQuery, does="plan"),
    Route("GET", "/workflows/{workflow}/diff/{old}/{new}", "viewer", diff, "Compare two versions"),
    Route("GET", "/workflows/{workflow}/stats", "viewer", stats, "Say what is usual for its runs and steps"),
)
