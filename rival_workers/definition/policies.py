"""Rules for many steps at once: `policies = [("charge", {"timeout": 5}), (named("send_.*"), {…}), (default, {…})]`.

In a list the first rule that matches wins. A step's own options come over it, field by field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rival_workers.definition.options import PolicyOptions
from rival_workers.definition.steps import overridden

#: Says of a step's name and kind ("step", "branch", …) whether a rule is for it.
Matcher = Callable[[str, str], bool]
Rule = tuple[Matcher, Mapping[str, Any]]
#: As a user writes it: a step's name stands for a matcher.
PolicyRule = tuple[str | Matcher, PolicyOptions]


def named(pattern: str) -> Matcher:
    """Steps whose whole name matches the regular expression. (Not `name`: that is a workflow file's own word.)"""
    found = re.compile(pattern)
    return lambda its_name, _: found.fullmatch(its_name) is not None


def of_kind(wanted: str) -> Matcher:
    """Nodes of one kind: "step", "branch", "for_each", "loop", "workflow", "wait_event"."""
    return lambda _, its_kind: its_kind == wanted


def default(its_name: str, its_kind: str) -> bool:
    """Every step."""
    return True


def read_rules(policies: Any) -> list[Rule]:
    """ValueError, saying which one and what it must be, when it is no list of rules."""
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
            f"policies[{number}]: {matcher!r} is no matcher: give a step's name, named(…), of_kind(…) or default"
        )
    return matcher, options


def ruled(rules: Sequence[Rule], its_name: str, its_kind: str, own: Mapping[str, Any]) -> Mapping[str, Any]:
    """The step's options over those of the first rule that is for it."""
    rule = next((options for matches, options in rules if matches(its_name, its_kind)), {})
    return overridden(rule, own)
