"""`rival`, command by command, as real processes on real servers. What needs workers is in `test_cli_fleet.py`."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from sqlalchemy import text

from rival_client import Rival
from rival_client.settings import Settings
from rival_workers import create_workflow
from rival_workers.dev.stack import Stack, create_database, drop_database
from rival_workers.store import open_store
from tests.acceptance.conftest import Cli

DOWN = "postgresql://rival:s3cret@127.0.0.1:1/rival"


class Greeting(BaseModel):
    name: str
    times: int = 1


def greet(input: Greeting) -> str:
    return f"hello {input.name}"


@pytest.fixture
def shop(cli: Cli, settings: Settings) -> Cli:
    """The workflow `greet` is registered, as a worker's start leaves it; no worker runs."""
    workflow = create_workflow("greet", description="Says hello").input(Greeting).step(greet).build()
    store = open_store(settings.require_database())
    store.register_workflow(workflow.name, workflow.plan, workflow.input_schema, workflow.description)
    store.close()
    return cli


@pytest.fixture
def empty_url(stack: Stack) -> Iterator[str]:
    """A database without Rival's tables."""
    name = f"empty_{uuid.uuid4().hex[:12]}"
    yield create_database(stack.database_url, name)
    drop_database(stack.database_url, name)


# -- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [("ls",), ("run", "greet", "{}"), ("show", "x"), ("db", "upgrade"), ("worker", "-w", "flows.py")]
)
def test_without_a_database_a_command_says_what_to_set(bare: Cli, args: tuple[str, ...]) -> None:
    answer = bare(*args, code=1)
    assert answer.err.count("\n") == 1
    assert "RIVAL_DATABASE_URL" in answer.err or "RIVAL_BROKER_URL" in answer.err
    assert bare(*args, "--json", code=1).error["type"] == "ConfigurationError"


def test_a_database_that_is_down_is_said_at_once_in_one_line_without_its_password(bare: Cli) -> None:
    before = time.monotonic()
    answer = bare("ls", code=1, RIVAL_DATABASE_URL=DOWN)
    assert time.monotonic() - before < 20
    assert "does not answer" in answer.err
    assert answer.err.count("\n") == 1
    assert "s3cret" not in answer.err
    assert bare("ls", "--json", code=1, RIVAL_DATABASE_URL=DOWN).error["type"] == "DatabaseUnavailable"


@pytest.mark.parametrize("url", ["mysql://x/y", "postgresql://u:s3cret@host:port/x", "nonsense"])
def test_a_url_that_is_none_is_said(bare: Cli, url: str) -> None:
    answer = bare("ls", code=1, RIVAL_DATABASE_URL=url)
    assert "postgresql://" in answer.err
    assert "s3cret" not in answer.err


def test_a_database_without_tables_names_the_cure_and_the_cure_works(bare: Cli, empty_url: str) -> None:
    bare.env["RIVAL_DATABASE_URL"] = empty_url
    assert "rival db upgrade" in bare("ls", code=1).err
    assert bare("db", "version", "--json").json["current"] is False
    first = bare("db", "upgrade", "--json").json
    assert (first["before"], first["version"]) == (None, first["head"])
    assert bare("db", "upgrade", "--json").json["before"] == first["head"]
    assert "up to date" in bare("db", "version").out
    assert bare("ls").out == "no runs\n"


def test_an_unknown_workflow_is_refused_with_the_known_ones(shop: Cli) -> None:
    assert "'nix'" in shop("run", "nix", "{}", code=1).err
    error = shop("run", "nix", "{}", "--json", code=1).error
    assert error["type"] == "UnknownWorkflow"
    assert "greet" in error["message"]


def test_bad_json_is_a_usage_error(shop: Cli) -> None:
    for given in ("{'name': 1}", "", "@missing.json", "-"):
        answer = shop("run", "greet", given, code=2)
        assert "JSON" in answer.err
        assert answer.err.count("\n") == 1
    assert shop("run", "greet", "{", "--json", code=2).error["type"] == "BadParameter"
    assert shop("ls", "--json").json == {"runs": []}


def test_misuse_is_one_line_and_exit_code_2(bare: Cli) -> None:
    for args in (("nix",), ("run",), ("ls", "--since", "soon"), ("ls", "--limit", "0"), ("ls", "--status", "odd")):
        answer = bare(*args, code=2)
        assert answer.err.count("\n") == 1
        assert "--help" in answer.err


def test_invalid_input_lists_all_problems_and_starts_nothing(shop: Cli) -> None:
    answer = shop("run", "greet", '{"times": "many"}', code=1)
    assert '"name" is a required property' in answer.err
    assert "times" in answer.err
    assert len(shop("run", "greet", '{"times": "many"}', "--json", code=1).error["problems"]) == 2
    assert shop("ls", "--json").json == {"runs": []}


@pytest.mark.parametrize("args", [("show", "nix"), ("wait", "nix"), ("cancel", "nix")])
def test_a_run_that_is_not_there_is_said(cli: Cli, args: tuple[str, ...]) -> None:
    assert "no run 'nix'" in cli(*args, code=1).err
    assert cli(*args, "--json", code=1).error["type"] == "RunNotFound"


