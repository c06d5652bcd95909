"""Rules of runs and of the fleet, on every store: what they change, what is recorded of it, and how it is explained."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from rival_client.errors import InvalidArgument, NotPossible
from rival_client.model.policies.matchers import default, labelled, named, of_kind, tagged
from rival_client.model.rebuild import rebuild
from rival_workers import flow, for_each, step, workflow
from rival_workers.definition.define import define_workflow
from tests.support.inline import Inline


def work() -> str:
    return "done"


def boom() -> None:
    raise ValueError("boom")


def started(inline: Inline, *steps: Any, workflow_policies: Any = (), **options: Any) -> None:
    inline.define("w", *steps, policies=workflow_policies)
    inline.rival.run("w", {}, "r", **options)
    inline.drain()


def timeouts(inline: Inline, run_id: str = "r") -> dict[str, float | None]:
    """What each step's last attempt had, by what is recorded."""
    explained = {one.path: inline.rival.explain_policy(run_id, one.path) for one in inline.rival.state(run_id).steps}
    return {path: one.config.timeout for path, one in explained.items()}


# -- rules of a run ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([("a", {"timeout": 60})], {"a": 60, "b": 7}),
        ([(default, {"timeout": 60})], {"a": 60, "b": 60}),
        ([(named("[b]"), {"timeout": 60})], {"a": 5, "b": 60}),
        ([(of_kind("branch"), {"timeout": 60})], {"a": 5, "b": 7}),
        ([({"path": "a"}, {"timeout": 60}), (default, {"timeout": 61})], {"a": 60, "b": 61}),
        ([(tagged("slow"), {"timeout": 60})], {"a": 5, "b": 60}),
        ([({"workflow": "w", "name": "b"}, {"timeout": 60})], {"a": 5, "b": 60}),
        ([({"workflow": "other"}, {"timeout": 60})], {"a": 5, "b": 7}),
    ],
)
def test_rules_of_a_run_come_over_the_options_of_its_steps(inline: Inline, rules: Any, expected: Any) -> None:
    steps = [step(work, name="a", timeout=5), step(work, name="b", tags="slow")]
    started(inline, *steps, workflow_policies=[(default, {"timeout": 7})], policies=rules)
    assert inline.rival.state("r").status == "completed"
    assert timeouts(inline) == expected


def test_replace_drops_the_options_of_the_steps_and_of_the_workflow(inline: Inline) -> None:
    steps = [step(boom, name="a", max_retries=5, backoff="none")]
    started(inline, *steps, policies=[(default, {"timeout": 60})], policies_mode="replace")
    state = inline.rival.state("r")
    assert (state.status, state.steps[0].attempts) == ("failed", 1)
    config = inline.rival.explain_policy("r", "a").config
    assert (config.timeout, config.max_retries, config.backoff) == (60, None, None)


def test_the_rules_of_a_run_decide_about_its_retries(inline: Inline) -> None:
    started(inline, step(boom, name="a"), policies=[("a", {"max_retries": 2, "backoff": "none"})])
    state = inline.rival.state("r")
    assert state.steps[0].attempts == 3
    assert state.policies == {
        "rules": [{"match": {"name": "a"}, "options": {"max_retries": 2, "backoff": "none"}}],
        "mode": "merge",
    }
    assert all(one.policy is not None for one in state.attempts)


def test_a_timeout_by_a_rule_of_the_run_is_on_the_row(inline: Inline) -> None:
    seen: list[Any] = []

    def look() -> None:
        [row] = [one for one in inline.rival.state("r").steps if one.status == "running"]
        seen.append((row.timeout_at, row.started_at))

    started(inline, step(look, name="a"), step(look, name="b"), policies=[(default, {"timeout": 600})])
    assert [round((at - since).total_seconds()) for at, since in seen] == [600, 600]


