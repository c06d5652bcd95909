"""The stages of an attempt: call its function, decide, commit, then continue in place or publish. Each attempt ends
with a committed outcome or is released; no row stays `running`.
"""

from __future__ import annotations

import inspect
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from rival_client.broker.doorbell import Doorbell
from rival_client.errors import DatabaseError, DatabaseRefused, InvalidPayload
from rival_client.model.completion_token import CompletionToken
from rival_client.model.kinds import EXTERNAL, FLOW
from rival_workers.definition.calls import Call
from rival_workers.definition.registry import Registry
from rival_workers.engine.decisions import End, Failure, Retry, Success, decide
from rival_workers.runtime.attempt.attempts import Attempt, attempt_of, context_of, next_attempt
from rival_workers.runtime.attempt.context import Context
from rival_workers.runtime.attempt.external_steps import External
from rival_workers.runtime.attempt.interrupts import is_from_signal
from rival_workers.runtime.attempt.invoke import Calling, call, error_record, failure
from rival_workers.runtime.attempt.outage import AttemptReads, OutageRetry
from rival_workers.runtime.attempt.release import AttemptRelease
from rival_workers.runtime.attempt.step_transitions import Position, StepTransitions
from rival_workers.runtime.attempt.telemetry import AttemptObserver, NoObserver
from rival_workers.runtime.attempt.time_limits import Heartbeat, TimeLimits
from rival_workers.runtime.executor import Executor
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.flow.async_context import AsyncFlowContext
from rival_workers.runtime.flow.commits import FlowCommits
from rival_workers.runtime.flow.signals import Again, Killed, Moved, OutOfReach, Suspend
from rival_workers.runtime.flow.sync_context import FlowContext
from rival_workers.runtime.logs.failure_log import failed_attempt
from rival_workers.runtime.logs.redaction import Redaction
from rival_workers.runtime.logs.stream import LogStream
from rival_workers.settings import WorkerSettings
from rival_workers.store.interface import Claimed, FinishResult, Store

log = logging.getLogger("rival.coordinator")


@dataclass(frozen=True)
class Verdict:
    """The outcome of the attempt that a message named. "stale" with an error: it ran, and its result came too late."""

    what: Literal["completed", "skipped", "failed", "retried", "suspended", "stale"]
    error: dict[str, Any] | None = None


