"""Moves runs: takes a message, claims, calls, decides, commits, and goes on in place or rings. One way to move a run.

Nothing here sleeps for a retry or a timer, and nothing rings before its commit.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from rival_client.doorbell import Doorbell, Ring
from rival_client.errors import DatabaseUnavailable, InvalidInput
from rival_client.payload import load
from rival_client.records import Step
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine import interpreter
from rival_workers.engine.decisions import End, Failure, Retry, Success, decide, decide_lost, timed_out
from rival_workers.engine.interpreter import Advance
from rival_workers.engine.plan import Plan, StepConfig
from rival_workers.runtime.alarms import Alarms
from rival_workers.runtime.calling import call
from rival_workers.runtime.context import Context, RunInfo, Steps, StepState, StepView
from rival_workers.runtime.executor import Executor
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.logs import StepLog
from rival_workers.runtime.telemetry import AttemptObserver, NoObserver
from rival_workers.settings import WorkerSettings
from rival_workers.store.base import Claimed, Due, Held, NotYet, ReleaseReason, RunningAttempt, Store

log = logging.getLogger("rival.coordinator")

#: How long a step that no worker here knows is left alone.
PARK_SECONDS = 15.0
#: Seconds after its timeout at which a process that can't even run its alarm is ended.
KILL_SLACK = 2.0
T = TypeVar("T")

#: How an outcome got into the database. "later": nothing that its commit claimed may be relied on.
Landed = Literal["at once", "later", "late"]


@dataclass(frozen=True)
class Position:
    """A step that is about to move: what is held, and where in its plan it stands."""

    held: Held
    workflow: str
    version: str
    plan: Plan
    attempt: int
    lost: int
    #: The run is bound to fail already; this is one of its handlers.
    failing: bool

    @property
    def config(self) -> StepConfig:
        return interpreter.config_of(self.plan, self.held.path)


@dataclass
class Attempt:
    """One execution of a step's function, through the pipeline."""

    claimed: Claimed
    definition: WorkflowDefinition
    #: What earlier attempts of the same message have seen: saves reading it back.
    known: dict[str, StepView] = field(default_factory=dict)

    @property
    def held(self) -> Held:
        return Held(self.claimed.run_id, self.claimed.path, self.claimed.token)

    @property
    def position(self) -> Position:
        c, d = self.claimed, self.definition
        return Position(self.held, d.name, d.version, d.plan, c.attempt, c.lost, c.failed_step is not None)


