"""Every field of a policy, wherever it can be given: builder, file, decorator, rules of a workflow, of a run and of the
fleet, both clients, commands, children, schedules and flows. What a field does is in test_policy_fields.py.

The surfaces are functions that take any field, so a field without a row, or that a surface drops, fails.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import rival_workers
from rival_client import AsyncRival, InvalidArgument
from rival_client.model.policies.option_fields import FIELDS, fields_of
from rival_client.model.policies.run_policies import NOT_IN_RULES
from rival_client.model.rebuild import rebuild
from rival_workers import create_workflow, flow, step
from rival_workers.definition.define import define_workflow
from rival_workers.definition.files import register_workflow_file
from tests.contract.test_cli_fuzz import run_command
from tests.support.documents import pages
from tests.support.inline import Inline

#: Field: its value as users write it, and as JSON; and options that it needs beside it.
TABLE: dict[str, tuple[str, Any, str]] = {
    "timeout": ("60", 60.0, ""),
    "on_timeout": ("'retry'", "retry", "max_attempts=2"),
    "kill_on_timeout": ("True", True, "timeout=60"),
    "max_retries": ("4", 4, ""),
    "max_attempts": ("4", 4, ""),
    "retry_on": ("[KeyError, 'openai.*']", ["KeyError", "openai.*"], "max_retries=1"),
    "no_retry_on": ("[KeyError]", ["KeyError"], ""),
    "backoff": ("'jitter'", "jitter", ""),
    "base_delay": ("7", 7.0, ""),
    "max_delay": ("7", 7.0, ""),
    "max_retry_after": ("7", 7.0, ""),
    "heartbeat": ("60", 60.0, ""),
    "execution_mode": ("'inline'", "inline", ""),
    "deadline": ("60", 60.0, ""),
    "delay": ("60", 60.0, ""),
    "scheduled_at": (
        "dt.datetime(2040, 1, 2, tzinfo=dt.UTC)",
        "2040-01-02T00:00:00Z",
        "",
    ),
    "queue_timeout": ("60", 60.0, ""),
    "queue": ("'gpu'", "gpu", ""),
    "priority": ("'low'", "low", ""),
    "on_failure": ("'skip'", "skip", ""),
    "fallback": ("value(5)", {"shape": "value", "value": 5, "overrides": {}}, ""),
    "retry_budget": ("3", 3, ""),
    "concurrency_limit": ("limit('x', 3)", [{"name": "x", "max": 3}], ""),
    "rate_limit": ("rate('y', 3, per=60)", [{"name": "y", "max": 3, "per": 60.0}], ""),
    "circuit_breaker": ("breaker('b', failures=2)", {"name": "b", "failures": 2}, ""),
    "idempotency_key": ("'k:{input.x}'", {"template": "k:{input.x}"}, ""),
    "idempotency_ttl": ("60", 60.0, "idempotency_key='k:{input.x}'"),
    "idempotency_scope": ("'fleet'", "fleet", "idempotency_key='k:{input.x}'"),
    "metadata": ("{'team': 'x'}", {"team": "x"}, ""),
    "log_level": ("'warning'", "warning", ""),
    "telemetry_prefix": ("'shop'", "shop", ""),
}
RULES = [name for name in TABLE if name not in NOT_IN_RULES]
NAMES = {"dt": dt, **{name: getattr(rival_workers, name) for name in ("value", "limit", "rate", "breaker")}}


def work() -> str:
    return "done"


@dataclass
class Given:
    """A field with the options that it needs."""

    inline: Inline
    name: str
    folder: Path
    #: Of the run, and of the workflow if a definition gives the field.
    run_id: str = "r"

    @property
    def source(self) -> str:
        """As arguments of a call."""
        written, _, others = TABLE[self.name]
        return ", ".join(filter(None, (f"{self.name}={written}", others)))

    @property
    def options(self) -> dict[str, Any]:
        made: dict[str, Any] = eval(f"dict({self.source})", dict(NAMES))
        return made

    @property
    def as_json(self) -> dict[str, Any]:
        """As commands take them."""
        written = {"fallback": {"value": 5}, "idempotency_key": "k:{input.x}"}
        values = {**self.options, self.name: TABLE[self.name][1], **written}
        return {name: values[name] for name in self.options}

    def registered(self, *definitions: Any) -> tuple[Any, str]:
        for one in definitions:
            self.inline.registry.add(one)
        self.inline.process.register_workflows()
        return self.started(self.run_id)

    def explained(self, run_id: str | None = None) -> tuple[Any, str]:
        """The value of the field at the step, and the layer that it comes from."""
        return self.found(self.inline.rival.explain_policy(run_id or self.run_id, "s").fields)

    def found(self, fields: Any) -> tuple[Any, str]:
        [one] = [one for one in fields if one.name == self.name]
        return one.value, one.layer

    def started(self, workflow: str = "w", **options: Any) -> tuple[Any, str]:
        self.inline.rival.run(workflow, {"x": 1}, self.run_id, **options)
        return self.explained()

    def command(self, *words: str) -> Any:
        code, out, err = run_command([*words, "--json"])
        assert code == 0, err
        return json.loads(out)


@pytest.fixture
def given(inline: Inline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, request: pytest.FixtureRequest) -> Given:
    monkeypatch.setenv("RIVAL_DATABASE_URL", inline.settings.database_url or "")
    monkeypatch.delenv("RIVAL_BROKER_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return Given(inline, request.getfixturevalue("name"), tmp_path)


# -- in a definition ------------------------------------------------------------------------------------------


def by_builder(given: Given) -> tuple[Any, str]:
    return given.registered(create_workflow(given.run_id).step(step(work, name="s"), **given.options).build())


def by_builder_rule(given: Given) -> tuple[Any, str]:
    rule: Any = ("s", given.options)
    return given.registered(create_workflow(given.run_id).step(step(work, name="s")).policies(rule).build())


def by_decorator(given: Given) -> tuple[Any, str]:
    @step(**given.options)
    def s() -> None:
        pass

    return given.registered(define_workflow(given.run_id, [s]))


IMPORTS = "import datetime as dt\nfrom rival_workers import breaker, limit, rate, step, value\n\ndef s():\n    pass\n\n"


def by_file(given: Given) -> tuple[Any, str]:
    return _by_file(given, f"steps = [step(s, {given.source})]")


def by_file_rule(given: Given) -> tuple[Any, str]:
    return _by_file(given, f"steps = [s]\npolicies = [('s', dict({given.source}))]")


def _by_file(given: Given, rest: str) -> tuple[Any, str]:
    file = given.folder / f"{given.run_id}.py"
    file.write_text(f"{IMPORTS}name = {given.run_id!r}\n{rest}\n")
    register_workflow_file(file, given.inline.registry)
    return given.registered()


DEFINED: dict[Callable[[Given], tuple[Any, str]], str] = {
    by_builder: "step",
    by_decorator: "step",
    by_file: "step",
    by_builder_rule: "workflow",
    by_file_rule: "workflow",
}


# -- by rules of a run, and of the fleet ------------------------------------------------------------------------


def by_client(given: Given) -> tuple[Any, str]:
    return given.started(policies=[("s", given.options)])


def by_async_client(given: Given) -> tuple[Any, str]:
    async def use() -> Any:
        rival = AsyncRival(sync=given.inline.rival)
        await rival.run("w", {"x": 1}, given.run_id, policies=[("s", given.options)])
        return (await rival.explain_policy(given.run_id, "s")).fields

    return given.found(asyncio.run(use()))


def by_run_many(given: Given) -> tuple[Any, str]:
    given.inline.rival.run_many("w", [{"x": 1}], run_ids=[given.run_id], policies=[("s", given.options)])
    return given.explained()


def by_schedule(given: Given) -> tuple[Any, str]:
    given.inline.rival.schedule("w", 3600, name="n", input={"x": 1}, policies=[("s", given.options)])
    return given.explained(given.inline.rival.fire_schedule("n"))


def by_parent(given: Given) -> tuple[Any, str]:
    def parent(ctx: Any) -> str:
        return str(ctx.spawn("w", {"x": 1}, policies=[("s", given.options)]).run_id)

    given.inline.define("parent", flow("p", register=False)(parent))
    given.inline.rival.run("parent", None, given.run_id)
    given.inline.drain()
    return given.explained(given.inline.rival.result(given.run_id).result)


def by_command(given: Given) -> tuple[Any, str]:
    rule = json.dumps(["s", given.as_json])
    return _by_explain(given, given.command("run", "w", '{"x": 1}', "--policy", rule)["run_id"])


def _by_explain(given: Given, run_id: str) -> tuple[Any, str]:
    fields = given.command("policy", "explain", run_id, "s")["fields"]
    [one] = [one for one in fields if one["name"] == given.name]
    return one["value"], one["layer"]


def by_fleet(given: Given) -> tuple[Any, str]:
    rule = given.inline.rival.set_policy("s", given.options)
    found = given.started()
    assert given.inline.rival.remove_policy(rule.id)
    return found


def by_async_fleet(given: Given) -> tuple[Any, str]:
    async def use() -> Any:
        rival = AsyncRival(sync=given.inline.rival)
        rule = await rival.set_policy("s", given.options)
        assert await rival.policies() == [rule]
        await rival.run("w", {"x": 1}, given.run_id)
        fields = (await rival.explain_policy(given.run_id, "s")).fields
        assert await rival.remove_policy(rule.id)
        return fields

    return given.found(asyncio.run(use()))


def by_fleet_command(given: Given) -> tuple[Any, str]:
    words = [f"{name}={json.dumps(one)}" for name, one in given.as_json.items()]
    made = given.command("policy", "set", *words, "--match", "name=s")
    assert (made["options"].keys(), made.pop("warnings")) == (given.options.keys(), [])
    assert given.command("policy", "ls") == [made]
    given.started()
    found = _by_explain(given, given.run_id)
    assert given.command("policy", "rm", str(made["id"])) == {"rule": made["id"], "removed": True}
    return found


RULED: dict[Callable[[Given], tuple[Any, str]], str] = {
    by_client: "run",
    by_async_client: "run",
    by_run_many: "run",
    by_schedule: "run",
    by_parent: "run",
    by_command: "run",
    by_fleet: "fleet",
    by_async_fleet: "fleet",
    by_fleet_command: "fleet",
}


def is_value(found: Any, expected: Any) -> bool:
    """Of objects and lists of objects, the fields that were given."""
    if isinstance(expected, dict):
        return all(is_value(found[name], one) for name, one in expected.items())
    if isinstance(expected, list):
        return len(found) == len(expected) and all(map(is_value, found, expected))
    return bool(found == expected)


def test_every_field_has_a_row() -> None:
    assert TABLE.keys() == FIELDS.keys()


def assert_counts(given: Given, surfaces: dict[Callable[[Given], tuple[Any, str]], str]) -> None:
    found = {}
    for surface in surfaces:
        given.run_id = surface.__name__
        value, layer = surface(given)
        found[surface.__name__] = layer if is_value(value, TABLE[given.name][1]) else value
    assert found == {surface.__name__: layer for surface, layer in surfaces.items()}


@pytest.mark.parametrize("inline", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", TABLE)
def test_a_field_counts_wherever_a_definition_gives_it(given: Given, name: str) -> None:
    assert_counts(given, DEFINED)


@pytest.mark.parametrize("name", RULES)
def test_a_field_counts_wherever_a_rule_gives_it(given: Given, name: str) -> None:
    given.inline.define("w", step(work, name="s"))
    assert_counts(given, RULED)


@pytest.mark.parametrize("name", sorted(NOT_IN_RULES))
def test_what_rules_cannot_have_is_refused_by_name(given: Given, name: str) -> None:
    given.inline.define("w", step(work, name="s"))
    for surface in (by_client, by_async_client, by_run_many, by_schedule, by_fleet, by_async_fleet):
        with pytest.raises(InvalidArgument) as refused:
            surface(given)
        assert refused.value.problem.endswith(f"option {name!r} is part of the workflow, not of a rule.")


@pytest.mark.parametrize("name", [name for name in RULES if name not in ("delay", "scheduled_at", "queue")])
@pytest.mark.parametrize("layer", ["run", "fleet"])
def test_an_attempt_records_the_field_of_a_rule(given: Given, name: str, layer: str) -> None:
    """It is explained after the rule has gone, and the history has the rules of the run."""
    given.inline.define("w", step(work, name="s"))
    if layer == "fleet":
        rule = given.inline.rival.set_policy("s", given.options)
        given.inline.keeper.run_once()
    given.started(policies=[("s", given.options)] if layer == "run" else None)
    given.inline.drain()
    state = given.inline.rival.state("r")
    assert state.status == "completed"
    if layer == "fleet":
        assert given.inline.rival.remove_policy(rule.id)
    assert rebuild(given.inline.rival.history("r")).policies == state.policies
    value, found = given.explained()
    assert found == layer
    assert is_value(value, TABLE[name][1]), value


@pytest.mark.parametrize("inline", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", TABLE)
def test_a_step_of_a_flow_has_the_field_or_names_it(given: Given, name: str) -> None:
    def body(ctx: Any) -> Any:
        return ctx.step(work, name="s", **given.options)

    async def waits(ctx: Any) -> Any:
        return await ctx.step(work, name="s", **given.options)

    for run_id, function in (("sync", body), ("async", waits)):
        given.inline.define(run_id, flow("f", register=False)(function))
        given.inline.rival.run(run_id, {"x": 1}, run_id)
        given.inline.drain()
        state = given.inline.rival.state(run_id)
        if name in fields_of("flow_step"):
            assert (state.status, state.error) == ("completed", None)
        else:
            assert (state.error or {})["message"].startswith(f"step 's' of flow 'f': option {name}: ")


@pytest.mark.parametrize("name", TABLE)
def test_a_guide_shows_the_field(name: str) -> None:
    """Beside its row in the reference, which is generated."""
    guides = [page for page in pages() if "how-to" in page.path.parts]
    assert any(f"`{name}" in page.text or f"{name}=" in page.text or f'"{name}"' in page.text for page in guides)
