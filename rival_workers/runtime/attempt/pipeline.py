"""The stages of an attempt: call its function, decide, commit, then continue in place or publish. Each attempt ends
with a committed outcome or is released; no row stays `running`.
"""

from __future__ import annotations

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
from rival_client.model.kinds import EXTERNAL
from rival_workers.definition.registry import Registry
from rival_workers.engine.decisions import Decision, End, Failure, FallBack, Retry, Success, decide
from rival_workers.runtime.attempt.attempts import Attempt, Verdict, attempt_of, continued_attempt, next_attempt
from rival_workers.runtime.attempt.claiming import AttemptRelease
from rival_workers.runtime.attempt.context import Ended
from rival_workers.runtime.attempt.hook_calls import HookCalls, described, has_waited
from rival_workers.runtime.attempt.inline_ends import InlineEnds
from rival_workers.runtime.attempt.interrupts import is_from_signal
from rival_workers.runtime.attempt.invoke import Calling, call, error_record, failure
from rival_workers.runtime.attempt.outage import AttemptReads, OutageRetry
from rival_workers.runtime.attempt.position import InPlace, Position
from rival_workers.runtime.attempt.runs_in_hand import Commits
from rival_workers.runtime.attempt.special_outcomes import BreakerGuard, External, Postponed, refused_outcome
from rival_workers.runtime.attempt.step_calls import StepCalls
from rival_workers.runtime.attempt.step_keys import KeyGuard
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.attempt.telemetry import AttemptObserver, NoObserver, Report, no_report
from rival_workers.runtime.attempt.time_limits import TimeLimits
from rival_workers.runtime.executor import Executor
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.flow.stop_signals import Again, AttemptOver, Continued, Killed, Moved, OutOfReach, Suspend
from rival_workers.runtime.logs.failure_log import failed_attempt
from rival_workers.runtime.logs.redaction import Redaction
from rival_workers.runtime.logs.stream import LogStream
from rival_workers.settings import WorkerSettings
from rival_workers.signals import attempt_ended, attempt_started
from rival_workers.store.claim_records import BudgetSpent, Claim, FinishResult
from rival_workers.store.flow_records import FlowClaim
from rival_workers.store.interface import Store

log = logging.getLogger("rival.coordinator")

#: The verdict of an attempt, and the attempt that follows in place.
Ran = tuple[Verdict, Attempt | None]


LATE = Verdict("stale", {"type": "LateResult", "message": "late result refused, the step has moved on"})