class AttemptPipeline:
    def __init__(
        self,
        settings: WorkerSettings,
        store: Store,
        registry: Registry,
        doorbell: Doorbell,
        executor: Executor,
        observer: AttemptObserver | None = None,
    ) -> None:
        self.settings, self.store, self.registry = settings, store, registry
        self.doorbell, self.executor = doorbell, executor
        self.observer: AttemptObserver = observer or NoObserver()
        self.transitions = StepTransitions(settings, store, registry, doorbell)
        #: True when no further step starts in place. The children of a prefork pool share a switch.
        self.stopping: object = False
        #: Calls a step's function; the testing kit replaces it.
        self.calling: Calling = call
        executor.release = lambda running: self.transitions.release(running, "handed_back")
        self._outage = OutageRetry(settings.patience, store, executor)
        self._reads, self._release = AttemptReads(store, self._outage), AttemptRelease(self.transitions, executor)
        self._external = External(self.transitions, self._outage, self._reads.step)
        self._logs = LogStream(store.append_logs, Redaction.of(settings.redact))
        self.limits = TimeLimits(before_kill=self._logs.flush)

    # -- the pipeline -------------------------------------------------------------------------------------

    def _added(self, attempt: Attempt) -> Attempt:
        """Call it before the claim stops being in flight: see `RunningAttempts`."""
        self.executor.running.add(attempt.claim)
        return attempt

    def _run_all(self, attempt: Attempt, deadline: float, *, observed: bool) -> Verdict:
        """Run the attempt, and then the attempts that follow in place. Returns the verdict of the first.

        `observed`: report the first attempt to the observer, because it is not the Celery task of the message.
        """
        verdict, after = self._run(attempt, deadline, observed)
        while after is not None:
            _, after = self._run(after, deadline, True)
        return verdict

    def _run(self, attempt: Attempt, deadline: float, observed: bool) -> tuple[Verdict, Attempt | None]:
        claimed, name = attempt.claimed, attempt.definition.name
        observer, after = self.observer if observed else NoObserver(), None
        try:
            with observer.attempt(name, claimed.run_id, claimed.path, claimed.attempt, claimed.lost) as report:
                verdict, after = self._called(attempt, deadline)
                report(verdict.what, verdict.error)
        except Killed:
            raise
        except BaseException as error:
            for one in (attempt, after):
                if one is not None:
                    self._release.release(one, error)
            if not isinstance(error, Exception) or is_from_signal(error):
                raise
            return Verdict("stale", error_record(error, claimed.attempt)), None
        self.executor.running.remove(attempt.claim)
        return verdict, after

    def _called(self, attempt: Attempt, deadline: float) -> tuple[Verdict, Attempt | None]:
        try:
            outcome = self._outcome(attempt)
        except Again as again:
            return Verdict("suspended"), self._continued_flow(attempt, again.token, deadline)
        except Suspend:
            return Verdict("suspended"), None
        except OutOfReach as lost:
            raise lost.__cause__ or lost from None
        except Moved:
            return self._late(attempt.position), None
        if isinstance(outcome, Failure):
            return self._settle_failure(attempt, outcome, deadline)
        try:
            return self._settle(attempt, decide(attempt.position.config, attempt.claimed.attempt, outcome), deadline)
        except DatabaseRefused as error:
            if not error.about_values:
                raise
            refused = InvalidPayload(f"the database cannot store what step {attempt.claimed.path!r} gave: {error}")
            return self._settle_failure(attempt, failure(refused, attempt.claimed.attempt), deadline)

    def _outcome(self, attempt: Attempt) -> Success | Failure:
        is_external = attempt.claimed.kind == EXTERNAL
        try:
            return self._external.outcome(attempt, self._call) if is_external else self._call(attempt)
        except DatabaseError:
            raise
        except Exception as error:
            if is_from_signal(error):
                raise
            # The engine cannot call the function, and a repetition would fail the same way: the step fails.
            log.exception("run %s step %s could not be called", *attempt.where)
            return failure(error, attempt.claimed.attempt)

    def _continued_flow(self, attempt: Attempt, token: int, deadline: float) -> Attempt | None:
        """After continue_as: claim the flow again here, or publish a message when the continuation budget is spent."""
        claim, definition = replace(attempt.claim, token=token), attempt.definition
        if not self._may_continue(deadline):
            self.doorbell.publish([attempt.position.message(claim.path, token)])
            return None
        with self.executor.claiming():
            claimed = self.store.claim_step(claim, attempt.position.config.limit, self.executor.id)
            again = attempt_of(claimed, definition, attempt.ended) if isinstance(claimed, Claimed) else None
            if again is not None:
                self._added(again)
        failpoint("after_claim_commit")
        return again

    def _call(self, attempt: Attempt) -> Success | Failure:
        """The only place where user code runs: no transaction is open, and the timer of its limit is set."""
        claimed, position = attempt.claimed, attempt.position
        its_call = attempt.definition.call_at(claimed.path)
        assert its_call is not None, "a claim is only made for a step that is known"
        heartbeat = self._heartbeat(attempt)
        context = self._context(attempt, its_call, heartbeat)
        returns = attempt.definition.returns_at(claimed.path)
        try:
            with self.limits.kept(
                position.config, lambda: self._own_timeout(position, claimed.timeout_token)
            ) as heartbeat.timer:
                return self.calling(its_call.injection, context, self.settings.max_payload, claimed.kind, returns)
        finally:
            heartbeat.flush()
            self._logs.finish(context.log, self._outage)

    def _heartbeat(self, attempt: Attempt) -> Heartbeat:
        claimed = attempt.claimed
        before = None if claimed.attempt == 1 and not claimed.lost else partial(self._reads.step, *attempt.where)
        return Heartbeat(
            attempt.claim, attempt.position.config, self.store, self.limits.clock, self.settings.max_payload, before
        )

    def _context(self, attempt: Attempt, its_call: Call, heartbeat: Heartbeat) -> Context:
        context = context_of(attempt, self._reads.step, self._reads.item, self._reads.failure, self._logs)
        context.beats = heartbeat
        if attempt.claimed.kind == EXTERNAL:
            context.token = CompletionToken(*attempt.where, attempt.claim.token)
        context.allow_shell, context.is_over = self.settings.allow_shell, lambda: self._reads.is_over(attempt.claim)
        if attempt.claimed.kind != FLOW:
            return context
        commits = FlowCommits(
            attempt.position,
            self.store,
            self.doorbell,
            self._outage,
            self.limits,
            self.settings,
            self.transitions.failures,
        )
        kind = AsyncFlowContext if _is_async(its_call.injection.function) else FlowContext
        return kind.of(context, commits, its_call.rules, self.registry.newest)

    def _settle_failure(self, attempt: Attempt, outcome: Failure, deadline: float) -> tuple[Verdict, Attempt | None]:
        """Writes to the run's log before the commit, and to the worker's log only if the commit succeeds."""
        position, failures = attempt.position, self.transitions.failures
        outcome = failures.redacted(outcome)
        decision = decide(position.config, position.attempt, outcome, random.random())
        failed = failed_attempt(position, outcome, decision)
        failures.store(failed, self._outage.keep)
        return self._settle(attempt, decision, deadline, report=lambda: failures.log_attempt(failed))

    def _settle(
        self, attempt: Attempt, decision: End | Retry, deadline: float, report: Callable[[], None] = lambda: None
    ) -> tuple[Verdict, Attempt | None]:
        """Commit the decision, then publish or continue in place. A stale token: the outcome came too late."""
        position, transitions = attempt.position, self.transitions
        if isinstance(decision, Retry):
            landed = self._outage.land(position.claim, "waiting_retry", lambda _: transitions.retry(position, decision))
            if landed == "late":
                return self._late(position), None
            report()
            return Verdict("retried", decision.error), None
        claim_for = self.executor.id if self._may_continue(deadline) else None
        finished: list[FinishResult] = []
        after: list[Attempt] = []

        def commit(again: bool) -> bool:
            done = transitions.finish(position, decision, claim_for=None if again else claim_for)
            finished.extend([done] if done else [])
            if done and done.claimed is not None and not again:
                after.append(self._added(next_attempt(attempt, decision, done.claimed, done.token_of(done.claimed))))
            return done is not None

        landed = self._outage.land(position.claim, decision.status, commit)
        if landed == "late":
            return self._late(position), None
        report()
        transitions.log_end(position, finished[0] if finished else None)
        return Verdict(decision.status, decision.error), after[0] if after else None

    def _late(self, position: Position) -> Verdict:
        claim = position.claim
        refused = "run %s step %s attempt %d: late result refused, the step has moved on"
        log.warning(refused, claim.run_id, claim.path, position.attempt)
        self._outage.keep(
            lambda: self.store.record(
                claim.run_id, claim.path, "late_result_refused", self.executor.id, attempt=position.attempt
            )
        )
        return Verdict("stale", {"type": "LateResult", "message": "late result refused, the step has moved on"})

    def _deadline(self) -> float:
        return time.monotonic() + self.settings.continuation_budget

    def _may_continue(self, deadline: float) -> bool:
        return not self.stopping and time.monotonic() < deadline

    # -- timeouts of attempts that run in this process ----------------------------------------------------

    def _own_timeout(self, position: Position, timeout_token: int) -> bool:
        claim = replace(position.claim, token=timeout_token, guard="timeout_token")
        return self.transitions.time_out(replace(position, claim=claim))


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
