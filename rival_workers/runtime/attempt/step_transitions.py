"""The moves of a step: decide, commit, then ring. Failure, timeout and lost executor end in the same few moves.

Nothing here runs user code, so keepers may use all of it; nothing rings before its commit.
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
    """A step that is about to move: what is held, and where in its plan it stands."""

    claim: Claim
    workflow: str
    version: str
    plan: Plan
    attempt: int
    lost: int
    #: What its row is: a handler of a hard failure goes on otherwise than that of a soft one.
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
        """The step is over; what follows is claimed for `claim_for`, or rung. None: it had moved on before."""
        finished = self._store.finish_step(position.claim, end, position.advance(end), claim_for=claim_for)
        if finished is None:
            return None
        failpoint("after_finish_commit")
        if finished.ready is not None:
            failpoint("after_child_end_commit")
        self.publish(position, finished)
        return finished

    def log_end(self, position: Position, finished: FinishResult | None) -> None:
        """Log the run if a commit has failed it."""
        run_id = position.claim.run_id
        if finished is None or finished.ended_as != "failed":
            return
        try:
            log_failed_run(run_id, position.workflow, *self._store.failure_of(run_id))
        except DatabaseError as error:
            log.error("run %s of %s failed; its error could not be read: %s", run_id, position.workflow, error)

    def publish(self, position: Position, finished: FinishResult) -> None:
        """For all that a commit has opened and nobody goes on with."""
        messages = [position.message(one.path, finished.token_of(one), countdown=one.delay) for one in finished.opened]
        if finished.ready is not None:
            messages.append(finished.ready.message)
        if messages or finished.run_ended:
            self._doorbell.publish(messages, changed=[position.claim.run_id] if finished.run_ended else [])

    def retry(self, position: Position, retry: Retry) -> bool:
        """The step is tried again: soon by a countdown, later by the keeper."""
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
        """An external step waits for its answer. False: it has moved on."""
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
        """Give an attempt up so that it is started again."""
        claim = running.claim
        token = self._store.release_step(claim, reason)
        if token is not None:
            lost = running.lost + (reason == "lost")
            self._doorbell.publish(
                [
                    StepMessage(
                        claim.run_id, claim.path, token, running.workflow, running.version, running.attempts, lost
                    )
                ]
            )

    def time_out(self, position: Position) -> bool:
        """Apply a timeout; False when the step has moved on since."""
        config, claim = position.config, position.claim
        # An alarm may be early, and a beat may have come at this very moment. What is over stays so: see `beat_step`.
        pulse = None if config.heartbeat is None else self._store.pulse_of(claim.run_id, claim.path)
        if pulse is not None and not pulse.is_over:
            return False
        error = timeout_error(config, position.attempt, pulse) | self._written_at(position)
        return self._apply(position, timed_out(config, error))

    def revoke(self, running: RunningAttempt, task_id: str) -> bool:
        """An operator has revoked the attempt's task; False when it has moved on since."""
        plan = self._plan(running.workflow, running.version)
        if plan is None:
            return False
        attempt, lost = running.attempts, running.lost
        position = Position(running.claim, running.workflow, running.version, plan, attempt, lost, running.kind)
        return self._apply(position, revoked(task_id, attempt))

    def _apply(self, position: Position, outcome: Failure) -> bool:
        """A failure that was not raised by the step; False when it has moved on since."""
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
        """Where the step's function is, if this worker has it."""
        definition = self._registry.find(position.workflow, position.version)
        call = None if definition is None else definition.call_at(position.claim.path)
        found = None if call is None else function_location(call.injection.function)
        return {} if found is None else {"location": found}

    # -- what the keeper finds ----------------------------------------------------------------------------

    def time_out_due(self, due: Due) -> None:
        plan = self._plan(due.workflow, due.version)
        if plan is None or due.path is None:
            return
        claim = Claim(due.run_id, due.path, due.timeout_token, "timeout_token")
        self.time_out(Position(claim, due.workflow, due.version, plan, due.attempts, due.lost, due.kind))

    def take_over(self, lost: RunningAttempt, error: dict[str, Any] | None = None) -> None:
        """Start a lost attempt again, or fail its step when it was lost once too often: with the error, or as lost with
        its executor."""
        most = self._settings.max_lost
        end = decide_lost(lost.lost, most, error or _lost_error(lost, most))
        log.warning("run %s step %s: %s; %s", lost.claim.run_id, lost.claim.path,
                    "no outcome" if error else f"its executor {lost.executor} is gone",
                    "failed" if end else "started again")  # fmt: skip
        if end is None:
            return self.release(lost, "lost")
        plan = self._plan(lost.workflow, lost.version)
        if plan is not None:
            position = Position(lost.claim, lost.workflow, lost.version, plan, lost.attempts, lost.lost, lost.kind)
            self.log_end(position, self.finish(position, end, claim_for=None))
        return None

    def _plan(self, workflow: str, version: str) -> Plan | None:
        """Any plan can be read, also one whose code this worker does not have: decisions are pure."""
        key = (workflow, version)
        if key not in self._plans:
            definition = self._registry.find(workflow, version)
            info = None if definition else self._store.load_workflow(workflow, version)
            if definition is None and info is None:
                log.error("workflow %s version %s is not in the database: its runs cannot be moved", *key)
                return None
            self._plans[key] = definition.plan if definition else Plan.load(info.plan)  # type: ignore[union-attr]
        return self._plans[key]


def _lost_error(lost: RunningAttempt, max_lost: int) -> dict[str, Any]:
    return {
        "type": "ExecutorLost",
        "message": f"the step lost its executor {lost.lost + 1} times (the last was {lost.executor}); "
        f"at most {max_lost} are forgiven. It may be killing its workers: look at their memory and exit codes.",
        "attempt": lost.attempts,
    }
