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
        store.register_workflow(workflow.name, workflow.plan, None, "Ships")
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
    told = cli("plan", "order", "--json").json
    assert (told["name"], told["version"], told["description"]) == ("order", second, "Ships")
    assert Plan.load(told["plan"]).version == second
    assert cli("plan", "order", "--mermaid").out.startswith("flowchart TD\n")


def test_the_difference_is_that_of_the_last_change_unless_versions_are_given(cli: Cli, register: Register) -> None:
    first, second, third = register(check), register(check, ship), register(step(check, timeout=5), ship)
    assert cli("plan", "order", "--diff").out.splitlines() == [
        f"order: {second} → {third}", "~ check  timeout: default → 5",
    ]  # fmt: skip
    assert "+ ship" in cli("plan", "order", "--diff", first).out
    assert "- ship" in cli("plan", "order", "--diff", third, first).out
    told = cli("plan", "order", "--diff", first, second, "--json").json
    assert (told["old"], told["new"], told["same"], told["added"], told["changed"]) == (
        first, second, False, ["ship"], [],
    )  # fmt: skip
    assert "no difference" in cli("plan", "order", "--diff", first, first).out


def test_what_the_files_would_change_can_be_seen_before_they_are_deployed(cli: Cli, register: Register) -> None:
    register(check)
    (cli.directory / "order.py").write_text("def check(): ...\ndef ship(): ...\nsteps = [check, ship]\n")
    assert "+ ship" in cli("plan", "order", "--diff", "-w", "order.py").out


def test_files_are_drawn_without_a_database(bare: Cli) -> None:
    assert bare("plan", "greet", "-w", "flows.py").out.splitlines()[1:] == ["└─ greet"]
    assert "max_attempts=3, base_delay=0.01" in bare("plan", "broken", "--workflows", "flows.py").out
    assert "greet" in bare("plan", "nix", "-w", "flows.py", code=1).err
    (bare.directory / "bad.py").write_text("steps = [1]")
    assert bare("plan", "bad", "-w", "bad.py", "--json", code=1).error["type"] == "DefinitionError"


def test_what_is_not_there_is_said_in_one_line(cli: Cli, register: Register) -> None:
    assert "'order'" in cli("plan", "order", code=1).err
    version = register(check)
    assert "one version only" in cli("plan", "order", "--diff", code=2).err
    assert version in cli("plan", "order", "--version", "zzz", code=2).err
    assert "--diff" in cli("plan", "order", version, code=2).err
    assert cli("plan", "order", "--diff", "1", "2", "3", code=2).err.count("\n") == 1
