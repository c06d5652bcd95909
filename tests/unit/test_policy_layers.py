"""The resolver: layers over one another field by field, the first rule of each list, for any rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rival_client.model.policies.matchers import Matcher, Node, default
from rival_client.model.policies.option_fields import fields_of
from rival_client.model.policies.policy_rules import ATTEMPTS, DEFAULTS, Layer, LayerName, Rule, overridden, resolve
from rival_client.model.policies.presets import PolicyRules, fast_fail, io_policy, llm_policy, merge_policies
from rival_client.model.policies.rulebook import NO_RULES
from rival_client.model.policies.run_policies import RunPolicies, load_run_policies
from rival_client.model.policies.step_config import TARGETS, StepConfig, Target
from rival_workers import StepError
from rival_workers.engine.nodes import StepNode
from rival_workers.engine.plan import Plan
from rival_workers.engine.policies import Policies
from rival_workers.engine.policy_document import PolicyDocument
from rival_workers.engine.retries import configured_max, why_not_retried
from rival_workers.runtime.attempt.invoke import failure
from tests.support.output import whole

NAMES = ["charge", "ship", "send_mail"]
ORDER: list[LayerName] = ["fleet", "run", "step", "workflow"]

values: dict[str, st.SearchStrategy[Any]] = {
    "timeout": st.none() | st.floats(0.5, 100),
    "heartbeat": st.floats(0.5, 100),
    "max_retries": st.integers(0, 9),
    "max_attempts": st.integers(1, 9),
    "base_delay": st.floats(0, 9),
    "deadline": st.floats(1, 99),
    "queue": st.sampled_from(["gpu", "cpu"]),
}
options = st.fixed_dictionaries({}, optional=values).filter(lambda one: not one.keys() >= ATTEMPTS)
matchers = st.sampled_from(
    [default, *(Matcher(name=name) for name in NAMES), Matcher(regex="s.*"), Matcher(tag="slow")]
)
rules = st.builds(Rule, matchers, options)
nodes = st.builds(
    lambda name, tags, target: Node(name, "step", name, tags=tags, target=target),
    st.sampled_from(NAMES),
    st.sampled_from([(), ("slow",)]),
    st.sampled_from(TARGETS),
)
layers = st.tuples(*(st.builds(Layer, st.just(name), st.lists(rules, max_size=3).map(tuple)) for name in ORDER))


def naive(node: Node, given_layers: tuple[Layer, ...]) -> dict[str, tuple[Any, str]]:
    """Field by field, from the bottom up: what the documentation says, without the code of the resolver."""
    found: dict[str, tuple[Any, str]] = {}
    for layer in reversed(given_layers):
        matching = [one for one in layer.rules if layer.name == "step" or one.match.matches(node)]
        for key, value in (matching[0].options if matching else {}).items():
            if key in fields_of(node.target):
                if key in ATTEMPTS:
                    found = {name: one for name, one in found.items() if name not in ATTEMPTS}
                found[key] = (value, layer.name)
    return found


@given(nodes, layers)
def test_each_field_comes_from_the_highest_layer_whose_first_matching_rule_has_it(
    node: Node, given_layers: tuple[Layer, ...]
) -> None:
    resolved, expected = resolve(node, given_layers), naive(node, given_layers)
    assert {name: (getattr(resolved.config, name), why.layer) for name, why in resolved.because.items()} == expected
    unset = [name for name in StepConfig.model_fields if name not in expected]
    assert all(getattr(resolved.config, name) == getattr(DEFAULTS, name) for name in unset)


@given(nodes, layers, rules)
def test_a_rule_behind_one_that_matches_changes_nothing(
    node: Node, given_layers: tuple[Layer, ...], more: Rule
) -> None:
    longer = tuple(
        Layer(one.name, (*one.rules, more)) if one.first_match(node) is not None else one for one in given_layers
    )
    assert resolve(node, longer) == resolve(node, given_layers)


@given(nodes, layers)
def test_a_value_is_explained_by_the_rule_that_has_it(node: Node, given_layers: tuple[Layer, ...]) -> None:
    by_name = {layer.name: layer for layer in given_layers}
    resolved = resolve(node, given_layers)
    for name, why in resolved.because.items():
        rule = by_name[why.layer].rules[(why.rule or 1) - 1]
        assert rule.options[name] == getattr(resolved.config, name)


@given(st.lists(rules, max_size=3), st.lists(rules, max_size=3), options, st.sampled_from(NAMES))
def test_replace_is_as_if_the_step_and_the_workflow_said_nothing(
    of_run: list[Rule], of_workflow: list[Rule], own: dict[str, Any], name: str
) -> None:
    plan = Plan(nodes=tuple(StepNode(name=one) for one in NAMES))
    full = Policies("w", plan, PolicyDocument({name: own}, {"": of_workflow}))
    bare = Policies("w", plan)
    replacing, merging = (RunPolicies(tuple(of_run), mode).dump() for mode in ("replace", "merge"))
    assert full.over(replacing, NO_RULES, None).at(name) == bare.over(merging, NO_RULES, None).at(name)


@given(st.lists(rules, max_size=4), st.sampled_from(["merge", "replace"]))
def test_rules_survive_being_stored(of_run: list[Rule], mode: Any) -> None:
    assert load_run_policies(RunPolicies(tuple(of_run), mode).dump()) == RunPolicies(tuple(of_run), mode)


@given(options, options, options)
def test_merging_has_no_order_of_its_own(low: Any, middle: Any, high: Any) -> None:
    """Two merges in a row are one over the other, whichever comes first; and a policy over itself is itself."""
    assert merge_policies(merge_policies(low, middle), high) == merge_policies(low, merge_policies(middle, high))
    assert merge_policies(low, low) == low
    assert overridden(low, {}) == low


def test_only_fields_of_policies_are_merged() -> None:
    with pytest.raises(
        TypeError, match=whole("merge_policies: over is 5: give the fields of a policy, such as {'timeout': 60}")
    ):
        merge_policies({"timeout": 5}, 5)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.sampled_from(NAMES), options), max_size=4))
def test_a_rule_that_is_added_counts_first_and_one_that_is_appended_last(listed: list[Any]) -> None:
    kept = PolicyRules(listed)
    first, last = ("charge", {"timeout": 1}), ("ship", {"timeout": 2})
    assert kept.add(*first).append(*last) == (first, *listed, last)
    assert kept == tuple(listed), "the methods return new lists"
    assert kept.merge([first]) == ((first, *listed) if first not in listed else tuple(listed))


# -- presets ----------------------------------------------------------------------------------------------


class BadRequestError(Exception): ...


BUSY = StepError("busy", behavior="retry", code="http.503", retry_after=7)


@pytest.mark.parametrize(
    ("preset", "attempts", "timeout", "retried", "refused"),
    [
        (
            llm_policy,
            5,
            60,
            [ConnectionError(), TimeoutError(), RuntimeError(), BUSY],
            [BadRequestError(), ValueError()],
        ),
        (io_policy, 4, 30, [ConnectionError(), TimeoutError(), BUSY], [ValueError(), KeyError()]),
        (fast_fail, 1, 5, [], [ConnectionError(), TimeoutError(), ValueError()]),
    ],
    ids=["llm_policy", "io_policy", "fast_fail"],
)
def test_a_preset_as_a_whole(preset: Any, attempts: int, timeout: float, retried: Any, refused: Any) -> None:
    config = StepConfig(**preset())
    assert (configured_max(config), config.timeout) == (attempts, timeout)
    assert [why_not_retried(config, 1, failure(error, 1)) for error in retried] == [None] * len(retried)
    assert None not in [why_not_retried(config, 1, failure(error, 1)) for error in refused]
    assert why_not_retried(config, attempts, failure(ConnectionError(), attempts)) is not None
    changed = StepConfig(**preset(timeout=1, max_attempts=2))
    assert (changed.timeout, changed.max_retries, changed.max_attempts) == (1, None, 2)


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_can_have_the_presets(target: Target) -> None:
    for preset in (llm_policy, io_policy, fast_fail):
        assert preset().keys() <= fields_of(target)
