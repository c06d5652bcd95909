"""Outcomes that do not come from the call of a function alone: the answer to an external step, the refusal of a circuit
breaker, the result of another step with the same idempotency key, a limit that is full.

The function of an external step hands out a completion token and returns; then the step waits until an external system
answers or its time is over. The answer is stored in the step's row; the next attempt makes it the step's outcome.
"""

from __future__ import annotations

import inspect
import random
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rival_client.model.limits.idempotency import IdempotencyKey, checked_key, fingerprint
from rival_client.model.limits.idempotency_records import KeyName
from rival_client.model.limits.limits import Limit
from rival_client.model.payload import NULL, Json, dump, load, serialise
from rival_client.model.policies.breakers import Breaker
from rival_client.model.step_records import Step
from rival_client.sql.external_steps import ATTEMPT, COMPLETED, FAILED, RETRY
from rival_workers.definition.inject import Injection
from rival_workers.definition.returns import Returns
from rival_workers.engine.decisions import Failure, Success, refused_by, timed_out
from rival_workers.engine.heartbeat_limits import HeartbeatState, deadline_error
from rival_workers.engine.paths import KEY, place_of
from rival_workers.errors import IdempotencyConflict, InvalidResult, LimitReached
from rival_workers.runtime.attempt.async_loop import async_steps
from rival_workers.runtime.attempt.attempt_context import AttemptContext, ProcessParts, given_values
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.hook_calls import breaker_moved
from rival_workers.runtime.attempt.invoke import call, failure
from rival_workers.runtime.attempt.outage import OutageRetry
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.flow.stop_signals import Suspend
from rival_workers.store.call_records import KeyClaim
from rival_workers.store.claim_records import Refused
from rival_workers.store.interface import Store

#: Seconds after which a step asks again whose breaker an operator has opened for good.
ASK_AGAIN = 30.0


class Postponed(Exception):
    """The attempt has ended without a call: its step waits for the circuit breaker, or for its idempotency key."""


class BreakerGuard:
    def __init__(self, store: Store, transitions: StepTransitions, outage: OutageRetry) -> None:
        self._store, self._transitions, self._outage = store, transitions, outage

    def call(
        self, attempt: Attempt, breaker: Breaker, executor: str, function: Callable[[Attempt], Success | Failure]
    ) -> Success | Failure:
        """Raises Postponed if the step waits."""
        claim, position = attempt.claim, attempt.position
        answer = self._outage.keep(lambda: self._store.ask_breaker(breaker, claim, executor))
        if not answer.goes:
            if breaker.on_open == "wait":
                seconds = ASK_AGAIN if answer.seconds is None else answer.seconds
                self._transitions.postpone(position, seconds + _spread(breaker), breaker.name)
                raise Postponed
            return refused_by(breaker, position.attempt)
        outcome = function(attempt)
        if isinstance(outcome, Failure):
            self._outage.keep(lambda: self._transitions.count_failure(position, outcome, executor))
        elif answer.probes:
            moved = self._outage.keep(lambda: self._store.breaker_succeeded(breaker, claim, executor))
            if moved is not None:
                breaker_moved(breaker, moved, attempt)
        return outcome


def _spread(breaker: Breaker) -> float:
    """Steps that have waited do not come back all at once. Most of them come early, so that a probe is not late."""
    return float(random.random() ** 2 * breaker.reset)


class KeyGuard:
    def __init__(self, process: ProcessParts, outage: OutageRetry) -> None:
        self._process, self._outage = process, outage

    def call(self, attempt: Attempt, function: Callable[[Attempt], Success | Failure]) -> Success | Failure:
        """Raises Postponed if the step waits for the one that has its key."""
        wanted = self._wanted(attempt)
        if isinstance(wanted, Failure):
            return wanted
        if wanted is None:
            return function(attempt)
        answer = self._outage.keep(lambda: self._process.store.own_key(attempt.claim, wanted))
        if answer is None or answer.state == "queued":
            raise Postponed
        if answer.state == "owned":
            return function(attempt)
        has_it = f"{answer.run_id}/{answer.path}"
        if answer.state == "conflict":
            conflict = failure(IdempotencyConflict(wanted.name.key, has_it), attempt.claimed.attempt)
            return replace(conflict, behavior="stop")
        return Success(answer.result or NULL, reused_from=has_it)

    def _wanted(self, attempt: Attempt) -> KeyClaim | Failure | None:
        config, path = attempt.position.config, attempt.claimed.path
        values = given_values(attempt, self._process.reads)
        key = self._key(attempt, values)
        if key is None or isinstance(key, Failure):
            return key
        workflow, step = attempt.definition.name, place_of(path)
        name = KeyName.of(config.idempotency_scope, key, workflow, step)
        return KeyClaim(name, path, fingerprint(values["input"], values["item"]), config.idempotency_ttl)

    def _key(self, attempt: Attempt, values: Mapping[str, Any]) -> str | Failure | None:
        option: IdempotencyKey | None = attempt.position.config.idempotency_key
        assert option is not None, "the step has a key"
        try:
            if option.template is not None:
                return option.filled(values)
            made = self._made(attempt, KEY, partial(checked_key, option="idempotency_key"))
            assert made is None or isinstance(made, str | Failure), "it was checked"
            return made
        except ValueError as error:
            return failure(error, attempt.claimed.attempt)

    def limits(self, attempt: Attempt, limits: Sequence[Limit]) -> tuple[Limit, ...] | Failure:
        """With the keys that the functions of the definition make. The step is not claimed yet."""
        found: list[Limit] = []
        for limit in limits:
            if not limit.needs_function:
                found.append(limit)
                continue
            made = self._made(attempt, limit.key or "", partial(checked_key, option="the key of a limit"))
            if isinstance(made, Failure):
                return made
            found.append(limit.with_key(made))
        return tuple(found)

    def _made(self, attempt: Attempt, role: str, checked: Callable[[Any], str]) -> Any:
        """The key that the function of the definition returns, or None; a Failure if it is not one."""
        its_call = attempt.definition.call_at(attempt.claimed.path + role)
        assert its_call is not None, "rules with functions are part of the definition"
        context = AttemptContext(attempt, self._process)
        try:
            made = call(_checking(its_call.injection, checked), context, sys.maxsize)
        finally:
            if "log" in context.__dict__:
                self._process.logs.finish(context.log, self._outage)
        return load(made.result) if isinstance(made, Success) else made


