"""Keys of a step: its idempotency key, which decides whether its function is called, and the keys of its limits. User
code may make them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from rival_client.model.limits.idempotency import IdempotencyKey, checked_key, fingerprint
from rival_client.model.limits.idempotency_records import KeyName
from rival_client.model.limits.limits import Limit
from rival_client.model.payload import NULL, load
from rival_workers.definition.inject import Injection
from rival_workers.engine.decisions import Failure, Success
from rival_workers.engine.paths import KEY, place_of
from rival_workers.errors import IdempotencyConflict
from rival_workers.runtime.attempt.async_loop import async_steps
from rival_workers.runtime.attempt.attempt_context import AttemptContext, ProcessParts
from rival_workers.runtime.attempt.attempt_values import given_values
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.invoke import call, failure
from rival_workers.runtime.attempt.outage import OutageRetry
from rival_workers.runtime.attempt.special_outcomes import Postponed
from rival_workers.store.call_records import KeyClaim


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
