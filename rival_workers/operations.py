"""Operator verbs that read the plan of a run: decide, commit, then publish. `rival_client.Rival` imports this module
when one is first used; it needs no workflow code, and no package of the extra `workers`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
from rival_client.model.policies.rulebook import NO_RULES, FleetRule
from rival_client.model.records import Reopened
from rival_client.model.starts.queues import Route
from rival_client.model.step_records import Attempt, Step
from rival_client.settings import Settings
from rival_client.sql.fleet_rules import read_rulebook, stored_rules
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
            run, step = read_run(connection, run_id), read_step(connection, run_id, path)
            policies = policies_of(connection, run)
            made = _attempts_made(policies, run_id, path, step, attempt)
            if preview or step is None or not made:
                book = read_rulebook(connection)
                now = policies.over(run.policies, book, run.labels)
                options = now.in_flow(path) or now.resolved(path)
                return PolicyExplanation(run_id, path, None, explained(options, book.about))
            number = made if attempt is None else attempt
            start = _start_of(step, read_attempts(connection, run_id, path, MAX_INT), number)
            then = policies_of(connection, run, start.started_at)
            about = stored_rules(connection)
        return PolicyExplanation(run_id, path, number, _as_recorded(then, path, start.policy or {}, about))

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


def _attempts_made(policies: Policies, run_id: str, path: str, step: Step | None, attempt: int | None) -> int:
    """Attempts that can be explained; NotPossible if `attempt` is not one of them."""
    made = 0 if step is None else step.attempts
    if policies.in_flow(path) is not None:
        if attempt is not None:
            why = f"the options of {path!r} are in the code of its flow, and not recorded"
            raise NotPossible("explain", run_id, f"{why}: leave the attempt out for what rules give it now")
        return 0
    if not _is_place(policies, path):
        raise NotPossible("explain", run_id, f"its workflow has no step {path!r}: {_known(policies)}")
    if attempt is not None and attempt > made:
        counted = f"{path!r} has made {made} {'attempt' if made == 1 else 'attempts'}, not {attempt}"
        raise NotPossible("explain", run_id, f"{counted}: leave the attempt out for the last one")
    return made


def _start_of(step: Step, tried: Sequence[Attempt], number: int) -> Step | Attempt:
    """The row with the start of an attempt. A lost attempt has the number of the next one, and a rewind begins with 1
    again: of several with the number, the last one. The row of the step has the last start, whose number it may not
    have any more."""
    same = (one.attempt for one in reversed(tried) if one.started_at == step.started_at)
    last = step.attempts if step.status == statuses.RUNNING else next(same, step.attempts)
    ended = [one for one in tried if one.attempt == number]
    return step if last == number or not ended else ended[-1]


def _as_recorded(
    policies: Policies, path: str, recorded: Mapping[str, Any], about: Mapping[int, FleetRule]
) -> tuple[ExplainedField, ...]:
    """The options of the workflow, and what the attempt has recorded of other rules."""
    replaced = recorded.get("mode") == "replace"
    base = policies.over({"rules": [], "mode": "replace"}, NO_RULES, None) if replaced else policies
    return as_recorded(explained(base.resolved(path), {}), recorded, about)


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
