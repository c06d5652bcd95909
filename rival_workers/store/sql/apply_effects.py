"""Applies the effects of a step's end in portable SQL, in order, in one transaction.

With the shared lock of the run, rows are locked from the leaf up. An effect that reaches down again, to cancel what is
open below a composite, needs the exclusive lock: it raises RunNeeded, and the transaction starts again with that lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, insert, select, update

from rival_client.db.guards import run_can, step_can
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import CANCEL, ITEM
from rival_client.model.payload import NULL, Json
from rival_client.sql.checkpoint_ends import wake_parent
from rival_client.sql.dead_letters import add_dead_letter
from rival_client.sql.orphans import leave_awaited
from rival_client.sql.wake import ReadyStep
from rival_workers.engine import effects as fx
from rival_workers.engine.effects import Effect, OpenRow
from rival_workers.store.claim_records import FinishResult
from rival_workers.store.sql.composite_results import CompositeResults, Outcome, failed_with
from rival_workers.store.sql.locks import RunNeeded, change_locked
from rival_workers.store.sql.open_rows import OpenRowsSql
from rival_workers.store.sql.scopes import CompensationsSql, begins, below, cancel_below
from rival_workers.store.sql.step_ends import end_fallback, retry_with


@dataclass(kw_only=True)
class EffectsSql(OpenRowsSql):
    """Applies effects and collects the rows that they open."""

    max_payload: int
    #: True if the transaction holds the exclusive lock of the run.
    alone: bool = False
    outcome: Outcome = field(default_factory=Outcome)
    ended_as: str | None = None
    #: The flow that waited for this run.
    ready: ReadyStep | None = None

    @property
    def _results(self) -> CompositeResults:
        return CompositeResults(self.connection, self.run_id, self.max_payload)

    @property
    def _compensations(self) -> CompensationsSql:
        return CompensationsSql(self.connection, self.run_id, self.first_token, self.writer)

    def apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self._apply(effect)

    def conclude(self) -> FinishResult:
        opened, ended = super().conclude(), self.ended_as is not None
        return replace(opened, run_ended=ended, ended_as=self.ended_as, ready=self.ready)

    def _apply(self, effect: Effect) -> None:
        match effect:
            case OpenRow():
                self.open(effect)
            case fx.Close():
                self._close_step(effect)
            case fx.EndFallback():
                self.outcome = end_fallback(self.connection, self.run_id, effect, self.outcome, self.writer)
                self.ended_keys[effect.path] = None
            case fx.RetryWith():
                self.opened.append(retry_with(self.connection, self.run_id, effect, self.writer, self.ring_grace))
            case fx.DeadLetter():
                add_dead_letter(self.connection, self.run_id, effect.path, self.outcome.error, self.writer)
            case fx.Join():
                self._join(effect)
            case fx.FanOut():
                self._fan_out(effect)
            case fx.CancelBelow():
                self._cancel_below(effect.path)
            case fx.ErrorOf():
                self._restore_error(effect.path)
            case fx.NewError():
                self.outcome.error, self.outcome.step = effect.error, effect.step
            case fx.FailRun():
                self._change_run(error=self.outcome.error, failed_step=self.outcome.step)
                self.writer.add(entries.FAILING, error=self.outcome.error, failed_step=self.outcome.step)
            case fx.EndRun():
                self._end_run(effect)
            case fx.Compensate():
                self.apply(self._compensations.begin(effect))
            case fx.CompensationEnded():
                self.apply(self._compensations.go_on(effect))
            case fx.IfCancelled():
                self.apply(effect.then if self._is_cancelled() else effect.otherwise)

    # -- the run ------------------------------------------------------------------------------------------

    def _end_run(self, effect: fx.EndRun) -> None:
        result = {"result": self.outcome.result} if effect.status == statuses.COMPLETED else {}
        cancelled: dict[str, Any] = {"open": []} if effect.status == statuses.CANCELLED else {}
        ended = {"status": effect.status, "completed_at": now(), "ring_at": None, "token": runs.c.token + 1, **result}
        can_end = (runs.c.id == self.run_id, run_can("end_run"))
        # If the run holds slots, the UPDATE above matches nothing: read the slots, then end the run.
        if not self.connection.execute(update(runs).where(*can_end, runs.c.slots.is_(None)).values(ended)).rowcount:
            its_own = select(runs.c.slots).where(*can_end).with_for_update()
            self.slots += self.connection.scalar(its_own) or []
            self._change_run(**ended, slots=None)
        self.writer.add(effect.status, **result, **cancelled)
        self.ended_as = effect.status
        self.ready = wake_parent(self.connection, self.run_id, self.ring_grace)

    def _is_cancelled(self) -> bool:
        begun = select(steps.c.path).where(steps.c.run_id == self.run_id, steps.c.path == CANCEL)
        return self.connection.scalar(begun) is not None

    def _change_run(self, **changes: Any) -> None:
        its_run = update(runs).where(runs.c.id == self.run_id, run_can("end_run"))
        change_locked(self.connection, its_run.values(changes), f"run {self.run_id!r}")

    # -- lanes ---------------------------------------------------------------------------------------------

    def _fan_out(self, effect: fx.FanOut) -> None:
        items = self.outcome.items
        rows = insert(steps).values(
            run_id=self.run_id,
            path=bindparam("its_path"),
            kind=ITEM,
            status=statuses.WAITING,
            item=bindparam("its_item"),
            created_at=now(),
        )
        self.connection.execute(
            rows, [{"its_path": f"{effect.path}[{n}]", "its_item": item} for n, item in enumerate(items)]
        )
        self.writer.add(entries.FANNED_OUT, effect.path, items=Json("[" + ",".join(items) + "]"))
        lanes = min(effect.concurrency, len(items))
        self.connection.execute(
            update(steps).where(self._waits(effect.path)).values(total=len(items), opened=lanes, remaining=len(items))
        )
        for index in range(lanes):
            self._open_item(effect.path, effect.each, index)

    def _open_item(self, path: str, each: tuple[OpenRow, ...], index: int) -> None:
        for opening in each:
            self.open(opening.at_item(path, index))

    # -- joining ------------------------------------------------------------------------------------------

    def _join(self, join: fx.Join) -> None:
        if join.stops:
            self._need_run()
        row = self.connection.execute(
            select(steps.c.total, steps.c.opened, steps.c.remaining, steps.c.error)
            .where(self._waits(join.path))
            .with_for_update()
        ).one()
        total, opened, remaining, error = row
        index = None
        if join.stops:
            self._cancel_items(join.path, opened, total)
            error = error or self._blamed()
            remaining, opened = remaining - 1 - (total - opened), total
        else:
            remaining -= 1
            if opened < total:
                index, opened = opened, opened + 1
        self.connection.execute(
            update(steps).where(self._waits(join.path)).values(opened=opened, remaining=remaining, error=error)
        )
        if index is not None:
            self._open_item(join.path, join.each, index)
        elif remaining == 0:
            self._last_lane(join, error)

    def _last_lane(self, join: fx.Join, error: dict[str, Any] | None) -> None:
        if error is not None:
            self.outcome = failed_with(error, join.path)
        elif (problem := self._results.too_large(join.completes[0])) is not None:
            self.outcome = failed_with(problem, join.path)
        else:
            return self.apply(join.completes)
        return self.apply(join.fails)

    def _cancel_items(self, path: str, opened: int, total: int) -> None:
        """Cancel the items that have not been opened."""
        never = [f"{path}[{index}]" for index in range(opened, total)]
        if never:
            self.cancel(path, steps.c.path.in_(never))

    # -- closing ------------------------------------------------------------------------------------------

    def _close_step(self, effect: fx.Close) -> None:
        if effect.status == statuses.FAILED:
            self.outcome.result = NULL
            values: dict[str, Any] = {"error": self._blamed()}
        else:
            self.outcome.result = self._results.of(effect, self.outcome.result)
            values = {"result": self.outcome.result}
        ended = {"status": effect.status, "completed_at": now(), "ring_at": None, **values}
        token = {"execution_token": steps.c.execution_token + 1}
        closed = update(steps).where(self._waits(effect.path)).values(**ended, **token)
        change_locked(self.connection, closed, f"run {self.run_id!r}: composite {effect.path!r}")
        self.writer.add(effect.status, effect.path, **values)

    def _restore_error(self, path: str) -> None:
        error = self.connection.scalar(select(steps.c.error).where(steps.c.run_id == self.run_id, steps.c.path == path))
        self.outcome = failed_with(error or {}, path)

    def _blamed(self) -> dict[str, Any]:
        """The error as a composite stores it: with the step that failed."""
        return {**(self.outcome.error or {}), "step": self.outcome.step}

    # -- cancelling ---------------------------------------------------------------------------------------

    def _cancel_below(self, path: str) -> None:
        self._need_run()
        leave_awaited(self.connection, self.run_id, below(path))
        self.cancel(path, and_(below(path), steps.c.path != path))

    def end_checkpoints(self, flow: str) -> None:
        """Cancel the open checkpoints of a flow that has ended: a replay may not have reached all of them."""
        is_open = and_(begins(f"{flow}/"), step_can("cancel_below"))
        if self.connection.scalar(select(steps.c.path).where(steps.c.run_id == self.run_id, is_open).limit(1)):
            self._cancel_below(flow)

    def cancel(self, path: str, which: ColumnElement[bool]) -> None:
        """Cancel the open steps among these; the history entry has the given path."""
        paths, slots = cancel_below(self.connection, self.run_id, which)
        self.slots += slots
        if paths:
            self.ended_keys |= dict.fromkeys(paths)
            self.writer.add(entries.CANCELLED, path, open=paths)

    def _need_run(self) -> None:
        if not self.alone:
            raise RunNeeded

    # -- which rows ---------------------------------------------------------------------------------------

    def _waits(self, path: str) -> ColumnElement[bool]:
        return and_(steps.c.run_id == self.run_id, steps.c.path == path, step_can("close_step"))
