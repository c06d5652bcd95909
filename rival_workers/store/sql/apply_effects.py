"""Applies the effects of a step's end in portable SQL, in order, in one transaction.

With the shared lock of the run, rows are locked from the leaf up. An effect that reaches down again, to cancel what is
open below a composite, needs the exclusive lock: it raises RunNeeded, and the transaction starts again with that lock.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, bindparam, insert, select, update

from rival_client.db.guards import run_can, step_can
from rival_client.db.tables import after, now, runs, steps
from rival_client.model.kinds import ITEM
from rival_client.model.payload import NULL, Json
from rival_client.model.timers import is_near, look_at
from rival_client.sql.history import HistoryWriter
from rival_client.sql.orphans import leave_awaited
from rival_client.sql.wake import ReadyStep, suspend_run, wake_parent
from rival_workers.engine import effects as fx
from rival_workers.engine.effects import Effect, OpenRow
from rival_workers.store.interface import FinishResult
from rival_workers.store.sql.compensations import CompensationsSql
from rival_workers.store.sql.composite_results import CompositeResults, Outcome, failed_with
from rival_workers.store.sql.events import Waiting, begin_wait
from rival_workers.store.sql.guards import after_or_never, next_look
from rival_workers.store.sql.locks import RunNeeded
from rival_workers.store.sql.scopes import begins, below, cancel_open


@dataclass
class EffectsSql:
    """Applies effects and collects what has opened."""

    connection: Connection
    run_id: str
    claim_for: str | None
    ring_grace: float
    near: float
    max_payload: int
    writer: HistoryWriter
    #: The exclusive lock of the run is held.
    alone: bool = False
    #: Items of rows that are opened again, by path.
    carried: dict[str, Any] = field(default_factory=dict)
    outcome: Outcome = field(default_factory=Outcome)
    opened: list[OpenRow] = field(default_factory=list)
    claimed: OpenRow | None = None
    ended_as: str | None = None
    #: The flow that has waited for this run.
    ready: ReadyStep | None = None

    @cached_property
    def _run(self) -> tuple[int, bool]:
        """The token that new rows begin with, and whether the run is paused. A path that a rewind deleted gets higher
        tokens than before: the token of the run is above all of them.
        """
        row = self.connection.execute(select(runs.c.token, runs.c.paused_at).where(runs.c.id == self.run_id)).one()
        return row.token - 1, row.paused_at is not None

    @property
    def _results(self) -> CompositeResults:
        return CompositeResults(self.connection, self.run_id, self.max_payload)

    @property
    def _compensations(self) -> CompensationsSql:
        return CompensationsSql(self.connection, self.run_id, self._run[0], self.writer)

    def _token(self, opening: OpenRow) -> int:
        return self._run[0] if opening.token is None else opening.token

    def apply(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self._apply(effect)

    def conclude(self) -> FinishResult:
        """Write the history, and return what has opened."""
        self.writer.write()
        token = self._run[0] if self.claimed or self.opened else 0
        return FinishResult(
            self.claimed, tuple(self.opened), self.ended_as is not None, self.ready, token, self.ended_as
        )

    def _apply(self, effect: Effect) -> None:
        match effect:
            case OpenRow():
                self._open(effect)
            case fx.Close():
                self._close(effect)
            case fx.Join():
                self._join(effect)
            case fx.FanOut():
                self._fan_out(effect)
            case fx.CancelBelow():
                self._cancel_below(effect.path)
            case fx.ErrorOf():
                self._recall(effect.path)
            case fx.NewError():
                self.outcome.error, self.outcome.step = effect.error, effect.step
            case fx.FailRun():
                self._change_run(error=self.outcome.error, failed_step=self.outcome.step)
                self.writer.add("failing", error=self.outcome.error, failed_step=self.outcome.step)
            case fx.EndRun():
                self._end_run(effect)
            case fx.Compensate():
                self.apply(self._compensations.begin(effect))
            case fx.CompensationEnded():
                self.apply(self._compensations.go_on(effect))

    # -- the run ------------------------------------------------------------------------------------------

    def _end_run(self, effect: fx.EndRun) -> None:
        result = {"result": self.outcome.result} if effect.status == "completed" else {}
        self._change_run(status=effect.status, completed_at=now(), ring_at=None, token=runs.c.token + 1, **result)
        self.writer.add(effect.status, **result)
        self.ended_as = effect.status
        self.ready = wake_parent(self.connection, self.run_id, self.ring_grace)

    def _change_run(self, **changes: Any) -> None:
        self.connection.execute(update(runs).where(runs.c.id == self.run_id, run_can("end_run")).values(changes))

    # -- opening ------------------------------------------------------------------------------------------

    def _open(self, opening: OpenRow) -> None:
        token = self._token(opening)
        row = {
            "run_id": self.run_id,
            "path": opening.path,
            "kind": opening.kind,
            "created_at": now(),
            "execution_token": token,
            "timeout_token": token,
        }
        opened = self._opened_as(opening)
        self.connection.execute(insert(steps).values({**row, **opened}))

    def _opened_as(self, opening: OpenRow) -> dict[str, Any]:
        if not opening.is_leaf:
            lanes = opening.lanes
            self.writer.add("opened", opening.path, kind=opening.kind)
            return {"status": "waiting", "started_at": now(), "total": lanes, "opened": lanes, "remaining": lanes}
        if opening.wait is not None:
            waiting = Waiting(self.run_id, opening.path, self._run[0])
            event = begin_wait(self.connection, waiting, [opening.wait], self.writer)
            if event is None:
                return self._until(opening, opening.wait.timeout)
            return {**self._starting(opening, item=event), "item": event}
        item = {"item": self.carried[opening.path]} if opening.path in self.carried else {}
        begin = self._starting(opening, **item) if opening.delay <= 0 else self._until(opening, opening.delay, **item)
        return {**begin, **item}

    def _until(self, opening: OpenRow, seconds: float | None, **item: Any) -> dict[str, Any]:
        """Waits for a time; `seconds` None: for something that has no timeout."""
        stopped = suspend_run(self.connection, self.run_id, opening.path)
        self.writer.add("waiting", opening.path, kind=opening.kind, seconds=seconds, run=stopped, **item)
        if seconds is None:
            return {"status": "waiting"}
        near = is_near(seconds, self.near)
        if near:
            self.opened.append(replace(opening, delay=seconds))
        look = next_look(look_at(seconds, near, self.ring_grace))
        return {"status": "waiting", "due_at": after(seconds), **look}

    def _starting(self, opening: OpenRow, **item: Any) -> dict[str, Any]:
        """Claimed for `claim_for`, if that is given and nothing else was claimed; otherwise left to a message."""
        token, paused = self._token(opening), self._run[1]
        if self.claim_for is None or self.claimed is not None or paused:
            self.opened.append(opening)
            self.writer.add("scheduled", opening.path, kind=opening.kind, **item)
            return {"status": "pending", "ring_at": after(self.ring_grace)}
        self.claimed = opening
        self.writer.add("claimed", opening.path, kind=opening.kind, attempt=1, **item)
        timeout = after_or_never(opening.config.limit)
        return {
            "status": "running",
            "attempts": 1,
            "execution_token": token + 1,
            "timeout_token": token + 1,
            "executor_id": self.claim_for,
            "started_at": now(),
            "timeout_at": timeout,
            "ring_at": timeout,
        }

    def _fan_out(self, effect: fx.FanOut) -> None:
        items = self.outcome.items
        rows = insert(steps).values(
            run_id=self.run_id,
            path=bindparam("its_path"),
            kind=ITEM,
            status="waiting",
            item=bindparam("its_item"),
            created_at=now(),
        )
        self.connection.execute(
            rows, [{"its_path": f"{effect.path}[{n}]", "its_item": item} for n, item in enumerate(items)]
        )
        self.writer.add("fanned_out", effect.path, items=Json("[" + ",".join(items) + "]"))
        lanes = min(effect.concurrency, len(items))
        self.connection.execute(
            update(steps).where(self._waits(effect.path)).values(total=len(items), opened=lanes, remaining=len(items))
        )
        for index in range(lanes):
            self._open_item(effect.path, effect.each, index)

    def _open_item(self, path: str, each: tuple[OpenRow, ...], index: int) -> None:
        for opening in each:
            self._open(opening.at_item(path, index))

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
        """Items that never begin."""
        never = [f"{path}[{index}]" for index in range(opened, total)]
        if never:
            self.cancel(path, steps.c.path.in_(never))

    # -- closing ------------------------------------------------------------------------------------------

    def _close(self, effect: fx.Close) -> None:
        if effect.status == "failed":
            self.outcome.result = NULL
            values: dict[str, Any] = {"error": self._blamed()}
        else:
            self.outcome.result = self._results.of(effect, self.outcome.result)
            values = {"result": self.outcome.result}
        closed = self.connection.execute(
            update(steps)
            .where(self._waits(effect.path))
            .values(
                status=effect.status,
                completed_at=now(),
                ring_at=None,
                execution_token=steps.c.execution_token + 1,
                **values,
            )
        )
        if closed.rowcount != 1:
            raise RuntimeError(f"run {self.run_id!r}: composite {effect.path!r} is not open, but a step below it was")
        self.writer.add(effect.status, effect.path, **values)

    def _recall(self, path: str) -> None:
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
        if paths := cancel_open(self.connection, self.run_id, which):
            self.writer.add("cancelled", path, open=paths)

    def _need_run(self) -> None:
        if not self.alone:
            raise RunNeeded

    # -- which rows ---------------------------------------------------------------------------------------

    def _waits(self, path: str) -> ColumnElement[bool]:
        return and_(steps.c.run_id == self.run_id, steps.c.path == path, step_can("close_step"))
