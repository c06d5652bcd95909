"""Rules of runs and of the fleet, on every store: what they change, what is recorded of it, and how it is explained."""

from __future__ import annotations

import datetime as dt
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import insert, select, text, update

from rival_client.db.run_tables import earlier_policies, workflows
from rival_client.db.types import clock
from rival_client.errors import InvalidArgument, NotPossible
from rival_client.model.policies.matchers import default, every, labelled, named, of_kind, tagged
from rival_client.model.rebuild import rebuild
from rival_client.sql import fleet_rules
from rival_workers import DefinitionError, Schedule, branch, flow, for_each, step, workflow
from rival_workers.definition.define import define_workflow
from rival_workers.store.claim_records import Claim
from tests.support.inline import Inline
from tests.support.output import whole


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


@pytest.mark.parametrize("given", ["step", "workflow"])
@pytest.mark.parametrize("before", [(), (step(work, name="before"),)], ids=["first step", "in place"])
def test_a_run_whose_rules_replace_all_others_keeps_to_the_limits(inline: Inline, given: str, before: Any) -> None:
    seen: list[str] = []

    def look(ctx: Any) -> None:
        if ctx.run.run_id == "r":
            inline.rival.run("w", {}, "second", policies=[(default, {"timeout": 60})], policies_mode="replace")
            inline.drain()
            seen.append({row.path: row.status for row in inline.rival.state("second").steps}["look"])

    its_limit: Any = {"concurrency_limit": 1}
    limited = step(look, timeout=5, **(its_limit if given == "step" else {}))
    inline.define("w", *before, limited, policies=[("look", its_limit)] if given == "workflow" else ())
    inline.rival.run("w", {}, "r")
    inline.drain()
    assert seen == ["waiting"]
    assert inline.rival.state("second").status == "completed"
    config = inline.rival.explain_policy("second", "look").config
    assert (config.timeout, [one.max for one in config.concurrency_limit]) == (60, [1])


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
        (
            "charge",
            ("Invalid argument policies: give a list of (matcher, options), such as [('charge', {'timeout': 60})]."),
        ),
        (
            [("a",)],
            ("Invalid argument policies: policies[0]: give (matcher, options), such as ('charge', {'timeout': 60})."),
        ),
        (
            [("a", {"timeuot": 1}), ("b", {"timeout": -1})],
            (
                "Invalid argument policies: policies[0]: unknown option 'timeuot' (did you mean 'timeout'?); known "
                "are timeout, on_timeout, kill_on_timeout, max_retries, max_attempts, retry_on, no_retry_on, "
                "backoff, …; policies[1]: option timeout: Input should be greater than 0."
            ),
        ),
        (
            [(work, {"timeout": 1})],
            (
                "Invalid argument policies: policies[0]: a predicate is code: give it to the policies of the "
                "workflow, and use its name here, as tagged('work')."
            ),
        ),
        (
            [("a", {"execution_mode": "external"})],
            (
                "Invalid argument policies: policies[0]: option 'execution_mode': that a step is external is part "
                "of the workflow, not of a rule."
            ),
        ),
        (
            [("a", {"execution_mode": "inline", "delay": 5})],
            (
                'Invalid argument policies: policies[0]: execution_mode="inline" runs the step right after the one '
                "before it, in the same process, so it cannot have delay."
            ),
        ),
        (
            [("a", {"fallback": work})],
            (
                "Invalid argument policies: policies[0]: option fallback: give value(…) or retry_with(…): a "
                "function is code."
            ),
        ),
        (
            [({"nmae": "a"}, {})],
            (
                "Invalid argument policies: policies[0]: unknown condition 'nmae'; known are name, regex, kind, "
                "path, workflow, tag, labels, all."
            ),
        ),
    ],
)
def test_every_problem_of_a_runs_rules_is_named(inline: Inline, given: Any, says: str) -> None:
    inline.define("w", step(work, name="a"))
    with pytest.raises(InvalidArgument, match=whole(says)):
        inline.rival.run("w", {}, policies=given)
    with pytest.raises(
        InvalidArgument, match=whole("Invalid argument policies_mode: it says how `policies` apply: give them, too.")
    ):
        inline.rival.run("w", {}, policies_mode="replace")


