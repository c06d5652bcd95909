"""Calls the hooks of a workflow, and sends the signals of the process. Neither changes an outcome: the error of a hook
is recorded in the history.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import CANCEL
from rival_client.model.policies.breakers import Breaker, BreakerState
from rival_client.model.policies.step_config import StepConfig
from rival_workers import signals
from rival_workers.definition.hooks import STRICT, HookEvent
from rival_workers.engine.decisions import Decision, End, Failure, Retry, Success
from rival_workers.engine.replay import CheckpointWrite
from rival_workers.engine.step_limits import limits_at
from rival_workers.runtime.attempt.async_loop import async_steps
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.interrupts import is_from_signal
from rival_workers.runtime.attempt.invoke import error_record, failure
from rival_workers.runtime.attempt.outage import OutageRetry
from rival_workers.store.claim_records import FinishResult
from rival_workers.store.interface import Store

log = logging.getLogger("rival.hooks")

#: The hooks of one end of a run; `on_end` is for each.
_AT_THE_END = {statuses.COMPLETED: "on_success", statuses.CANCELLED: "on_cancel"}


class HookCalls:
    def __init__(self, store: Store, outage: OutageRetry) -> None:
        self._store, self._outage = store, outage

    def around(self, attempt: Attempt, call: Callable[[], Success | Failure]) -> Success | Failure:
        """The call of the step's function, between its hooks. Their time counts as that of the attempt."""
        hooks = attempt.hooks
        if not hooks or attempt.claimed.path == CANCEL:
            return call()
        error = self.call(attempt, "before_attempt")
        if error is not None and hooks.get(STRICT):
            return failure(error, attempt.claimed.attempt, function=hooks["before_attempt"])
        outcome = call()
        failed = isinstance(outcome, Failure)
        self.call(
            attempt, "after_attempt", outcome=statuses.FAILED if failed else statuses.COMPLETED, error=_error(outcome)
        )
        return outcome

    def decided(self, attempt: Attempt, decision: Decision, finished: FinishResult | None) -> None:
        """After the commit of what follows from an attempt."""
        if attempt.hooks:
            self._follow(attempt, decision, finished)
        if finished is not None and finished.run_ended and signals.run_ended.receivers:
            run_id, workflow = attempt.claimed.run_id, attempt.definition.name
            signals.run_ended.send(run_id=run_id, workflow=workflow, status=_status(finished))

    def _follow(self, attempt: Attempt, decision: Decision, finished: FinishResult | None) -> None:
        if isinstance(decision, Retry):
            self.call(attempt, "on_retry", outcome=decision.outcome, error=decision.error, delay=decision.delay)
        elif isinstance(decision, End) and decision.status == statuses.FAILED and decision.hard:
            self.call(attempt, "on_terminal", outcome=decision.outcome, error=decision.error)
        if finished is not None and isinstance(decision, End):
            self.call(attempt, "on_checkpoint", outcome=decision.status, error=decision.error)
        if finished is not None and finished.run_ended:
            status = _status(finished)
            if status in _AT_THE_END:
                self.call(attempt, _AT_THE_END[status], outcome=status)
            if "on_end" in attempt.hooks:
                self.call(attempt, "on_end", outcome=status, error=self._error_of(attempt, status))

    def _error_of(self, attempt: Attempt, status: str) -> dict[str, Any] | None:
        """The error of the run. It may differ from the error of this attempt, which may be a handler's."""
        if status != statuses.FAILED:
            return None
        return self._outage.keep(lambda: self._store.failure_of(attempt.claimed.run_id))[1]

    def of_checkpoints(self, attempt: Attempt) -> Callable[[CheckpointWrite, StepConfig], None] | None:
        """Called after the commit of the end of a step that a flow has called. None: it has no hook."""
        if "on_checkpoint" not in attempt.hooks:
            return None

        def call(write: CheckpointWrite, config: StepConfig) -> None:
            path, workflow = write.ref.path, attempt.definition.name
            its_own = {"step": path, "attempt": write.attempts, **_telemetry(config, workflow, path)}
            self.call(attempt, "on_checkpoint", outcome=write.status, error=write.error, **its_own)

        return call

    def call(self, attempt: Attempt, name: str, /, **about: Any) -> BaseException | None:
        """The error of the hook, which is recorded."""
        hook = attempt.hooks.get(name)
        if hook is None:
            return None
        try:
            waits = hook(HookEvent(name, **{**described(attempt), **about}))
            if inspect.isawaitable(waits):
                async_steps.run(waits)
        except BaseException as error:
            if is_from_signal(error):
                raise
            self._record(attempt, name, error)
            return error
        return None

    def _record(self, attempt: Attempt, name: str, error: BaseException) -> None:
        claim, record = attempt.claim, error_record(error, attempt.claimed.attempt)
        log.warning("run %s step %s: the hook %s failed: %s", claim.run_id, claim.path, name, record["message"])
        why = {part: record[part] for part in ("type", "message")}
        self._outage.keep(
            lambda: self._store.record(
                claim.run_id, claim.path, entries.HOOK_FAILED, claim.run_id, hook=name, error=why
            )
        )


def described(attempt: Attempt) -> dict[str, Any]:
    """The fields of an attempt for hooks and signals."""
    claimed, workflow = attempt.claimed, attempt.definition.name
    where = {"run_id": claimed.run_id, "workflow": workflow, "step": claimed.path, "attempt": claimed.attempt}
    return {**where, **_telemetry(attempt.position.config, workflow, claimed.path)}


def _telemetry(config: StepConfig, workflow: str, path: str) -> dict[str, Any]:
    prefix = f"{config.telemetry_prefix}." if config.telemetry_prefix else ""
    return {"metadata": config.metadata, "label": f"{prefix}{workflow}.{path}"}


def has_waited(attempt: Attempt, waited: float) -> None:
    """The attempt has waited for its limits, and begins."""
    if signals.limit_waited.receivers:
        config, workflow = attempt.position.config, attempt.definition.name
        limits = [limit.gate_name for limit in limits_at(workflow, attempt.claimed.path, config)]
        signals.limit_waited.send(**described(attempt), limits=limits, waited=waited)


def breaker_moved(breaker: Breaker, state: BreakerState, attempt: Attempt) -> None:
    """Logs the new state of a circuit breaker, and sends the signal for the attempt that has changed it."""
    log.warning("circuit breaker %s is %s: its probe has succeeded", breaker.name, state)
    run_id, path = attempt.where
    signals.breaker_moved.send(name=breaker.name, state=state, run_id=run_id, step=path)


def _error(outcome: Success | Failure) -> dict[str, Any] | None:
    return outcome.error if isinstance(outcome, Failure) else None


def _status(finished: FinishResult) -> str:
    """The fast statements only complete runs."""
    return finished.ended_as or statuses.COMPLETED
