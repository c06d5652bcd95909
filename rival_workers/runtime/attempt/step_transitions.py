"""The transitions of a step: decide, commit, then publish. Failure, timeout and lost executor share them.

This module does not run user code, so keepers can use it. It never publishes before the commit.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from rival_client.broker.doorbell import Doorbell
from rival_client.broker.message import StepMessage
from rival_client.errors import DatabaseError
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import STEP
from rival_client.model.payload import Json
from rival_client.model.policies.step_config import shortest
from rival_client.model.timers import is_near
from rival_workers.definition.registry import Registry
from rival_workers.engine import interpreter
from rival_workers.engine.deadlines import deadline_exceeded, expiry_error
from rival_workers.engine.decisions import (
    Decision,
    End,
    Failure,
    FallBack,
    Retry,
    Success,
    decide,
    final,
    revoked,
    timed_out,
)
from rival_workers.engine.heartbeat_limits import timeout_error
from rival_workers.runtime.attempt.fallback_values import checked_at
from rival_workers.runtime.attempt.position import InPlace, Position, RunOptions
from rival_workers.runtime.attempt.runs_in_hand import Commits, commit_alone
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.logs.failure_log import FailureLog, failed_attempt, log_failed_run
from rival_workers.runtime.logs.redaction import Redaction
from rival_workers.runtime.logs.tracebacks import function_location
from rival_workers.settings import WorkerSettings
from rival_workers.signals import breaker_moved
from rival_workers.store.claim_records import BudgetSpent, Claim, FinishResult
from rival_workers.store.group_commits import FinishStep, FinishSteps
from rival_workers.store.interface import Store
from rival_workers.store.sweep_records import Due, RunningAttempt

log = logging.getLogger("rival.transitions")

TIMER = "timer"  # the executor of failures that no attempt reports

#: Seconds by which the timer of a deadline may be early.
_AT_ONCE = 0.05


class StepTransitions:
    def __init__(self, settings: WorkerSettings, store: Store, registry: Registry, doorbell: Doorbell) -> None:
        self._settings, self._store, self._registry, self._doorbell = settings, store, registry, doorbell
        self.failures = FailureLog(store.append_logs, Redaction.of(settings.redact))
        self.options = RunOptions(store, registry)
        #: A monotonic clock; the testing kit replaces it.
        self.clock: Callable[[], float] = time.monotonic

    def decide(self, position: Position, outcome: Success | Failure, left: float | None = None) -> Decision:
        """What follows from the outcome. Reads only what the options need. `left`: seconds until the run's deadline."""
        config, failed, run_id = position.config, isinstance(outcome, Failure), position.claim.run_id
        failed_at = outcome.at if isinstance(outcome, Failure) and outcome.at is not None else self.clock()
        decision = decide(
            config,
            position.attempt,
            outcome,
            random.random(),
            has_fallen_back=failed and self.has_fallen_back(position),
            retries=self._store.retries_of(run_id) if failed and config.retry_budget is not None else 0,
            left=shortest(left, self.left(position)),
        )
        decision = checked_at(position, decision, self._registry)
        return replace(decision, failed_at=failed_at) if isinstance(decision, Retry) else decision

    def has_fallen_back(self, position: Position) -> bool:
        if position.config.fallback is None:
            return False
        return self._store.has_fallen_back(position.claim.run_id, position.claim.path)

    def finish(self, position: Position, end: End | FallBack) -> FinishResult | None:
        """End the step, or let it wait for its fallback. What follows is published. None: the step had moved on."""
        return commit_alone(self.finishing(position, end, None), self._store)

    def finish_of(self, position: Position, end: End | FallBack, in_place: InPlace | None) -> FinishStep:
        """The commit that ends the step. `in_place`: the process that goes on."""
        if isinstance(end, End) and position.config.idempotency_key is not None:
            end = replace(end, keyed=True)
        book = self.options.book()
        advance, claim_for, successor = position.advance(end, position.policies_under(book)), None, None
        if in_place is not None:
            advance, claim_for = in_place.claims(advance)
            successor = in_place.successor(position, advance, book) if in_place.after_waiting else None
        return FinishStep(position.claim, end, advance, claim_for, successor)

    def finishing(
        self, position: Position, end: End | FallBack, in_place: InPlace | None, before: Sequence[FinishStep] = ()
    ) -> Commits[FinishResult | None]:
        """As `finish`; the commit may be made together with others. `before`: ends that the same commit makes first.
        The result is that of the last one that was made."""
        finish, finished = self.finish_of(position, end, in_place), None
        if before:
            done: list[FinishResult] = yield FinishSteps((*before, finish))
            finished = done[-1] if done else None
        else:
            finished = yield finish
        if finished is None:
            return None
        failpoint("after_finish_commit")
        if finished.ready is not None:
            failpoint("after_child_end_commit")
        # Most commits have only claimed the next step.
        if finished.claimed is None or finished.opened or finished.grants or finished.ready is not None:
            self.publish(position, finished, keep=None if in_place is None else in_place.message(position, finished))
        return finished

    def log_end(self, position: Position, finished: FinishResult | None) -> None:
        """Log the run if the commit has failed it."""
        run_id = position.claim.run_id
        if finished is None or finished.ended_as != statuses.FAILED:
            return
        try:
            log_failed_run(run_id, position.workflow, *self._store.failure_of(run_id))
        except DatabaseError as error:
            log.error("run %s of %s failed; its error could not be read: %s", run_id, position.workflow, error)

    def publish(self, position: Position, finished: FinishResult, keep: StepMessage | None = None) -> None:
        """Publish messages for the rows that a commit has opened and not claimed, and for the tickets that it has
        granted. `keep`: the message that is not published, since this worker continues with it."""
        messages = [position.message_to(one, finished) for one in finished.opened]
        messages += [one.message for one in finished.grants]
        messages = [one for one in messages if one != keep] if keep else messages
        if finished.ready is not None:
            messages.append(finished.ready.message)
        changed = [position.claim.run_id] if finished.run_ended and not finished.is_announced else []
        if messages or changed:
            self._doorbell.publish(messages, changed=changed)

    def retry(self, position: Position, retry: Retry) -> bool | BudgetSpent:
        """Schedule the next attempt: by a countdown if it is near, else by the keeper. BudgetSpent: not scheduled."""
        near = is_near(retry.delay, self._settings.near)
        began = self.clock()
        retry = retry.at(began)
        token = self._store.retry_step(position.claim, retry, published=near)
        if isinstance(token, BudgetSpent):
            return token
        if token is None:
            return False
        failpoint("after_retry_commit")
        if near:
            number, left = position.attempt + 1, max(0.0, began + retry.left - self.clock())
            self._doorbell.publish([position.message(token, attempt=number, lost=position.lost, countdown=left)])
        return True

    def postpone(self, position: Position, seconds: float, breaker: str) -> None:
        """The step waits until its circuit breaker may have closed. If it has moved on, nothing is left to do."""
        near = is_near(seconds, self._settings.near)
        token = self._store.postpone_step(position.claim, seconds, breaker, published=near)
        if token is not None and near:
            self._doorbell.publish([position.message(token, attempt=position.attempt, countdown=seconds)])

    def count_failure(self, position: Position, outcome: Failure, executor: str) -> None:
        """Count the failure for the step's circuit breaker, if that counts such errors."""
        breaker = position.config.circuit_breaker
        if breaker is None or not breaker.counts_error((*outcome.kinds, str(outcome.error.get("type")))):
            return
        moved = self._store.breaker_failed(breaker, position.claim, executor)
        if moved is not None:
            log.warning("circuit breaker %s is %s: %s", breaker.name, moved, outcome.error.get("message"))
            claim = position.claim
            breaker_moved.send(name=breaker.name, state=moved, run_id=claim.run_id, step=claim.path)

    def wait_external(self, position: Position, state: Json | None) -> bool:
        """Let an external step wait for its answer. False: the step has moved on."""
        claim, config = position.claim, position.config
        token = self._store.suspend_external_step(claim, position.attempt, config, state)
        if token is None:
            return False
        failpoint("after_suspend_commit")
        if is_near(config.patience, self._settings.near):
            countdown = config.patience or 0.0
            self._doorbell.publish([position.message(token, attempt=position.attempt, countdown=countdown)])
        return True

    def hand_back(self, running: RunningAttempt) -> None:
        """The attempt starts again, elsewhere or here; it does not count as lost."""
        self._publish_again(running, self._store.hand_back_step(running.claim), running.lost)

    def _publish_again(self, running: RunningAttempt, token: int | None, lost: int) -> None:
        claim, workflow, version = running.claim, running.workflow, running.version
        if token is not None:
            step = (claim.run_id, claim.path, token, workflow, version)
            self._doorbell.publish([StepMessage(*step, running.attempts, lost, route=running.route)])

    def time_out(self, position: Position) -> bool:
        """Apply a timeout. False: the step has moved on, or a heartbeat has extended its limit."""
        config, claim = position.config, position.claim
        # The timer may be early, or a heartbeat may have come just now. A limit that is over stays over: see
        # `beat_step`.
        heartbeat = None if config.heartbeat is None else self._store.heartbeat_state_of(claim.run_id, claim.path)
        if heartbeat is not None and not heartbeat.is_over:
            return False
        left = self.left(position)
        if left is not None and left <= _AT_ONCE:
            exceeded = deadline_exceeded(config, position.attempt) | self._written_at(position)
            return self._apply(position, Failure(exceeded, outcome=entries.TIMED_OUT))
        error = timeout_error(config, position.attempt, heartbeat) | self._written_at(position)
        return self._apply(position, timed_out(config, error))

    def left(self, position: Position) -> float | None:
        """Seconds until the deadline of the step."""
        return None if position.until is None else position.until - self.clock()

    def revoke(self, running: RunningAttempt, task_id: str) -> bool:
        """Apply an operator's revoke of the attempt's task. False: the step has moved on."""
        position = self._position(running)
        return position is not None and self._apply(position, revoked(task_id, running.attempts))

    def _apply(self, position: Position, outcome: Failure) -> bool:
        """Commit a failure that the step did not raise. False: the step has moved on."""
        counts = outcome.outcome == entries.TIMED_OUT and not self.has_fallen_back(position)
        decision = self.decide(position, outcome)
        finished = None if isinstance(decision, Retry) else self.finish(position, decision)
        done = self.retry(position, decision) if isinstance(decision, Retry) else finished is not None
        if isinstance(done, BudgetSpent):
            return self._apply(position, outcome)
        if not done:
            return False
        if counts:
            self.count_failure(position, outcome, TIMER)
        failed = failed_attempt(position, outcome, decision)
        self.failures.store(failed)
        self.failures.log_attempt(failed)
        self.log_end(position, finished)
        return True

    def _written_at(self, position: Position) -> dict[str, str]:
        """The location of the step's function, if this worker has its code."""
        definition = self._registry.find(position.workflow, position.version)
        call = None if definition is None else definition.call_at(position.claim.path)
        found = None if call is None else function_location(call.injection.function)
        return {} if found is None else {"location": found}

    def expire(self, run_id: str, workflow: str, version: str) -> bool:
        """Fail a run whose deadline has passed. False: it has ended, or fails already."""
        policies = self.options.of(workflow, version, run_id)
        if policies is None:
            return False
        advance = interpreter.expired(policies.plan).with_options(policies.at)
        finished = self._store.expire_run(run_id, advance)
        if finished is None:
            return False
        failpoint("after_expire_commit")
        position = Position(Claim(run_id, "", 0), workflow, version, policies, 1, 0, STEP)
        self.publish(position, finished)
        self.log_end(position, finished)
        return True

    # -- called by the keeper -----------------------------------------------------------------------------

    def time_out_due(self, due: Due) -> None:
        position = self._position_of(due)
        if position is not None:
            self.time_out(position)

    def expire_due(self, due: Due) -> bool:
        """Fail a step that has waited for too long to start. False: it has time left, or has moved on."""
        position = self._position_of(due)
        if position is None:
            return False
        error = expiry_error(position.config, due.attempts, due.start_in, due.left)
        if error is None:
            return False
        return self._apply(position, Failure(error | self._written_at(position), outcome=entries.EXPIRED))

    def _position_of(self, due: Due) -> Position | None:
        policies = self.options.of(due.workflow, due.version, due.run_id)
        if policies is None or due.path is None:
            return None
        claim = Claim(due.run_id, due.path, due.timeout_token, "timeout_token")
        until = None if due.left is None else self.clock() + due.left
        step = (due.workflow, due.version, policies, due.attempts, due.lost, due.kind)
        return Position(claim, *step, due.route, until=until)

    def take_over(self, lost: RunningAttempt, error: dict[str, Any] | None = None) -> None:
        """Start a lost attempt again, or fail its step when it was lost more than `max_lost` times. `error`: why its
        outcome could not be committed; None: its executor is dead."""
        again = lost.lost < self._settings.max_lost
        why = "no outcome" if error else f"its executor {lost.executor} is gone"
        effect = "started again" if again else "failed"
        log.warning("run %s step %s: %s; %s", lost.claim.run_id, lost.claim.path, why, effect)
        if again:
            return self._publish_again(lost, self._store.take_over_step(lost.claim), lost.lost + 1)
        position = self._position(lost)
        if position is not None:
            self._fail_lost(position, error or _lost_error(lost, self._settings.max_lost))
        return None

    def _fail_lost(self, position: Position, error: dict[str, Any]) -> None:
        has_fallen_back = self.has_fallen_back(position)
        decision = final(position.config, Failure(error, outcome=entries.LOST), has_fallen_back=has_fallen_back)
        if isinstance(decision, Retry):
            self.retry(position, decision)
        else:
            self.log_end(position, self.finish(position, decision))

    def _position(self, running: RunningAttempt) -> Position | None:
        workflow, version = running.workflow, running.version
        policies = self.options.of(workflow, version, running.claim.run_id)
        if policies is None:
            return None
        until = None if running.left is None else self.clock() + running.left
        step = (workflow, version, policies, running.attempts, running.lost, running.kind)
        return Position(running.claim, *step, running.route, until=until)


def _lost_error(lost: RunningAttempt, max_lost: int) -> dict[str, Any]:
    return {
        "type": "ExecutorLost",
        "message": f"the step lost its executor {lost.lost + 1} times (the last was {lost.executor}); "
        f"at most {max_lost} losses are retried. It may be killing its workers: look at their memory and exit codes.",
        "attempt": lost.attempts,
    }
