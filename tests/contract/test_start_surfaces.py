"""Every option of a start, wherever runs are started: both clients, `run_many`, commands, children, and schedules of a
client, a command, a builder and a file. Each of them has its effect, or is refused by its name.

The table is compared with the options that type checkers know, so an option without a row fails.
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

from rival_client import AsyncRival, InvalidArgument, Run
from rival_client.model.rebuild import rebuild
from rival_client.model.starts.run_options import CommonOptions, RunOptions
from rival_workers import DefinitionError, create_workflow, flow, step
from rival_workers.definition.files import register_workflow_file
from tests.contract.test_cli_fuzz import run_command
from tests.support.inline import Inline

AT = dt.datetime(2040, 1, 2, tzinfo=dt.UTC)
RULES = {"rules": [{"match": {"name": "s"}, "options": {"timeout": 60.0}}], "mode": "merge"}


@dataclass(frozen=True)
class Row:
    """The options as a call, and as a command; what is seen of the run, and what then."""

    options: dict[str, Any]
    words: list[str]
    sees: Callable[[Run], Any]
    expected: Any


def seconds(run: Run, at: dt.datetime | None) -> float | None:
    """Since the start of the run."""
    return None if at is None else round((at - run.created_at).total_seconds())


def due(run: Run) -> float | None:
    return seconds(run, run.due_at)


DEBOUNCE: dict[str, Any] = {"debounce": 60, "key": "k"}
BATCH: dict[str, Any] = {"batch": 9, "within": 60, "key": "k"}
RULE_WORDS = ["--policy", '["s", {"timeout": 60}]']
TABLE = {
    "labels": Row({"labels": {"tenant": "a"}}, ["--label", "tenant=a"], lambda run: run.labels, {"tenant": "a"}),
    "delay": Row({"delay": 60}, ["--delay", "60"], due, 60),
    "scheduled_at": Row({"scheduled_at": AT}, ["--scheduled-at", AT.isoformat()], lambda run: run.due_at, AT),
    "deadline": Row({"deadline": 60}, ["--deadline", "60"], lambda run: seconds(run, run.deadline_at), 60),
    "priority": Row({"priority": "low"}, ["--priority", "low"], lambda run: run.priority, "low"),
    "singleton": Row({"singleton": "k"}, ["--singleton", "k"], lambda run: run.singleton, "k"),
    "on_conflict": Row(
        {"singleton": "k", "on_conflict": "queue"},
        ["--singleton", "k", "--on-conflict", "queue"],
        lambda run: run.singleton,
        "k",
    ),
    "policies": Row({"policies": [("s", {"timeout": 60})]}, RULE_WORDS, lambda run: run.policies, RULES),
    "policies_mode": Row(
        {"policies": [("s", {"timeout": 60})], "policies_mode": "replace"},
        [*RULE_WORDS, "--policies-mode", "replace"],
        lambda run: run.policies,
        {**RULES, "mode": "replace"},
    ),
    "debounce": Row(DEBOUNCE, ["--debounce", "60", "--key", "k"], due, 60),
    "max_wait": Row(
        {**DEBOUNCE, "max_wait": 90}, ["--debounce", "60", "--key", "k", "--max-wait", "90"], lambda run: due(run), 60
    ),
    "collect": Row(
        {**DEBOUNCE, "collect": True},
        ["--debounce", "60", "--key", "k", "--collect"],
        lambda run: run.input,
        [{"x": 1}],
    ),
    "batch": Row(BATCH, ["--batch", "9", "--within", "60", "--key", "k"], lambda run: run.gathered, 1),
    "within": Row(BATCH, ["--batch", "9", "--within", "60", "--key", "k"], due, 60),
    "key": Row(DEBOUNCE, ["--debounce", "60", "--key", "k"], lambda run: run.gathered, 1),
}
GATHER = {"debounce", "max_wait", "collect", "batch", "within", "key"}
TIMES = {"delay", "scheduled_at"}


class Starts:
    def __init__(self, inline: Inline, folder: Path) -> None:
        self.inline, self.rival, self.folder = inline, inline.rival, folder
        inline.define("w", step(lambda: "done", name="s"))

    def command(self, *words: str) -> Any:
        code, out, err = run_command([*words, "--json"])
        if code != 0:
            raise Refused(err)
        return json.loads(out)

    def ticked(self, name: str) -> str:
        return self.rival.fire_schedule(name)


class Refused(Exception):
    """By a command."""


def by_client(starts: Starts, row: Row) -> str:
    return starts.rival.run("w", {"x": 1}, **row.options).run_id


def by_async_client(starts: Starts, row: Row) -> str:
    async def use() -> str:
        return (await AsyncRival(sync=starts.rival).run("w", {"x": 1}, **row.options)).run_id

    return asyncio.run(use())


def by_run_many(starts: Starts, row: Row) -> str:
    [one] = starts.rival.run_many("w", [{"x": 1}], **row.options)
    return one.run_id


def by_async_run_many(starts: Starts, row: Row) -> str:
    async def use() -> str:
        [one] = await AsyncRival(sync=starts.rival).run_many("w", [{"x": 1}], **row.options)
        return one.run_id

    return asyncio.run(use())


def by_command(starts: Starts, row: Row) -> str:
    return str(starts.command("run", "w", '{"x": 1}', *row.words)["run_id"])


def by_child(starts: Starts, row: Row) -> str:
    def parent(ctx: Any) -> Any:
        return ctx.spawn("w", {"x": 1}, **row.options).run_id

    starts.inline.define("parent", flow("f", register=False)(parent))
    starts.rival.run("parent", None, "p")
    starts.inline.drain()
    ended = starts.rival.result("p")
    if ended.error is not None:
        raise Refused(ended.error["message"])
    return str(ended.result)


def by_schedule(starts: Starts, row: Row) -> str:
    starts.rival.schedule("w", 3600, name="n", input={"x": 1}, **row.options)
    return starts.ticked("n")


def by_async_schedule(starts: Starts, row: Row) -> str:
    async def use() -> None:
        await AsyncRival(sync=starts.rival).schedule("w", 3600, name="n", input={"x": 1}, **row.options)

    asyncio.run(use())
    return starts.ticked("n")


def by_schedule_command(starts: Starts, row: Row) -> str:
    starts.command("schedule", "add", "n", "w", "3600", '{"x": 1}', *row.words)
    return starts.ticked("n")


def by_builder(starts: Starts, row: Row) -> str:
    made = create_workflow("w").step(step(lambda: "done", name="s")).schedule(3600, input={"x": 1}, **row.options)
    starts.inline.registry.renew(made.build())
    starts.inline.process.register_workflows()
    return starts.ticked("w")


def by_file(starts: Starts, row: Row) -> str:
    source = "import datetime\nfrom rival_workers import Schedule\n\ndef s():\n    return 'done'\n\nsteps = [s]\n"
    source += f"schedule = Schedule(3600, input={{'x': 1}}, **{row.options!r})\n"
    (starts.folder / "filed.py").write_text(source)
    register_workflow_file(starts.folder / "filed.py", starts.inline.registry)
    starts.inline.process.register_workflows()
    run_id = starts.ticked("filed")
    [run] = starts.rival.runs(workflow="filed")
    assert run.run_id == run_id
    return run_id


#: What each of them refuses.
SURFACES: dict[Callable[[Starts, Row], str], set[str]] = {
    by_client: set(),
    by_async_client: set(),
    by_command: set(),
    by_run_many: {*GATHER, "singleton"},
    by_async_run_many: {*GATHER, "singleton"},
    by_child: {*GATHER, "singleton", "on_conflict"},
    by_schedule: {*GATHER, *TIMES, "singleton"},
    by_async_schedule: {*GATHER, *TIMES, "singleton"},
    by_schedule_command: {*GATHER, *TIMES, "singleton"},
    by_builder: {*GATHER, *TIMES, "singleton"},
    by_file: {*GATHER, *TIMES, "singleton"},
}
#: The option that the error names, where it is another one: the first of those that belong together.
NAMED = {**dict.fromkeys(("max_wait", "collect", "key"), "debounce"), "within": "batch"}


@pytest.fixture
def starts(inline: Inline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Starts:
    monkeypatch.setenv("RIVAL_DATABASE_URL", inline.settings.database_url or "")
    monkeypatch.delenv("RIVAL_BROKER_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    return Starts(inline, tmp_path)


def test_every_option_has_a_row() -> None:
    assert TABLE.keys() == RunOptions.__annotations__.keys() | CommonOptions.__annotations__.keys()


@pytest.mark.parametrize("name", TABLE)
@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.__name__)
def test_an_option_counts_wherever_a_run_is_started_or_is_refused(starts: Starts, name: str, surface: Any) -> None:
    row = TABLE[name]
    if name in SURFACES[surface]:
        with pytest.raises((InvalidArgument, DefinitionError, Refused, TypeError)) as refused:
            surface(starts, row)
        named = "singleton" if (surface, name) == (by_child, "on_conflict") else NAMED.get(name, name)
        assert named in str(refused.value).replace("-", "_")
        assert list(starts.rival.runs(workflow="w")) == []
        return
    run_id = surface(starts, row)
    assert row.sees(starts.rival.state(run_id)) == row.expected


#: What the history has of an option, by the name in the rebuilt run.
IN_HISTORY = {"labels", "deadline", "priority", "singleton", "policies"}


@pytest.mark.parametrize("name", sorted(IN_HISTORY))
def test_the_history_has_the_option(starts: Starts, name: str) -> None:
    run_id = by_client(starts, TABLE[name])
    starts.inline.drain()
    rebuilt, run = rebuild(starts.rival.history(run_id)), starts.rival.state(run_id)
    if name == "deadline":
        assert rebuilt.deadline is not None
        assert dt.datetime.fromisoformat(rebuilt.deadline) == run.deadline_at
    else:
        assert getattr(rebuilt, name) == getattr(run, name) == TABLE[name].expected
