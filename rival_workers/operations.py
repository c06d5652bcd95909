"""Operator verbs that read the plan of a run: decide, commit, then publish. `rival_client.Rival` imports this module
when one is first used; it needs no workflow code, and no package of the extra `workers`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from rival_client.broker.doorbell import Doorbell
from rival_client.broker.message import StepMessage
from rival_client.db.database import Database
from rival_client.errors import NotPossible
from rival_client.model.payload import NULL, Json, dump
from rival_client.model.records import Reopened
from rival_client.settings import Settings
from rival_workers.engine import interpreter
from rival_workers.engine import rewind as rewinds
from rival_workers.engine.decisions import End, EndStatus
from rival_workers.engine.plan import Plan
from rival_workers.engine.rewind import RewindPlan, Row
from rival_workers.store.sql.operator import Operated, Order
from rival_workers.store.sql_store import SqlStore

#: Children that are cancelled before the run continues; if there are more, keepers cancel the rest.
_ORPHANS_AT_ONCE = 1000


class Operator:
    def __init__(self, database: Database, doorbell: Doorbell, settings: Settings) -> None:
        self._store = SqlStore(database, ring_grace=settings.ring_grace, max_payload=settings.max_payload)
        self._doorbell = doorbell

    def retry(self, run_id: str, by: str, dry_run: bool = False) -> Reopened:
        return self._reopen(run_id, Order("retry", by, dry_run=dry_run), rewinds.retry)

    def rewind(self, run_id: str, step: str, by: str, dry_run: bool = False) -> Reopened:
        def cut(plan: Plan, rows: list[Row]) -> RewindPlan:
            return rewinds.rewind(plan, rows, step)

        return self._reopen(run_id, Order("rewind", by, step, dry_run=dry_run), cut)

    def _reopen(self, run_id: str, order: Order, cut: Callable[[Plan, list[Row]], RewindPlan]) -> Reopened:
        """Retry children first: if this process dies in between, they continue, and a later retry of their parent finds
        them. In the other order, the parent could find a child that is still cancelled."""
        done = self._store.reopen_run(run_id, order, cut)
        children = done.retried_children
        if children and not order.dry_run:
            for child in children:
                with suppress(NotPossible):  # it has changed since
                    self.retry(child, order.by)
            done = self._store.reopen_run(run_id, replace(order, children_retried=True), cut)
        return replace(self._publish(run_id, done, order), retried_children=children)

    def skip(self, run_id: str, step: str, reason: str, by: str, dry_run: bool = False) -> None:
        self._settle(run_id, Order("skip", by, step, reason, dry_run), "skipped", NULL)

    def set_result(self, run_id: str, step: str, result: Any, reason: str, by: str, dry_run: bool = False) -> None:
        its_result = dump(result, what=f"the result of step {step!r}", limit=self._store.max_payload)
        self._settle(run_id, Order("set_result", by, step, reason, dry_run), "completed", its_result)

    def _settle(self, run_id: str, order: Order, status: EndStatus, result: Json) -> None:
        self._publish(run_id, self._store.settle_step(run_id, order, End(status, result), interpreter.advance), order)

    def _publish(self, run_id: str, done: Operated, order: Order) -> Reopened:
        if not order.dry_run:
            self._cancel_orphans(run_id)
            self._doorbell.publish(_messages(run_id, done), changed=[run_id])
        return Reopened(run_id, tuple(one.path for one in done.cut.opens), done.cut.runs_again, done.children)

    def _cancel_orphans(self, run_id: str) -> None:
        """Cancel the children of the steps that start again, before they do; keepers cancel the rest."""
        found = self._store.orphans_of(run_id, _ORPHANS_AT_ONCE)
        cancelled = [child for child, by in found if self._store.cancel_orphan(child, by)]
        if cancelled:
            self._doorbell.publish([], changed=cancelled)


def _messages(run_id: str, done: Operated) -> list[StepMessage]:
    if done.begin is not None:
        return [StepMessage(run_id, None, done.begin, done.workflow, done.version)]
    return [
        StepMessage(run_id, one.path, done.finished.token_of(one), done.workflow, done.version, countdown=one.delay)
        for one in done.finished.opened
    ]
