"""Policies for programs that execute steps themselves, without runs: `resolve` computes the options of a step, and
`Policy.after` what follows from an attempt. It uses the decisions of the engine, and is pure: the program calls the
function, waits, and stores what it needs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from rival_client.model import statuses
from rival_client.model.policies.fallback_option import RetryWith
from rival_client.model.policies.matchers import Node
from rival_client.model.policies.option_conflicts import conflicts
from rival_client.model.policies.policy_explanation import explained
from rival_client.model.policies.policy_options import RULE_OPTIONS, checked_options
from rival_client.model.policies.policy_rules import Layer, Resolved, own_layer
from rival_client.model.policies.policy_rules import resolve as resolve_layers
from rival_client.model.policies.run_policies import GivenRule, PoliciesMode, run_policies
from rival_client.model.policies.step_config import StepConfig
from rival_workers.definition.given_rules import read_rules
from rival_workers.definition.rules import PolicyRule, RuleSet
from rival_workers.engine import decisions
from rival_workers.engine.heartbeat_limits import timeout_error
from rival_workers.errors import DefinitionError
from rival_workers.runtime.attempt.invoke import failure

__all__ = ["End", "FallBack", "Policy", "Raised", "Retry", "Returned", "TimedOut", "resolve"]


# -- how an attempt has ended -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Returned:
    """The function has returned this value."""

    value: Any = None


@dataclass(frozen=True)
class Raised:
    """The function has raised this error."""

    error: BaseException


@dataclass(frozen=True)
class TimedOut:
    """The attempt has taken longer than the option `timeout` allows."""


Outcome = Returned | Raised | TimedOut


# -- what follows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Retry:
    """Call the function again, `delay` seconds from now."""

    delay: float
    #: The values of `retry_with(…)`, for this attempt.
    overrides: Mapping[str, Any] = field(default_factory=dict)
    #: It is the fallback: give `has_fallen_back=True` to the next `after`.
    is_fallback: bool = False


@dataclass(frozen=True)
class FallBack:
    """Call this function, and give its outcome to `after_fallback`."""

    function: Callable[..., Any]
    #: Why the step has failed.
    error: Mapping[str, Any]


@dataclass(frozen=True)
class End:
    """The step is over."""

    status: Literal["completed", "skipped", "failed"]
    value: Any = None
    #: Type, message and traceback of a failure; `not_retried` says why, if the step had attempts left.
    error: Mapping[str, Any] | None = None
    #: The value is that of the fallback.
    has_fallen_back: bool = False
    #: `on_failure="dead_letter"`: keep it for an operator.
    dead_letter: bool = False


Decision = Retry | FallBack | End


@dataclass(frozen=True)
class Policy:
    """The options of one step, and where each of them comes from."""

    options: StepConfig
    because: Mapping[str, str] = field(default_factory=dict)
    #: The fallback, if it is a function.
    fallback: Callable[..., Any] | None = None

    def after(
        self,
        outcome: Outcome,
        attempt: int,
        left: float | None = None,
        *,
        has_fallen_back: bool = False,
        retries: int = 0,
        chance: float | None = None,
    ) -> Decision:
        """What follows from an attempt. `attempt`: its number, from 1. `left`: seconds until the deadline; a retry that
        would begin later is not made. `retries`: those that count for `retry_budget` so far. `chance`: in [0, 1), for
        the jitter; None: a random number."""
        if isinstance(outcome, Returned):
            return End(statuses.COMPLETED, outcome.value, has_fallen_back=has_fallen_back)
        failed, number = self._failure(outcome, attempt), random.random() if chance is None else chance
        decision = decisions.decide(
            self.options, attempt, failed, number, has_fallen_back=has_fallen_back, retries=retries, left=left
        )
        return self._decided(decision)

    def after_fallback(self, fall_back: FallBack, outcome: Outcome) -> Retry | End:
        """What follows from the fallback function. If it has failed, the step has failed with its own error."""
        if isinstance(outcome, Returned) and isinstance(outcome.value, RetryWith):
            return Retry(0.0, outcome.value.checked("the fallback"), is_fallback=True)
        if isinstance(outcome, Returned):
            return End(statuses.COMPLETED, outcome.value, fall_back.error, has_fallen_back=True)
        decision = decisions.final(self.options, decisions.Failure(dict(fall_back.error)), has_fallen_back=True)
        ended = self._decided(decision)
        assert isinstance(ended, End), "a step falls back once"
        return ended

    def _failure(self, outcome: Raised | TimedOut, attempt: int) -> decisions.Failure:
        if isinstance(outcome, Raised):
            return failure(outcome.error, attempt)
        return decisions.timed_out(self.options, timeout_error(self.options, attempt, None))

    def _decided(self, decision: decisions.Decision) -> Decision:
        match decision:
            case decisions.Retry():
                return Retry(
                    decision.delay, (decision.fallback or {}).get("overrides", {}), decision.fallback is not None
                )
            case decisions.FallBack():
                assert self.fallback is not None, "only a function falls back like this"
                return FallBack(self.fallback, decision.error)
        fell_back = decision.fallback is not None and self.options.fallback is not None
        value = self.options.fallback.value if fell_back and self.options.fallback else None
        error = decision.attempt_error if fell_back else decision.error
        return End(decision.status, value, error, fell_back, decision.dead_letter)


def resolve(
    name: str,
    own: Mapping[str, Any] | None = None,
    *,
    policies: Sequence[PolicyRule] = (),
    run_rules: Sequence[GivenRule] = (),
    mode: PoliciesMode = "merge",
    node: Node | None = None,
) -> Policy:
    """The options of a step: `run_rules` over its `own` over `policies` over the defaults, field by field; in a list,
    the first rule that matches. `mode="replace"`: only `run_rules`. `node`: what matchers see of the step besides its
    name. DefinitionError or InvalidArgument with every problem."""
    problems: list[str] = []
    rules, options = read_rules(policies, problems), checked_options(own or {}, RULE_OPTIONS, problems)
    given = run_policies("run_rules", run_rules, mode)
    seen = Node(name, "step", name) if node is None else replace(node, name=name)
    seen = _tagged(seen, rules, problems)
    below = [] if mode == "replace" else [own_layer(options), Layer("workflow", rules.rules)]
    resolved = resolve_layers(seen, [Layer("run", given.rules), *below])
    problems += conflicts(resolved.config)
    if problems:
        raise DefinitionError([f"step {name!r}: {problem}" for problem in problems])
    because = {one.name: one.because for one in explained(resolved, {}) if one.layer != "default"}
    return Policy(resolved.config, because, _function(resolved, own or {}, rules, seen))


def _tagged(node: Node, rules: RuleSet, problems: list[str]) -> Node:
    """With the tags of the predicates that are true for it."""
    try:
        return replace(node, tags=(*node.tags, *rules.tags(node)))
    except ValueError as error:
        problems.append(str(error))
        return node


def _function(resolved: Resolved, own: Mapping[str, Any], rules: RuleSet, node: Node) -> Callable[..., Any] | None:
    """The function behind a fallback of this shape."""
    fallback, why = resolved.config.fallback, resolved.because.get("fallback")
    if fallback is None or fallback.shape != "function" or why is None:
        return None
    found: Callable[..., Any] = (own if why.layer == "step" else rules.given_for(node))["fallback"]
    return found