def _checking(injection: Injection, checked: Callable[[Any], str]) -> Injection:
    """The same function, whose result is checked as a key before it is taken for the result of a step."""

    def function(*args: Any, **keywords: Any) -> Any:
        made = injection.function(*args, **keywords)
        if inspect.isawaitable(made):
            made = async_steps.run(made)
        return None if made is None else checked(made)

    return replace(injection, function=function)


def refused_outcome(refused: Refused, attempt: int) -> Success | Failure:
    """The outcome of a step whose function is not called, since a limit is full."""
    if refused.on_full == "skip":
        return Success(NULL, skipped=True)
    return failure(LimitReached(refused.limit, refused.key, refused.max, refused.is_crowded), attempt)


# -- external steps --------------------------------------------------------------------------------------


class External:
    def __init__(
        self, transitions: StepTransitions, outage: OutageRetry, read_step: Callable[[str, str], Step | None]
    ) -> None:
        self._transitions, self._outage, self._read_step = transitions, outage, read_step

    def outcome(self, attempt: Attempt, call: Callable[[Attempt], Success | Failure]) -> Success | Failure:
        """Returns the answer, or the failure or skip of the function. Raises Suspend when the step begins to wait."""
        claimed = attempt.claimed
        step = self._read_step(claimed.run_id, claimed.path)
        if step is not None and _answer_to(step, claimed.attempt) is not None:
            return answered(step, attempt, attempt.definition.returns_at(claimed.path))
        outcome = call(attempt)
        if isinstance(outcome, Failure) or outcome.skipped:
            return outcome
        # If an answer or a cancel was faster, the token is stale, and this attempt has no result that could be lost.
        self._outage.keep(lambda: self._transitions.wait_external(attempt.position, outcome.state))
        raise Suspend


def _answer_to(step: Step, attempt: int) -> dict[str, Any] | None:
    """The answer in the row, if it belongs to this attempt."""
    return step.item if isinstance(step.item, dict) and step.item.get(ATTEMPT) == attempt else None


def answered(step: Step, attempt: Attempt, returns: Returns | None) -> Success | Failure:
    number, config = attempt.claimed.attempt, attempt.position.config
    state = Json(serialise(step.state)) if step.state else None
    answer = _answer_to(step, number) or {}
    if COMPLETED in answer:
        return _completed(answer[COMPLETED], state, attempt, returns)
    if FAILED in answer:
        behavior = "retry" if answer.get(RETRY) else "stop"
        return Failure({**answer[FAILED], "attempt": number}, behavior, state=state)  # type: ignore[arg-type]
    heartbeat = None
    if step.due_at is not None and step.heartbeat_at is not None:
        heartbeat = HeartbeatState(step.heartbeat_at, step.due_at, step.due_at, beaten=True, progress=step.progress)
    return timed_out(config, deadline_error(config, number, heartbeat), state)


def _completed(value: Any, state: Json | None, attempt: Attempt, returns: Returns | None) -> Success | Failure:
    """A result that does not fit the declared type fails the step, as if the function had returned it."""
    where = f"step {attempt.claimed.path!r} of run {attempt.claimed.run_id!r}"
    try:
        fitting = value if returns is None else returns.stored(value, where)
    except InvalidResult as error:
        return failure(error, attempt.claimed.attempt, state)
    # The client has checked the size against its own limit when it stored the answer.
    return Success(dump(fitting, what=f"the result of {where}", limit=sys.maxsize), state)