@pytest.mark.parametrize("by", ["run", "fleet"])
@pytest.mark.parametrize("verb", ["retry", "rewind", "skip", "set_result"])
def test_steps_that_an_operator_opens_follow_rules_from_their_opening_on(inline: Inline, by: str, verb: str) -> None:
    rules: Any = (default, {"priority": "low", "queue_timeout": 600, "timeout": 60})
    steps = (step(work, name="a"), step(boom, name="b"), step(work, name="c"))
    started(inline, *steps, policies=[rules] if by == "run" else None)
    if by == "fleet":
        inline.rival.set_policy(*rules)
    path = {"retry": "b", "rewind": "a"}.get(verb, "c")
    how: dict[str, Any] = {"retry": {}, "rewind": {"step": "a"}}.get(verb, {"step": "b", "reason": "known"})
    getattr(inline.rival, verb)("r", **how, **({"result": 5} if verb == "set_result" else {}))
    [row] = [one for one in inline.rival.state("r").steps if one.path == path]
    assert (row.status, row.priority) == ("pending", "low")
    [message] = inline.doorbell.take()
    assert (message.path, message.route.level) == (path, 1)
    inline.keeper.run_once()
    inline.deliver(message)
    assert timeouts(inline)[path] == 60


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


@pytest.mark.parametrize("rules", [None, [("b", {"timeout": 5})]], ids=["plain", "run with rules"])
def test_a_rule_for_labels_that_is_set_during_a_step_is_followed_by_the_next_step(inline: Inline, rules: Any) -> None:
    began: list[str] = []

    def set_a_rule() -> None:
        inline.rival.set_policy(labelled(tenant="acme"), {"delay": 60})
        inline.keeper.run_once()

    def begin() -> None:
        began.append("b")

    inline.define("w", step(set_a_rule, name="a"), step(begin, name="b"))
    inline.rival.run("w", {}, "r", labels={"tenant": "acme"}, policies=rules)
    inline.drain()
    assert began == []
    inline.time_passes(61)
    inline.keeper.run_once()
    inline.drain()
    assert began == ["b"]


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
    with pytest.raises(
        InvalidArgument, match=whole("Invalid argument until: … has passed: give a later time, or seconds from now.")
    ):
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
    with pytest.raises(
        InvalidArgument, match=whole("Invalid argument rule: the rule: give at least one option, such as timeout=60.")
    ):
        inline.rival.set_policy("a", {})
    with pytest.raises(InvalidArgument, match=whole("Invalid argument rule: the rule: name: give a text, not ''.")):
        inline.rival.set_policy("", {"timeout": 60})
    assert len(inline.rival.policies()) == 2


def test_rules_that_are_set_at_one_moment_are_one_version_each(inline: Inline) -> None:
    before = inline.store.read_rulebook().version
    barrier = threading.Barrier(8)

    def set_one(seconds: int) -> int:
        barrier.wait()
        return inline.rival.set_policy("a", {"timeout": seconds}).id

    with ThreadPoolExecutor(8) as pool:
        ids = dict(zip(pool.map(set_one, range(1, 9)), range(1, 9), strict=True))
    book = inline.store.read_rulebook()
    assert {rule.id: rule.options["timeout"] for rule in book.rules} == ids
    assert book.version - before == 8 * 1_000_000, "each has a version of its own"


def test_only_some_expired_rules_are_kept(inline: Inline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_rules, "MAX_EXPIRED", 2)
    monkeypatch.setattr(fleet_rules, "MAX_RULES", 2)
    ids = []
    for seconds in range(1, 6):
        ids.append(inline.rival.set_policy("a", {"timeout": seconds}).id)
        assert inline.rival.remove_policy(ids[-1])
        inline.time_passes(1)
    left = inline.rival.set_policy("a", {"timeout": 9}).id
    with inline.store.database.autocommit() as connection:
        assert sorted(fleet_rules.stored_rules(connection)) == [*ids[-2:], left]
    assert [one.id for one in inline.rival.policies()] == [left]


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
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot explain run 'r': 'a' has made 2 attempts, not 3: leave the attempt out for the last one. "
            "Nothing was changed."
        ),
    ):
        inline.rival.explain_policy("r", "a", attempt=3)
    with pytest.raises(
        NotPossible,
        match=whole("Cannot explain run 'r': its workflow has no step 'nix': it has a. Nothing was changed."),
    ):
        inline.rival.explain_policy("r", "nix")
    with pytest.raises(
        InvalidArgument, match=whole("Invalid argument attempt: 0 is not a whole number from 1 to 2,147,483,647.")
    ):
        inline.rival.explain_policy("r", "a", attempt=0)
    with pytest.raises(
        InvalidArgument,
        match=whole("Invalid argument preview: it is about the next attempt: give either `attempt` or `preview`."),
    ):
        inline.rival.explain_policy("r", "a", attempt=1, preview=True)


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


