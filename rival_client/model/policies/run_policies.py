"""Policies that are given as data: rules of a run (`run(policies=…)`) and rules of the fleet. Pure.

They reach workers through the database, so they contain no functions. A rule refers to a predicate of a workflow by its
name, as a tag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rival_client.errors import InvalidArgument
from rival_client.model.checks.argument_errors import shown
from rival_client.model.policies.matchers import Matcher, read_matcher
from rival_client.model.policies.option_conflicts import not_inline
from rival_client.model.policies.plan_rules import not_of_kinds
from rival_client.model.policies.policy_options import RULE_OPTIONS, checked_options
from rival_client.model.policies.policy_rules import Rule, load_rule
from rival_client.model.policies.step_config import StepConfig

PoliciesMode = Literal["merge", "replace"]
#: A rule as a user writes it: a string matches the step with that name.
GivenRule = tuple[str | Matcher | Mapping[str, Any], Mapping[str, Any]]
#: Limits are shared by all runs, and have verbs of their own.
NOT_IN_RULES = frozenset({"concurrency_limit", "rate_limit"})
_NO_FUNCTION = (
    "a predicate is code: give it to the policies of the workflow, and use its name here, as tagged({name!r})"
)


@dataclass(frozen=True)
class RunPolicies:
    """The rules of one run."""

    rules: tuple[Rule, ...] = ()
    #: "replace": the options of the steps and the rules of the workflow do not apply, except their limits.
    mode: PoliciesMode = "merge"

    def dump(self) -> dict[str, Any]:
        return {"rules": [rule.dump() for rule in self.rules], "mode": self.mode}


def load_run_policies(data: Mapping[str, Any]) -> RunPolicies:
    return RunPolicies(tuple(load_rule(one) for one in data["rules"]), data.get("mode", "merge"))


def run_policies(argument: str, given: object, mode: PoliciesMode = "merge") -> RunPolicies:
    """InvalidArgument lists every problem."""
    problems: list[str] = []
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise InvalidArgument(argument, "give a list of (matcher, options), such as [('charge', {'timeout': 60})].")
    rules = [_rule(f"{argument}[{number}]", one, problems) for number, one in enumerate(given)]
    if problems:
        raise InvalidArgument(argument, "; ".join(problems) + ".")
    return RunPolicies(tuple(rules), mode)


def one_rule(match: object, options: Mapping[str, Any]) -> Rule:
    """A rule of the fleet. InvalidArgument lists every problem."""
    problems: list[str] = []
    found = _rule("the rule", (match, options), problems)
    if not options:
        problems.append("the rule: give at least one option, such as timeout=60")
    if problems:
        raise InvalidArgument("rule", "; ".join(problems) + ".")
    return found


def _rule(where: str, one: Any, problems: list[str]) -> Rule:
    if not (isinstance(one, Sequence) and len(one) == 2 and isinstance(one[1], Mapping)):
        problems.append(f"{where}: give (matcher, options), such as ('charge', {{'timeout': 60}})")
        return Rule(Matcher(), {})
    found: list[str] = []
    options = {key: value for key, value in one[1].items() if key != "hooks"}
    rule = Rule(_matcher(one[0], found), checked_options(options, RULE_OPTIONS, found))
    if "hooks" in one[1]:
        found.append("option hooks: a function is code: give it to the workflow, in a rule of its policies")
    found += [f"option {key!r} is part of the workflow, not of a rule" for key in rule.options if key in NOT_IN_RULES]
    found += not_inline(StepConfig(**rule.options)) + not_of_kinds(rule)
    if rule.options.get("execution_mode") == "external":
        found.append("option 'execution_mode': that a step is external is part of the workflow, not of a rule")
    if (rule.options.get("fallback") or {}).get("shape") == "function":
        found.append("option fallback: give value(…) or retry_with(…): a function is code")
    if (rule.options.get("idempotency_key") or {"template": ""})["template"] is None:
        found.append('option idempotency_key: give a text such as "charge:{input.order}": a function is code')
    problems += [f"{where}: {problem}" for problem in found]
    return rule


def _matcher(given: Any, problems: list[str]) -> Matcher:
    matcher = read_matcher(given, problems)
    if matcher is not None:
        return matcher
    name = getattr(given, "__name__", "external_api")
    problems.append(_NO_FUNCTION.format(name=name) if callable(given) else f"{shown(given)} is not a matcher")
    return Matcher()
