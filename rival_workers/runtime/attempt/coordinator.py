"""Handles messages: claims the step that a message names and runs its attempt; parks steps of unknown workflows.

It never waits for a retry or a timer: a worker takes the next message as soon as an outcome is committed.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

from rival_client.broker.message import StepMessage
from rival_client.model.limits.singletons import limits_of_run
from rival_client.model.policies.rulebook import Rulebook
from rival_client.model.starts.queues import Route
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine import interpreter
from rival_workers.engine.effects import Advance
from rival_workers.engine.policies import Policies
from rival_workers.engine.step_limits import plain_flows
from rival_workers.runtime.attempt.attempts import Attempt, attempt_of, first_attempt
from rival_workers.runtime.attempt.attempts import Verdict as Verdict
from rival_workers.runtime.attempt.park_delays import ParkDelays
from rival_workers.runtime.attempt.pipeline import AttemptPipeline
from rival_workers.runtime.attempt.position import InPlace
from rival_workers.runtime.attempt.runs_in_hand import Commits, commit_alone, committed
from rival_workers.runtime.attempt.telemetry import counters
from rival_workers.runtime.failpoints import failpoint
from rival_workers.store.claim_records import (
    BeginOutcome,
    BeginResult,
    Claim,
    ClaimBy,
    Delivered,
    Expired,
    HasRules,
    NotYet,
    Queued,
    Without,
    WorkflowVersion,
)
from rival_workers.store.group_commits import BeginRun, DeliverEvent

log = logging.getLogger("rival.coordinator")

#: The number of runs whose mismatch is remembered as reported.
MAX_MISMATCHES = 1000


class Mismatches:
    """Logs messages that name another workflow or version than the run's row, once for each run.

    Claims compare the names in their WHERE, so such a message has no effect. The log line shows the operator that
    messages are forged, or that two fleets share a queue but not a database.
    """

    def __init__(self) -> None:
        self._reported: OrderedDict[tuple[str, WorkflowVersion], None] = OrderedDict()

    def report(self, run_id: str, path: str | None, named: WorkflowVersion, found: WorkflowVersion | None) -> None:
        """Called when a message had no effect. `found`: the run's workflow, if the message names another."""
        if found is None or not self._is_new(run_id, named):
            return
        counters["mismatched"] += 1
        named_as = f"workflow {named.workflow[:200]!r} version {named.version[:200]!r}"
        log.warning(
            "run %s step %s: a message names %s, but the run is one of %r version %r; "
            "the message is ignored (%d so far). Check which other producers write to this queue.",
            run_id,
            path or "(start)",
            named_as,
            found.workflow,
            found.version,
            counters["mismatched"],
        )

    def _is_new(self, run_id: str, named: WorkflowVersion) -> bool:
        key = (run_id, named)
        if key in self._reported:
            return False
        self._reported[key] = None
        if len(self._reported) > MAX_MISMATCHES:
            with suppress(KeyError):  # another thread was faster
                self._reported.popitem(last=False)
        return True


def _first_advance(policies: Policies, in_place: InPlace | None) -> tuple[Advance, str | None]:
    """Returns the rows that open at the start of a run, and the executor that claims the first step."""
    if "" not in policies.advances:
        policies.advances[""] = interpreter.first(policies.plan).with_options(policies.at, policies.recorded)
    advance = policies.advances[""]
    return (advance, None) if in_place is None else in_place.claims(advance)


