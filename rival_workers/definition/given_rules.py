"""Reads the rules that a definition gives, and reports what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rival_client.model.policies.matchers import Matcher, read_matcher
from rival_client.model.policies.policy_options import RULE_OPTIONS, checked_options
from rival_client.model.policies.policy_rules import Rule
from rival_workers.definition.hooks import OF_ATTEMPTS, read_hooks
from rival_workers.definition.rules import Predicate, RuleSet

_ADVICE = "give a step's name, named(…), of_kind(…), at_path(…), tagged(…), in_workflow(…), a predicate or default"

#: The options of a workflow are those of all its runs, and labels are given to one.
_NO_LABELS = (
    "labelled(…) never matches in the policies of a workflow: give the rule to a run, run(…, policies=[…]), or to the "
    "fleet, `rival policy set`"
)


def read_rules(policies: Any, problems: list[str]) -> RuleSet:
    """Appends every problem, with the number of the rule and what to give."""
    if not isinstance(policies, Sequence) or isinstance(policies, str):
        problems.append("policies: give a list of (matcher, options)")
        return RuleSet()
    predicates: dict[str, Predicate] = {}
    rules = tuple(_read(number, one, predicates, problems) for number, one in enumerate(policies))
    given = tuple(one[1] if _is_pair(one) else {} for one in policies)
    hooks = tuple(_hooks(number, options, problems) for number, options in enumerate(given))
    return RuleSet(rules, given, predicates, hooks)


def _is_pair(one: Any) -> bool:
    return isinstance(one, Sequence) and len(one) == 2 and isinstance(one[1], Mapping)


def _hooks(number: int, given: Mapping[str, Any], problems: list[str]) -> Mapping[str, Any]:
    found: list[str] = []
    hooks = read_hooks(given.get("hooks"), found, OF_ATTEMPTS)
    problems += [f"policies[{number}]: {problem}" for problem in found]
    return hooks


def _read(number: int, one: Any, predicates: dict[str, Predicate], problems: list[str]) -> Rule:
    if not _is_pair(one):
        problems.append(f"policies[{number}]: give (matcher, options), such as ('charge', {{'timeout': 5}})")
        return Rule(Matcher(), {})
    found: list[str] = []
    options = {key: value for key, value in one[1].items() if key != "hooks"}
    rule = Rule(_matcher(one[0], number, predicates, found), checked_options(options, RULE_OPTIONS, found))
    problems += [f"policies[{number}]: {problem}" for problem in found]
    return rule


def _matcher(given: Any, number: int, predicates: dict[str, Predicate], problems: list[str]) -> Matcher:
    matcher = read_matcher(given, problems)
    if matcher is not None:
        if matcher.asks_for_labels:
            problems.append(_NO_LABELS)
        return matcher
    if not callable(given):
        problems.append(f"{given!r} is not a matcher: {_ADVICE}")
        return Matcher()
    name = getattr(given, "__name__", "<lambda>")
    tag = f"rule {number}" if name == "<lambda>" else name
    predicates[tag] = given
    return Matcher(tag=tag)
