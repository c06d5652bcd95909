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
from rival_client.db.conflict_retries import repeating_conflicts
from rival_client.db.database import Database
from rival_client.errors import NotPossible, listed
from rival_client.model import statuses
from rival_client.model.checks.amounts import MAX_INT
from rival_client.model.payload import NULL, Json, dump
from rival_client.model.policies.policy_explanation import ExplainedField, PolicyExplanation, as_recorded, explained
from rival_client.model.policies.rulebook import NO_RULES, Rulebook
from rival_client.model.records import Reopened
from rival_client.model.starts.queues import Route
from rival_client.settings import Settings
from rival_client.sql.fleet_rules import read_rulebook
from rival_client.sql.reads.run_reads import read_attempts, read_run, read_step
from rival_workers.engine import interpreter
from rival_workers.engine.decisions import End, EndStatus
from rival_workers.engine.policies import Policies
from rival_workers.store.operator_records import Operated, Order
from rival_workers.store.sql.operator import OperatorSql
from rival_workers.store.sql.reopened_runs import policies_of
from rival_workers.store.sql.settled_steps import SettledStepsSql
from rival_workers.store.sql.stopped_runs import OrphansSql

#: Children that are cancelled before the run continues; if there are more, keepers cancel the rest.
_ORPHANS_AT_ONCE = 1000


@repeating_conflicts
class OperatorStore(SettledStepsSql, OperatorSql, OrphansSql):
    """The parts of the store that the verbs need."""


class Operator:
    def __init__(self, database: Database, doorbell: Doorbell, settings: Settings) -> None:
        self._store = OperatorStore(database, ring_grace=settings.ring_grace, max_payload=settings.max_payload)
        self._doorbell = doorbell

    def retry(self, run_id: str, by: str, **how: Any) -> Reopened:
        """`how`: fields of the order, here and below."""
        return self._reopen(run_id, Order("retry", by, **how), self._store.retry_run)

    def rewind(self, run_id: str, step: str, by: str, **how: Any) -> Reopened:
        return self._reopen(run_id, Order("rewind", by, step, **how), self._store.rewind_run)

    def _reopen(self, run_id: str, order: Order, reopen: Callable[[str, Order], Operated]) -> Reopened:
        """Retry children first: if this process dies in between, they continue, and a later retry of their parent finds
        them. In the other order, the parent could find a child that is still cancelled."""
        done = reopen(run_id, order)
        children = done.retried_children
        if children and not order.dry_run:
            for child in children:
                with suppress(NotPossible):  # it has changed since
                    self.retry(child, order.by)
            done = reopen(run_id, replace(order, children_retried=True))
        return replace(self._publish(run_id, done, order), retried_children=children)

    def explain_policy(self, run_id: str, path: str, attempt: int | None, preview: bool) -> PolicyExplanation:
        with self._store.database.autocommit() as connection:
            run, book = read_run(connection, run_id), read_rulebook(connection)
            step = read_step(connection, run_id, path)
            tried = read_attempts(connection, run_id, path, MAX_INT)
            policies = policies_of(connection, run)
        now = policies.over(run.policies, book, run.labels)
        in_flow = now.in_flow(path)
        if in_flow is not None:
            return PolicyExplanation(run_id, path, None, explained(in_flow, book.about))
        if not _is_place(policies, path):
            raise NotPossible("explain", run_id, f"its workflow has no step {path!r}: {_known(policies)}")
        if preview or step is None or not step.attempts:
            return PolicyExplanation(run_id, path, None, explained(now.resolved(path), book.about))
        number = step.attempts if attempt is None else attempt
        recorded = next((one.policy for one in tried if one.attempt == number), step.policy)
        if number > step.attempts:
            made = f"{path!r} has made {step.attempts} attempts, not {number}"
            raise NotPossible("explain", run_id, f"{made}: leave the attempt out for the last one")
        return PolicyExplanation(run_id, path, number, _as_recorded(policies, path, recorded, book))

    def skip(self, run_id: str, step: str, reason: str, by: str, **how: Any) -> None:
        self._settle(run_id, Order("skip", by, step, reason, **how), statuses.SKIPPED, NULL)

    def set_result(self, run_id: str, step: str, result: Any, reason: str, by: str, **how: Any) -> None:
        its_result = dump(result, what=f"the result of step {step!r}", limit=self._store.max_payload)
        self._settle(run_id, Order("set_result", by, step, reason, **how), statuses.COMPLETED, its_result)

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


def _is_place(policies: Policies, path: str) -> bool:
    """A path of the plan, with numbers and roles."""
    try:
        return policies.plan.place(path) is not None
    except KeyError:
        return False


def _known(policies: Policies) -> str:
    return f"it has {listed(list(policies.plan.places))}"


def _as_recorded(
    policies: Policies, path: str, recorded: dict[str, Any] | None, book: Rulebook
) -> tuple[ExplainedField, ...]:
    """The options of the workflow as they are stored now, and what the attempt has recorded of other rules."""
    replaced = (recorded or {}).get("mode") == "replace"
    base = policies.over({"rules": [], "mode": "replace"}, NO_RULES, None) if replaced else policies
    return as_recorded(explained(base.resolved(path), {}), recorded or {}, book.about)


def _messages(run_id: str, done: Operated) -> list[StepMessage]:
    if done.begin is not None:
        return [StepMessage(run_id, None, done.begin, done.workflow, done.version, route=done.route)]
    opened = [
        StepMessage(
            run_id,
            one.path,
            done.finished.token_of(one),
            done.workflow,
            done.version,
            countdown=one.delay,
            route=one.route or Route(None, done.route.level),
        )
        for one in done.finished.opened
    ]
    return [*opened, *(one.message for one in done.finished.grants)]