# -- runs -------------------------------------------------------------------------------------------------


def test_input_comes_as_text_from_a_file_or_from_standard_input(shop: Cli) -> None:
    (shop.directory / "input.json").write_text('{"name": "file"}')
    shop("run", "greet", '{"name": "text"}', "--run-id", "a")
    shop("run", "greet", "@input.json", "--run-id", "b")
    shop("run", "greet", "-", "--run-id", "c", stdin='{"name": "stdin"}')
    assert [run["input"]["name"] for run in shop("ls", "--json").json["runs"]] == ["stdin", "file", "text"]


def test_the_same_id_and_input_twice_is_one_run_and_another_input_a_conflict(shop: Cli) -> None:
    args = ("run", "greet", '{"name": "ada"}', "--run-id", "order-1", "--json")
    assert shop(*args).json == {"run_id": "order-1", "workflow": "greet", "status": "started"}
    assert shop(*args).json["status"] == "running"
    error = shop("run", "greet", '{"name": "ben"}', "--run-id", "order-1", "--json", code=1).error
    assert error["type"] == "RunConflict"


def test_ls_filters_and_shows_the_newest_first(shop: Cli, rival: Rival) -> None:
    for name in ("one", "two", "three"):
        rival.run("greet", {"name": name}, name)
    rival.cancel("two")
    assert [run["run_id"] for run in shop("ls", "--json").json["runs"]] == ["three", "two", "one"]
    assert [run["run_id"] for run in shop("ls", "--status", "cancelled", "--json").json["runs"]] == ["two"]
    assert len(shop("ls", "--limit", "1", "--json").json["runs"]) == 1
    assert len(shop("ls", "--since", "1h", "--workflow", "greet", "--json").json["runs"]) == 3
    assert shop("ls", "--since", "2100-01-01T00:00", "--json").json == {"runs": []}
    assert shop("ls", "--workflow", "nix").out == "no runs\n"
    assert "two" in shop("ls").out


def test_cancel_ends_a_run_once(shop: Cli, rival: Rival) -> None:
    rival.run("greet", {"name": "ada"}, "a")
    assert shop("cancel", "a", "--json").json == {"run_id": "a", "cancelled": True, "status": "cancelled"}
    assert shop("cancel", "a", "--json").json == {"run_id": "a", "cancelled": False, "status": "cancelled"}
    assert "ended already" in shop("cancel", "a").out
    shown = shop("show", "a", "--history", "--json").json
    assert shown["status"] == "cancelled"
    assert shown["history"][-1]["what"] == "cancelled"


def test_wait_gives_up_and_the_run_goes_on(shop: Cli, rival: Rival) -> None:
    rival.run("greet", {"name": "ada"}, "a")
    assert "still pending" in shop("wait", "a", "--timeout", "0.3", code=1).err
    assert shop("wait", "a", "--timeout", "0.3", "--json", code=1).error["type"] == "WaitTimeout"


def test_a_dead_broker_does_not_keep_a_run_from_starting(shop: Cli) -> None:
    started = shop("run", "greet", '{"name": "ada"}', "--json", RIVAL_BROKER_URL="redis://127.0.0.1:1/0").json
    assert shop("show", started["run_id"], "--json").json["status"] == "pending"


def test_workflows_are_listed_with_their_steps_and_schema(shop: Cli) -> None:
    [found] = shop("workflows", "--json").json["workflows"]
    assert (found["name"], found["description"]) == ("greet", "Says hello")
    assert found["input_schema"]["required"] == ["name"]
    assert "Says hello" in shop("workflows").out


def test_what_users_put_into_a_run_does_not_reach_the_terminal_as_control(shop: Cli, rival: Rival) -> None:
    rival.run("greet", {"name": "\x1b[2Jgone [red]"}, "\x1b[31mred")
    for shown in (shop("ls").out, shop("show", "\x1b[31mred").out):
        assert "\x1b" not in shown
    assert "[red]" in shop("show", "\x1b[31mred").out


# -- doctor -----------------------------------------------------------------------------------------------


def statuses(answer: Any) -> dict[str, str]:
    """Check -> its worst status."""
    order = ("ok", "warn", "fail")
    found: dict[str, str] = {}
    for check in answer.json["checks"]:
        found[check["check"]] = max(check["status"], found.get(check["check"], "ok"), key=order.index)
    return found


def test_doctor_finds_nothing_broken_on_a_fresh_database(cli: Cli) -> None:
    answer = cli("doctor", "--json", RIVAL_LEASE="15")
    found = statuses(answer)
    assert answer.json["healthy"] is True
    assert found.pop("workers") == "warn"  # none has been started
    assert set(found.values()) == {"ok"}
    assert {"database", "schema", "broker", "broker memory", "queue", "durability", "clock", "settings"} <= set(found)
    assert "rival worker" in cli("doctor").out


