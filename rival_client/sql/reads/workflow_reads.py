"""Workflows and their versions for lists and pages: without plans and schemas, how many runs are open, and how long the
steps of their newest runs took. Each read is bounded.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, FromClause, RowMapping, Select, Text, func, literal_column, select, true, values
from sqlalchemy import column as plain_column

from rival_client.db.run_tables import in_status, runs, steps, workflows
from rival_client.model import statuses
from rival_client.model.kinds import COMPOSITE_KINDS, FLOW
from rival_client.model.records import Run
from rival_client.model.statuses import RUN_ACTIVE, RUNNING
from rival_client.model.why.why_facts import UsualFacts
from rival_client.sql.reads.capped_counts import CAP, Count, capped
from rival_client.sql.reads.logs import read_last_logs
from rival_client.sql.reads.open_step_rows import OpenStep
from rival_client.sql.workflows import workflow_version


@dataclass(frozen=True)
class VersionHead:
    name: str
    version: str
    description: str | None
    registered_at: dt.datetime
    activated_at: dt.datetime
    has_input: bool


def list_versions_of(connection: Connection, name: str | None = None) -> list[VersionHead]:
    """By name, the version that new runs take first."""
    has_input = workflows.c.input_schema.is_not(None).label("has_input")
    columns = [workflows.c[one] for one in ("name", "version", "description", "registered_at", "activated_at")]
    order = (workflows.c.name, workflows.c.activated_at.desc(), workflows.c.version)
    statement = select(*columns, has_input).order_by(*order)
    if name is not None:
        statement = statement.where(workflows.c.name == name)
    return [VersionHead(**row) for row in connection.execute(statement).mappings()]


def open_by_version(connection: Connection) -> tuple[dict[tuple[str, str], int], bool]:
    """(workflow, version) -> open runs, of the newest runs of each open status; whether there are more."""
    counts: dict[tuple[str, str], int] = {}
    more = False
    for status in RUN_ACTIVE:
        newest = select(runs.c.workflow, runs.c.version).where(in_status(status))
        some = newest.order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(10 * CAP).subquery()
        both = (some.c.workflow, some.c.version)
        found = connection.execute(select(*both, func.count().label("n")).group_by(*both)).all()
        more = more or sum(row.n for row in found) >= 10 * CAP
        for row in found:
            counts[row.workflow, row.version] = counts.get((row.workflow, row.version), 0) + row.n
    return counts, more


def count_since(connection: Connection, workflow: str, since: dt.datetime) -> Count:
    """Runs of a workflow that were created since then."""
    return capped(connection, runs.c.workflow == workflow, runs.c.created_at >= since)


def failed_since(connection: Connection, since: dt.datetime) -> tuple[dict[str, int], bool]:
    """Workflow -> failed runs that were created since then."""
    newest = select(runs.c.workflow).where(in_status(statuses.FAILED), runs.c.created_at >= since)
    some = newest.order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(10 * CAP).subquery()
    grouped = select(some.c.workflow, func.count(literal_column("1")).label("n")).group_by(some.c.workflow)
    found = connection.execute(grouped).all()
    return {row.workflow: row.n for row in found}, sum(row.n for row in found) >= 10 * CAP


# -- what is usual ----------------------------------------------------------------------------------------

#: Running steps of which more is read, in so many of the newest log entries and ended runs. Of fewer times nothing is
#: said.
_RUNNING, _LINES, _RUNS, _ENOUGH = 5, 300, 100, 5
#: The name of a node of the plan ends where the path goes on within it.
_TOP = re.compile(r"[/\[!]")
#: Steps of one run that are read.
_OF_RUN = 300
_COLUMNS = ("run_id", "path", "kind", "status", "attempts", "created_at", "started_at", "completed_at")


def ended_runs(connection: Connection, workflow: str, limit: int) -> Sequence[RowMapping]:
    """The newest ended runs of a workflow, among its newest ones."""
    columns = (runs.c.id, runs.c.status, runs.c.created_at, runs.c.started_at, runs.c.completed_at)
    newest = select(*columns).where(runs.c.workflow == workflow)
    some = newest.order_by(runs.c.created_at.desc(), runs.c.id.desc()).limit(5 * limit).subquery()
    ended = select(*some.c).where(some.c.completed_at.is_not(None)).order_by(some.c.created_at.desc()).limit(limit)
    return connection.execute(ended).mappings().all()


def step_times(connection: Connection, run_ids: Sequence[str]) -> Iterator[RowMapping]:
    """The ended steps of these runs, without their values."""
    if not run_ids:
        return
    if connection.dialect.name != "postgresql":
        for run_id in run_ids:
            yield from connection.execute(_of_run(run_id)).mappings()
        return
    wanted = values(plain_column("id", Text), name="wanted").data([(one,) for one in run_ids])
    each = _of_run(wanted.c.id, wanted).lateral()
    yield from connection.execute(select(each).select_from(wanted.join(each, true()))).mappings()


def _of_run(run_id: Any, outside: FromClause | None = None) -> Select[Any]:
    ended = (steps.c.run_id == run_id, steps.c.completed_at.is_not(None))
    return select(*(steps.c[name] for name in _COLUMNS)).where(*ended).limit(_OF_RUN).correlate(outside)


def _times_of(connection: Connection, run_ids: Sequence[str], paths: Sequence[str]) -> dict[str, list[float]]:
    """Path -> the seconds of the last attempt in each of these runs in which the step has completed. An attempt of a
    flow is only a part of it."""
    columns = (steps.c.path, steps.c.started_at, steps.c.completed_at)
    its = (steps.c.run_id.in_(run_ids), steps.c.path.in_(paths))
    wanted = (steps.c.status == statuses.COMPLETED, steps.c.kind != FLOW, steps.c.started_at.is_not(None))
    found: dict[str, list[float]] = {}
    for path, began, ended in connection.execute(select(*columns).where(*its, *wanted)) if run_ids else ():
        found.setdefault(path, []).append((ended - began).total_seconds())
    return found


def facts_of_attempts(connection: Connection, run: Run, found: Sequence[OpenStep]) -> dict[str, dict[str, Any]]:
    """Of running steps: what their attempts have logged, and how long they usually take."""
    running = [one for one in found if one.status == RUNNING and one.kind not in (*COMPOSITE_KINDS, FLOW)][:_RUNNING]
    if not running:
        return {}
    lines = read_last_logs(connection, run.run_id, limit=_LINES)
    newest = {line.path: line.at for line in lines}
    ended = [row["id"] for row in ended_runs(connection, run.workflow, _RUNS)]
    usual = _times_of(connection, ended, [one.path for one in running])
    return {
        one.path: {
            "logged_at": _since(newest.get(one.path), one.started_at),
            "is_log_known": len(lines) < _LINES,
            "usual": _usual(usual.get(one.path, ())),
        }
        for one in running
    }


def _since(at: dt.datetime | None, start: dt.datetime | None) -> dt.datetime | None:
    """None: it was an earlier attempt."""
    return None if at is None or start is None or at < start else at


def _usual(seconds: Sequence[float]) -> UsualFacts | None:
    if len(seconds) < _ENOUGH:
        return None
    longest = sorted(seconds)[math.ceil(0.95 * len(seconds)) - 1]
    return UsualFacts(len(seconds), math.ceil(longest * 1000) / 1000)


# -- what a run has not reached -------------------------------------------------------------------------------


def not_reached(connection: Connection, run: Run, path: str) -> list[str]:
    """The nodes of the plan behind the one with the failed step that have no row. They have no others around them."""
    info = workflow_version(connection, run.workflow, run.version)
    names = [str(node["name"]) for node in info.plan.get("nodes", ())] if info is not None else []
    top = _TOP.split(path, maxsplit=1)[0]
    behind = names[names.index(top) + 1 :] if top in names else []
    reached = select(steps.c.path).where(steps.c.run_id == run.run_id, steps.c.path.in_(behind))
    found = set(connection.scalars(reached)) if behind else set()
    return [name for name in behind if name not in found]
