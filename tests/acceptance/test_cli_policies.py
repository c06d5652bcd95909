"""`rival policy`: what an operator types, sees and gets as JSON."""

from __future__ import annotations

from rival_client import Rival
from rival_client.settings import Settings
from rival_workers import create_workflow, step
from rival_workers.store import open_store
from tests.acceptance.conftest import Cli


def test_a_rule_of_the_fleet_is_set_listed_explained_and_removed(shop: Cli, rival: Rival) -> None:
    shop("policy", "ls").prints("no rules")
    rival.run("greet", {"name": "ada"}, "r", policies=[("greet", {"max_retries": 1})])
    options = ("timeout=60", "--match", "name=greet", "--workflow", "greet", "--reason", "slow", "--by", "ana")
    made = shop("policy", "set", *options, "--until", "2h", "--json").json
    assert (made["id"], made["options"], made["reason"], made["author"]) == (1, {"timeout": 60.0}, "slow", "ana")
    assert made["expires_at"] is not None
    assert made.pop("warnings") == []
    assert shop("policy", "ls", "--json").json == [made]
    shop("policy", "ls").prints(
        """
        rule  matches  options  reason  by  set  until
        1  workflow=greet and name=greet  timeout=60.0  slow  ana  <time>  <time>
        """
    )
    explained = shop("policy", "explain", "r", "greet", "--json").json
    because = {one["name"]: (one["value"], one["layer"]) for one in explained["fields"] if one["layer"] != "default"}
    assert because == {"timeout": (60.0, "fleet"), "max_retries": (1, "run")}
    assert explained["attempt"] is None
    lines = shop("policy", "explain", "r", "greet").out.splitlines()
    assert lines[0].rstrip() == "r greet, next attempt"
    assert [line.split()[:2] for line in lines[1:] if line.strip()][-2:] == [["timeout", "60.0"], ["max_retries", "1"]]
    shop("policy", "rm", "1", "--json").prints_json({"rule": 1, "removed": True})
    shop("policy", "ls", "--json").prints_json([])
    shop("policy", "rm", "1", code=1).complains("rival: unknown rule 1")
    assert shop("policy", "explain", "r", "nope", code=1).err


def test_every_problem_of_a_rule_is_named(shop: Cli) -> None:
    answer = shop("policy", "set", "timeuot=1", "max_retries=-1", "--all", code=2)
    answer.complains(
        "rival: Invalid argument rule: the rule: unknown option 'timeuot' (did you mean 'timeout'?); known are "
        "timeout, …; the rule: option max_retries: Input should be greater than or equal to 0."
    )


def test_a_rule_that_matches_nothing_is_set_with_a_warning(shop: Cli) -> None:
    step = "no registered workflow has a step 'gret' (did you mean 'greet'?): the rule has no effect until one has, or "
    step += "a flow calls such a step"
    assert shop("policy", "set", "timeout=1", "--match", "name=gret").err.strip() == f"rival: {step}"
    as_json = shop("policy", "set", "timeout=1", "--match", "name=gret", "--json")
    assert (as_json.json["warnings"], as_json.err) == ([step], "")
    workflow = shop("policy", "set", "timeout=1", "--workflow", "gret", "--json").json["warnings"]
    assert workflow == ["no workflow 'gret' is registered (did you mean 'greet'?): the rule has no effect until it is"]
    shop("policy", "set", "timeout=1", "--all", "--until", "yesterday", code=2).complains(
        "rival: Invalid value for '--until': 'yesterday': give a duration such as 2h, a time of day such as 18:00, or "
        "an ISO time such as 2026-01-31T18:00+01:00. (see `rival policy set --help`)"
    )


def test_an_option_that_some_nodes_cannot_have_is_set_with_a_warning(shop: Cli, settings: Settings) -> None:
    store = open_store(settings.require_database())
    sort = create_workflow("sort").branch("check", when=bool, then=[step(bool, name="a")]).build()
    store.register_workflow(sort.name, sort.plan, sort.input_schema, sort.description)
    store.close()
    warning = "a branch has no option 'deadline': the rule does not change it there"
    assert shop("policy", "set", "deadline=60", "timeout=5", "--all").err.strip() == f"rival: {warning}"
    assert shop("policy", "set", "deadline=60", "--match", "name=check", "--json").json["warnings"] == [warning]
    assert shop("policy", "set", "deadline=60", "--match", "name=a", "--json").json["warnings"] == []
    shop("policy", "set", "deadline=60", "--match", "kind=step,branch", code=2).complains(
        "rival: Invalid argument rule: the rule: option 'deadline': nodes of kind branch cannot have it."
    )
