"""Searches runs, newest first, by their properties and contents, page by page. It takes an open connection.

A page begins after the last run of the page before, ordered by creation time and id. Neither changes, so a run that
starts or ends between two pages neither repeats nor hides another.
"""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, func, select, tuple_, union_all

from rival_client.db.run_tables import in_status, labels, runs, steps
from rival_client.model import statuses
from rival_client.model.json_match import holds
from rival_client.model.records import Run
from rival_client.model.statuses import COMPLETED
from rival_client.sql.reads.run_cursor import Cursor
from rival_client.sql.reads.run_filter import RunFilter, given_statuses
from rival_client.sql.reads.run_records import run_of

#: Runs that a search looks at in one statement.
WINDOW = 4000
#: Runs that may have an error: a run that has completed or not begun has none, and these have an index.
_WITH_ERROR = (statuses.FAILED, statuses.RUNNING, statuses.SUSPENDED, statuses.CANCELLED)
#: Runs that are looked at for newer ones, where no index finds them.
LOOKED_AT = 500


class Runs(list[Run]):
    """One page of runs. `next`: give it as `after` for the page that follows; None when there is none."""

    def __init__(self, found: Iterable[Run] = (), next: str | None = None) -> None:
        super().__init__(found)
        self.next = next


def list_runs(
    connection: Connection, chosen: RunFilter | None = None, *, behind: Cursor | None = None, limit: int = 50
) -> Runs:
    """One page; its `next` is there if there are more."""
    # One run more than the limit shows whether there is a next page.
    statement = newest_runs(connection, runs.c, chosen or RunFilter(), behind, limit + 1)
    found = [run_of(row) for row in connection.execute(statement).mappings()]
    return Runs(found[:limit], str(Cursor.of(found[limit - 1])) if len(found) > limit else None)


def newest_runs(
    connection: Connection,
    columns: Iterable[ColumnElement[Any]],
    chosen: RunFilter,
    behind: Cursor | None,
    limit: int,
) -> Select[Any]:
    """These columns of the runs, the newest first. `created_at` and `id` must be among the columns."""
    created_at, run_id, statement = _listed(select(*columns), chosen)
    statement = _newest(statement, created_at, run_id, limit).where(*_conditions(connection, chosen))
    statement = statement.where(*_within(created_at, chosen.since, chosen.until))
    if behind is not None:
        statement = statement.where(tuple_(created_at, run_id) < (behind.created_at, behind.run_id))
    wanted = given_statuses("status", chosen.status or ()) or (_WITH_ERROR if chosen.error else ())
    return _with_status(statement, wanted, limit) if wanted else statement


def _indexed(chosen: RunFilter) -> RunFilter:
    """The part of the filter that one index finds in the order of a list. All else is looked at run by run."""
    times: dict[str, Any] = {"since": chosen.since, "until": chosen.until}
    wanted: Any = given_statuses("status", chosen.status or ()) or (_WITH_ERROR if chosen.error else ())
    if chosen.labels:
        return RunFilter(labels=dict([*chosen.labels.items()][:1]), **times)
    if chosen.parent is not None:
        return RunFilter(parent=chosen.parent, **times)
    if chosen.paused:
        return RunFilter(paused=True, **times)
    if wanted and COMPLETED not in wanted:
        return RunFilter(status=wanted, **times)
    return RunFilter(workflow=chosen.workflow, **times)


def window_start(connection: Connection, chosen: RunFilter, behind: Cursor | None, size: int) -> dt.datetime | None:
    """When the oldest of the next `size` runs was created that the filter's index finds. None: the index finds all that
    the filter chooses, or fewer runs are left. It bounds what a search reads that has to look at each run.
    """
    by_index = _indexed(chosen)
    given: Any = given_statuses("status", chosen.status or ()) or None
    if replace(chosen, status=given) == by_index:
        return None
    some = newest_runs(connection, (runs.c.created_at, runs.c.id), by_index, behind, size).subquery()
    found, oldest = connection.execute(select(func.count(), func.min(some.c.created_at))).one()
    return oldest if found == size else None


