"""Which step comes first and what follows from each end: every combination, and any plan against a small reference."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rival_client.model.payload import Json
from rival_client.model.policies.step_config import StepConfig
from rival_workers.engine.decisions import End, Failure, Retry, decide
from rival_workers.engine.effects import Advance, EndRun, FailRun, OpenRow
from rival_workers.engine.interpreter import advance, first
from rival_workers.engine.nodes import StepNode
from rival_workers.engine.paths import HANDLER
from rival_workers.engine.plan import Plan
from rival_workers.engine.policies import Policies, PolicyDocument

OK = End("completed", Json("1"))
SKIPPED = End("skipped", Json("null"))
SOFT = End("failed", error={"message": "soft"})
HARD = End("failed", error={"message": "hard"}, hard=True)
ENDS = {"ok": OK, "skipped": SKIPPED, "soft": SOFT, "hard": HARD}


def plan_of(*names: str, handled: tuple[str, ...] = (), on_error: bool = False) -> Plan:
    return Plan(nodes=tuple(StepNode(name=n, on_error=n in handled) for n in names), on_error=on_error)


def follow(plan: Plan, path: str, end: End, *, failing: bool = False) -> tuple[str | None, str | None, bool]:
    """(the path that opens, how the run ends, whether it will fail)."""
    return read(advance(plan, path, end, "handler" if failing else "soft_handler"))


def read(found: Advance) -> tuple[str | None, str | None, bool]:
    opened = [effect.path for effect in found.effects if isinstance(effect, OpenRow)]
    ends = [effect.status for effect in found.effects if isinstance(effect, EndRun)]
    assert len(opened) + len(ends) == 1, "one step opens, or the run ends"
    return next(iter(opened), None), next(iter(ends), None), FailRun() in found.effects


@pytest.mark.parametrize("step_handler", [True, False])
@pytest.mark.parametrize("workflow_handler", [True, False])
@pytest.mark.parametrize("is_last", [True, False])
@pytest.mark.parametrize("end", ENDS)
def test_what_follows_from_each_end_with_each_combination_of_handlers(
    end: str, is_last: bool, workflow_handler: bool, step_handler: bool
) -> None:
    plan = plan_of("a", "b", handled=("a", "b") if step_handler else (), on_error=workflow_handler)
    path = "b" if is_last else "a"
    goes_on = (None, "completed", False) if is_last else ("b", None, False)
    if end == "hard":
        handler = path + HANDLER if step_handler else HANDLER if workflow_handler else None
        expected = (handler, None if handler else "failed", True)
    elif end == "soft" and step_handler:
        expected = (path + HANDLER, None, False)
    else:
        expected = goes_on
    assert follow(plan, path, ENDS[end]) == expected


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.parametrize("workflow_handler", [True, False])
def test_after_the_steps_handler_comes_the_workflows_and_then_the_failure_however_the_handlers_end(
    how: str, workflow_handler: bool
) -> None:
    plan = plan_of("a", "b", handled=("a",), on_error=workflow_handler)
    after_own = follow(plan, "a" + HANDLER, ENDS[how], failing=True)
    assert after_own == ((HANDLER, None, False) if workflow_handler else (None, "failed", False))
    assert follow(plan, HANDLER, ENDS[how], failing=True) == (None, "failed", False)


@pytest.mark.parametrize("how", ENDS)
def test_after_a_soft_failures_handler_the_plan_goes_on_however_the_handler_ends(how: str) -> None:
    plan = plan_of("a", "b", handled=("a", "b"), on_error=True)
    assert follow(plan, "a" + HANDLER, ENDS[how]) == ("b", None, False)
    assert follow(plan, "b" + HANDLER, ENDS[how]) == (None, "completed", False)


def test_the_first_step_opens_without_its_options_which_are_said_beside_it() -> None:
    plan = Plan(nodes=(StepNode(name="a"), StepNode(name="b")))
    policies = Policies("w", plan, PolicyDocument(own={"a": {"timeout": 7}}))
    opened = first(plan).with_options(policies.at)
    assert opened.effects == (OpenRow("a", "step"),)
    assert (opened.config_of("a"), opened.config_of("b")) == (StepConfig(timeout=7), StepConfig())


def test_a_handler_is_opened_as_a_handler_without_timeout_and_is_never_retried() -> None:
    plan = Plan(nodes=(StepNode(name="a", on_error=True),))
    policies = Policies("w", plan, PolicyDocument(own={"a": {"timeout": 7, "max_attempts": 5}}))
    opening = advance(plan, "a", HARD, "step").effects[-1]
    assert opening == OpenRow("a!on_error", "handler")
    assert policies.at("a!on_error").timeout is None
    asks_for_more = Failure({}, behavior="retry", max_attempts=9)
    assert isinstance(decide(policies.at("a!on_error"), 1, asks_for_more), End)
    assert isinstance(decide(policies.at("a"), 1, asks_for_more), Retry)


# -- any plan, against a reference that simply walks it ----------------------------------------------------


def reference(plan: Plan, outcomes: dict[str, End]) -> tuple[list[str], str]:
    """What the words of the design say, as a loop: the paths in order, and how the run ends."""
    visited: list[str] = []
    for node in plan.nodes:
        visited.append(node.name)
        end = outcomes[node.name]
        if end.status == "failed" and node.on_error:
            visited.append(node.name + HANDLER)
        if end.status == "failed" and end.hard:
            return visited + ([HANDLER] if plan.on_error else []), "failed"
    return visited, "completed"


def drive(plan: Plan, outcomes: dict[str, End]) -> tuple[list[str], list[str]]:
    """The same by `advance`: the paths in order, and every end of the run that it announced."""
    visited: list[str] = []
    ends: list[str] = []
    path, failing = read(first(plan))[0], False
    while path is not None:
        assert len(visited) <= 2 * len(plan.nodes) + 1, "it goes in circles"
        visited.append(path)
        opened, ended, fails = follow(plan, path, outcomes.get(path, OK), failing=failing)
        failing = failing or fails
        ends += [ended] if ended else []
        path = opened
    return visited, ends


@st.composite
def plans_with_outcomes(draw: st.DrawFn) -> tuple[Plan, dict[str, End]]:
    names = [f"s{n}" for n in range(draw(st.integers(1, 12)))]
    plan = Plan(
        nodes=tuple(StepNode(name=name, on_error=draw(st.booleans())) for name in names),
        on_error=draw(st.booleans()),
    )
    paths = [*names, *(name + HANDLER for name in names), HANDLER]
    rarely_hard = st.sampled_from([OK, OK, OK, SKIPPED, SOFT, SOFT, HARD])
    return plan, {path: draw(rarely_hard) for path in paths}


@given(plans_with_outcomes())
def test_any_plan_with_any_outcomes_goes_the_way_of_the_reference_and_ends_exactly_once(
    case: tuple[Plan, dict[str, End]],
) -> None:
    plan, outcomes = case
    visited, ends = drive(plan, outcomes)
    expected, end = reference(plan, outcomes)
    assert visited == expected
    assert ends == [end]
    assert len(set(visited)) == len(visited), "each path at most once: handlers once per terminal failure"


@given(plans_with_outcomes())
def test_steps_are_visited_in_the_plans_order_and_the_steps_handler_comes_before_the_workflows(
    case: tuple[Plan, dict[str, End]],
) -> None:
    plan, outcomes = case
    visited, _ = drive(plan, outcomes)
    steps = [path for path in visited if not path.endswith(HANDLER)]
    assert steps == [node.name for node in plan.nodes][: len(steps)]
    for path in visited:
        if path.endswith(HANDLER) and path != HANDLER:
            assert visited[visited.index(path) - 1] == path.removesuffix(HANDLER)
    if HANDLER in visited:
        assert visited[-1] == HANDLER
