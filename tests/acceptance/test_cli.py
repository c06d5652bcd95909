"""`rival`, command by command, as real processes on real servers. What needs workers is in `test_cli_fleet.py`."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from rival_client import Rival
from tests.acceptance.conftest import DOWN, Cli

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
    answer = bare("ls", code=2, RIVAL_DATABASE_URL=url)
    assert "postgresql://" in answer.err
    assert "s3cret" not in answer.err


@pytest.mark.parametrize("args", [("ls",), ("worker", "-w", "flows.py"), ("dev",), ("plan", "flows.py")])
@pytest.mark.parametrize("value", ["nan", "-1", "soon", "9" * 5000])
def test_a_setting_that_cannot_be_used_is_said_in_a_line(bare: Cli, args: tuple[str, ...], value: str) -> None:
    answer = bare(*args, code=2, RIVAL_RING_GRACE=value)
    assert answer.err.count("\n") == 1
    assert f"RIVAL_RING_GRACE='{value[:50]}" in answer.err
    assert "seconds from 0.001 to 86,400" in answer.err


def test_a_setting_that_cannot_be_used_is_said_in_json(bare: Cli) -> None:
    assert bare("ls", "--json", code=2, RIVAL_MAX_PAYLOAD="1 MB").error["type"] == "InvalidSetting"


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
    assert shop("ls", "--json").json == {"runs": [], "next": None}


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
    assert shop("ls", "--json").json == {"runs": [], "next": None}


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
    assert shop("ls", "--since", "2100-01-01T00:00", "--json").json == {"runs": [], "next": None}
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


# -- what a worker refuses --------------------------------------------------------------------------------


@pytest.mark.slow
def test_worker_refuses_broken_files_with_every_problem_at_once(cli: Cli) -> None:
    (cli.directory / "one.py").write_text("def first(nonsense, more): ...\nsteps = [first]")
    (cli.directory / "two.py").write_text("import nowhere")
    answer = cli("worker", "--workflows", "one.py", "--workflows", "two.py", "--json", code=1)
    assert answer.error["type"] == "DefinitionError"
    assert len(answer.error["problems"]) == 2
    said = cli("worker", "-w", "one.py", "-w", "two.py", code=1).err
    assert "nonsense" in said
    assert "nowhere" in said


@pytest.mark.slow
def test_worker_refuses_to_start_with_nothing_to_do(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    assert "--workflows" in cli("worker", code=1).err
    assert "no workflow" in cli("worker", "-w", "nothing", code=1).err
    assert "no such file" in cli("worker", "-w", "missing.py", code=1).err


def test_worker_refuses_a_schema_that_is_behind(cli: Cli, empty_url: str) -> None:
    assert "rival db upgrade" in cli("worker", "-w", "flows.py", code=1, RIVAL_DATABASE_URL=empty_url).err


def test_flower_without_a_broker_says_what_to_do(bare: Cli) -> None:
    assert "rival dev" in bare("flower", code=1).err


def test_a_misspelt_command_or_workflow_suggests_the_right_one(shop: Cli) -> None:
    assert "No such command 'wrokflows'; did you mean 'workflows'?" in shop("wrokflows", code=2).err
    assert "No such command 'zzz' (see" in shop("zzz", code=2).err
    assert "did you mean 'greet'?" in shop("run", "Greeet", code=1).err