def run_ids(connection: Connection, beginning: str, limit: int) -> list[str]:
    """Ids that begin with the given text, in their order; without a text, those of the newest runs."""
    if not beginning:
        return list(connection.scalars(_newest(select(runs.c.id), runs.c.created_at, runs.c.id, limit)))
    # A range of the primary key, whose ids compare byte by byte.
    begins = (runs.c.id >= beginning, runs.c.id < beginning + chr(sys.maxunicode))
    return list(connection.scalars(select(runs.c.id).where(*begins).order_by(runs.c.id).limit(limit)))


def step_paths(connection: Connection, run_id: str, beginning: str, limit: int) -> list[str]:
    """Paths of a run's steps that begin with the given text, in their order."""
    begins = (steps.c.path >= beginning, steps.c.path < beginning + chr(sys.maxunicode))
    found = select(steps.c.path).where(steps.c.run_id == run_id, *begins).order_by(steps.c.path).limit(limit)
    return list(connection.scalars(found))


def _conditions(connection: Connection, chosen: RunFilter) -> Iterator[ColumnElement[bool]]:
    yield from _within(runs.c.completed_at, chosen.ended_since, chosen.ended_until)
    if chosen.workflow is not None:
        yield runs.c.workflow == chosen.workflow
    if chosen.parent is not None:
        yield runs.c.parent_run_id == chosen.parent
    if chosen.paused is not None:
        is_paused = runs.c.paused_at.is_not(None) & runs.c.completed_at.is_(None)
        yield is_paused if chosen.paused else ~is_paused
    if chosen.error:
        yield _error_contains(chosen.error)
    if chosen.input:
        yield holds(connection, runs.c.input, chosen.input)
    if chosen.result:
        yield holds(connection, runs.c.result, chosen.result)


def _within(column: ColumnElement[Any], since: dt.datetime | None, until: dt.datetime | None) -> Iterator[Any]:
    if since is not None:
        yield column >= since
    if until is not None:
        yield column < until


def _error_contains(part: str) -> ColumnElement[bool]:
    """As people see an error: "ValueError: no such card"."""
    kind, message = (func.coalesce(runs.c.error[key].as_string(), "") for key in ("type", "message"))
    return (kind + ": " + message).icontains(part, autoescape=True)


def _listed(columns: Select[Any], chosen: RunFilter) -> tuple[ColumnElement[Any], ColumnElement[Any], Select[Any]]:
    """The columns that runs are ordered by, and the statement. The index of labels has the runs of a label in that
    order, however many other runs there are; further labels are looked up by the primary key."""
    if not chosen.labels:
        return runs.c.created_at, runs.c.id, columns
    (name, value), *others = chosen.labels.items()
    has_it = (labels.c.run_id == runs.c.id, labels.c.name == name, labels.c.value == value)
    statement = columns.join(labels, and_(*has_it))
    for other, text in others:
        also: Any = labels.alias()
        its = select(also.c.run_id).where(also.c.run_id == labels.c.run_id, also.c.name == other, also.c.value == text)
        statement = statement.where(its.exists())
    return labels.c.created_at, labels.c.run_id, statement


def _newest(
    statement: Select[Any], created_at: ColumnElement[Any], run_id: ColumnElement[Any], limit: int
) -> Select[Any]:
    return statement.order_by(created_at.desc(), run_id.desc()).limit(limit)


def _with_status(statement: Select[Any], wanted: tuple[str, ...], limit: int) -> Select[Any]:
    """For several statuses, reads the newest runs of each and merges them: the index orders each status separately."""
    parts = [statement.where(in_status(status)).subquery() for status in wanted]
    if len(parts) == 1:
        return statement.where(in_status(wanted[0]))
    together = union_all(*(select(part) for part in parts)).subquery()
    return _newest(select(together), together.c.created_at, together.c.id, limit)


def newest_ids(connection: Connection, chosen: RunFilter, limit: int) -> list[str]:
    """The ids of the newest runs that a filter chooses; of runs without an index for it, among the newest ones."""
    searched = window_start(connection, chosen, None, LOOKED_AT)
    chosen = chosen if searched is None else replace(chosen, since=searched)
    found = connection.execute(newest_runs(connection, (runs.c.created_at, runs.c.id), chosen, None, limit))
    return [row.id for row in found]