@pytest.mark.parametrize("by", ["run", "fleet"])
def test_rules_decide_where_and_when_the_first_step_of_a_run_starts(inline: Inline, by: str) -> None:
    """The rules of a run, and rules of the fleet for its labels, are known before its first step opens."""
    inline.define("w", step(work, name="a", delay=1), step(work, name="b"))
    options = {"delay": 60, "queue": "gpu", "priority": "low"}
    if by == "fleet":
        inline.rival.set_policy(labelled(tenant="acme"), options)
        inline.keeper.run_once()
    inline.rival.run("w", {}, "r", labels={"tenant": "acme"}, policies=[("a", options)] if by == "run" else None)
    inline.rival.run("w", {}, "other", labels={"tenant": "x"})
    inline.drain()
    [row] = inline.rival.state("r").steps
    assert (row.status, row.queue, row.priority) == ("waiting", "gpu", "low")
    inline.time_passes(59)
    inline.keeper.run_once()
    inline.drain()
    assert inline.rival.state("r").steps[0].status == "waiting"
    assert inline.rival.state("other").steps[0].status == "completed"


def test_the_history_has_the_rules_of_the_run(inline: Inline) -> None:
    for function, run_id in ((work, "fast"), (work, "limited")):
        limits = {} if run_id == "fast" else {"concurrency_limit": 5}
        inline.define(run_id, step(function, name="a", **limits))
        inline.rival.run(run_id, {}, run_id, policies=[("a", {"timeout": 9})])
    inline.drain()
    for run_id in ("fast", "limited"):
        rebuilt = rebuild(inline.rival.history(run_id))
        assert rebuilt.policies == inline.rival.state(run_id).policies != None  # noqa: E711


def test_runs_without_rules_record_nothing(inline: Inline) -> None:
    started(inline, step(work, name="a", timeout=5))
    assert [one.policy for one in inline.rival.state("r").steps] == [None]


def test_many_runs_and_schedules_have_rules_too(inline: Inline) -> None:
    inline.define("w", step(work, name="a"))
    rules = [("a", {"timeout": 60})]
    for one in inline.rival.run_many("w", [{}, {}], policies=rules):
        inline.drain()
        assert timeouts(inline, one.run_id) == {"a": 60}
    inline.rival.schedule("w", 3600, name="s", policies=rules, policies_mode="merge")
    [kept] = inline.rival.schedules()
    assert kept.options == {"policies": [[{"name": "a"}, {"timeout": 60.0}]], "policies_mode": "merge"}


def test_children_are_given_rules_of_their_own(inline: Inline) -> None:
    inline.define("child", step(work, name="a"))

    @flow("f", register=False)
    def body(ctx: Any) -> Any:
        ctx.call("child", {}, policies=[("a", {"timeout": 60})])
        return ctx.spawn("child", {}, policies=[("a", {"timeout": 61})]).run_id

    inline.define("w", body)
    inline.rival.run("w", {}, "r")
    inline.drain()
    children = [one.run_id for one in inline.rival.runs(workflow="child")]
    assert sorted(timeouts(inline, one)["a"] or 0 for one in children) == [60, 61]


def test_steps_of_flows_and_of_nested_workflows_and_items_follow_rules(inline: Inline) -> None:
    calls: list[int] = []

    def flaky() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError("not yet")
        return len(calls)

    @flow("f", register=False)
    def body(ctx: Any) -> Any:
        return ctx.step(flaky)

    inner = define_workflow("inner", [step(work, name="a")])
    items = for_each("each", items=lambda: [1, 2], do=[step(work, name="i")])
    rules = [
        ("flaky", {"max_retries": 3, "backoff": "none"}),
        ({"path": "inner/*"}, {"timeout": 60}),
        ("i", {"timeout": 61}),
    ]
    started(inline, body, workflow(inner), items, policies=rules)
    assert inline.rival.state("r").status == "completed"
    found = timeouts(inline)
    assert (found["inner/a"], found["each[0]/i"], found["each[1]/i"]) == (60, 61, 61)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("charge", "give a list"),
        ([("a",)], r"policies\[0\]: give \(matcher, options\)"),
        (
            [("a", {"timeuot": 1}), ("b", {"timeout": -1})],
            r"policies\[0\]: unknown option 'timeuot'.*policies\[1\]: option timeout",
        ),
        ([(work, {"timeout": 1})], r"use its name here, as tagged\('work'\)"),
        ([("a", {"execution_mode": "external"})], "that a step is external is part of the workflow"),
        ([("a", {"execution_mode": "inline", "delay": 5})], 'execution_mode="inline".* cannot have delay'),
        ([("a", {"fallback": work})], "a function is code"),
        ([({"nmae": "a"}, {})], "unknown condition 'nmae'"),
    ],
)
def test_every_problem_of_a_runs_rules_is_named(inline: Inline, given: Any, says: str) -> None:
    inline.define("w", step(work, name="a"))
    with pytest.raises(InvalidArgument, match=says):
        inline.rival.run("w", {}, policies=given)
    with pytest.raises(InvalidArgument, match="policies_mode"):
        inline.rival.run("w", {}, policies_mode="replace")


