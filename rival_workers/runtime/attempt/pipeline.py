"""The stages of an attempt: call its function, decide, commit, then continue in place or publish. Each attempt ends
with a committed outcome or is released; no row stays `running`.
"""

from __future__ import annotations

import inspect
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rival_client.broker.doorbell import Doorbell
from rival_client.broker.message import StepMessage
from rival_client.errors import DatabaseError, DatabaseRefused, InvalidPayload
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.completion_token import CompletionToken
from rival_client.model.kinds import EXTERNAL, FLOW
from rival_client.model.step_config import shortest
from rival_workers.definition.function_calls import Call
from rival_workers.definition.registry import Registry
from rival_workers.engine.decisions import Decision, End, Failure, FallBack, Retry, Success, decide
from rival_workers.runtime.attempt.attempts import Attempt, Verdict, context_of, next_attempt
from rival_workers.runtime.attempt.breaker_guard import BreakerGuard, Postponed, refused_outcome
from rival_workers.runtime.attempt.claiming import Claiming
from rival_workers.runtime.attempt.context import Context, Ended
from rival_workers.runtime.attempt.external_steps import External
from rival_workers.runtime.attempt.hook_calls import HookCalls, described
from rival_workers.runtime.attempt.interrupts import is_from_signal
from rival_workers.runtime.attempt.invoke import Calling, call, error_record, failure
from rival_workers.runtime.attempt.outage import AttemptReads, OutageRetry
from rival_workers.runtime.attempt.position import Position
from rival_workers.runtime.attempt.release import AttemptRelease
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.attempt.telemetry import AttemptObserver, NoObserver
from rival_workers.runtime.attempt.time_limits import Heartbeat, TimeLimits
from rival_workers.runtime.executor import Executor
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.flow.async_context import AsyncFlowContext
from rival_workers.runtime.flow.commits import FlowCommits
from rival_workers.runtime.flow.signals import Again, Killed, Moved, OutOfReach, Suspend
from rival_workers.runtime.flow.step_options import FlowPolicies
from rival_workers.runtime.flow.sync_context import FlowContext
from rival_workers.runtime.logs.failure_log import failed_attempt
from rival_workers.runtime.logs.redaction import Redaction
from rival_workers.runtime.logs.stream import LogStream
from rival_workers.settings import WorkerSettings
from rival_workers.signals import attempt_ended, attempt_started
from rival_workers.store.claim_records import BudgetSpent, Claim, FinishResult
from rival_workers.store.interface import Store

log = logging.getLogger("rival.coordinator")


