"""`rival plan`: from the database, from files, and between versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from rival_client.settings import Settings
from rival_workers import branch, create_workflow, step
from rival_workers.engine.plan import Plan
from rival_workers.store import open_store
from tests.acceptance.conftest import Cli

Register = Callable[..., str]


def check() -> None: ...
def ship() -> None: ...
def is_valid() -> bool:
    return True


@pytest.fixture
def register(settings: Settings) -> Register:
    """As a worker's start does, one version after the other; gives the version."""

    def register(*steps: Any) -> str:
        workflow = create_workflow("order").steps(steps).build()
        store = open_store(settings.require_database())
        store.register_workflow(workflow.name, workflow.plan, None, "Ships", policies=workflow.document)
        store.close()
        return workflow.version

    return register


def test_a_stored_plan_is_drawn_at_its_newest_or_at_a_given_version(cli: Cli, register: Register) -> None:
    first = register(check)
    second = register(step(check, timeout=5), branch("valid?", when=is_valid, then=[ship]))
    drawn = cli("plan", "order").out.splitlines()
    assert drawn == [
        f"order (version {second})", "├─ check  timeout=5", "└─ valid?  branch", "   └─ then", "      └─ ship",
    ]  # fmt: skip
    assert cli("plan", "order", "--version", first[:6]).out.splitlines()[1:] == ["└─ check"]
    told = cli("plan", "order", "--json")
    told.prints_json({"name": "order", "version": "<version>", "description": "Ships", "plan": ..., "options": ...})
    assert told.json["version"] == Plan.load(told.json["plan"]).version == second
    cli("plan", "order", "--mermaid").prints(
        """
        flowchart TD
          start(["order"])
          n1["check<br/>timeout=5"]
          start --> n1
          n2{"valid?<br/>branch"}
          n1 --> n2
          n3["ship"]
          n2 -->|"then"| n3
          finish(["done"])
          n3 --> finish
          n2 -->|"otherwise"| finish
        """
    )


def test_the_difference_is_that_of_the_last_change_unless_versions_are_given(cli: Cli, register: Register) -> None:
    timed = step(check, timeout=5, on_error=ship)
    first, second, third = register(check), register(check, ship), register(timed, ship)
    assert cli("plan", "order", "--diff").out.splitlines() == [
        f"order: {second} → {third}", "~ check  on_error: default → True, timeout: default → 5",
    ]  # fmt: skip
    assert cli("plan", "order", "--diff", first).out.splitlines() == [
        f"order: {first} → {third}", "+ ship", "~ check  on_error: default → True, timeout: default → 5",
    ]  # fmt: skip
    assert cli("plan", "order", "--diff", third, first).out.splitlines() == [
        f"order: {third} → {first}", "- ship", "~ check  on_error: True → default, timeout: 5 → default",
    ]  # fmt: skip
    nothing: dict[str, Any] = {"added": [], "removed": [], "moved": [], "changed": []}
    told = cli("plan", "order", "--diff", first, second, "--json").json
    assert told == {"name": "order", "old": first, "new": second, "same": False, **nothing, "added": ["ship"]}
    same = cli("plan", "order", "--diff", first, first)
    assert same.out.splitlines() == [f"order: {first} → {first}", "no difference"]


def test_what_the_files_would_change_can_be_seen_before_they_are_deployed(cli: Cli, register: Register) -> None:
    register(check)
    written = (
        "from rival_workers import step\ndef check(): ...\ndef ship(): ...\nsteps = [step(check, timeout=5), ship]\n"
    )
    (cli.directory / "order.py").write_text(written)
    cli("plan", "order", "--diff", "-w", "order.py").prints(
        """
        order: <version> → <version> (files)
        + ship
        ~ check  timeout: default → 5
        """
    )


def test_files_are_drawn_without_a_database(bare: Cli) -> None:
    bare("plan", "greet", "-w", "flows.py").prints(
        """
        greet (version <version> (files))
        └─ greet
        """
    )
    bare("plan", "broken", "--workflows", "flows.py").prints(
        """
        broken (version <version> (files))
        └─ fails  max_attempts=3, base_delay=0.01
        """
    )
    bare("plan", "nix", "-w", "flows.py", code=1).complains(
        "rival: No workflow named 'nix' is registered. Known workflows: broken, greet, nap, patient. …"
    )
    (bare.directory / "bad.py").write_text("steps = [1]")
    problem = (
        "bad.py:1: workflow 'bad': steps[0]: 1 is not a step: give a function, step(function, …) or {'fn': function, …}"
    )
    error = bare("plan", "bad", "-w", "bad.py", "--json", code=1).error
    assert error == {"type": "DefinitionError", "message": problem, "problems": [problem]}


def test_what_is_not_there_is_said_in_one_line(cli: Cli, register: Register) -> None:
    cli("plan", "order", code=1).complains(
        "rival: No workflow named 'order' is registered. Known workflows: none. Workflows register when a worker that "
        "has them starts: `rival worker --workflows PATH`."
    )
    version = register(check)
    for words, told in (
        (("--diff",), "workflow 'order' has only one version: <version>"),
        (("--version", "zzz"), "'zzz': unknown version; the versions, newest first: <version>"),
        ((version,), "unexpected argument '<version>': versions are for --diff"),
        (("--diff", "1", "2", "3"), "unexpected argument '3': versions are for --diff"),
    ):
        cli("plan", "order", *words, code=2).complains(f"rival: {told} (see `rival plan --help`)")
