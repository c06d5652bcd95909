"""Reads the state of a run. For display, steps are read without results and items, and if a composite has many
iterations, or a flow many checkpoints, they are only counted.

A run of ten thousand items has tens of thousands of rows; the number of rows read here depends on the plan only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Connection, Select, and_, cast, false, func, or_, select

from rival_client.db.run_tables import attempts, runs, steps
from rival_client.errors import RunNotFound
from rival_client.model import statuses
from rival_client.model.kinds import FLOW, FOR_EACH, ITEM, LOOP
from rival_client.model.records import RunState
from rival_client.model.step_records import Attempt, LastError, Step
from rival_client.sql.reads.run_records import attempt_of, run_fields, step_of

Counts = dict[str, int]
Column = ColumnElement[str]

#: Checkpoints at the beginning and at the end of a flow that are shown.
ENDS = 10
_HEAVY = ("result", "item")
_COLUMNS = [column for column in steps.columns if column.name not in _HEAVY]


class Overview:
    """Descends from composite to composite, into those that have few iterations."""

    def __init__(self, connection: Connection, run_id: str, fold: int) -> None:
        self._connection, self._run_id, self._fold = connection, run_id, fold
        self.rows: list[Any] = []
        #: Path of a composite -> status -> the number of its iterations that are not among the rows.
        self.folded: dict[str, Counts] = {}
        self._hidden: list[Callable[[Column], ColumnElement[bool]]] = []
        beginnings = deque([""])
        while beginnings:
            beginnings += self._look(beginnings.popleft())
        self.rows.sort(key=lambda row: (row["created_at"], row["path"]))

    def shows(self, path: Column) -> ColumnElement[bool]:
        """Not in an item or iteration that was left out."""
        return ~or_(false(), *(hides(path) for hides in self._hidden))

    def _look(self, beginning: str) -> list[str]:
        """Read the rows below `beginning`, but not those of nested items and iterations: returns the beginnings of
        these that are to be read next."""
        folded = [path for path in self._flows(beginning) if self._fold_flow(path)]
        outside = [~_begins(steps.c.path, f"{path}/") for path in folded]
        found = self._read(_select(self._run_id, beginning).where(*outside))
        return [more for row in found for more in self._below(row)]

    def _read(self, statement: Select[Any]) -> Sequence[Any]:
        found = self._connection.execute(statement).mappings().all()
        self.rows += found
        return found

    def _flows(self, beginning: str) -> Sequence[str]:
        is_flow = and_(_within(self._run_id, beginning), steps.c.kind == FLOW)
        return self._connection.scalars(select(steps.c.path).where(is_flow)).all()

    def _fold_flow(self, path: str) -> bool:
        """Reads the first and the last checkpoints of a flow that has many, and some that are open or have failed."""
        below = and_(steps.c.run_id == self._run_id, _begins(steps.c.path, f"{path}/"))
        counted = self._connection.execute(_counts(below)).all()
        counts = {row.status: row.number for row in counted}
        if sum(counts.values()) <= self._fold:
            return False
        parts = [self._connection.execute(part).mappings().all() for part in _ends_and_open(below)]
        shown = {row["path"]: row for part in parts for row in part}
        self.rows += shown.values()
        for row in shown.values():
            counts[row["status"]] -= 1
        self.folded[path] = {status: count for status, count in counts.items() if count}
        self._hidden.append(lambda column: _begins(column, f"{path}/") & column.not_in(list(shown)))
        return True

    def _below(self, row: Any) -> list[str]:
        if row["kind"] == FOR_EACH and row["total"]:
            return self._items(row["path"], row["total"])
        return self._iterations(row["path"]) if row["kind"] == LOOP else []

    def _items(self, path: str, total: int) -> list[str]:
        if total <= self._fold:
            return [f"{path}["]
        counted = self._connection.execute(_count_items(self._run_id, f"{path}["))
        self.folded[path] = {row.status: row.number for row in counted}
        self._hidden.append(lambda column: _begins(column, f"{path}["))
        return []

    def _iterations(self, path: str) -> list[str]:
        """Iterations of a loop follow one another: only the last one can be open."""
        last = self._connection.scalar(_last_iteration(self._connection, self._run_id, f"{path}["))
        if last is None or last < self._fold:
            return [] if last is None else [f"{path}["]
        self.folded[path] = {"completed": last}
        self._hidden.append(lambda column: _begins(column, f"{path}[") & ~_begins(column, f"{path}[{last}]"))
        return [f"{path}[{last}]"]


def _within(run_id: str, beginning: str) -> ColumnElement[bool]:
    """Below an item or iteration, but not below another one within it."""
    of_run = steps.c.run_id == run_id
    if not beginning:
        return and_(of_run, steps.c.path.not_like("%[%"))
    nested = func.substr(steps.c.path, len(beginning) + 1).like("%[%")
    return and_(of_run, _begins(steps.c.path, beginning), ~nested)


def _begins(path: Column, beginning: str) -> ColumnElement[bool]:
    """Paths compare byte by byte, so this is a range of the key."""
    return and_(path >= beginning, path < beginning[:-1] + chr(ord(beginning[-1]) + 1))


def _ends_and_open(below: ColumnElement[bool]) -> list[Select[Any]]:
    time = (steps.c.created_at, steps.c.path)
    unusual = or_(steps.c.completed_at.is_(None), steps.c.status == statuses.FAILED)
    rows = select(*_COLUMNS).where(below)
    return [
        rows.order_by(*time).limit(ENDS),
        rows.order_by(*(column.desc() for column in time)).limit(ENDS),
        rows.where(unusual).order_by(*time).limit(2 * ENDS),
    ]


def _counts(condition: ColumnElement[bool]) -> Select[Any]:
    return select(steps.c.status, func.count().label("number")).where(condition).group_by(steps.c.status)


def _select(run_id: str, beginning: str) -> Select[Any]:
    return select(*_COLUMNS).where(_within(run_id, beginning))


def _count_items(run_id: str, beginning: str) -> Select[Any]:
    return _counts(and_(_within(run_id, beginning), steps.c.kind == ITEM))


def _last_iteration(connection: Connection, run_id: str, beginning: str) -> Select[Any]:
    position = func.strpos if connection.dialect.name == "postgresql" else func.instr
    rest = func.substr(steps.c.path, len(beginning) + 1)
    number = cast(func.substr(rest, 1, position(rest, "]") - 1), BigInteger)
    return select(func.max(number)).where(_within(run_id, beginning))


def read_state(connection: Connection, run_id: str, fold: int | None = None) -> RunState:
    """With `fold`: without results and items, and for_each and loops with more items or iterations than that are only
    counted."""
    run = connection.execute(select(runs).where(runs.c.id == run_id)).mappings().first()
    if run is None:
        raise RunNotFound(run_id)
    tried = select(attempts).where(attempts.c.run_id == run_id).order_by(attempts.c.ended_at, attempts.c.token)
    folded: dict[str, dict[str, int]] = {}
    if fold is None:
        its_steps = connection.execute(_steps_of(run_id)).mappings().all()
    else:
        seen = Overview(connection, run_id, fold)
        its_steps, folded, tried = seen.rows, seen.folded, tried.where(seen.shows(attempts.c.path))
    its_attempts = [attempt_of(row) for row in connection.execute(tried).mappings()]
    failed = {attempt.path: attempt for attempt in its_attempts if attempt.error is not None}
    return RunState(
        **run_fields(run),
        steps=[_with_last_error(step_of(s), failed.get(s["path"])) for s in its_steps],
        attempts=its_attempts,
        folded=folded,
    )


def _with_last_error(step: Step, failed: Attempt | None) -> Step:
    """From the step's last attempt that failed. A composite makes no attempts: its error is that of a step below."""
    error, at = (step.error, step.completed_at) if failed is None else (failed.error, failed.ended_at)
    if error is None or at is None:
        return step
    attempt = error.get("attempt", 1) if failed is None else failed.attempt
    return replace(step, last_error=LastError(error.get("type", "Error"), error.get("message", ""), attempt, at))


def _steps_of(run_id: str) -> Select[Any]:
    return select(steps).where(steps.c.run_id == run_id).order_by(steps.c.created_at, steps.c.path)
