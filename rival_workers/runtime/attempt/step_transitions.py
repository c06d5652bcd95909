"""The transitions of a step: decide, commit, then publish. Failure, timeout and lost executor share them.

This module does not run user code, so keepers can use it. It never publishes before the commit.
"""

from __future__ import annotations

import logging
import random
from dataclasses import dataclass
from typing import Any

from rival_client.broker.doorbell import Doorbell
from rival_client.broker.message import StepMessage
from rival_client.errors import DatabaseError
from rival_client.model.payload import Json
from rival_client.model.timers import is_near
from rival_workers.definition.registry import Registry
from rival_workers.engine import interpreter
from rival_workers.engine.decisions import End, Failure, Retry, decide, decide_lost, revoked, timed_out
from rival_workers.engine.effects import Advance
from rival_workers.engine.heartbeat_limits import timeout_error
from rival_workers.engine.plan import Plan, StepConfig
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.logs.failure_log import FailureLog, failed_attempt, log_failed_run
from rival_workers.runtime.logs.redaction import Redaction
from rival_workers.runtime.logs.tracebacks import function_location
from rival_workers.settings import WorkerSettings
from rival_workers.store.interface import Claim, Due, FinishResult, ReleaseReason, RunningAttempt, Store

log = logging.getLogger("rival.transitions")


@dataclass(frozen=True, slots=True)
class Position:
    """A step before a transition: its claim, and its place in the plan."""

    claim: Claim
    workflow: str
    version: str
    plan: Plan
    attempt: int
    lost: int
    #: The kind of its row. It decides, for example, whether the run continues after a handler.
    kind: str

    @property
    def config(self) -> StepConfig:
        return interpreter.config_of(self.plan, self.claim.path)

    def advance(self, end: End) -> Advance:
        return interpreter.advance(self.plan, self.claim.path, end, self.kind)

    def message(self, path: str, token: int, *, attempt: int = 1, lost: int = 0, countdown: float = 0.0) -> StepMessage:
        return StepMessage(self.claim.run_id, path, token, self.workflow, self.version, attempt, lost, countdown)


