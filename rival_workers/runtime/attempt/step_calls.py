"""Calls the function of an attempt: with its context, within its limits, between its hooks. It commits no outcome."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from rival_client.broker.doorbell import Doorbell
from rival_client.model.kinds import EXTERNAL, FLOW
from rival_workers.definition.function_calls import Call
from rival_workers.definition.registry import Registry
from rival_workers.engine.decisions import Failure, Success
from rival_workers.runtime.attempt.attempt_context import AttemptContext
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.calls_over import UserCall
from rival_workers.runtime.attempt.context import Context
from rival_workers.runtime.attempt.hook_calls import HookCalls
from rival_workers.runtime.attempt.invoke import Calling
from rival_workers.runtime.attempt.outage import AttemptReads, OutageRetry
from rival_workers.runtime.attempt.position import Position
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.attempt.time_limits import TimeLimits
from rival_workers.runtime.executor import Executor
from rival_workers.runtime.flow.async_context import AsyncFlowContext
from rival_workers.runtime.flow.commits import FlowCommits
from rival_workers.runtime.flow.step_options import FlowPolicies
from rival_workers.runtime.flow.sync_context import FlowContext
from rival_workers.runtime.logs.stream import LogStream
from rival_workers.settings import WorkerSettings
from rival_workers.store.claim_records import Claim
from rival_workers.store.interface import Store


class StepCalls:
    settings: WorkerSettings
    store: Store
    registry: Registry
    doorbell: Doorbell
    limits: TimeLimits
    transitions: StepTransitions
    executor: Executor
    calling: Calling
    _outage: OutageRetry
    reads: AttemptReads
    _hooks: HookCalls
    logs: LogStream
    _timed_out: set[Claim]
    _alone: set[tuple[str, str, str]]

    def _call(self, attempt: Attempt) -> Success | Failure:
        """The only place where user code runs: no transaction is open, and the timer of its limit is set."""
        claimed = attempt.claimed
        its_call = attempt.definition.call_at(claimed.path)
        call = UserCall(claimed.run_id, claimed.path)
        assert its_call is not None, "a claim is only made for a step that is known"
        context = self._context(attempt, its_call)
        returns = attempt.definition.returns_at(claimed.path)
        how = (its_call.injection, context, self.settings.max_payload, claimed.kind, returns)
        calls = self.executor.running.calls
        # An external step may be answered while its function still runs: only its time limits end that call.
        if claimed.kind != EXTERNAL:
            calls[attempt.held.claim] = call
        try:
            with call:
                has_limit = _has_limit(attempt)
                # Most steps have no limit, and need no timer.
                if not has_limit and not attempt.hooks:
                    return self.calling(*how)
                around = partial(self._hooks.around, attempt, partial(self.calling, *how))
                return self._limited(attempt, context, call, around) if has_limit else around()
        finally:
            calls.pop(attempt.held.claim, None)
            self._end(context)

    def _limited(
        self, attempt: Attempt, context: Context, call: UserCall, function: Callable[[], Success | Failure]
    ) -> Success | Failure:
        position, timeout_token = attempt.position, attempt.claimed.timeout_token
        left = self.transitions.left(position)
        with (
            self.limits.kept(position.config, lambda: self._own_timeout(position, timeout_token, call), left) as timer,
            self.limits.until(self.left(attempt), position.config, lambda: self._expire(position, call)),
        ):
            if context.beats is not None:
                context.beats.timer = timer
            return function()

    def _end(self, context: Context) -> None:
        """Store what is left of what the function has used, and let go of a flow's operations."""
        made = context.__dict__
        if "beats" in made:
            made["beats"].flush()
        if "log" in made:
            self.logs.finish(context.log, self._outage)
        if "scheduler" in made:
            made["scheduler"].drop_operations()

    def _context(self, attempt: Attempt, its_call: Call) -> Context:
        context = AttemptContext(attempt, self)
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
            self._hooks.of_checkpoints(attempt),
            attempt.continued,
            attempt.claimed.stored,
            self._alone,
        )
        kind = AsyncFlowContext if _is_async(its_call.injection.function) else FlowContext
        policies = FlowPolicies(attempt.position.policies, attempt.claimed.path, its_call.predicates)
        return kind(context, commits, policies, self.registry.newest)

    # -- limits -------------------------------------------------------------------------------------------

    def left(self, attempt: Attempt) -> float | None:
        """Seconds until the deadline of the run."""
        return None if attempt.expires is None else max(0.0, attempt.expires - self.limits.clock())

    def _expire(self, position: Position, call: UserCall) -> bool:
        is_expired = self.transitions.expire(position.claim.run_id, position.workflow, position.version)
        if is_expired:
            call.end()
        return is_expired

    def _own_timeout(self, position: Position, timeout_token: int, call: UserCall) -> bool:
        claim = replace(position.claim, token=timeout_token, guard="timeout_token")
        if not self.transitions.time_out(replace(position, claim=claim)):
            return False
        self._timed_out.add(position.claim)
        call.end()
        return True


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def _has_limit(attempt: Attempt) -> bool:
    position = attempt.position
    return position.until is not None or attempt.expires is not None or position.config.limit is not None
