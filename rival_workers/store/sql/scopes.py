"""Parts of a run, in portable SQL: conditions for a composite and everything below it, cancelling its open steps, and
compensating the completed steps of a failed one.

The row `!compensate` (of a workflow: `pay!compensate`) counts the compensations and stores the next steps as its item.
The row of a compensation is inserted when it may start, like that of any step: rows that waited for one another would
be locked in another order than from the leaf up.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Subquery,
    Table,
    and_,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from rival_client.db.event_tables import waits
from rival_client.db.guards import step_can
from rival_client.db.log_tables import history
from rival_client.db.run_tables import steps
from rival_client.db.types import now
from rival_client.model import history_entries as entries
from rival_client.model import kinds, statuses
from rival_client.model.payload import Json, serialise
from rival_client.sql.history import HistoryWriter
from rival_client.sql.tickets import slots_of, withdraw
from rival_workers.engine import effects as fx
from rival_workers.engine.effects import Effect, OpenRow
from rival_workers.engine.paths import COMPENSATION, place_of


def begins(begin: str, table: Table = steps) -> ColumnElement[bool]:
    """Paths with this prefix, as a range that the primary key can serve."""
    return and_(table.c.path >= begin, table.c.path < begin[:-1] + chr(ord(begin[-1]) + 1))


def below(path: str, table: Table = steps) -> ColumnElement[bool]:
    """The row of a composite and all rows below it."""
    return or_(table.c.path == path, *(begins(path + sign, table) for sign in "/[!"))


def cancel_below(connection: Connection, run_id: str, which: ColumnElement[bool]) -> tuple[list[str], list[int]]:
    """Cancel the open steps that match, and delete their waits and tickets. Returns the sorted paths and the slots that
    the steps used."""
    ended = {"status": statuses.CANCELLED, "completed_at": now(), "ring_at": None, "timeout_at": None, "slots": None}
    tokens = {name: steps.c[name] + 1 for name in ("execution_token", "timeout_token")}
    is_open = and_(steps.c.run_id == run_id, which, step_can("cancel_below"))
    slots = slots_of(connection, is_open)
    cancel = update(steps).where(is_open)
    cancelled = sorted(connection.scalars(cancel.values(**ended, **tokens).returning(steps.c.path)))
    if cancelled:
        waiting = connection.scalars(select(waits.c.path).where(waits.c.run_id == run_id))
        if gone := [path for path in waiting if path in set(cancelled)]:
            connection.execute(delete(waits).where(waits.c.run_id == run_id, waits.c.path.in_(gone)))
        slots += withdraw(connection, run_id, cancelled)
    return cancelled, slots


#: Steps that the row stores at once; after the last of them the next ones are read.
AT_ONCE = 500


@dataclass
class CompensationsSql:
    connection: Connection
    run_id: str
    #: The token of new rows.
    token: int
    writer: HistoryWriter

    def begin(self, effect: fx.Compensate) -> tuple[Effect, ...]:
        """Returns the opening of the first compensation, or the effects that follow if there is nothing to undo."""
        done = self._to_undo(effect.scope, effect.compensations)
        if not done:
            return effect.then
        path = effect.scope + COMPENSATION
        item = _as_item(done)
        self.connection.execute(
            insert(steps).values(
                run_id=self.run_id,
                path=path,
                kind=kinds.COMPENSATING,
                status=statuses.WAITING,
                created_at=now(),
                started_at=now(),
                execution_token=self.token,
                timeout_token=self.token,
                item=item,
                total=len(done),
                opened=1,
                remaining=len(done),
            )
        )
        self.writer.add(entries.COMPENSATING, path, kind=kinds.COMPENSATING, item=item)
        return (self._next_compensation(done[0]),)

    def go_on(self, effect: fx.CompensationEnded) -> tuple[Effect, ...]:
        """Returns the opening of the next compensation, or the effects that follow the last one."""
        row = self._under_way(effect)
        left = row.remaining - 1
        values: dict[str, Any] = {"remaining": left, "opened": row.opened + (left > 0)}
        if left == 0:
            self._update(row.path, values)
            return fx.Close(row.path, statuses.COMPLETED, fx.Nothing()), *effect.then[row.path]
        steps_kept = row.item
        if row.opened % AT_ONCE == 0:
            steps_kept = self._to_undo(row.path.removesuffix(COMPENSATION), effect.compensations)[:AT_ONCE]
            values["item"] = _as_item(steps_kept)
            self.writer.add(entries.COMPENSATING, row.path, item=values["item"])
        self._update(row.path, values)
        return (self._next_compensation(steps_kept[row.opened % AT_ONCE]),)

    def _next_compensation(self, step: str) -> OpenRow:
        path = step + COMPENSATION
        return OpenRow(path, kinds.COMPENSATION, token=self._delete_cancelled(path))

    def _delete_cancelled(self, path: str) -> int | None:
        """Delete the row of a compensation that was cancelled with its workflow, so that the run repeats it. Returns a
        token above those of the deleted row."""
        was = self.connection.execute(
            delete(steps)
            .where(steps.c.run_id == self.run_id, steps.c.path == path, steps.c.status == statuses.CANCELLED)
            .returning(steps.c.execution_token, steps.c.timeout_token)
        ).first()
        return None if was is None else max(was.execution_token, was.timeout_token, self.token) + 1

    # -- which rows ---------------------------------------------------------------------------------------

    def _to_undo(self, scope: str, compensations: frozenset[str]) -> list[str]:
        """The completed steps of the scope with a compensation that has not run, the last one first. A step that fell
        back to a value did nothing, so it is not undone."""
        ended = _ended_by(self.run_id)
        found = self.connection.execute(
            select(steps.c.path, steps.c.fallback)
            .outerjoin(ended, ended.c.path == steps.c.path)
            .where(
                steps.c.run_id == self.run_id,
                steps.c.kind.in_(kinds.COMPENSABLE),
                steps.c.status == statuses.COMPLETED,
                begins(f"{scope}/") if scope else true(),
                ~_is_undone(),
            )
            .order_by(steps.c.completed_at.desc(), func.coalesce(ended.c.id, 0).desc(), steps.c.path.desc())
        )
        return [
            row.path
            for row in found
            if place_of(row.path) in compensations and (row.fallback or {}).get("shape") != "value"
        ]

    def _under_way(self, effect: fx.CompensationEnded) -> Any:
        return self.connection.execute(
            select(steps.c.path, steps.c.opened, steps.c.remaining, steps.c.item)
            .where(self._waits(steps.c.path.in_(list(effect.then))))
            .with_for_update()
        ).one()

    def _update(self, path: str, values: dict[str, Any]) -> None:
        self.connection.execute(update(steps).where(self._waits(steps.c.path == path)).values(values))

    def _waits(self, which: ColumnElement[bool]) -> ColumnElement[bool]:
        return (steps.c.run_id == self.run_id) & which & step_can("close_step")


def _ended_by(run_id: str) -> Subquery:
    """The entry of each completed step: inline steps that one commit has ended have the same time."""
    of_ends = history.c.run_id == run_id, history.c.what == entries.COMPLETED
    return (
        select(history.c.path, func.max(history.c.id).label("id")).where(*of_ends).group_by(history.c.path).subquery()
    )


def _is_undone() -> ColumnElement[bool]:
    compensation = steps.alias()
    return exists().where(
        compensation.c.run_id == steps.c.run_id,
        compensation.c.path == steps.c.path + COMPENSATION,
        compensation.c.status.in_((statuses.COMPLETED, statuses.SKIPPED, statuses.FAILED)),
    )


def _as_item(paths: list[str]) -> Json:
    return Json(serialise(paths[:AT_ONCE]))