@dataclass(frozen=True)
class Verdict:
    """What became of the attempt a message was about. "stale" with an error: it ran, and its result came too late."""

    what: Literal["completed", "skipped", "failed", "retried", "stale"]
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
        self.alarms = Alarms()
        #: True from the moment on at which nothing new is begun in place; a pool's children share a switch.
        self.stopping: object = False
        self._plans: dict[tuple[str, str], Plan] = {}
        #: A process of its own per attempt (prefork): a step that overstays may be killed with it.
        self.may_kill = False
        executor.hand_back = lambda attempt: self.release(attempt, "handed_back")

    # -- messages -----------------------------------------------------------------------------------------

    def begin(self, run_id: str, token: int, workflow: str, version: str) -> None:
        """Start a run: its first step is claimed in the same statement."""
        definition = self.registry.find(workflow, version)
        if definition is None:
            return self._park(run_id, None, token, workflow, version)
        opening = interpreter.first(definition.plan)
        claim_for = self.executor.id if self._goes_on(self._deadline()) else None
        with self.executor.claiming():
            claimed = self.store.begin_run(run_id, token, opening, claim_for=claim_for)
        if claimed is None:
            log.debug("run %s: stale start", run_id)
        elif claim_for is None:
            self.doorbell.ring([Ring(run_id, opening.path, 0, workflow, version)])
        else:
            self._carry_on(Attempt(claimed, definition), self._deadline(), observed=True)
        return None

    def attempt(self, run_id: str, path: str, token: int, workflow: str, version: str) -> Verdict:
        """Claim one step's next attempt and run it."""
        definition = self.registry.find(workflow, version)
        if definition is None or definition.injection(path) is None:
            self._park(run_id, path, token, workflow, version)
            return Verdict("stale")
        timeout = interpreter.config_of(definition.plan, path).timeout
        with self.executor.claiming():
            claimed = self.store.claim_step(Held(run_id, path, token), timeout, self.executor.id)
        if isinstance(claimed, NotYet):
            self._ring_later(run_id, path, token, workflow, version, claimed.seconds)
            return Verdict("stale")
        if claimed is None:
            log.debug("run %s step %s: stale ring (token %d)", run_id, path, token)
            return Verdict("stale")
        return self._carry_on(Attempt(claimed, definition), self._deadline(), observed=False)

    # -- the pipeline -------------------------------------------------------------------------------------

    def _carry_on(self, attempt: Attempt, deadline: float, *, observed: bool) -> Verdict:
        """Run the attempt, and then whatever follows in place, each as an attempt of its own. The first's verdict.

        `observed`: the first attempt is not the message's own task, so it must be reported too.
        """
        verdict, following = self._run(attempt, deadline, observed)
        while following is not None:
            _, following = self._run(following, deadline, True)
        return verdict

    def _run(self, attempt: Attempt, deadline: float, observed: bool) -> tuple[Verdict, Attempt | None]:
        claimed, name = attempt.claimed, attempt.definition.name
        observer = self.observer if observed else NoObserver()
        with (
            # Held until its outcome is committed, however long that takes: nobody must think it a stray before.
            self.executor.holds(attempt.held),
            observer.attempt(name, claimed.run_id, claimed.path, claimed.attempt, claimed.lost) as report,
        ):
            outcome = self._call(attempt)
            decision = decide(attempt.position.config, claimed.attempt, outcome, random.random())
            verdict, following = self._settle(attempt, decision, deadline)
            report(verdict.what, verdict.error)
        return verdict, following

    def _call(self, attempt: Attempt) -> Success | Failure:
        """User code runs here, and only here: no transaction is open, and its alarm is set."""
        claimed = attempt.claimed
        injection = attempt.definition.injection(claimed.path)
        assert injection is not None, "a claim is only made for a step that is known"
        context = self._context(attempt)
        position = attempt.position
        with (
            self.alarms.after(position.config.timeout, lambda: self._own_timeout(position, claimed.timeout_token)),
            self._last_resort(position.config),
        ):
            outcome = call(injection, context, self.settings.max_payload)
        if context.log.entries:
            self._keep(lambda: self.store.append_logs(claimed.run_id, context.log.entries))
        return outcome

    @contextmanager
    def _last_resort(self, config: StepConfig) -> Iterator[None]:
        """The alarm's thread cannot run while a step holds the interpreter's lock; this watchdog is written in C."""
        if not (self.may_kill and config.kill_on_timeout and config.timeout):
            yield
            return
        faulthandler.dump_traceback_later(config.timeout + KILL_SLACK, exit=True)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _context(self, attempt: Attempt) -> Context:
        claimed, definition = attempt.claimed, attempt.definition
        names = [node.name for node in definition.plan.nodes]
        path = claimed.path.removesuffix(interpreter.HANDLER)
        is_handler = claimed.path != path
        position = definition.plan.position(path) if path else len(names)
        previous = (path or claimed.failed_step) if is_handler else (names[position - 1] if position else None)
        error = claimed.error
        if is_handler and error is None:
            # The handler of a step that failed softly: the run has no error, the step has.
            step = self._read_step(claimed.run_id, path)
            error = step.error if step else None
        label = f"{definition.name}.{claimed.path}"
        return Context(
            run=RunInfo(claimed.run_id, definition.name, definition.version, claimed.path, claimed.attempt),
            steps=Steps(names, lambda name: self._read_step(claimed.run_id, name), attempt.known),
            log=StepLog(claimed.run_id, label, claimed.path, claimed.attempt),
            state=StepState(),
            read_input=lambda: _input(definition, claimed.input),
            previous=previous,
            error=error,
            failed_step_name=(path or claimed.failed_step) if is_handler else None,
        )

    def _read_step(self, run_id: str, path: str) -> Step | None:
        """A step reads this in the middle of user code: a database that is away is not the step's failure."""
        return self._keep(lambda: self.store.read_step(run_id, path))

    def _settle(self, attempt: Attempt, decision: End | Retry, deadline: float) -> tuple[Verdict, Attempt | None]:
        """Commit the decision; ring or go on. A stale token means that the outcome came too late."""
        position = attempt.position
        if isinstance(decision, Retry):
            landed = self._land(position, "waiting_retry", lambda _: self.retry(position, decision))
            return (self._late(position) if landed == "late" else Verdict("retried", decision.error)), None
        claim_for = self.executor.id if self._goes_on(deadline) else None
        advance = interpreter.advance(position.plan, position.held.path, decision, failing=position.failing)
        landed = self._land(
            position, decision.status,
            lambda again: self.finish(position, decision, advance, claim_for=None if again else claim_for),
        )  # fmt: skip
        if landed == "late":
            return self._late(position), None
        verdict = Verdict(decision.status, decision.error)
        if landed == "later" or claim_for is None or advance.opening is None:
            return verdict, None
        return verdict, _following(attempt, decision, advance)

    def _land(self, position: Position, status: str, commit: Callable[[bool], bool]) -> Landed:
        """Commit an outcome, however long the database is away. After a commit whose answer was lost, look before
        believing that it came too late: it may have landed. `commit` is told whether it is tried again.
        """
        held, again = position.held, False
        patience = time.monotonic() + self.settings.patience
        while True:
            try:
                with self.executor.claiming():
                    landed = commit(again)
                if landed:
                    return "later" if again else "at once"
                return "later" if again and self._had_landed(held, status) else "late"
            except DatabaseUnavailable as error:
                again = True
                if time.monotonic() > patience:
                    raise
                log.warning("run %s step %s: outcome kept, database away: %s", held.run_id, held.path, error)
                time.sleep(0.2 + random.random() * 0.3)

    def _had_landed(self, held: Held, status: str) -> bool:
        seen = self.store.token_of(held.run_id, held.path)
        if seen is None or seen[:2] != (status, held.token + 1):
            return False
        # That commit may have claimed the next step for us, and nobody is running it.
        for other in self.store.running_on(self.executor.id):
            if other.held.run_id == held.run_id and other.held not in self.executor.holding:
                self.release(other, "handed_back")
        return True

    def _keep(self, operation: Callable[[], T]) -> T:
        """Try until the database is back. Only for what is safe to repeat: reads, and what a token guards."""
        patience = time.monotonic() + self.settings.patience
        while True:
            try:
                return operation()
            except DatabaseUnavailable as error:
                if time.monotonic() > patience:
                    raise
                log.warning("database away, trying again: %s", error)
                time.sleep(0.2 + random.random() * 0.3)

    def _late(self, position: Position) -> Verdict:
        held = position.held
        log.warning("run %s step %s attempt %d: late result refused, the step has moved on",
                    held.run_id, held.path, position.attempt)  # fmt: skip
        detail = {"attempt": position.attempt, "executor": self.executor.id}
        self._keep(lambda: self.store.record(held.run_id, held.path, "late_result_refused", detail))
        return Verdict("stale", {"type": "LateResult", "message": "late result refused, the step has moved on"})

    def _deadline(self) -> float:
        return time.monotonic() + self.settings.continuation_budget

    def _goes_on(self, deadline: float) -> bool:
        return not self.stopping and time.monotonic() < deadline

    # -- transitions: commit, then ring -------------------------------------------------------------------

    def finish(self, position: Position, end: End, advance: Advance, *, claim_for: str | None) -> bool:
        held = position.held
        if not self.store.finish_step(held, end, advance, claim_for=claim_for):
            return False
        failpoint("after_finish_commit")
        ended = [held.run_id] if advance.run_ends else []
        if advance.opening is not None and claim_for is None:
            ring = Ring(held.run_id, advance.opening.path, 0, position.workflow, position.version)
            self.doorbell.ring([ring])
        elif ended:
            self.doorbell.ring([], changed=ended)
        return True

    def retry(self, position: Position, retry: Retry) -> bool:
        near = retry.delay <= self.settings.near
        token = self.store.retry_step(position.held, retry, rung=near)
        if token is None:
            return False
        failpoint("after_retry_commit")
        if near:
            held = position.held
            self._ring_later(held.run_id, held.path, token, position.workflow, position.version, retry.delay,
                             attempt=position.attempt + 1, lost=position.lost)  # fmt: skip
        return True

    def release(self, attempt: RunningAttempt, reason: ReleaseReason) -> None:
        """Give an attempt up so that it is started again."""
        held = attempt.held
        token = self.store.release_step(held, reason)
        if token is not None:
            ring = Ring(held.run_id, held.path, token, attempt.workflow, attempt.version,
                        attempt=attempt.attempts, lost=attempt.lost + (reason == "lost"))  # fmt: skip
            self.doorbell.ring([ring])

    def time_out(self, position: Position) -> bool:
        """Apply a timeout; False when the step has moved on since."""
        config = position.config
        error = {
            "type": "StepTimeout",
            "message": f"attempt {position.attempt} took longer than its timeout of {config.timeout:g} s"
            if config.timeout
            else "timed out",
            "attempt": position.attempt,
        }
        decision = decide(config, position.attempt, timed_out(config, error), random.random())
        if isinstance(decision, Retry):
            return self.retry(position, decision)
        advance = interpreter.advance(position.plan, position.held.path, decision, failing=position.failing)
        return self.finish(position, decision, advance, claim_for=None)

    def _own_timeout(self, position: Position, timeout_token: int) -> None:
        held = replace(position.held, token=timeout_token, guard="timeout_token")
        if self.time_out(replace(position, held=held)):
            log.warning("run %s step %s attempt %d: timed out", held.run_id, held.path, position.attempt)
            if self.may_kill and position.config.kill_on_timeout:
                os.kill(os.getpid(), signal.SIGKILL)

    # -- what the keeper finds ----------------------------------------------------------------------------

    def time_out_due(self, due: Due) -> None:
        plan = self._plan(due.workflow, due.version)
        if plan is None or due.path is None:
            return
        held = Held(due.run_id, due.path, due.timeout_token, "timeout_token")
        failing = due.failed_step is not None
        self.time_out(Position(held, due.workflow, due.version, plan, due.attempts, due.lost, failing))

    def take_over(self, lost: RunningAttempt) -> None:
        end = decide_lost(lost.lost, self.settings.max_lost, _lost_error(lost, self.settings.max_lost))
        log.warning("run %s step %s: its executor %s is gone; %s",
                    lost.held.run_id, lost.held.path, lost.executor, "failed" if end else "started again")  # fmt: skip
        if end is None:
            return self.release(lost, "lost")
        plan = self._plan(lost.workflow, lost.version)
        if plan is None:
            return None
        failing = lost.failed_step is not None
        position = Position(lost.held, lost.workflow, lost.version, plan, lost.attempts, lost.lost, failing)
        advance = interpreter.advance(plan, lost.held.path, end, failing=failing)
        self.finish(position, end, advance, claim_for=None)
        return None

    def _plan(self, workflow: str, version: str) -> Plan | None:
        """Any plan can be read, also one whose code this worker does not have: decisions are pure."""
        key = (workflow, version)
        if key not in self._plans:
            definition = self.registry.find(workflow, version)
            info = None if definition else self.store.load_workflow(workflow, version)
            if definition is None and info is None:
                log.error("workflow %s version %s is not in the database: its runs cannot be moved", *key)
                return None
            self._plans[key] = definition.plan if definition else Plan.load(info.plan)  # type: ignore[union-attr]
        return self._plans[key]

    # -- rings --------------------------------------------------------------------------------------------

    def _ring_later(
        self, run_id: str, path: str, token: int, workflow: str, version: str, seconds: float,
        attempt: int = 1, lost: int = 0,
    ) -> None:  # fmt: skip
        self.doorbell.ring([Ring(run_id, path, token, workflow, version, attempt, lost, countdown=max(0.0, seconds))])

    def _park(self, run_id: str, path: str | None, token: int, workflow: str, version: str) -> None:
        known = [w.version for w in self.registry if w.name == workflow]
        reason = (
            f"worker has {workflow!r} at version {known[0]}, not {version}" if known
            else f"worker does not have workflow {workflow!r}"
        )  # fmt: skip
        log.warning("run %s step %s is parked: %s", run_id, path or "(start)", reason)
        self.store.park(run_id, path, token, reason, PARK_SECONDS)


def _input(definition: WorkflowDefinition, value: Any) -> Any:
    try:
        return definition.read_input(value)
    except ValueError as error:
        raise InvalidInput(definition.name, [str(error)]) from error


def _following(attempt: Attempt, end: End, advance: Advance) -> Attempt:
    """The next step, claimed by the commit that finished this one."""
    opening, claimed = advance.opening, attempt.claimed
    assert opening is not None
    known = {**attempt.known, claimed.path: StepView(claimed.path, end.status, load(end.result), load(end.state) or {})}
    failed_step = claimed.path if advance.fails_run else claimed.failed_step
    error = end.error if advance.fails_run else claimed.error
    following = Claimed(claimed.run_id, opening.path, 1, 1, 1, 0, claimed.input, failed_step, error)
    return Attempt(following, attempt.definition, known)


def _lost_error(lost: RunningAttempt, max_lost: int) -> dict[str, Any]:
    return {
        "type": "ExecutorLost",
        "message": f"the step lost its executor {lost.lost + 1} times (the last was {lost.executor}); "
        f"at most {max_lost} are forgiven. It may be killing its workers: look at their memory and exit codes.",
        "attempt": lost.attempts,
    }