class AttemptPipeline(Claiming):
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
        executor.hand_back = self.transitions.hand_back
        self._outage = OutageRetry(settings.patience, store, executor)
        self._reads, self._release = AttemptReads(store, self._outage), AttemptRelease(self.transitions, executor)
        self._external = External(self.transitions, self._outage, self._reads.step)
        self._hooks = HookCalls(store, self._outage)
        #: Attempts whose timeout this process has applied while their functions ran.
        self._timed_out: set[Claim] = set()
        self._breakers = BreakerGuard(store, self.transitions, self._outage)
        self._logs = LogStream(store.append_logs, Redaction.of(settings.redact))
        self.limits = TimeLimits(before_kill=self._logs.flush)

    # -- the pipeline -------------------------------------------------------------------------------------

    def _left(self, attempt: Attempt) -> float | None:
        """Seconds until the deadline of the run."""
        return None if attempt.expires is None else max(0.0, attempt.expires - self.limits.clock())

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
                if attempt_started.receivers:
                    attempt_started.send(**described(attempt))
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
        if attempt_ended.receivers:
            attempt_ended.send(**described(attempt), outcome=verdict.what, error=verdict.error)
        return verdict, after

    def _called(self, attempt: Attempt, deadline: float) -> tuple[Verdict, Attempt | None]:
        try:
            outcome = self._outcome(attempt)
        except Again as again:
            return Verdict("suspended"), self._continued_flow(attempt, again.token, deadline)
        except Suspend:
            return Verdict("suspended"), None
        except Postponed:
            return Verdict("suspended"), None
        except OutOfReach as lost:
            raise lost.__cause__ or lost from None
        except Moved:
            return self._late(attempt.position), None
        if self._timed_out and attempt.claim in self._timed_out:
            self._timed_out.discard(attempt.claim)
            self._hooks.call(attempt, "on_timeout", outcome="timed_out")
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
        if attempt.claimed.refused is not None:
            return refused_outcome(attempt.claimed.refused, attempt.claimed.attempt)
        breaker = attempt.position.config.circuit_breaker
        try:
            if breaker is not None:
                return self._breakers.call(attempt, breaker, self.executor.id, self._call)
            return self._external.outcome(attempt, self._call) if is_external else self._call(attempt)
        except (DatabaseError, Postponed):
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
            self.doorbell.publish([attempt.position.message(token)])
            return None
        again = self._claim(definition, claim, ended=attempt.ended)
        failpoint("after_claim_commit")
        return again if isinstance(again, Attempt) else None

    def _call(self, attempt: Attempt) -> Success | Failure:
        """The only place where user code runs: no transaction is open, and the timer of its limit is set."""
        claimed, position = attempt.claimed, attempt.position
        its_call = attempt.definition.call_at(claimed.path)
        assert its_call is not None, "a claim is only made for a step that is known"
        heartbeat = self._heartbeat(attempt)
        context = self._context(attempt, its_call, heartbeat)
        returns = attempt.definition.returns_at(claimed.path)
        try:
            with (
                self.limits.kept(
                    position.config,
                    lambda: self._own_timeout(position, claimed.timeout_token),
                    self.transitions.left(position),
                ) as heartbeat.timer,
                self.limits.until(self._left(attempt), position.config, lambda: self._expire(position)),
            ):
                how = (its_call.injection, context, self.settings.max_payload, claimed.kind, returns)
                return self._hooks.around(attempt, lambda: self.calling(*how))
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
        context.beats, context.metadata = heartbeat, attempt.position.config.metadata
        context.log.level = attempt.position.config.log_level
        if attempt.claimed.kind == EXTERNAL:
            context.token = CompletionToken(*attempt.where, attempt.claim.token)
        context.read_remaining = self.limits.remaining(
            attempt.position.config.timeout,
            lambda: shortest(self.transitions.left(attempt.position), self._left(attempt)),
        )
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
        policies = FlowPolicies(attempt.position.policies, attempt.claimed.path, its_call.predicates)
        return kind.of(context, commits, policies, self.registry.newest)

    def _settle_failure(self, attempt: Attempt, outcome: Failure, deadline: float) -> tuple[Verdict, Attempt | None]:
        """Writes to the run's log before the commit, and to the worker's log only if the commit succeeds."""
        position, failures = attempt.position, self.transitions.failures
        outcome = failures.redacted(outcome)
        decision = self._outage.keep(lambda: self.transitions.decide(position, outcome, self._left(attempt)))
        failed = failed_attempt(position, outcome, decision)
        failures.store(failed, self._outage.keep)
        return self._settle(attempt, decision, deadline, report=lambda: failures.log_attempt(failed))

    def _settle(
        self, attempt: Attempt, decision: Decision, deadline: float, report: Callable[[], None] = lambda: None
    ) -> tuple[Verdict, Attempt | None]:
        """Commit the decision, then publish or continue in place. A stale token: the outcome came too late."""
        position, transitions = attempt.position, self.transitions
        if isinstance(decision, Retry):
            return self._retry(attempt, decision, deadline, report)
        claim_for = self.executor.id if self._may_continue(deadline) else None
        finished: list[FinishResult] = []
        after: list[Attempt] = []

        def commit(again: bool) -> bool:
            done = transitions.finish(position, decision, claim_for=None if again else claim_for)
            finished.extend([done] if done else [])
            if done and done.claimed is not None and not again:
                token, book = done.token_of(done.claimed), self.transitions.options.book()
                after.append(self._added(next_attempt(attempt, decision, done.claimed, token, book)))
            return done is not None

        landed = self._outage.land(position.claim, decision.status, commit)
        if landed == "late":
            return self._late(position), None
        report()
        transitions.log_end(position, finished[0] if finished else None)
        self._hooks.decided(attempt, decision, finished[0] if finished else None)
        taken = transitions.in_place(position, finished[0]) if finished and claim_for else None
        if taken is not None:
            after += self._taken(attempt, decision, taken)
        what = "suspended" if decision.status == statuses.WAITING else decision.status
        return Verdict(what, decision.error), after[0] if after else None

    def _retry(
        self, attempt: Attempt, retry: Retry, deadline: float, report: Callable[[], None]
    ) -> tuple[Verdict, Attempt | None]:
        position, spent = attempt.position, list[BudgetSpent]()

        def commit(again: bool) -> bool:
            done = self.transitions.retry(position, retry)
            spent.extend([done] if isinstance(done, BudgetSpent) else [])
            return bool(done)

        landed = self._outage.land(position.claim, "waiting_retry", commit)
        if landed == "late":
            return self._late(position), None
        if spent:
            failed = Failure(retry.error, "retry", state=retry.state, outcome=retry.outcome)
            return self._settle_failure(attempt, failed, deadline)
        report()
        self._hooks.decided(attempt, retry, None)
        return Verdict("retried", retry.error), None

    def _taken(self, attempt: Attempt, end: End | FallBack, message: StepMessage) -> list[Attempt]:
        if isinstance(end, End):
            attempt.ended[attempt.claimed.path] = Ended(end.status, end.result, end.state)
        taken = self._take(message, attempt.ended if message.run_id == attempt.claimed.run_id else None)
        return [] if taken is None else [taken]

    def _late(self, position: Position) -> Verdict:
        claim = position.claim
        refused = "run %s step %s attempt %d: late result refused, the step has moved on"
        log.warning(refused, claim.run_id, claim.path, position.attempt)
        self._outage.keep(
            lambda: self.store.record(
                claim.run_id, claim.path, entries.LATE_RESULT_REFUSED, self.executor.id, attempt=position.attempt
            )
        )
        return Verdict("stale", {"type": "LateResult", "message": "late result refused, the step has moved on"})

    def _deadline(self) -> float:
        return time.monotonic() + self.settings.continuation_budget

    def _may_continue(self, deadline: float) -> bool:
        return not self.stopping and time.monotonic() < deadline

    # -- timeouts of attempts that run in this process ----------------------------------------------------

    def _expire(self, position: Position) -> bool:
        return self.transitions.expire(position.claim.run_id, position.workflow, position.version)

    def _own_timeout(self, position: Position, timeout_token: int) -> bool:
        claim = replace(position.claim, token=timeout_token, guard="timeout_token")
        if not self.transitions.time_out(replace(position, claim=claim)):
            return False
        self._timed_out.add(position.claim)
        return True


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