# -- rules of the fleet -----------------------------------------------------------------------------------


def test_a_rule_of_the_fleet_applies_after_the_keepers_next_round_and_not_without(inline: Inline) -> None:
    inline.define("w", step(work, name="a", timeout=5))
    rule = inline.rival.set_policy("a", {"timeout": 60}, reason="slow bank", by="ana")
    inline.rival.run("w", {}, "before")
    inline.drain()
    inline.keeper.run_once()
    inline.rival.run("w", {}, "after")
    inline.drain()
    assert (timeouts(inline, "before"), timeouts(inline, "after")) == ({"a": 5}, {"a": 60})
    [field] = [one for one in inline.rival.explain_policy("after", "a").fields if one.name == "timeout"]
    assert (field.layer, field.rule) == ("fleet", rule.id)
    assert field.because.startswith(f"fleet rule {rule.id}, slow bank, by ana")
    assert inline.rival.remove_policy(rule.id)
    assert not inline.rival.remove_policy(rule.id)
    inline.keeper.run_once()
    inline.rival.run("w", {}, "removed")
    inline.drain()
    assert timeouts(inline, "removed") == {"a": 5}


def test_a_rule_that_is_set_while_an_attempt_runs_does_not_change_that_attempt(inline: Inline) -> None:
    def set_a_rule() -> None:
        inline.rival.set_policy(default, {"timeout": 60, "max_retries": 5, "backoff": "none"})
        inline.keeper.run_once()
        raise ValueError("boom")

    inline.define("w", step(set_a_rule, name="a"))
    inline.rival.run("w", {}, "r")
    inline.drain()
    state = inline.rival.state("r")
    assert (state.status, state.steps[0].attempts) == ("failed", 1)


def test_fleet_rules_come_over_the_rules_of_a_run_field_by_field(inline: Inline) -> None:
    inline.define("w", step(work, name="a", heartbeat=9))
    inline.rival.set_policy("a", {"timeout": 60})
    inline.keeper.run_once()
    inline.rival.run("w", {}, "r", policies=[("a", {"timeout": 30, "max_attempts": 4})])
    inline.drain()
    found = {one.name: (one.value, one.layer) for one in inline.rival.explain_policy("r", "a").fields}
    assert found["timeout"] == (60, "fleet")
    assert found["max_attempts"] == (4, "run")
    assert found["heartbeat"] == (9, "step")
    assert found["max_delay"] == (30, "default")


def test_a_rule_for_labels_and_a_workflow_is_only_for_those(inline: Inline) -> None:
    inline.define("w", step(work, name="a"))
    inline.define("v", step(work, name="a"))
    inline.rival.set_policy(labelled(tenant="acme"), {"timeout": 60}, workflow="w")
    inline.keeper.run_once()
    for run_id, name, labels in (
        ("1", "w", {"tenant": "acme"}),
        ("2", "w", {"tenant": "x"}),
        ("3", "v", {"tenant": "acme"}),
    ):
        inline.rival.run(name, {}, run_id, labels=labels)
    inline.rival.run("w", {}, "4")
    inline.drain()
    assert [timeouts(inline, run_id)["a"] for run_id in "1234"] == [60, None, None, None]


@pytest.mark.parametrize("until", [0, dt.datetime(2020, 1, 1, tzinfo=dt.UTC)])
def test_a_rule_that_has_expired_when_it_is_set_is_refused(inline: Inline, until: Any) -> None:
    with pytest.raises(InvalidArgument, match="has passed: give a later time, or seconds from now"):
        inline.rival.set_policy("a", {"timeout": 60}, until=until)
    assert inline.rival.policies() == []