class StepTransitions:
    def __init__(self, settings: WorkerSettings, store: Store, registry: Registry, doorbell: Doorbell) -> None:
        self._settings, self._store, self._registry, self._doorbell = settings, store, registry, doorbell
        self.failures = FailureLog(store.append_logs, Redaction.of(settings.redact))
        self._plans: dict[tuple[str, str], Plan] = {}

    def finish(self, position: Position, end: End, *, claim_for: str | None) -> FinishResult | None:
        """End the step. The next step is claimed for `claim_for`, or published. None: the step had moved on before."""
        finished = self._store.finish_step(position.claim, end, position.advance(end), claim_for=claim_for)
        if finished is None:
            return None
        failpoint("after_finish_commit")
        if finished.ready is not None:
            failpoint("after_child_end_commit")
        self.publish(position, finished)
        return finished

    def log_end(self, position: Position, finished: FinishResult | None) -> None:
        """Log the run if the commit has failed it."""
        run_id = position.claim.run_id
        if finished is None or finished.ended_as != "failed":
            return
        try:
            log_failed_run(run_id, position.workflow, *self._store.failure_of(run_id))
        except DatabaseError as error:
            log.error("run %s of %s failed; its error could not be read: %s", run_id, position.workflow, error)

    def publish(self, position: Position, finished: FinishResult) -> None:
        """Publish messages for the rows that a commit has opened and not claimed."""
        messages = [position.message(one.path, finished.token_of(one), countdown=one.delay) for one in finished.opened]
        if finished.ready is not None:
            messages.append(finished.ready.message)
        if messages or finished.run_ended:
            self._doorbell.publish(messages, changed=[position.claim.run_id] if finished.run_ended else [])

    def retry(self, position: Position, retry: Retry) -> bool:
        """Schedule the next attempt: by a countdown if it is near, else by the keeper."""
        near = is_near(retry.delay, self._settings.near)
        token = self._store.retry_step(position.claim, retry, rung=near)
        if token is None:
            return False
        failpoint("after_retry_commit")
        if near:
            message = position.message(
                position.claim.path, token, attempt=position.attempt + 1, lost=position.lost, countdown=retry.delay
            )
            self._doorbell.publish([message])
        return True

    def wait_external(self, position: Position, state: Json | None) -> bool:
        """Let an external step wait for its answer. False: the step has moved on."""
        claim, config = position.claim, position.config
        token = self._store.suspend_outside(claim, position.attempt, config, state)
        if token is None:
            return False
        failpoint("after_suspend_commit")
        if is_near(config.patience, self._settings.near):
            countdown = config.patience or 0.0
            self._doorbell.publish([position.message(claim.path, token, attempt=position.attempt, countdown=countdown)])
        return True

    def release(self, running: RunningAttempt, reason: ReleaseReason) -> None:
        """Release an attempt, so that it starts again."""
        claim, workflow, version = running.claim, running.workflow, running.version
        token = self._store.release_step(claim, reason)
        if token is not None:
            lost = running.lost + (reason == "lost")
            message = StepMessage(claim.run_id, claim.path, token, workflow, version, running.attempts, lost)
            self._doorbell.publish([message])

    def time_out(self, position: Position) -> bool:
        """Apply a timeout. False: the step has moved on, or a heartbeat has extended its limit."""
        config, claim = position.config, position.claim
        # The timer may be early, or a heartbeat may have come just now. A limit that is over stays over: see
        # `beat_step`.
        heartbeat = None if config.heartbeat is None else self._store.pulse_of(claim.run_id, claim.path)
        if heartbeat is not None and not heartbeat.is_over:
            return False
        error = timeout_error(config, position.attempt, heartbeat) | self._written_at(position)
        return self._apply(position, timed_out(config, error))

    def revoke(self, running: RunningAttempt, task_id: str) -> bool:
        """Apply an operator's revoke of the attempt's task. False: the step has moved on."""
        plan = self._plan(running.workflow, running.version)
        if plan is None:
            return False
        attempt, lost = running.attempts, running.lost
        position = Position(running.claim, running.workflow, running.version, plan, attempt, lost, running.kind)
        return self._apply(position, revoked(task_id, attempt))

    def _apply(self, position: Position, outcome: Failure) -> bool:
        """Commit a failure that the step did not raise. False: the step has moved on."""
        config = position.config
        decision = decide(config, position.attempt, outcome, random.random())
        finished = None if isinstance(decision, Retry) else self.finish(position, decision, claim_for=None)
        done = self.retry(position, decision) if isinstance(decision, Retry) else finished is not None
        if not done:
            return False
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

    # -- called by the keeper -----------------------------------------------------------------------------

    def time_out_due(self, due: Due) -> None:
        plan = self._plan(due.workflow, due.version)
        if plan is None or due.path is None:
            return
        claim = Claim(due.run_id, due.path, due.timeout_token, "timeout_token")
        self.time_out(Position(claim, due.workflow, due.version, plan, due.attempts, due.lost, due.kind))

    def take_over(self, lost: RunningAttempt, error: dict[str, Any] | None = None) -> None:
        """Start a lost attempt again, or fail its step when it was lost more than `max_lost` times. `error`: why its
        outcome could not be committed; None: its executor is dead.
        """
        most = self._settings.max_lost
        end = decide_lost(lost.lost, most, error or _lost_error(lost, most))
        why = "no outcome" if error else f"its executor {lost.executor} is gone"
        effect = "failed" if end else "started again"
        log.warning("run %s step %s: %s; %s", lost.claim.run_id, lost.claim.path, why, effect)
        if end is None:
            return self.release(lost, "lost")
        plan = self._plan(lost.workflow, lost.version)
        if plan is not None:
            position = Position(lost.claim, lost.workflow, lost.version, plan, lost.attempts, lost.lost, lost.kind)
            self.log_end(position, self.finish(position, end, claim_for=None))
        return None

    def _plan(self, workflow: str, version: str) -> Plan | None:
        """The plan of any version. Decisions need only the plan, not the code, which this worker may not have."""
        key = (workflow, version)
        if key not in self._plans:
            definition = self._registry.find(workflow, version)
            info = None if definition else self._store.load_workflow(workflow, version)
            if definition is None and info is None:
                log.error("workflow %s version %s is not in the database: its runs cannot continue", *key)
                return None
            self._plans[key] = definition.plan if definition else Plan.load(info.plan)  # type: ignore[union-attr]
        return self._plans[key]


def _lost_error(lost: RunningAttempt, max_lost: int) -> dict[str, Any]:
    return {
        "type": "ExecutorLost",
        "message": f"the step lost its executor {lost.lost + 1} times (the last was {lost.executor}); "
        f"at most {max_lost} losses are retried. It may be killing its workers: look at their memory and exit codes.",
        "attempt": lost.attempts,
    }
