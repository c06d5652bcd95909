"""Rules for many steps at once: `policies = [("charge", {"timeout": 5}), (named("send_.*"), {…}), (default, {…})]`.

In a list the first rule that matches applies. A step's own options override it, field by field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rival_workers.definition.options import PolicyOptions
from rival_workers.definition.steps import overridden

#: Whether a rule applies to a step with this name and kind ("step", "branch", …).
Matcher = Callable[[str, str], bool]
Rule = tuple[Matcher, Mapping[str, Any]]
#: A rule as a user writes it: a string matches the step with that name.
PolicyRule = tuple[str | Matcher, PolicyOptions]


def named(pattern: str) -> Matcher:
    """Steps whose whole name matches the regular expression. (Not `name`: workflow files have such a variable.)"""
    found = re.compile(pattern)
    return lambda its_name, _: found.fullmatch(its_name) is not None


def of_kind(wanted: str) -> Matcher:
    """Nodes of one kind: "step", "branch", "for_each", "loop", "workflow", "wait_event"."""
    return lambda _, its_kind: its_kind == wanted


def default(its_name: str, its_kind: str) -> bool:
    """Every step."""
    return True


def read_rules(policies: Any) -> list[Rule]:
    """ValueError, with the number of the rule and what to give, when it is not a list of rules."""
    if not isinstance(policies, Sequence) or isinstance(policies, str):
        raise ValueError("policies: give a list of (matcher, options)")
    return [_rule(number, one) for number, one in enumerate(policies)]


def _rule(number: int, one: Any) -> Rule:
    if not (isinstance(one, Sequence) and len(one) == 2 and isinstance(one[1], Mapping)):
        raise ValueError(f"policies[{number}]: give (matcher, options), such as ('charge', {{'timeout': 5}})")
    matcher, options = one
    if isinstance(matcher, str):
        return (lambda its_name, _: its_name == matcher), options
    if not callable(matcher):
        raise ValueError(
            f"policies[{number}]: {matcher!r} is not a matcher: give a step's name, named(…), of_kind(…) or default"
        )
    return matcher, options


def ruled(rules: Sequence[Rule], its_name: str, its_kind: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The step's options, and those of the first matching rule that they do not override."""
    rule = next((options for matches, options in rules if matches(its_name, its_kind)), {})
    return overridden(rule, own)
