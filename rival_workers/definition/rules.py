"""Rules for many steps at once: `policies = [("charge", {"timeout": 5}), (named("send_.*"), {…}), (default, {…})]`.

In a list the first rule that matches applies. A step's own options override it, field by field. A predicate is called
once for each node, when the workflow is defined; where it is true, its name becomes a tag of the node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rival_client.model.policies.matchers import Matcher, Node
from rival_client.model.policies.option_fields import can_have
from rival_client.model.policies.plan_rules import may_match_in_flows
from rival_client.model.policies.policy_rules import Rule
from rival_workers.definition.misplaced_options import not_in_flows, what_it_is
from rival_workers.definition.options import PolicyOptions

Predicate = Callable[[Node], bool]
#: A rule as a user writes it: a string matches the step with that name.
PolicyRule = tuple[str | Matcher | Mapping[str, Any] | Predicate, PolicyOptions]


@dataclass(frozen=True)
class RuleSet:
    """The rules of one workflow, and its predicates by the tags that stand for them."""

    rules: tuple[Rule, ...] = ()
    #: The options of each rule as they were written, with functions.
    given: tuple[Mapping[str, Any], ...] = ()
    predicates: Mapping[str, Predicate] = field(default_factory=dict)
    #: The hooks of each rule.
    hooks: tuple[Mapping[str, Any], ...] = ()

    def hooks_for(self, node: Node) -> Mapping[str, Any]:
        """The hooks of the rule for this node."""
        number = self._number_for(node)
        return {} if number is None else self.hooks[number]

    def tags(self, node: Node) -> tuple[str, ...]:
        """ValueError when a predicate raises."""
        return tuple(tag for tag, predicate in self.predicates.items() if _asked(tag, predicate, node))

    def _number_for(self, node: Node) -> int | None:
        return next((n for n, rule in enumerate(self.rules) if rule.match.matches(node)), None)

    def given_for(self, node: Node) -> Mapping[str, Any]:
        """The options of the rule for this node, as they were written."""
        number = self._number_for(node)
        return {} if number is None else self.given[number]

    def misplaced(self, node: Node) -> list[str]:
        """Options of the rule for this node that it cannot have."""
        number = self._number_for(node)
        if number is None:
            return []
        rule = self.rules[number]
        # The mode of an external step is its own.
        own = {"execution_mode"} if node.target == "external" else set()
        wrong = [key for key, value in rule.options.items() if key not in own and not can_have(node.target, key, value)]
        wrong_here = f"policies[{number}]: {what_it_is(node)} has no option"
        return [f"{wrong_here} {key!r}: choose other steps with a matcher" for key in wrong]

    def misplaced_in_flows(self, workflow: str, nodes: Sequence[Node]) -> Iterator[str]:
        """Problems of the rules that match none of the `nodes` of the plan, and so are for steps that flows call."""
        for number, rule in enumerate(self.rules):
            if not may_match_in_flows(rule.match, workflow) or any(map(rule.match.matches, nodes)):
                continue
            found = not_in_flows(rule.options)
            if self.hooks[number]:
                found.append("option hooks: give them to the flow, in a rule for of_kind('flow') or to the workflow")
            yield from (f"policies[{number}]: for steps of a flow: {problem}" for problem in found)


def _asked(tag: str, predicate: Predicate, node: Node) -> bool:
    try:
        return bool(predicate(node))
    except Exception as error:
        raise ValueError(f"predicate {tag!r} of policies raised {type(error).__name__}: {error}") from error