@pytest.mark.parametrize("limits", [{}, {"concurrency_limit": 1}], ids=["no limit", "limit"])
def test_a_retry_that_succeeded_is_explained_like_the_attempt_before_it(inline: Inline, limits: Any) -> None:
    tried: list[int] = []

    def second_time() -> None:
        tried.append(1)
        if len(tried) == 1:
            raise ValueError("boom")

    inline.define("w", step(second_time, name="a", max_retries=1, backoff="none", **limits))
    rule = inline.rival.set_policy("a", {"timeout": 60}).id
    inline.keeper.run_once()
    inline.rival.run("w", {}, "r")
    inline.drain()
    assert inline.rival.result("r").status == "completed"
    for attempt in (1, 2, None):
        fields = inline.rival.explain_policy("r", "a", attempt=attempt).fields
        assert [(one.value, one.layer, one.rule) for one in fields if one.name == "timeout"] == [(60, "fleet", rule)]


def seconds_of(inline: Inline, attempt: int | None = None, **options: Any) -> tuple[Any, Any, int | None]:
    """The step's own option, what the rule of the workflow gives, and which attempt has them."""
    found = inline.rival.explain_policy("r", "a", attempt=attempt, **options)
    return found.config.timeout, found.config.heartbeat, found.attempt


def registered(inline: Inline, seconds: float, function: Any = boom) -> str:
    """The workflow with other options, as a worker that starts now registers it."""
    inline.time_passes(1)
    steps = [step(function, name="a", timeout=seconds, max_retries=2, backoff="none")]
    definition = define_workflow("w", steps, policies=[("a", {"heartbeat": seconds + 1})])
    inline.registry.renew(definition)
    inline.process.register_workflows()
    inline.time_passes(1)
    return definition.version


def replaced(inline: Inline) -> list[float]:
    """The step's own option in each document that was replaced."""
    with inline.store.database.autocommit() as connection:
        found = connection.execute(select(earlier_policies).order_by(earlier_policies.c.until)).all()
    assert {(one.workflow, one.version) for one in found} <= {("w", inline.registry.newest("w").version)}  # type: ignore[union-attr]
    return [one.policies["own"]["a"]["timeout"] for one in found]


def deliver_one(inline: Inline) -> None:
    [message] = inline.doorbell.take()
    inline.deliver(message)


def test_each_attempt_is_explained_with_the_options_that_were_registered_when_it_began(inline: Inline) -> None:
    versions = {registered(inline, 5)}
    inline.rival.run("w", {}, "r")
    deliver_one(inline)
    versions.add(registered(inline, 50))
    deliver_one(inline)
    versions.add(registered(inline, 500))
    assert len(versions) == 1, "options are not part of the version"
    assert (seconds_of(inline, 1), seconds_of(inline, 2)) == ((5, 6, 1), (50, 51, 2))
    assert seconds_of(inline) == (50, 51, 2)
    assert seconds_of(inline, preview=True) == (500, 501, None)
    deliver_one(inline)
    assert inline.rival.state("r").status == "failed"
    assert [seconds_of(inline, number) for number in (1, 2, 3, None)] == [(5, 6, 1), (50, 51, 2), *[(500, 501, 3)] * 2]
    registered(inline, 5)
    assert [seconds_of(inline, number)[0] for number in (1, 2, 3)] == [5, 50, 500]
    assert replaced(inline) == [5, 50, 500]


def test_replaced_rules_and_options_are_explained_together(inline: Inline) -> None:
    registered(inline, 5)
    rule = inline.rival.set_policy("a", {"timeout": 60})
    inline.keeper.run_once()
    inline.rival.run("w", {}, "r")
    deliver_one(inline)
    inline.rival.remove_policy(rule.id)
    inline.keeper.run_once()
    registered(inline, 50)
    deliver_one(inline)
    assert (seconds_of(inline, 1), seconds_of(inline, 2)) == ((60, 6, 1), (50, 51, 2))