def test_a_rule_expires_without_another_change(inline: Inline) -> None:
    inline.define("w", step(work, name="a"))
    rule = inline.rival.set_policy("a", {"timeout": 60}, until=0.3)
    assert rule.expires_at is not None
    inline.keeper.run_once()
    assert inline.process.rules.current().rules
    expired = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=20)
    while inline.process.rules.current().rules and dt.datetime.now(dt.UTC) < expired:
        if inline.clock is not None:
            inline.clock.advance(1)
        inline.keeper.run_once()
    assert not inline.process.rules.current().rules
    assert inline.rival.policies() == []


def test_rules_are_listed_newest_first_and_each_change_is_a_version(inline: Inline) -> None:
    versions = []
    for seconds in (1, 2):
        inline.rival.set_policy("a", {"timeout": seconds})
        inline.keeper.run_once()
        versions.append(inline.process.rules.current().version)
    assert [one.rule.options["timeout"] for one in inline.rival.policies()] == [2, 1]
    assert versions[0] < versions[1]
    with pytest.raises(InvalidArgument, match="give at least one option"):
        inline.rival.set_policy("a", {})


# -- explaining -------------------------------------------------------------------------------------------


def test_each_attempt_is_explained_with_the_rules_that_it_had(inline: Inline) -> None:
    inline.define("w", step(boom, name="a", max_retries=1, backoff="none", timeout=5))
    inline.rival.set_policy("a", {"timeout": 60})
    inline.keeper.run_once()
    inline.rival.run("w", {}, "r")
    [message] = inline.doorbell.take()
    inline.deliver(message)
    inline.rival.set_policy("a", {"timeout": 70})
    inline.keeper.run_once()
    inline.drain()
    first, last = (inline.rival.explain_policy("r", "a", attempt=number).config.timeout for number in (1, 2))
    assert (first, last) == (60, 70)
    inline.rival.set_policy("a", {"timeout": 80})
    assert inline.rival.explain_policy("r", "a", preview=True).config.timeout == 80
    assert inline.rival.explain_policy("r", "a").config.timeout == 70
    with pytest.raises(NotPossible, match="has made 2 attempts, not 3: leave the attempt out for the last one"):
        inline.rival.explain_policy("r", "a", attempt=3)
    with pytest.raises(NotPossible, match="has no step 'nix'"):
        inline.rival.explain_policy("r", "nix")


def test_past_attempts_are_explained_exactly_after_their_rules_were_changed_and_removed(inline: Inline) -> None:
    inline.define("w", step(boom, name="a", max_retries=2, backoff="none", timeout=5))
    inline.rival.run("w", {}, "r", policies=[("a", {"heartbeat": 9})])
    rules = []
    for seconds in (60, 70):
        rules.append(inline.rival.set_policy("a", {"timeout": seconds, "max_delay": seconds}, reason="slow").id)
        inline.keeper.run_once()
        [message] = inline.doorbell.take()
        inline.deliver(message)
    for rule in rules:
        inline.rival.remove_policy(rule)
    inline.keeper.run_once()
    inline.drain()
    inline.rival.set_policy("a", {"timeout": 999})

    def seen(attempt: int) -> dict[str, Any]:
        fields = inline.rival.explain_policy("r", "a", attempt=attempt).fields
        return {one.name: (one.value, one.layer, one.rule) for one in fields if one.layer != "default"}

    own = {"max_retries": (2, "step", None), "backoff": ("none", "step", None), "heartbeat": (9, "run", 1)}
    for attempt, (seconds, rule) in enumerate(zip((60, 70), rules, strict=True), 1):
        by_rule = (seconds, "fleet", rule)
        assert seen(attempt) == {**own, "timeout": by_rule, "max_delay": by_rule}
    assert seen(3) == {**own, "timeout": (5, "step", None)}


def test_the_runs_of_a_schedule_have_its_rules(inline: Inline) -> None:
    inline.define("w", step(work, name="a"))
    inline.rival.schedule("w", 3600, name="s", policies=[("a", {"timeout": 60})], policies_mode="replace")
    inline.rival.fire_schedule("s")
    inline.keeper.run_once()
    inline.drain()
    [run] = inline.rival.runs(workflow="w")
    assert (run.policies or {})["mode"] == "replace"
    assert timeouts(inline, run.run_id) == {"a": 60}


def test_a_step_that_has_not_begun_has_a_preview(inline: Inline) -> None:
    inline.define("w", step(work, name="a"), step(work, name="b", timeout=5))
    inline.rival.run("w", {}, "r", policies=[("a", {"timeout": 9})])
    found = inline.rival.explain_policy("r", "a")
    assert (found.attempt, found.config.timeout) == (None, 9)
    assert inline.rival.explain_policy("r", "b").config.timeout == 5


