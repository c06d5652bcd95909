"""Rules for many steps at once: the first that matches, under the step's own options."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rival_client.model.policies.matchers import Node, default, every, labelled, named, of_kind
from rival_client.model.policies.step_config import StepConfig
from rival_workers import DefinitionError, branch, create_workflow, limit, rate, register_workflow_file, step
from rival_workers.definition.define import define_workflow
from rival_workers.definition.registry import Registry
from tests.support.output import whole


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
        ("charge", "workflow 'w': policies: give a list of (matcher, options)"),
        ([("charge",)], "workflow 'w': policies[0]: give (matcher, options), such as ('charge', {'timeout': 5})"),
        (
            [(3, {})],
            (
                "workflow 'w': policies[0]: 3 is not a matcher: give a step's name, named(…), of_kind(…), "
                "at_path(…), tagged(…), in_workflow(…), a predicate or default"
            ),
        ),
        ([("", {"timeout": 1})], "workflow 'w': policies[0]: name: give a text, not ''"),
        (
            [("oen", {"timeout": 1})],
            "workflow 'w': policies[0]: workflow 'w' has no step 'oen' (did you mean 'one'?); it has one",
        ),
        (
            [(default, {"timeuot": 1})],
            (
                "workflow 'w': policies[0]: unknown option 'timeuot' (did you mean 'timeout'?); known are timeout, "
                "on_timeout, kill_on_timeout, max_retries, max_attempts, retry_on, no_retry_on, backoff, "
                "base_delay, max_delay, max_retry_after, heartbeat, execution_mode, deadline, delay, scheduled_at, "
                "queue_timeout, queue, priority, on_failure, fallback, retry_budget, concurrency_limit, rate_limit, "
                "circuit_breaker, idempotency_key, idempotency_ttl, idempotency_scope, metadata, log_level, "
                "telemetry_prefix"
            ),
        ),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(policies: Any, says: str) -> None:
    with pytest.raises(DefinitionError, match=whole(says)):
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
        "    'one',\n"
        "    ('oen', {'timeout': 1}),\n"
        "]\n"
    )
    with pytest.raises(DefinitionError) as refused:
        register_workflow_file(file, Registry())
    found = [problem.partition(": ")[0].rpartition(":")[2] for problem in refused.value.problems]
    assert sorted(found) == ["4", "5", "6", "6", "7", "8"]


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
        DefinitionError,
        match=whole(
            "workflow 'w': policies[0]: labelled(…) never matches in the policies of a workflow: give the rule "
            "to a run, run(…, policies=[…]), or to the fleet, `rival policy set`"
        ),
    ):
        define_workflow("w", [step(lambda: 1, name="a")], policies=[(match, {"timeout": 5})])


def test_every_takes_matchers_and_names_and_at_least_one() -> None:
    match = every("one", {"kind": "step"})
    assert [match.matches(Node(name, "step", name)) for name in ("one", "two")] == [True, False]
    with pytest.raises(ValueError, match=whole("every: give matchers or names of steps")):
        every()
    with pytest.raises(ValueError, match=whole("every: give matchers or names of steps")):
        every("one", 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=whole("name: give a text, not ''")):
        every("one", "")


LIMITS = {
    "two numbers": (
        [step(one, concurrency_limit=limit("z", 5)), step(two, concurrency_limit=limit("z", 6))],
        ["limit 'z' is limit(5) for step 'one' and limit(6) for step 'two': a name has one limit"],
    ),
    "a limit and a rate": (
        [step(one, concurrency_limit=limit("z", 5), rate_limit=rate("z", 5, per=60, burst=1))],
        ["limit 'z' is limit(5) for step 'one' and rate(5, per=60, burst=1) for step 'one': a name has one limit"],
    ),
    "the same": ([step(one, concurrency_limit=limit("z", 5)), step(two, concurrency_limit=limit("z", 5))], []),
}


@pytest.mark.parametrize("what", LIMITS)
def test_a_name_of_a_limit_has_one_limit_in_a_workflow(what: str) -> None:
    steps, says = LIMITS[what]
    problems: list[str] = []
    try:
        define_workflow("w", steps)
    except DefinitionError as refused:
        problems = refused.problems
    assert [problem.partition("workflow 'w': ")[2].partition(";")[0] for problem in problems] == says


def test_limits_of_runs_and_of_steps_do_not_contradict_each_other() -> None:
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': limit 'z' is limit(3) for its runs and limit(5) for step 'one': a name has one "
            "limit; give the other another name\nworkflow 'w': limit 'z' is one of its runs and of step 'one': "
            "a run would wait for a slot that the run itself uses; give one of them another name"
        ),
    ):
        define_workflow("w", [step(one, concurrency_limit=limit("z", 5))], concurrency_limit=limit("z", 3))


def test_a_run_does_not_wait_for_the_slot_that_it_has_itself() -> None:
    both = limit("z", 5)
    text = (
        "workflow 'w': limit 'z' is one of its runs and of step 'one': a run would wait for a slot that the "
        "run itself uses; give one of them another name"
    )
    with pytest.raises(DefinitionError, match=whole(text)):
        define_workflow("w", [step(one, concurrency_limit=both)], concurrency_limit=both)
    keyed = limit("z", 5, key="input.tenant")
    define_workflow("w", [step(one, concurrency_limit=both)], concurrency_limit=keyed)
    paced = rate("p", 5, per=1)
    define_workflow("w", [step(one, rate_limit=paced)], rate_limit=paced)


def test_a_name_of_a_limit_has_one_limit_in_all_workflows_of_a_process() -> None:
    registry = Registry()
    registry.add(define_workflow("first", [step(one, concurrency_limit=limit("z", 5))]))
    registry.add(define_workflow("same", [step(one, concurrency_limit=limit("z", 5, key="input.a"))]))
    with pytest.raises(DefinitionError) as refused:
        registry.add(define_workflow("other", [one], rate_limit=rate("z", 5, per=1)))
    assert [problem.partition(":")[0] for problem in refused.value.problems] == [
        f"limit 'z' is limit(5) for workflow {known!r} and rate(5, per=1) for workflow 'other'"
        for known in ("first", "same")
    ]
    assert "other" not in registry
    registry.renew(define_workflow("first", [step(one, concurrency_limit=limit("z", 6))]))


@pytest.mark.parametrize("at", [5, 1.5, True])
def test_a_number_is_not_a_time(at: Any) -> None:
    with pytest.raises(
        DefinitionError,
        match=whole(
            "workflow 'w': steps[0]: option scheduled_at: … is not a time: give datetime.now(UTC) + "
            "timedelta(hours=1) (…)"
        ),
    ):
        define_workflow("w", [step(one, scheduled_at=at)])


@pytest.mark.parametrize(
    ("most", "problem"),
    [
        (0, "a limit of 0 lets nothing start: give 1 or more"),
        (-1, "a limit of -1 lets nothing start: give 1 or more"),
        (10**12, "a limit of 1,000,000,000,000 is too large: give at most 1,000,000, or none"),
    ],
)
def test_a_limit_out_of_range_is_refused(most: int, problem: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        define_workflow("w", [step(one, concurrency_limit=most)])
    [said] = refused.value.problems
    assert said.startswith(f"workflow 'w': steps[0]: option concurrency_limit: {problem} (")