def lose_one(inline: Inline) -> None:
    """An attempt begins, and its executor is lost."""
    [message] = inline.doorbell.take()
    assert message.path is not None
    claim, executor = Claim(message.run_id, message.path, message.token), inline.process.executor.id
    assert inline.store.claim_step(claim, None, executor, policy='{"fields":{}}') is not None
    [lost] = inline.store.running_on(executor)
    inline.coordinator.transitions.take_over(lost)


def test_an_attempt_that_was_lost_does_not_explain_those_before_and_after_it(inline: Inline) -> None:
    registered(inline, 5)
    inline.rival.run("w", {}, "r")
    deliver_one(inline)
    registered(inline, 50)
    lose_one(inline)
    assert seconds_of(inline) == (5, 6, 1), "the row of the step has the start of the lost attempt"
    registered(inline, 500, work)
    deliver_one(inline)
    assert inline.rival.state("r").steps[0].lost == 1
    assert (seconds_of(inline, 1), seconds_of(inline)) == ((5, 6, 1), (500, 501, 2))


def test_after_a_rewind_the_attempts_are_those_since_then(inline: Inline) -> None:
    registered(inline, 5)
    inline.rival.run("w", {}, "r")
    inline.drain()
    registered(inline, 50, work)
    inline.rival.retry("r")
    inline.drain()
    assert inline.rival.state("r").status == "completed"
    assert (seconds_of(inline), seconds_of(inline, 1)) == ((50, 51, 1), (50, 51, 1))
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot explain run 'r': 'a' has made 1 attempt, not 2: leave the attempt out for the last one. "
            "Nothing was changed."
        ),
    ):
        seconds_of(inline, 2)


def test_a_retry_that_succeeds_is_explained_with_the_rules_that_it_had(inline: Inline) -> None:
    registered(inline, 5)
    inline.rival.run("w", {}, "r")
    deliver_one(inline)
    inline.rival.set_policy("a", {"timeout": 60})
    registered(inline, 50, work)
    inline.keeper.run_once()
    deliver_one(inline)
    assert inline.rival.state("r").status == "completed"
    registered(inline, 500)
    assert (seconds_of(inline, 1), seconds_of(inline, 2)) == ((5, 6, 1), (60, 51, 2))


def test_the_same_options_registered_again_replace_nothing(inline: Inline) -> None:
    for seconds in (5, 5, 5.0, 50, 50):
        registered(inline, seconds)
    assert replaced(inline) == [5]


def test_options_that_two_workers_register_at_once_are_replaced_once(inline: Inline) -> None:
    registered(inline, 5)
    barrier = threading.Barrier(8)
    definition = define_workflow("w", [step(boom, name="a", timeout=50)])

    def register(_: int) -> None:
        barrier.wait()
        inline.process.register_version(definition)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(register, range(8)))
    inline.registry.renew(definition)
    assert replaced(inline) == [5]


def test_a_registration_that_has_waited_for_another_one_is_later(inline: Inline) -> None:
    version, database = registered(inline, 5), inline.store.database
    definition = define_workflow("w", [step(boom, name="a", timeout=500)])
    first, second = ({"own": {"a": {"timeout": seconds}}} for seconds in (5, 50))
    with ThreadPoolExecutor(1) as pool:
        with database.transaction() as connection:
            connection.execute(update(workflows).values(policies=second))
            waits = pool.submit(inline.process.register_version, definition)
            while inline.clock is None and not is_waiting(inline):
                assert not waits.done()
            kept = {"workflow": "w", "version": version, "until": clock(), "policies": first}
            connection.execute(insert(earlier_policies).values(kept))
            if inline.clock is not None:
                inline.clock.advance(1)
        waits.result()
    assert replaced(inline) == [5, 50]