# -- rules that name a step -------------------------------------------------------------------------------

STEPS = (step(work, name="charge"), for_each("lines", items=lambda: [1], do=[step(work, name="pack")]))
UNKNOWN = {
    "a name": (["chrage", "pack"], "policies[0]: workflow 'w' has no step 'chrage' (did you mean 'charge'?)"),
    "all of them": (["a", "b"], "; it has charge, lines, pack; policies[1]: workflow 'w' has no step 'b'"),
    "a path": ([{"path": "lines/pack"}], "workflow 'w' has no path 'lines/pack' (did you mean 'lines[]/pack'?)"),
    "in all": ([{"all": [{"kind": "step"}, {"name": "chrage"}]}], "no step 'chrage'"),
    "of this workflow": ([{"workflow": "w", "name": "chrage"}], "no step 'chrage'"),
}
ACCEPTED = {
    "a composite and an inner step": ["lines", "pack"],
    "a regular expression": [named("chrage")],
    "a path with *": [{"path": "lines*/chrage"}],
    "a tag": [tagged("no-such-tag")],
    "a kind": [of_kind("loop")],
    "of another workflow": [{"workflow": "other", "name": "chrage"}],
    "of another workflow in all": [{"all": [{"name": "chrage"}, {"workflow": "other"}]}],
}


def rules_for(matchers: Any) -> Any:
    return [(one, {"timeout": 60}) for one in matchers]


@pytest.mark.parametrize("what", UNKNOWN)
def test_a_rule_that_names_a_step_that_the_workflow_does_not_have_is_refused(inline: Inline, what: str) -> None:
    matchers, message = UNKNOWN[what]
    inline.define("w", *STEPS)
    policies = rules_for(matchers)
    for start in (
        lambda: inline.rival.run("w", {}, policies=policies),
        lambda: inline.rival.run("w", {}, policies=policies, policies_mode="replace"),
        lambda: inline.rival.run_many("w", [{}], policies=policies),
        lambda: inline.rival.schedule("w", 60, name="s", policies=policies),
        lambda: inline.rival.get("w").get_or_create("i").run({}, policies=policies),
    ):
        with pytest.raises(InvalidArgument) as refused:
            start()
        assert message in str(refused.value)
    assert list(inline.rival.runs()) == []
    assert inline.rival.schedules() == []


@pytest.mark.parametrize("what", ACCEPTED)
def test_a_rule_for_a_pattern_or_another_workflow_may_match_nothing(inline: Inline, what: str) -> None:
    started(inline, *STEPS, policies=rules_for(ACCEPTED[what]))
    assert inline.rival.state("r").status == "completed"


def test_every_name_is_accepted_for_a_workflow_with_a_flow(inline: Inline) -> None:
    """The steps of a flow are known only when it runs."""
    started(inline, flow("f", register=False)(lambda ctx: ctx.step(work)), policies=rules_for(["work", "chrage"]))
    assert inline.rival.state("r").status == "completed"


@pytest.mark.parametrize("verb", ["call", "spawn"])
def test_the_rules_of_a_child_are_checked_too(inline: Inline, verb: str) -> None:
    inline.define("w", *STEPS)
    run_child = flow("f", register=False)(lambda ctx: getattr(ctx, verb)("w", policies=rules_for(["chrage"])))
    inline.define("parent", run_child)
    inline.rival.run("parent", {}, "r")
    inline.drain()
    state = inline.rival.state("r")
    assert state.status == "failed"
    assert "workflow 'w' has no step 'chrage' (did you mean 'charge'?)" in str(state.error)


def test_a_schedule_keeps_its_rules_when_its_workflow_loses_a_step(inline: Inline) -> None:
    """Its ticks still start runs: the rule applies to nothing."""
    inline.define("w", *STEPS)
    inline.rival.schedule("w", 3600, name="s", policies=rules_for(["charge"]))
    inline.registry.renew(define_workflow("w", STEPS[1:]))
    inline.process.register_workflows()
    run_id = inline.rival.fire_schedule("s")
    inline.drain()
    assert inline.rival.state(run_id).status == "completed"
