"""Rules for many steps at once: the first that matches, under the step's own options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rival_client.model.policies.matchers import Node, default, every, labelled, named, of_kind
from rival_client.model.policies.step_config import StepConfig
from rival_workers import DefinitionError, branch, create_workflow, register_workflow_file, step
from rival_workers.definition.define import define_workflow
from rival_workers.definition.registry import Registry


def one() -> None: ...


def two() -> bool:
    return True


def is_two(node: Node) -> bool:
    return node.name == "two"


def configs(*steps: Any, policies: Any) -> dict[str, Any]:
    defined = define_workflow("w", steps, policies=policies).policies
    return {path: defined.of_node(place).config for path, place in defined.plan.places.items()}


def test_the_first_rule_that_matches_wins_and_the_others_are_not_for_it() -> None:
    found = configs(one, two, policies=[("one", {"timeout": 1}), (default, {"timeout": 2, "max_attempts": 3})])
    assert (found["one"].timeout, found["one"].max_attempts) == (1, None)
    assert (found["two"].timeout, found["two"].max_attempts) == (2, 3)


def test_a_steps_own_options_come_over_a_rule_field_by_field() -> None:
    found = configs(step(one, timeout=9), policies=[(default, {"timeout": 2, "max_attempts": 3})])
    assert (found["one"].timeout, found["one"].max_attempts) == (9, 3)


def test_attempts_and_retries_are_one_field() -> None:
    found = configs(step(one, max_attempts=2), policies=[(default, {"max_retries": 8})])["one"]
    assert (found.max_attempts, found.max_retries) == (2, None)


@pytest.mark.parametrize(
    ("matcher", "expected"),
    [
        (named("o.*"), {"one"}),
        (of_kind("step"), {"one", "two"}),
        (of_kind("branch"), {"yes?"}),
        (lambda node: node.name == "two", {"two"}),
        (is_two, {"two"}),
        ("yes?", {"yes?"}),
        (named("n"), set()),
    ],
)
def test_a_matcher_chooses_by_name_kind_or_predicate_also_within_composites(matcher: Any, expected: set[str]) -> None:
    found = configs(branch("yes?", when=two, then=[one, two]), policies=[(matcher, {"timeout": 7})])
    assert {path.rpartition("/")[2] for path, config in found.items() if config.timeout == 7} == expected


@pytest.mark.parametrize(
    ("policies", "says"),
    [
        ("charge", "give a list"),
        ([("charge",)], r"policies\[0\]: give \(matcher, options\)"),
        ([(3, {})], "is not a matcher"),
        ([(default, {"timeuot": 1})], "unknown option 'timeuot'"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(policies: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=says):
        define_workflow("w", [one], policies=policies)


def test_every_problem_of_a_file_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "w.py"
    file.write_text(
        "def one(): return 1\n"
        "steps = [one]\n"
        "policies = [\n"
        "    ('one', {'timeuot': 1}),\n"
        "    (7, {'timeout': 1}),\n"
        "    ('one', {'timeout': -1, 'max_retries': 1, 'max_attempts': 2}),\n"
        "]\n"
    )
    with pytest.raises(DefinitionError) as refused:
        register_workflow_file(file, Registry())
    found = [problem.partition(": ")[0].rpartition(":")[2] for problem in refused.value.problems]
    assert found == ["4", "5", "6", "6"]


def test_files_and_the_builder_have_policies(tmp_path: Path) -> None:
    file = tmp_path / "w.py"
    file.write_text('def one(): ...\npolicies = [("one", {"timeout": 4})]\nsteps = [one]\n')
    assert register_workflow_file(file, Registry()).policies.at("one").timeout == 4
    built = create_workflow("b").step(one).policies(("one", {"timeout": 4})).build()
    assert built.policies.at("one").timeout == 4


def test_a_copy_of_options_with_another_queue_does_not_open_plainly() -> None:
    plain = StepConfig()
    assert plain.opens_plainly
    assert not plain.routed_as(StepConfig(queue="gpu")).opens_plainly


@pytest.mark.parametrize("match", [labelled(tenant="acme"), every(named("a"), labelled(tenant="acme"))], ids=str)
def test_a_rule_of_a_workflow_cannot_ask_for_labels(match: Any) -> None:
    with pytest.raises(
        DefinitionError, match=r"policies\[0\]: labelled\(…\) never matches in the policies of a workflow"
    ):
        define_workflow("w", [step(lambda: 1, name="a")], policies=[(match, {"timeout": 5})])
