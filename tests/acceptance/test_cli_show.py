"""`rival show` of a run with composites: a tree for people, everything for programs."""

from __future__ import annotations

import json
from pathlib import Path

from rival_client.settings import Settings
from rival_workers import StepError, create_workflow, embedded, step
from rival_workers.definition.registry import Registry
from tests.acceptance.conftest import Cli


def hello() -> str:
    return "hello"


def numbers(input: int) -> list[int]:
    return list(range(input))


def double(item: int = 7) -> int:
    if item == 7:
        raise ValueError("seven")
    return item * 2


def is_odd(input: int) -> bool:
    return input % 2 == 1


def test_a_run_is_a_tree_and_many_items_are_one_line_unless_all_are_requested(bare: Cli, tmp_path: Path) -> None:
    registry = Registry()
    workflow = create_workflow("sums").step(hello).branch("odd?", when=is_odd, then=[step(hello, name="say")])
    workflow = workflow.for_each("each", items=numbers, do=[double], concurrency=4, on_failure="continue")
    workflow.register(registry)
    file = tmp_path / "runs.db"
    with embedded(file, registry=registry) as rival:
        rival.run("sums", 11, "many")
        rival.run("sums", 2, "few")
        assert {rival.wait("sums", run, 20).status for run in ("many", "few")} == {"completed"}
    bare.env["RIVAL_DATABASE_URL"] = Settings(database_url=f"sqlite:///{file}").require_database()

    lines = bare("show", "many").out.splitlines()
    first = [line.partition(" completed")[0].rstrip() for line in lines]
    at = first.index("hello")
    assert first[at : at + 6] == ["hello", "odd?", "  odd?!when", "  odd?/say", "each", "  each!items"]
    assert "each[…]" in lines[at + 6]
    assert "11 items: 10 done, 1 failed (--all shows each)" in lines[at + 6]

    every = bare("show", "many", "--all").out
    assert every.count("  each[10]") == 2
    assert "each[…]" not in every
    assert "ValueError: seven" in every
    assert "    each[1]/double" in bare("show", "few").out
    told = bare("show", "many", "--json").json
    assert len(told["steps"]) == 4 + 2 + 11 * 2
    assert [one["result"] for one in told["steps"] if one["path"] == "each[3]/double"] == [6]


def test_what_undid_a_step_is_shown_with_it(bare: Cli, tmp_path: Path) -> None:
    registry = Registry()
    create_workflow("booking").step(hello, name="reserve", compensate=hello).step(double).register(registry)
    file = tmp_path / "runs.db"
    with embedded(file, registry=registry) as rival:
        rival.run("booking", 7, "b-1")
        assert rival.wait("booking", "b-1", 20).status == "failed"
    bare.env["RIVAL_DATABASE_URL"] = Settings(database_url=f"sqlite:///{file}").require_database()
    shown = [line.split()[:2] for line in bare("show", "b-1").out.splitlines() if line]
    at = shown.index(["reserve", "completed"])
    assert shown[at : at + 4] == [
        ["reserve", "completed"],
        ["reserve!compensate", "completed"],
        ["double", "failed"],
        ["!compensate", "completed"],
    ]


def charge(run: object) -> None:
    raise StepError("declined", behavior="retry") from ValueError("card 7")


def broken() -> None:
    raise RuntimeError("\x1b[2J[red]handler")


def test_show_and_logs_print_the_tracebacks_of_what_failed(bare: Cli, tmp_path: Path) -> None:
    registry = Registry()
    create_workflow("pay").step(charge, max_attempts=2, base_delay=0.01, on_error=broken).register(registry)
    file = tmp_path / "runs.db"
    with embedded(file, registry=registry) as rival:
        assert rival.run("pay", None, "p").run_id == "p"
        assert rival.wait("pay", "p", 20).status == "failed"
    bare.env["RIVAL_DATABASE_URL"] = Settings(database_url=f"sqlite:///{file}").require_database()

    shown = bare("show", "p").out
    assert "charge, attempts 1 and 2:" in shown
    assert "charge!on_error, attempt 1:" in shown
    assert "  ValueError: card 7\n" in shown
    assert "The above exception was the direct cause" in shown
    assert shown.count('raise StepError("declined", behavior="retry") from ValueError("card 7")') == 1
    assert "\x1b" not in shown
    assert "[2J[red]handler" in shown
    assert "charge!on_error" in bare("show", "p", "--json").json["attempts"][-1]["path"]

    logged = bare("logs", "p").out
    assert "attempt 1 of 2 failed, next attempt in 0.01 s: StepError: declined (" in logged
    assert logged.count("  ValueError: card 7\n") == 2
    assert "\x1b" not in logged
    [last] = [json.loads(line) for line in bare("logs", "p", "--step", "charge!on_error", "--json").out.splitlines()]
    assert "Traceback" in last["fields"]["traceback"]