def test_doctor_says_what_to_do_about_missing_servers(bare: Cli) -> None:
    answer = bare("doctor", "--json", code=1)
    assert {name for name, status in statuses(answer).items() if status == "fail"} == {"database", "broker"}
    assert all(check["advice"] for check in answer.json["checks"] if check["status"] == "fail")


def test_doctor_says_which_servers_are_down_and_no_secrets(bare: Cli) -> None:
    env = {"RIVAL_DATABASE_URL": DOWN, "RIVAL_BROKER_URL": "redis://:hush@127.0.0.1:1/0"}
    answer = bare("doctor", "--json", code=1, **env)
    assert {name for name, status in statuses(answer).items() if status == "fail"} == {"database", "broker"}
    assert not {"s3cret", "hush"} & set(answer.out.replace("@", ":").split(":"))


def test_doctor_says_that_the_schema_is_behind(cli: Cli, empty_url: str) -> None:
    answer = cli("doctor", "--json", code=1, RIVAL_DATABASE_URL=empty_url)
    assert statuses(answer)["schema"] == "fail"
    assert "rival db upgrade" in answer.out


def test_doctor_says_which_settings_are_dangerous(cli: Cli, settings: Settings) -> None:
    for env in ({"RIVAL_FAILPOINT": "after_finish_commit"}, {"RIVAL_LEASE": "0.5"}):
        assert statuses(cli("doctor", "--json", code=1, **env))["settings"] == "fail"
    for env in ({"RIVAL_LEASE": "2"}, {"RIVAL_RING_GRACE": "0.1"}, {"RIVAL_MAX_PAYLOAD": "999999999"}):
        assert statuses(cli("doctor", "--json", **env))["settings"] == "warn"


def test_doctor_says_that_commits_are_not_safe(cli: Cli, database_url: str, rival: Rival) -> None:
    name = database_url.partition("?")[0].rpartition("/")[2]
    with rival.database.autocommit() as connection:
        connection.execute(text(f'ALTER DATABASE "{name}" SET synchronous_commit = off'))
    answer = cli("doctor", "--json", code=1)
    assert statuses(answer)["durability"] == "fail"
    assert "synchronous_commit=on" in answer.out


def test_doctor_sees_runs_that_nobody_works_on(shop: Cli, rival: Rival) -> None:
    rival.run("greet", {"name": "ada"}, "late")
    rival.run("greet", {"name": "ada"}, "parked")
    with rival.database.transaction() as connection:
        connection.execute(text("UPDATE rival_runs SET ring_at = now() - interval '1 hour' WHERE id = 'late'"))
        connection.execute(text("UPDATE rival_runs SET parked = 'nobody has it' WHERE id = 'parked'"))
    answer = shop("doctor", "--json", code=1)
    found = statuses(answer)
    assert (found["workers"], found["backlog"], found["parked"]) == ("fail", "warn", "warn")
    assert "nobody has it" in answer.out


def test_doctor_sees_executors_that_have_stopped_beating(cli: Cli, settings: Settings) -> None:
    store = open_store(settings.require_database())
    store.add_executor("alive", "elsewhere", 1, "w", lease=60)
    store.add_executor("dead", "elsewhere", 2, "w", lease=-1)
    store.close()
    answer = cli("doctor", "--json")
    assert statuses(answer)["workers"] == "warn"
    assert "1 live executor" in answer.out


def test_doctor_warns_of_a_broker_that_is_open_to_others() -> None:
    from rival_workers.cli.broker_checks import is_open_to_others

    assert is_open_to_others("redis://cache.internal:6379/0")
    assert is_open_to_others("redis://10.0.0.7:6379/0")
    for safe in (
        "redis://127.0.0.1:6379",
        "redis://localhost",
        "redis://[::1]:6379",
        "redis://:pw@10.0.0.7",
        "unix:///x",
    ):
        assert not is_open_to_others(safe)


# -- what a worker refuses --------------------------------------------------------------------------------


def test_worker_refuses_broken_files_with_every_problem_at_once(cli: Cli) -> None:
    (cli.directory / "one.py").write_text("def first(nonsense, more): ...\nsteps = [first]")
    (cli.directory / "two.py").write_text("import nowhere")
    answer = cli("worker", "--workflows", "one.py", "--workflows", "two.py", "--json", code=1)
    assert answer.error["type"] == "DefinitionError"
    assert len(answer.error["problems"]) == 2
    said = cli("worker", "-w", "one.py", "-w", "two.py", code=1).err
    assert "nonsense" in said
    assert "nowhere" in said


def test_worker_refuses_to_start_with_nothing_to_do(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    assert "--workflows" in cli("worker", code=1).err
    assert "no workflow" in cli("worker", "-w", "nothing", code=1).err
    assert "no such file" in cli("worker", "-w", "missing.py", code=1).err


def test_worker_refuses_a_schema_that_is_behind(cli: Cli, empty_url: str) -> None:
    assert "rival db upgrade" in cli("worker", "-w", "flows.py", code=1, RIVAL_DATABASE_URL=empty_url).err


def test_flower_without_a_broker_says_what_to_do(bare: Cli) -> None:
    assert "rival dev" in bare("flower", code=1).err
