"""Carries runs out: takes a message, claims, calls, decides, commits, and goes on in place or rings.

Nothing here waits for a retry or a timer: a worker's hands are free as soon as an outcome is committed.
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

from rival_client.completion import CompletionToken
from rival_client.doorbell import Doorbell
from rival_client.errors import DatabaseError
from rival_client.message import Ring
from rival_client.records import Step
from rival_workers.definition.calls import Call
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine import interpreter
from rival_workers.engine.decisions import End, Failure, Retry, Success, decide
from rival_workers.runtime.attempts import Attempt, attempt_of, begun, context_of, following
from rival_workers.runtime.calling import Calling, call
from rival_workers.runtime.context import Context
from rival_workers.runtime.executor import Executor
from rival_workers.runtime.external import External
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.failure_log import failed_attempt
from rival_workers.runtime.flow_port import AttemptPort
from rival_workers.runtime.flows import flow_context
from rival_workers.runtime.heartbeats import Heartbeat
from rival_workers.runtime.limits import TimeLimits
from rival_workers.runtime.log_stream import LogStream
from rival_workers.runtime.mismatches import Mismatches
from rival_workers.runtime.moves import Moves, Position
from rival_workers.runtime.patience import Patience
from rival_workers.runtime.redaction import Redaction
from rival_workers.runtime.suspending import Again, Moved, OutOfReach, Suspend
from rival_workers.runtime.telemetry import AttemptObserver, NoObserver, counters
from rival_workers.settings import WorkerSettings
from rival_workers.store.base import ClaimBy, Claimed, Followed, Held, NotYet, Store, WorkflowVersion

log = logging.getLogger("rival.coordinator")

#: How long a step that no worker here knows is left alone.
PARK_SECONDS = 15.0


@dataclass(frozen=True)
class Verdict:
    """What became of the attempt a message was about. "stale" with an error: it ran, and its result came too late."""

    what: Literal["completed", "skipped", "failed", "retried", "suspended", "stale"]
    error: dict[str, Any] | None = None


class Coordinator:
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
        self.moves = Moves(settings, store, registry, doorbell)
        #: True from the moment on at which nothing new is begun in place; a pool's children share a switch.
        self.stopping: object = False
        #: How a step's function is called; a lab has a way of its own.
        self.calling: Calling = call
        executor.hand_back = lambda running: self.moves.release(running, "handed_back")
        self._patience = Patience(settings.patience, store, executor, executor.hand_back)
        self._external = External(self.moves, self._patience, self._read_step)
        self._mismatches = Mismatches(store)
        self._logs = LogStream(store.append_logs, Redaction.of(settings.redact))
        self.limits = TimeLimits(before_kill=self._logs.flush)

    # -- messages -----------------------------------------------------------------------------------------

    def begin(self, run_id: str, token: int, workflow: str, version: str) -> None:
        """Start a run: its first step is claimed in the same statement."""
        named = WorkflowVersion(workflow, version)
        definition = self._definition(workflow, version)
        if definition is None:
            return self._park(run_id, None, token, named)
        claim_for = self.executor.id if self._goes_on(self._deadline()) else None
        with self.executor.claiming():
            plan = interpreter.first(definition.plan)
            begun_run = self.store.begin_run(run_id, token, plan, claim_for=claim_for, of=named)
        if begun_run is None:
            log.debug("run %s: stale start", run_id)
            self._mismatches.check(run_id, None, named)
            return None
        followed = begun_run.followed
        self.doorbell.ring([
            Ring(run_id, opening.path, followed.token, workflow, version, countdown=opening.delay)
            for opening in followed.opened
        ])  # fmt: skip
        if followed.claimed is not None:
            first = begun(run_id, begun_run.input, followed.claimed, definition, followed.token)
            self._carry_on(first, self._deadline(), observed=True)
        return None

    def attempt(self, run_id: str, path: str, token: int, workflow: str, version: str) -> Verdict:
        """Claim one step's next attempt and run it."""
        named = WorkflowVersion(workflow, version)
        definition = self._definition(workflow, version)
        if definition is None:
            self._park(run_id, path, token, named)
            return Verdict("stale")
        if definition.call_at(path) is None:
            log.warning("run %s: a message names %r, which is not a step of %s; it is ignored", run_id, path, workflow)
            return Verdict("stale")
        timeout = interpreter.config_of(definition.plan, path).limit
        with self.executor.claiming():
            claimed = self.store.claim_step(Held(run_id, path, token), timeout, self.executor.id, of=named)
        if isinstance(claimed, NotYet):
            # What is far, since a beat has put it off, is the keeper's: no message waits that long.
            if claimed.seconds <= self.settings.near:
                self.doorbell.ring([Ring(run_id, path, token, workflow, version, countdown=claimed.seconds)])
            return Verdict("stale")
        if claimed is None:
            log.debug("run %s step %s: stale ring (token %d)", run_id, path, token)
            self._mismatches.check(run_id, path, named)
            return Verdict("stale")
        failpoint("after_claim_commit")
        return self._carry_on(attempt_of(claimed, definition), self._deadline(), observed=False)

    def deliver(self, event_id: str) -> None:
        """Wake whoever waits for an event, and go on with the first of them here."""
        deadline = self._deadline()
        claim = ClaimBy(self.executor.id, self.registry.versions) if self._goes_on(deadline) else None
        with self.executor.claiming():
            delivered = self.store.deliver_event(event_id, claim)
        failpoint("after_deliver_commit")
        if delivered.claimed is not None:
            definition = self._definition(delivered.workflow, delivered.version)
            assert definition is not None, "a claim is only made for a workflow that is known"
            self._carry_on(attempt_of(delivered.claimed, definition), deadline, observed=True)
            return
        rings = [one.ring for one in delivered.woken]
        if rings and not self.stopping:
            self.doorbell.ring(rings[1:])
            first = delivered.woken[0]
            self.attempt(first.run_id, first.path, first.token, first.workflow, first.version)
        elif rings:
            self.doorbell.ring(rings)

    def _definition(self, workflow: str, version: str) -> WorkflowDefinition | None:
        found = self.registry.find(workflow, version)
        if found is None:
            self.registry.look_again()
        return found or self.registry.find(workflow, version)

    def _park(self, run_id: str, path: str | None, token: int, named: WorkflowVersion) -> None:
        known = [w.version for w in self.registry if w.name == named.workflow]
        reason = (
            f"worker has {named.workflow!r} at version {known[0]}, not {named.version}" if known
            else f"worker does not have workflow {named.workflow!r}"
        )  # fmt: skip
        if not self.store.park(run_id, path, token, reason, PARK_SECONDS, of=named):
            self._mismatches.check(run_id, path, named)
            return
        counters["parked"] += 1
        log.warning("run %s step %s is parked: %s (%d so far)", run_id, path or "(start)", reason, counters["parked"])

    # -- the pipeline -------------------------------------------------------------------------------------

    def _carry_on(self, attempt: Attempt, deadline: float, *, observed: bool) -> Verdict:
        """Run the attempt, and then whatever follows in place, each as an attempt of its own. The first's verdict.

        `observed`: the first attempt is not the message's own task, so it must be reported too.
        """
        verdict, after = self._run(attempt, deadline, observed)
        while after is not None:
            _, after = self._run(after, deadline, True)
        return verdict

    def _run(self, attempt: Attempt, deadline: float, observed: bool) -> tuple[Verdict, Attempt | None]:
        claimed, name = attempt.claimed, attempt.definition.name
        observer = self.observer if observed else NoObserver()
        with (
            # Without a committed outcome it would run in the table only: the next beats look for it, and give it back.
            self.executor.claiming(),
            # Held until its outcome is committed, however long that takes: nobody must think it a stray before.
            self.executor.holds(attempt.held),
            observer.attempt(name, claimed.run_id, claimed.path, claimed.attempt, claimed.lost) as report,
        ):
            verdict, after = self._called(attempt, deadline)
            report(verdict.what, verdict.error)
        return verdict, after

    def _called(self, attempt: Attempt, deadline: float) -> tuple[Verdict, Attempt | None]:
        try:
            is_external = attempt.claimed.kind == "external"
            outcome = self._external.outcome(attempt, self._call) if is_external else self._call(attempt)
        except Again as again:
            return Verdict("suspended"), self._begun_anew(attempt, again.token, deadline)
        except Suspend:
            return Verdict("suspended"), None
        except OutOfReach as lost:
            raise lost.__cause__ or lost from None
        except Moved:
            return self._late(attempt.position), None
        if isinstance(outcome, Success):
            return self._settle(attempt, decide(attempt.position.config, attempt.claimed.attempt, outcome), deadline)
        return self._settle_failure(attempt, self.moves.failures.redacted(outcome), deadline)

    def _begun_anew(self, attempt: Attempt, token: int, deadline: float) -> Attempt | None:
        """A flow that continues goes on here, unless it is time for a message."""
        held, definition = replace(attempt.held, token=token), attempt.definition
        if not self._goes_on(deadline):
            self.doorbell.ring([attempt.position.ring(held.path, token)])
            return None
        with self.executor.claiming():
            claimed = self.store.claim_step(held, attempt.position.config.limit, self.executor.id)
        failpoint("after_claim_commit")
        return attempt_of(claimed, definition, attempt.ended) if isinstance(claimed, Claimed) else None

    def _call(self, attempt: Attempt) -> Success | Failure:
        """User code runs here, and only here: no transaction is open, and its alarm is set."""
        claimed, position = attempt.claimed, attempt.position
        its_call = attempt.definition.call_at(claimed.path)
        assert its_call is not None, "a claim is only made for a step that is known"
        beats = self._beats(attempt)
        context = self._context(attempt, its_call, beats)
        returns = attempt.definition.returns_at(claimed.path)
        try:
            with self.limits.kept(
                position.config, lambda: self._own_timeout(position, claimed.timeout_token)
            ) as beats.alarm:
                return self.calling(its_call.injection, context, self.settings.max_payload, claimed.kind, returns)
        finally:
            beats.flush()
            self._logs.finish(context.log, self._patience)

    def _beats(self, attempt: Attempt) -> Heartbeat:
        claimed = attempt.claimed
        before = None if claimed.attempt == 1 and not claimed.lost else partial(self._read_step, *attempt.where)
        return Heartbeat(
            attempt.held, attempt.position.config, self.store, self.limits.timer, self.settings.max_payload, before
        )

    def _context(self, attempt: Attempt, its_call: Call, beats: Heartbeat) -> Context:
        context = context_of(attempt, self._read_step, self._read_item, self._read_failure, self._logs)
        context.beats = beats
        if attempt.claimed.kind == "external":
            context.token = CompletionToken(*attempt.where, attempt.held.token)
        context.allow_shell, context.is_over = self.settings.allow_shell, lambda: self._is_over(attempt.held)
        if attempt.claimed.kind != "flow":
            return context
        port = AttemptPort(attempt.position, self.store, self.doorbell, self._patience, self.limits, self.settings)
        return flow_context(context, port, its_call.rules, is_async=_is_async(its_call.injection.function))

    def _settle_failure(self, attempt: Attempt, outcome: Failure, deadline: float) -> tuple[Verdict, Attempt | None]:
        """Logged in the run's log before the commit, in the worker's log only if it counts."""
        position, failures = attempt.position, self.moves.failures
        decision = decide(position.config, position.attempt, outcome, random.random())
        failed = failed_attempt(position, outcome, decision)
        failures.store(failed, self._patience.keep)
        return self._settle(attempt, decision, deadline, tell=lambda: failures.tell(failed))

    def _settle(
        self, attempt: Attempt, decision: End | Retry, deadline: float, tell: Callable[[], None] = lambda: None
    ) -> tuple[Verdict, Attempt | None]:
        """Commit the decision; ring or go on. A stale token means that the outcome came too late."""
        position, moves = attempt.position, self.moves
        if isinstance(decision, Retry):
            landed = self._patience.land(position.held, "waiting_retry", lambda _: moves.retry(position, decision))
            if landed == "late":
                return self._late(position), None
            tell()
            return Verdict("retried", decision.error), None
        claim_for = self.executor.id if self._goes_on(deadline) else None
        followed: list[Followed] = []

        def commit(again: bool) -> bool:
            done = moves.finish(position, decision, claim_for=None if again else claim_for)
            followed.extend([done] if done else [])
            return done is not None

        landed = self._patience.land(position.held, decision.status, commit)
        if landed == "late":
            return self._late(position), None
        tell()
        moves.tell_end(position, followed[0] if followed else None)
        claimed = followed[0].claimed if landed == "at once" else None
        after = None if claimed is None else following(attempt, decision, claimed, followed[0].token_of(claimed))
        return Verdict(decision.status, decision.error), after

    def _late(self, position: Position) -> Verdict:
        held = position.held
        log.warning("run %s step %s attempt %d: late result refused, the step has moved on",
                    held.run_id, held.path, position.attempt)  # fmt: skip
        self._patience.keep(
            lambda: self.store.tell(
                held.run_id, held.path, "late_result_refused", self.executor.id, attempt=position.attempt
            )
        )
        return Verdict("stale", {"type": "LateResult", "message": "late result refused, the step has moved on"})

    def _read_step(self, run_id: str, path: str) -> Step | None:
        """A step reads this in the middle of user code: a database that is away is not the step's failure."""
        return self._patience.keep(lambda: self.store.read_step(run_id, path))

    def _read_item(self, run_id: str, path: str) -> Any:
        return self._patience.keep(lambda: self.store.read_item(run_id, path))

    def _read_failure(self, run_id: str) -> tuple[str | None, dict[str, Any] | None]:
        return self._patience.keep(lambda: self.store.failure_of(run_id))

    def _is_over(self, held: Held) -> bool:
        """While the database is away nobody knows: the attempt goes on."""
        try:
            seen = self.store.token_of(held.run_id, held.path)
        except DatabaseError:
            return False
        return seen is None or seen[:2] != ("running", held.token)

    def _deadline(self) -> float:
        return time.monotonic() + self.settings.continuation_budget

    def _goes_on(self, deadline: float) -> bool:
        return not self.stopping and time.monotonic() < deadline

    # -- timeouts of this process's own attempts ----------------------------------------------------------

    def _own_timeout(self, position: Position, timeout_token: int) -> bool:
        held = replace(position.held, token=timeout_token, guard="timeout_token")
        return self.moves.time_out(replace(position, held=held))


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)