def is_waiting(inline: Inline) -> bool:
    """A transaction waits for the lock of a row."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with inline.store.database.autocommit() as connection:
        return bool(connection.scalar(text(waiting)))


def test_replaced_options_are_deleted_when_no_run_is_as_old(inline: Inline) -> None:
    registered(inline, 5)
    registered(inline, 50)
    inline.rival.run("w", {}, "r")
    inline.drain()
    registered(inline, 500)
    assert replaced(inline) == [50]
    assert [seconds_of(inline, number)[0] for number in (1, 2, 3)] == [50] * 3


def test_the_reason_of_a_rule_is_kept_when_it_is_removed_and_when_it_expires(inline: Inline) -> None:
    inline.define("w", step(boom, name="a", max_retries=1, backoff="none"))
    removed = inline.rival.set_policy("a", {"timeout": 60}, reason="slow bank", by="ana")
    inline.keeper.run_once()
    inline.rival.run("w", {}, "r")
    deliver_one(inline)
    assert inline.rival.remove_policy(removed.id)
    expired = inline.rival.set_policy("a", {"timeout": 70}, reason="slower bank", by="bo", until=300)
    inline.keeper.run_once()
    deliver_one(inline)
    inline.time_passes(301)
    assert inline.rival.policies() == []
    assert not inline.rival.remove_policy(expired.id)
    inline.rival.set_policy("a", {"timeout": 80})

    def because(attempt: int) -> str:
        fields = inline.rival.explain_policy("r", "a", attempt=attempt).fields
        return next(one.because for one in fields if one.name == "timeout")

    assert because(1).startswith(f"fleet rule {removed.id}, slow bank, by ana, until ")
    assert because(2).startswith(f"fleet rule {expired.id}, slower bank, by bo, until ")


def test_an_attempt_of_a_step_of_a_flow_is_not_explained(inline: Inline) -> None:
    def main(ctx: Any) -> Any:
        return ctx.step(work, name="inner", timeout=5)

    started(inline, flow("main", register=False)(main), workflow_policies=[(default, {"heartbeat": 7})])
    found = inline.rival.explain_policy("r", "main/inner")
    assert (found.attempt, found.config.heartbeat) == (None, 7)
    with pytest.raises(
        NotPossible,
        match=whole(
            "Cannot explain run 'r': the options of 'main/inner' are in the code of its flow, and not recorded: "
            "leave the attempt out for what rules give it now. Nothing was changed."
        ),
    ):
        inline.rival.explain_policy("r", "main/inner", attempt=1)


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
NO_STEP = "policies[0]: workflow 'w' has no step 'chrage' (did you mean 'charge'?); it has charge, lines, pack."
UNKNOWN = {
    "a name": (["chrage", "pack"], NO_STEP),
    "all of them": (
        ["a", "b"],
        "policies[0]: workflow 'w' has no step 'a'; it has charge, lines, pack; "
        "policies[1]: workflow 'w' has no step 'b'; it has charge, lines, pack.",
    ),
    "a path": (
        [{"path": "lines/pack"}],
        "policies[0]: workflow 'w' has no path 'lines/pack' (did you mean 'lines[]/pack'?); "
        "it has charge, lines, lines[]/pack.",
    ),
    "in all": ([{"all": [{"kind": "step"}, {"name": "chrage"}]}], NO_STEP),
    "of this workflow": ([{"workflow": "w", "name": "chrage"}], NO_STEP),
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
        assert refused.value.problem == message
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
    problem = "workflow 'w' has no step 'chrage' (did you mean 'charge'?); it has charge, lines, pack."
    message = f"f/{verb}:w: InvalidArgument: Invalid argument policies: policies[0]: {problem}"
    assert (state.error or {})["message"] == message


def test_a_schedule_keeps_its_rules_when_its_workflow_loses_a_step(inline: Inline) -> None:
    """Its ticks still start runs: the rule applies to nothing."""
    inline.define("w", *STEPS)
    inline.rival.schedule("w", 3600, name="s", policies=rules_for(["charge"]))
    inline.registry.renew(define_workflow("w", STEPS[1:]))
    inline.process.register_workflows()
    run_id = inline.rival.fire_schedule("s")
    inline.drain()
    assert inline.rival.state(run_id).status == "completed"


# -- options that some nodes cannot have ------------------------------------------------------------------

MIXED = (
    step(work, name="charge", tags="bank"),
    step(work, name="ship", execution_mode="external"),
    for_each("lines", items=lambda: [1], do=[step(work, name="pack")]),
    branch("check", when=lambda: True, then=[step(work, name="send")]),
)
MISPLACED: dict[str, tuple[Any, list[str]]] = {
    "of all kinds": (
        [(default, {"deadline": 60, "timeout": 5})],
        ["policies[0]: a for_each has no option 'deadline'", "policies[0]: a branch has no option 'deadline'"],
    ),
    "of a name": ([("check", {"fallback": {"value": 5}})], ["policies[0]: a branch has no option 'fallback'"]),
    "of a path": ([({"path": "lines"}, {"delay": 5})], ["policies[0]: a for_each has no option 'delay'"]),
    "of an external step": (
        [(named("sh.*"), {"circuit_breaker": {"name": "b"}})],
        ["policies[0]: an external step has no option 'circuit_breaker'"],
    ),
    "of two rules": (
        [("charge", {"timeout": 5}), ("check", {"delay": 5}), (default, {"deadline": 60})],
        ["policies[1]: a branch has no option 'delay'", "policies[2]: a for_each has no option 'deadline'"],
    ),
}
PLACED: dict[str, Any] = {
    "what all have": [(default, {"timeout": 60, "max_retries": 1, "queue_timeout": 5})],
    "the mode": [(default, {"execution_mode": "inline"})],
    "an earlier rule": [("lines", {"timeout": 5}), ("check", {"timeout": 5}), (default, {"deadline": 60})],
    "of kinds": [(of_kind("step"), {"deadline": 60})],
    "of a tag": [(tagged("bank"), {"circuit_breaker": {"name": "b"}})],
    "of other labels": [(every(labelled(tenant="x"), default), {"deadline": 60})],
    "of another workflow": [({"workflow": "other"}, {"deadline": 60})],
}


@pytest.mark.parametrize("what", MISPLACED)
def test_a_rule_of_a_run_with_an_option_that_a_matched_node_cannot_have_is_refused(inline: Inline, what: str) -> None:
    policies, problems = MISPLACED[what]
    inline.define("w", *MIXED)
    for start in (
        lambda: inline.rival.run("w", {}, policies=policies),
        lambda: inline.rival.run_many("w", [{}], policies=policies),
        lambda: inline.rival.schedule("w", 60, name="s", policies=policies),
    ):
        with pytest.raises(InvalidArgument) as refused:
            start()
        found = "; ".join(f"{one}: choose other steps with a matcher" for one in problems)
        assert refused.value.problem == f"{found}."
    with pytest.raises(DefinitionError) as wrong:
        define_workflow("w", MIXED, schedule=Schedule(60, policies=policies))
    assert all(f"schedule: {one}" in str(wrong.value) for one in problems)
    assert list(inline.rival.runs()) == []


@pytest.mark.parametrize("what", PLACED)
def test_a_rule_of_a_run_whose_options_all_matched_nodes_can_have_is_accepted(inline: Inline, what: str) -> None:
    inline.define("w", *MIXED)
    assert inline.rival.run("w", {}, policies=PLACED[what], labels={"tenant": "acme"}).status == "started"


def test_a_rule_of_a_run_is_checked_with_its_labels(inline: Inline) -> None:
    inline.define("w", *MIXED)
    problems = [
        f"policies[0]: a {kind} has no option 'deadline': choose other steps with a matcher"
        for kind in ("for_each", "branch")
    ]
    with pytest.raises(InvalidArgument, match=whole(f"Invalid argument policies: {'; '.join(problems)}.")):
        inline.rival.run("w", {}, policies=[(labelled(tenant="x"), {"deadline": 60})], labels={"tenant": "x"})


@pytest.mark.parametrize(
    ("match", "options", "problem"),
    [
        (of_kind("step", "branch"), {"deadline": 60}, "option 'deadline': nodes of kind branch cannot have it"),
        (of_kind("flow"), {"circuit_breaker": {"name": "b"}}, "option 'circuit_breaker': nodes of kind flow cannot"),
        (every(of_kind("loop", "step"), named("a.*")), {"fallback": {"value": 5}}, "nodes of kind loop cannot have it"),
    ],
)
def test_a_rule_with_an_option_that_a_kind_cannot_have_is_refused_with_the_kind(
    inline: Inline, match: Any, options: Any, problem: str
) -> None:
    """Also where it is not known which workflows it is for."""
    inline.define("w", step(work, name="a"))
    for give in (
        lambda: inline.rival.set_policy(match, options),
        lambda: inline.rival.run("w", {}, policies=[(match, options)]),
    ):
        with pytest.raises(InvalidArgument) as refused:
            give()
        assert problem in refused.value.problem
    inline.rival.set_policy(of_kind("step", "flow"), {"delay": 5})
