"""Claims a step for this process: by a message, or in place after a commit of this process. Releases an attempt that
has ended without a committed outcome, so that its row does not stay `running`. It runs no attempt.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from rival_client.broker.doorbell import Doorbell
from rival_client.broker.message import StepMessage
from rival_client.errors import DatabaseBusy, DatabaseError, DatabaseUnavailable, MissingTables
from rival_client.model.limits.limits import Limit
from rival_client.model.timers import is_near
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine.decisions import Failure
from rival_workers.engine.policies import Policies
from rival_workers.engine.step_limits import limits_at
from rival_workers.runtime.attempt.attempts import Attempt, attempt_of
from rival_workers.runtime.attempt.context import Ended
from rival_workers.runtime.attempt.interrupts import is_from_signal
from rival_workers.runtime.attempt.invoke import error_record
from rival_workers.runtime.attempt.outage import OutageRetry
from rival_workers.runtime.attempt.step_keys import KeyGuard
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.attempt.time_limits import TimeLimits
from rival_workers.runtime.executor import Executor
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.flow.stop_signals import OutOfReach
from rival_workers.settings import WorkerSettings
from rival_workers.store.claim_records import Claim, Claimed, NotYet, WorkflowVersion
from rival_workers.store.interface import Store
from rival_workers.store.sweep_records import RunningAttempt

log = logging.getLogger("rival.coordinator")

#: insufficient_privilege: temporary, since an operator can grant the privilege again.
_PRIVILEGE = "42501"


class Claiming:
    settings: WorkerSettings
    store: Store
    registry: Registry
    doorbell: Doorbell
    executor: Executor
    limits: TimeLimits
    transitions: StepTransitions
    _outage: OutageRetry
    _keys: KeyGuard

    def _added(self, attempt: Attempt) -> Attempt:
        """Call it before the claim stops being in flight: see `RunningAttempts`."""
        if attempt.claimed.left is not None:
            until = self.transitions.clock() + attempt.claimed.left
            attempt = replace(attempt, position=replace(attempt.position, until=until))
        self.executor.running.add(attempt.position.claim)
        left = attempt.claimed.facts.left
        return attempt if left is None or attempt.expires else replace(attempt, expires=self.limits.clock() + left)

    def _definition(self, workflow: str, version: str) -> WorkflowDefinition | None:
        found = self.registry.find(workflow, version)
        if found is None:
            self.registry.look_again()
        return found or self.registry.find(workflow, version)

    def _claim(
        self,
        definition: WorkflowDefinition,
        claim: Claim,
        of: WorkflowVersion | None = None,
        ended: dict[str, Ended] | None = None,
    ) -> Attempt | WorkflowVersion | None:
        """The next attempt of a step. None: stale, too early, or it waits for a slot of one of its limits."""
        book = self.transitions.options.book()
        policies = definition.policies.over(None, book, None)
        config, policy = policies.at(claim.path), policies.recorded(claim.path)
        limits = limits_at(definition.name, claim.path, config)
        failed: Failure | None = None
        if any(one.needs_function for one in limits):
            keyed = self._keyed(definition, claim, limits, of, ended)
            if keyed is None:
                return None
            # A step whose key cannot be made is claimed to fail.
            limits, failed = ((), keyed) if isinstance(keyed, Failure) else (keyed, None)
        with self.executor.claiming():
            claimed = self.store.claim_step(claim, config.limit, self.executor.id, of=of, limits=limits, policy=policy)
            if isinstance(claimed, Claimed):
                attempt = attempt_of(claimed, definition, book, ended)
                if failed is not None:
                    failed = replace(failed, error={**failed.error, "attempt": claimed.attempt})
                    attempt = replace(attempt, failed=failed)
                return self._ruled(self._added(attempt), policies, bool(limits))
        if isinstance(claimed, NotYet):
            step = (*claim.where, claim.token, definition.name, definition.version)
            self._come_again(StepMessage(*step, route=claimed.route), claimed)
        return claimed if isinstance(claimed, WorkflowVersion) else None

    def _keyed(
        self,
        definition: WorkflowDefinition,
        claim: Claim,
        limits: tuple[Limit, ...],
        of: WorkflowVersion | None,
        ended: dict[str, Ended] | None,
    ) -> tuple[Limit, ...] | Failure | None:
        """The limits, with the keys that functions of the definition make, or the failure of one of them. User code:
        no transaction is open. None: the step cannot start, so no function is called."""
        start = self._outage.keep(lambda: self.store.read_start(claim, of))
        if start is None:
            return None
        its_input, facts = start
        claimed = Claimed(*claim.where, claim.token, 0, 1, 0, its_input, facts=facts)
        try:
            return self._keys.limits(attempt_of(claimed, definition, self.transitions.options.book(), ended), limits)
        except OutOfReach as lost:
            raise lost.__cause__ or lost from None

    def _ruled(self, attempt: Attempt, known: Policies, is_limited: bool = False) -> Attempt:
        """The claim has shown which rules the run has: if they change the options, the row gets them, too. `known`:
        those that the claim was made with."""
        policies, path = attempt.position.policies, attempt.claim.path
        policy = policies.recorded(path)
        if (policies is not known or is_limited) and (policy or known.recorded(path)):
            self.store.apply_policy(attempt.claim, policies.at(path).limit, policy)
        return attempt

    def _come_again(self, message: StepMessage, early: NotYet) -> None:
        """The message came early: its time was postponed, or a clock differs. If its time is far, the keeper publishes
        a message then."""
        if is_near(early.seconds, self.settings.near):
            self.doorbell.publish([replace(message, countdown=early.seconds)])

    def _take(self, message: StepMessage, ended: dict[str, Ended] | None = None) -> Attempt | None:
        """Claim the step that a commit of this process has made ready, without a message."""
        definition = self.registry.find(message.workflow, message.version)
        if definition is None or message.path is None or message.route.queue not in self.settings.served:
            self.doorbell.publish([message])
            return None
        attempt = self._claim(definition, Claim(message.run_id, message.path, message.token), ended=ended)
        failpoint("after_claim_commit")
        return attempt if isinstance(attempt, Attempt) else None


class AttemptRelease:
    """After an outage of the database the attempt is handed back and does not count. Any other error before the commit
    is a defect of the engine or of the schema. It counts as a lost attempt (`max_lost`), since the step would fail the
    same way again and again.
    """

    def __init__(self, transitions: StepTransitions, executor: Executor) -> None:
        self._transitions, self._executor = transitions, executor

    def release(self, attempt: Attempt, error: BaseException) -> None:
        """Has no effect if the outcome was committed after all: its token is stale."""
        claim, why = attempt.claim, f"{type(error).__name__}: {error}"
        released = "run %s step %s attempt %d: no outcome could be committed, it is released (%s)"
        trace = None if _is_temporary(error) else error
        log.error(released, claim.run_id, claim.path, attempt.claimed.attempt, why, exc_info=trace)
        try:
            self._release(attempt, error)
        except Exception as again:
            # The executor's heartbeat compares the table with what runs here, and releases the row then.
            log.error("run %s step %s: released later (%s)", claim.run_id, claim.path, again)
        finally:
            self._executor.running.remove(claim)
            self._executor.compare_soon()

    def _release(self, attempt: Attempt, error: BaseException) -> None:
        claimed, workflow = attempt.claimed, attempt.definition
        executor, number, lost = self._executor.id, claimed.attempt, claimed.lost
        running = RunningAttempt(attempt.claim, number, lost, executor, workflow.name, workflow.version, claimed.kind)
        if _is_temporary(error):
            self._transitions.hand_back(running)
        else:
            record = error_record(error, claimed.attempt)
            self._transitions.take_over(
                running, {**record, "message": f"its outcome cannot be stored: {record['message']}"}
            )


def _is_temporary(error: BaseException) -> bool:
    """True for outages, signals and missing privileges: the next attempt may succeed."""
    if isinstance(error, DatabaseUnavailable | DatabaseBusy | MissingTables):
        return True
    return is_from_signal(error) or (isinstance(error, DatabaseError) and error.sqlstate == _PRIVILEGE)