class AttemptPipeline(InlineEnds, StepCalls):
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
        self._served = settings.served
        self.doorbell, self.executor = doorbell, executor
        self.observer: AttemptObserver = observer or NoObserver()
        self.transitions = StepTransitions(settings, store, registry, doorbell)
        #: True when no further step starts in place. The children of a prefork pool share a switch.
        self.stopping: object = False
        #: Calls a step's function; the testing kit replaces it.
        self.calling: Calling = call
        executor.hand_back = self.transitions.hand_back
        self._outage = OutageRetry(settings.patience, store, executor)
        self.reads, self._release = AttemptReads(store, self._outage), AttemptRelease(self.transitions, executor)
        self._external = External(self.transitions, self._outage, self.reads.step)
        self._hooks = HookCalls(store, self._outage)
        #: Attempts whose timeout this process has applied while their functions ran.
        self._timed_out: set[Claim] = set()
        self._breakers = BreakerGuard(store, self.transitions, self._outage)
        self.logs = LogStream(store.append_logs, Redaction.of(settings.redact))
        self.limits = TimeLimits(before_kill=self.logs.flush)
        self._keys, self._alone = KeyGuard(self, self._outage), set()

    # -- the pipeline -------------------------------------------------------------------------------------

    def _run_all(self, attempt: Attempt, deadline: float, *, observed: bool) -> Commits[Verdict]:
        """Run the attempt, and then the attempts that follow in place. Returns the verdict of the first.

        `observed`: report the first attempt to the observer, because it is not the Celery task of the message.
        """
        verdict, after = yield from self._run(attempt, deadline, observed)
        while after is not None:
            _, after = yield from self._run(after, deadline, True)
        return verdict

    def _run(self, attempt: Attempt, deadline: float, observed: bool) -> Commits[Ran]:
        claimed, name = attempt.claimed, attempt.definition.name
        after: Attempt | None = None
        report: Report = no_report
        try:
            if observed:
                report = self.observer.attempt(name, claimed.run_id, claimed.path, claimed.attempt, claimed.lost)
            if attempt_started.receivers:
                attempt_started.send(**described(attempt))
            if claimed.waited is not None:
                has_waited(attempt, claimed.waited)
            verdict, after = yield from self._called(attempt, deadline)
            report(verdict.what, verdict.error)
        except Killed:
            raise
        except BaseException as error:
            for one in (attempt, after):
                if one is not None:
                    self._release.release(one.held, error)
            if not isinstance(error, Exception) or is_from_signal(error):
                raise
            return Verdict("stale", error_record(error, claimed.attempt)), None
        if after is None or after.before is None:
            self.executor.running.remove(attempt.held.claim)
        if attempt_ended.receivers:
            attempt_ended.send(**described(attempt), outcome=verdict.what, error=verdict.error)
        return verdict, after

    def _called(self, attempt: Attempt, deadline: float) -> Commits[Ran]:
        try:
            outcome = self._outcome(attempt)
        except Again as again:
            # The flow's scheduler keeps it, and its traceback the frames of the attempt, which have the scheduler: only
            # a garbage collection would free them.
            again.__traceback__ = None
            return (yield from self._continue_flow(attempt, again.continued, deadline))
        except (Suspend, Postponed) as signal:
            signal.__traceback__ = None
            return Verdict("suspended"), None
        except OutOfReach as lost:
            raise lost.__cause__ or lost from None
        except AttemptOver:
            self._report_timeout(attempt)
            return LATE, None
        except Moved:
            return self._late(attempt.position), None
        self._report_timeout(attempt)
        if isinstance(outcome, Failure):
            if attempt.before is not None:
                with_row = yield from self._claimed_after(attempt, attempt.before)
                if with_row is None:
                    return Verdict("suspended"), None
                attempt = with_row
            return (yield from self._commit_failure(attempt, outcome, deadline))
        try:
            decision = decide(attempt.position.config, attempt.claimed.attempt, outcome)
            return (yield from self._commit_outcome(attempt, decision, deadline))
        except DatabaseRefused as error:
            if not error.about_values or attempt.before is not None:
                self._refused_together(attempt)
                raise
            refused = InvalidPayload(f"the database cannot store what step {attempt.claimed.path!r} gave: {error}")
            return (yield from self._commit_failure(attempt, failure(refused, attempt.claimed.attempt), deadline))

    def _report_timeout(self, attempt: Attempt) -> None:
        """After the call of an attempt whose timeout this process has applied."""
        if self._timed_out and attempt.position.claim in self._timed_out:
            self._timed_out.discard(attempt.claim)
            self._hooks.call(attempt, "on_timeout", outcome=entries.TIMED_OUT)

    def _outcome(self, attempt: Attempt) -> Success | Failure:
        if attempt.claimed.refused is not None:
            return refused_outcome(attempt.claimed.refused, attempt.claimed.attempt)
        if attempt.failed is not None:
            return attempt.failed
        try:
            if attempt.position.config.idempotency_key is not None:
                return self._keys.call(attempt, self._guarded)
            return self._guarded(attempt)
        except (DatabaseError, Postponed):
            raise
        except Exception as error:
            if is_from_signal(error):
                raise
            # The engine cannot call the function, and a repetition would fail the same way: the step fails.
            log.exception("run %s step %s could not be called", *attempt.where)
            return failure(error, attempt.claimed.attempt)

    def _guarded(self, attempt: Attempt) -> Success | Failure:
        breaker = attempt.position.config.circuit_breaker
        if breaker is not None and not self._breakers.is_passed(attempt):
            return self._breakers.call(attempt, breaker, self.executor.id, self._call)
        is_external = attempt.claimed.kind == EXTERNAL
        return self._external.outcome(attempt, self._call) if is_external else self._call(attempt)

    def _continue_flow(self, attempt: Attempt, continued: Continued, deadline: float) -> Commits[Ran]:
        """After continue_as: the commit also claims the next attempt, while the continuation budget lasts."""
        claim_by = self._flow_claim(attempt) if self._may_continue(deadline) else None
        state = continued.state if continued.has_new_state else None
        after: list[Attempt] = []

        def commit(again: bool) -> Commits[bool]:
            by = None if again else claim_by
            done = self.store.continue_flow(attempt.claim, continued.input, state, by)
            if done is not None and done.timeout_token is not None:
                left, book = self.transitions.left(attempt.position), self.transitions.options.book()
                after.append(self._added(continued_attempt(attempt, continued, done, left, book)))
            return done is not None
            yield  # a generator, as every commit of an outcome

        landed = yield from self._outage.land(attempt.claim, [statuses.PENDING, statuses.RUNNING], commit)
        if landed == "late":
            return self._late(attempt.position), None
        failpoint("after_continue_commit")
        return Verdict("suspended"), after[0] if after else self._claim_or_publish(attempt, continued, deadline)

    def _flow_claim(self, attempt: Attempt) -> FlowClaim | None:
        """None: a flow with limits is claimed by itself."""
        policies, path = attempt.position.policies_under(self.transitions.options.book()), attempt.claim.path
        config = policies.at(path)
        return None if config.limits else FlowClaim(self.executor.id, config.limit, policies.recorded(path))

    def _claim_or_publish(self, attempt: Attempt, continued: Continued, deadline: float) -> Attempt | None:
        """A flow that starts over and was not claimed by the same commit. A message too many is stale."""
        claim = replace(attempt.claim, token=attempt.claim.token + 1)
        if attempt.position.config.limits and self._may_continue(deadline):
            claimed = self._claim(attempt.definition, claim, ended=attempt.ended)
            failpoint("after_claim_commit")
            return replace(claimed, continued=continued) if isinstance(claimed, Attempt) else None
        self.doorbell.publish([attempt.position.message(claim.token)])
        return None

    def _commit_failure(self, attempt: Attempt, outcome: Failure, deadline: float) -> Commits[Ran]:
        """Writes to the run's log before the commit, and to the worker's log only if the commit succeeds."""
        position, failures = attempt.position, self.transitions.failures
        outcome = failures.redacted(outcome)
        decision = self._outage.keep(lambda: self.transitions.decide(position, outcome, self.left(attempt)))
        failed = failed_attempt(position, outcome, decision)
        failures.store(failed, self._outage.keep)
        report = partial(failures.log_attempt, failed)
        return (yield from self._commit_outcome(attempt, decision, deadline, report))

    def _commit_outcome(
        self, attempt: Attempt, decision: Decision, deadline: float, report: Callable[[], None] = lambda: None
    ) -> Commits[Ran]:
        """Commit the decision, then publish or continue in place. A stale token: the outcome came too late."""
        position, transitions = attempt.position, self.transitions
        if isinstance(decision, Retry):
            return (yield from self._retry(attempt, decision, deadline, report))
        what = "suspended" if decision.status == statuses.WAITING else decision.status
        in_place = self._in_place(deadline, after_waiting=attempt.claimed.waited is not None)
        if (inline := self._next_inline(attempt, decision, in_place)) is not None:
            return Verdict(what), inline
        finished: list[FinishResult] = []
        after: list[Attempt] = []

        def commit(again: bool) -> Commits[bool]:
            done = yield from self._resumed(
                transitions.finishing(position, decision, None if again else in_place, attempt.ends)
            )
            if done is None:
                return False
            finished.append(done)
            if done.claimed is not None and not again:
                token, book = done.token_of(done.claimed), self.transitions.options.book()
                after.append(self._added(next_attempt(attempt, decision, done.claimed, token, book)))
            if done.taken is not None:
                after.append(self._added(attempt_of(done.taken, attempt.definition, self.transitions.options.book())))
            return True

        end = attempt.ends[0].end if attempt.ends else decision
        landed = yield from self._outage.land(attempt.held.claim, (end.status,), commit)
        if landed == "late":
            return self._late(attempt.held.position), None
        report()
        done = finished[0] if finished else None
        transitions.log_end(position, done)
        self._hooks.decided(attempt, decision, done)
        taken = in_place.message(position, done) if done and in_place and not after else None
        if taken is not None:
            after += self._taken(attempt, decision, taken)
        return Verdict(what, decision.error), after[0] if after else None

    def _retry(self, attempt: Attempt, retry: Retry, deadline: float, report: Callable[[], None]) -> Commits[Ran]:
        position, spent = attempt.position, list[BudgetSpent]()

        def commit(again: bool) -> Commits[bool]:
            done = self.transitions.retry(position, retry)
            spent.extend([done] if isinstance(done, BudgetSpent) else [])
            return bool(done)
            yield  # a generator, as every commit of an outcome

        landed = yield from self._outage.land(position.claim, [statuses.WAITING_RETRY], commit)
        if landed == "late":
            return self._late(position), None
        if spent:
            failed = Failure(retry.error, "retry", state=retry.state, outcome=retry.outcome)
            return (yield from self._commit_failure(attempt, failed, deadline))
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
        return LATE

    def _deadline(self) -> float:
        return time.monotonic() + self.settings.continuation_budget

    def _in_place(self, deadline: float, *, after_waiting: bool = False) -> InPlace | None:
        """None: every step that follows gets a message."""
        if self.stopping:
            return None
        return InPlace(self.executor.id, self._served, time.monotonic() >= deadline, after_waiting)

    def _may_continue(self, deadline: float) -> bool:
        return not self.stopping and time.monotonic() < deadline