class Coordinator(AttemptPipeline):
    """Handles messages."""

    #: The last result of `_claim_by`, after the values from which it was made.
    _event_claim: tuple[object, ClaimBy] | None = None

    @cached_property
    def _mismatches(self) -> Mismatches:
        return Mismatches()

    @cached_property
    def _park_delays(self) -> ParkDelays:
        return ParkDelays()

    def begin(self, run_id: str, token: int, workflow: str, version: str) -> None:
        """Start a run. The same statement claims its first step."""
        commit_alone(self.beginning(run_id, token, workflow, version), self.store)

    def beginning(self, run_id: str, token: int, workflow: str, version: str) -> Commits[None]:
        """As `begin`; the commits may be made together with those of other runs, and on any thread."""
        with self.executor.running.message():
            yield from self._begin(run_id, token, workflow, version)

    def attempt(self, run_id: str, path: str, token: int, workflow: str, version: str) -> Verdict:
        """Claim one step's next attempt and run it."""
        attempts = self.attempting(run_id, path, token, workflow, version, observed=False)
        return commit_alone(attempts, self.store)

    def attempting(
        self, run_id: str, path: str, token: int, workflow: str, version: str, *, observed: bool = True
    ) -> Commits[Verdict]:
        """As `attempt`; the commits may be made together with others, and on any thread. `observed`: see `_run_all`."""
        with self.executor.running.message():
            attempt = self._claimed(run_id, path, token, WorkflowVersion(workflow, version))
            if attempt is None:
                return Verdict("stale")
            return (yield from self._run_all(attempt, self._deadline(), observed=observed))

    def deliver(self, event_id: str) -> None:
        """Deliver an event to the steps that wait for it, and run the first of them here."""
        commit_alone(self.delivering(event_id), self.store)

    def delivering(self, event_id: str) -> Commits[None]:
        """As `deliver`; the commits may be made together with others, and on any thread."""
        with self.executor.running.message():
            yield from self._deliver(event_id)

    def _begin(self, run_id: str, token: int, workflow: str, version: str) -> Commits[None]:
        named = WorkflowVersion(workflow, version)
        definition = self._definition(workflow, version)
        if definition is None:
            return self._park(run_id, None, token, named)
        in_place = self._in_place(self._deadline())
        with self.executor.claiming():
            book = self.transitions.options.book()
            policies = definition.policies.over(None, book, None)
            unknown: Without = "labels" if book.asks_for_labels else "policies"
            first_row = _first_advance(policies, in_place)
            begin = BeginRun(run_id, token, *first_row, named, definition.limits, unknown)
            started = yield from self._resumed(committed(begin))
            if isinstance(started, HasRules):
                policies = definition.policies.over(started.policies, book, started.labels)
                advance, claim_for = _first_advance(policies, in_place)
                limits = (*definition.limits, *limits_of_run(workflow, started.policies))
                begin = replace(begin, advance=advance, claim_for=claim_for, limits=limits, without=None)
                started = yield from self._resumed(committed(begin))
            first = self._first(run_id, started, definition, policies)
        if not isinstance(started, BeginResult):
            return self._not_begun(run_id, token, named, started)
        finished = started.finished
        step = (finished.token, workflow, version)
        messages = [
            StepMessage(
                run_id, one.path, *step, countdown=one.delay, route=one.route or Route(None, started.facts.level)
            )
            for one in finished.opened
        ]
        if in_place is not None and len(messages) == 1 and in_place.takes(policies.at(finished.opened[0].path)):
            first = self._take(messages.pop())
        if messages:
            self.doorbell.publish(messages)
        if first is not None:
            yield from self._run_all(first, self._deadline(), observed=True)
        return None

    def _not_begun(self, run_id: str, token: int, named: WorkflowVersion, found: BeginOutcome) -> None:
        match found:
            case NotYet():
                self._come_again(StepMessage(run_id, None, token, named.workflow, named.version), found)
            case Queued():
                log.debug("run %s: waits for limit %s", run_id, found.limit)
            case Expired():
                self.transitions.expire(run_id, named.workflow, named.version)
            case _:
                log.debug("run %s: stale start", run_id)
                self._mismatches.report(run_id, None, named, found if isinstance(found, WorkflowVersion) else None)

    def _first(
        self, run_id: str, started: object, definition: WorkflowDefinition, policies: Policies
    ) -> Attempt | None:
        if not isinstance(started, BeginResult) or (opening := started.finished.claimed) is None:
            return None
        attempt = first_attempt(run_id, started, opening, definition, policies.book)
        return self._ruled(self._added(attempt), policies)

    def _claimed(self, run_id: str, path: str, token: int, named: WorkflowVersion) -> Attempt | None:
        """The attempt that a message names; None: nothing is to be done now."""
        definition = self._definition(named.workflow, named.version)
        if definition is None:
            self._park(run_id, path, token, named)
            return None
        if definition.call_at(path) is None:
            unknown = "run %s: a message names %r, which is not a step of %s; it is ignored"
            log.warning(unknown, run_id, path, named.workflow)
            return None
        attempt = self._claim(definition, Claim(run_id, path, token), named)
        if not isinstance(attempt, Attempt):
            log.debug("run %s step %s: not started (token %d)", run_id, path, token)
            self._mismatches.report(run_id, path, named, attempt)
            return None
        failpoint("after_claim_commit")
        return attempt

    def _deliver(self, event_id: str) -> Commits[None]:
        deadline = self._deadline()
        book = self.transitions.options.book()
        claim = self._claim_by(book) if self._may_continue(deadline) else None
        with self.executor.claiming():
            delivered = yield from self._resumed(committed(DeliverEvent(event_id, claim)))
            first_ready = self._first_ready(delivered, book)
        failpoint("after_deliver_commit")
        if first_ready is not None:
            yield from self._run_all(first_ready, deadline, observed=True)
            return
        served = self.settings.served
        first = next((one for one in delivered.ready if one.route.queue in served and not self.stopping), None)
        if others := [one.message for one in delivered.ready if one is not first]:
            self.doorbell.publish(others)
        if first is not None:
            named = WorkflowVersion(first.workflow, first.version)
            attempt = self._claimed(first.run_id, first.path, first.token, named)
            if attempt is not None:
                yield from self._run_all(attempt, self._deadline(), observed=True)

    def _claim_by(self, book: Rulebook) -> ClaimBy:
        """How this executor claims what an event wakes. Made again when the executor, workflows or rules change."""
        now = (self.executor.id, self.registry.versions, self.registry.changes, book.version)
        if self._event_claim is None or self._event_claim[0] != now:
            found = ((*named, self.registry.find(*named)) for named in now[1])
            flows = {
                f"{name}@{version}/{path}": limit
                for name, version, definition in found
                if definition is not None
                for path, limit in plain_flows(definition.policies, book)
            }
            self._event_claim = (now, ClaimBy(*now[:2], flows))
        return self._event_claim[1]

    def _first_ready(self, delivered: Delivered, book: Rulebook) -> Attempt | None:
        if delivered.claimed is None:
            return None
        definition = self._definition(delivered.workflow, delivered.version)
        assert definition is not None, "a claim is only made for a workflow that is known"
        return self._added(attempt_of(delivered.claimed, definition, book))

    def _park(self, run_id: str, path: str | None, token: int, named: WorkflowVersion) -> None:
        reason = f"worker does not have workflow {named.workflow!r}"
        known = [w.version for w in self.registry if w.name == named.workflow]
        if known:
            reason = f"worker has {named.workflow!r} at version {known[0]}, not {named.version}"
        seconds = self._park_delays.next(run_id, path)
        if path is None:
            parked = self.store.park_run(run_id, token, reason, seconds, of=named)
        else:
            parked = self.store.park_step(Claim(run_id, path, token), reason, seconds, of=named)
        if parked is not True:
            self._mismatches.report(run_id, path, named, parked or None)
            return
        counters["parked"] += 1
        log.warning("run %s step %s is parked: %s (%d so far)", run_id, path or "(start)", reason, counters["parked"])
