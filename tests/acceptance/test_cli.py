"""`rival`, command by command, as real processes on real servers. What needs workers is in `test_cli_fleet.py`."""

from __future__ import annotations

import getpass
import time
from pathlib import Path
from typing import Any

import pytest

from rival_client import Rival
from tests.acceptance.conftest import DOWN, Cli

NO_DATABASE = (
    "No database is given. Set RIVAL_DATABASE_URL (postgresql://…), or pass database_url=…; `rival dev` brings its own "
    "and prints both URLs."
)
NO_BROKER = "No broker is given. Set RIVAL_BROKER_URL (redis://…)."
DOES_NOT_ANSWER = (
    "The database at postgresql://rival:***@127.0.0.1:1/rival does not answer (connection failed: connection to server "
    'at "127.0.0.1", port 1 failed: Connection refused…). Check that it runs and that RIVAL_DATABASE_URL is right; '
    "`rival doctor` checks the rest."
)
UNKNOWN = (
    "No workflow named {} is registered{}. Known workflows: greet. Workflows register when a worker that has them "
    "starts: `rival worker --workflows PATH`."
)
PENDING: dict[str, Any] = {
    "workflow": "greet", "version": "<version>", "status": "pending", "result": None, "error": None,
    "failed_step": None, "parked": None, "created_at": "<time>", "started_at": None, "completed_at": None,
    "parent_run_id": None, "parent_path": None, "paused_at": None, "labels": None, "due_at": None, "deadline_at": None,
    "policies": None, "singleton": None, "gathered": None, "priority": "normal", "queue": None,
}  # fmt: skip


# -- errors -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [("ls",), ("run", "greet", "{}"), ("show", "x"), ("db", "upgrade"), ("worker", "-w", "flows.py")]
)
def test_without_a_database_a_command_says_what_to_set(bare: Cli, args: tuple[str, ...]) -> None:
    message = NO_BROKER if args[0] == "worker" else NO_DATABASE
    bare(*args, code=1).complains(f"rival: {message}")
    assert bare(*args, "--json", code=1).error == {"type": "ConfigurationError", "message": message}


def test_a_database_that_is_down_is_said_at_once_in_one_line_without_its_password(bare: Cli) -> None:
    before = time.monotonic()
    answer = bare("ls", code=1, RIVAL_DATABASE_URL=DOWN)
    assert time.monotonic() - before < 20
    answer.complains(f"rival: {DOES_NOT_ANSWER}")
    assert bare("ls", "--json", code=1, RIVAL_DATABASE_URL=DOWN).error["type"] == "DatabaseUnavailable"


@pytest.mark.parametrize("url", ["mysql://x/y", "postgresql://u:s3cret@host:port/x", "nonsense"])
def test_an_invalid_url_is_refused_without_its_password(bare: Cli, url: str) -> None:
    bare("ls", code=2, RIVAL_DATABASE_URL=url).complains(
        f"rival: RIVAL_DATABASE_URL='{url.replace('s3cret', '***')}' is not a database URL: give "
        "postgresql://user:password@host:5432/name or sqlite:///file.db."
    )


@pytest.mark.parametrize("args", [("ls",), ("worker", "-w", "flows.py"), ("dev",), ("plan", "flows.py")])
@pytest.mark.parametrize("value", ["nan", "-1", "soon", "9" * 5000])
def test_a_setting_that_cannot_be_used_is_said_in_a_line(bare: Cli, args: tuple[str, ...], value: str) -> None:
    shown = f"'{value}'" if len(value) < 60 else f"'{value[:59]}…"
    bare(*args, code=2, RIVAL_RING_GRACE=value).complains(
        f"rival: RIVAL_RING_GRACE={shown} is not a number of seconds from 0.001 to 86,400."
    )


@pytest.mark.parametrize("names", ["a b", "", " , "])
@pytest.mark.parametrize("command", ["worker", "dev"])
def test_queues_that_cannot_be_served_are_refused_by_their_option(bare: Cli, command: str, names: str) -> None:
    bare(command, "-w", "flows.py", "-Q", names, code=2).complains(
        f"rival: Invalid value for '--queues' / '-Q': {names!r} is not a list of names of queues with commas between "
        f"them; a name has letters, digits or any of . : _ -. (see `rival {command} --help`)"
    )


def test_a_setting_that_cannot_be_used_is_said_in_json(bare: Cli) -> None:
    assert bare("ls", "--json", code=2, RIVAL_MAX_PAYLOAD="1 MB").error == {
        "type": "InvalidSetting",
        "message": "RIVAL_MAX_PAYLOAD='1 MB' is not a whole number of bytes from 1 to 1,073,741,823.",
    }


def test_a_database_without_tables_names_the_cure_and_the_cure_works(bare: Cli, empty_url: str) -> None:
    bare.env["RIVAL_DATABASE_URL"] = empty_url
    bare("ls", code=1).complains("rival: The database at … has no Rival tables yet. Run `rival db upgrade`.")
    found = bare("db", "version", "--json")
    head = found.json["head"]
    found.prints_json({"version": None, "head": head, "current": False})
    bare("db", "upgrade", "--json").prints_json({"before": None, "version": head, "head": head})
    bare("db", "upgrade", "--json").prints_json({"before": head, "version": head, "head": head})
    bare("db", "version").prints(f"{head} (up to date)")
    bare("ls").prints("no runs")


def test_an_unknown_workflow_is_refused_with_the_known_ones(shop: Cli) -> None:
    message = UNKNOWN.format("'nix'", "")
    shop("run", "nix", "{}", code=1).complains(f"rival: {message}")
    assert shop("run", "nix", "{}", "--json", code=1).error == {"type": "UnknownWorkflow", "message": message}


def test_bad_json_is_a_usage_error(shop: Cli) -> None:
    for given, problem in (
        ("{'name': 1}", """this is not JSON: …. Strings need double quotes: '{"key": "value"}'."""),
        ("", "this is not JSON: Expecting value: line 1 column 1 (char 0)."),
        ("@missing.json", "missing.json cannot be read: No such file or directory."),
        ("-", "this is not JSON: Expecting value: line 1 column 1 (char 0)."),
    ):
        shop("run", "greet", given, code=2).complains(
            f"rival: Invalid value for JSON: {problem} (see `rival run --help`)"
        )
    assert shop("run", "greet", "{", "--json", code=2).error["type"] == "BadParameter"
    shop("ls", "--json").prints_json({"runs": [], "next": None})


CONDITIONS = "give one of name, regex, kind, path, tag, workflow or label.NAME, as in name=charge."
#: What is given to --match -> what is wrong with it.
MATCHES = {
    "nam=": f"'nam=': {CONDITIONS}",
    "nam=charge": f"'nam=charge': {CONDITIONS}",
    "name=": "'name=': give NAME=VALUE, as in name=charge or label.tenant=acme.",
    "name": "'name': give NAME=VALUE, as in name=charge or label.tenant=acme.",
    "label.=acme": "'label.=acme': give NAME=VALUE, as in name=charge or label.tenant=acme.",
    "kind=stp": "kind: 'stp' is not one of step, flow, branch, parallel, for_each, loop, workflow, wait_event",
}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nix",), "No such command 'nix' (see `rival --help`)"),
        (("run",), "Missing argument 'NAME'. (see `rival run --help`)"),
        (("ls", "--since", "soon"), "Invalid value for '--since': 'soon' is not a time: … (see `rival ls --help`)"),
        (("ls", "--paused", "--not-paused"), "Give --paused or --not-paused: no run is both. …"),
        (("policy", "set", "timeout=60"), "Give --match NAME=VALUE or --workflow NAME for some steps, or --all for …"),
        (("policy", "set", "a=1", "--all", "--workflow", "w"), "Give --match NAME=VALUE or …"),
        *(
            (
                ("policy", "set", "a=1", "--match", given),
                f"Invalid value for '--match': {problem} (see `rival policy set --help`)",
            )
            for given, problem in MATCHES.items()
        ),
        (("ls", "--limit", "0"), "Invalid value for '--limit': 0 is not in the range x>=1. (see `rival ls --help`)"),
        (("ls", "--status", "odd"), "Invalid value for '--status': 'odd' is not one of … (see `rival ls --help`)"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(bare: Cli, args: tuple[str, ...], message: str) -> None:
    bare(*args, code=2).complains(f"rival: {message}")


def test_invalid_input_lists_all_problems_and_starts_nothing(shop: Cli) -> None:
    shop("run", "greet", '{"times": "many"}', code=1).complains(
        """
        rival: The input does not fit workflow 'greet'; no run was started:
          - "name" is a required property
          - times: "many" is not of type "integer"
        """
    )
    problems = ['"name" is a required property', 'times: "many" is not of type "integer"']
    assert shop("run", "greet", '{"times": "many"}', "--json", code=1).error["problems"] == problems
    shop("ls", "--json").prints_json({"runs": [], "next": None})


@pytest.mark.parametrize("args", [("show", "nix"), ("wait", "nix"), ("cancel", "nix")])
def test_a_run_that_is_not_there_is_said(cli: Cli, args: tuple[str, ...]) -> None:
    message = "Unknown run 'nix'. `rival ls` lists the runs."
    cli(*args, code=1).complains(f"rival: {message}")
    assert cli(*args, "--json", code=1).error == {"type": "RunNotFound", "message": message}


# -- runs -------------------------------------------------------------------------------------------------


def test_input_comes_as_text_from_a_file_or_from_standard_input(shop: Cli) -> None:
    (shop.directory / "input.json").write_text('{"name": "file"}')
    shop("run", "greet", '{"name": "text"}', "--run-id", "a").prints("started a")
    shop("run", "greet", "@input.json", "--run-id", "b").prints("started b")
    shop("run", "greet", "-", "--run-id", "c", stdin='{"name": "stdin"}').prints("started c")
    given = {"c": "stdin", "b": "file", "a": "text"}
    runs = [{"run_id": run_id, "input": {"name": name}, **PENDING} for run_id, name in given.items()]
    shop("ls", "--json").prints_json({"runs": runs, "next": None})


def test_the_same_id_and_input_twice_is_one_run_and_another_input_a_conflict(shop: Cli) -> None:
    args = ("run", "greet", '{"name": "ada"}', "--run-id", "order-1")
    shop(*args, "--json").prints_json({"run_id": "order-1", "workflow": "greet", "status": "started"})
    shop(*args, "--json").prints_json({"run_id": "order-1", "workflow": "greet", "status": "running"})
    shop(*args).prints("order-1 was started before")
    error = shop("run", "greet", '{"name": "ben"}', "--run-id", "order-1", "--json", code=1).error
    assert error == {
        "type": "RunConflict",
        "message": "Run 'order-1' exists already, with another input. Use another run id, or none to have one made.",
    }


def test_ls_filters_and_shows_the_newest_first(shop: Cli, rival: Rival) -> None:
    for name in ("one", "two", "three"):
        rival.run("greet", {"name": name}, name)
    rival.cancel("two")
    assert [run["run_id"] for run in shop("ls", "--json").json["runs"]] == ["three", "two", "one"]
    assert [run["run_id"] for run in shop("ls", "--status", "cancelled", "--json").json["runs"]] == ["two"]
    assert len(shop("ls", "--limit", "1", "--json").json["runs"]) == 1
    assert len(shop("ls", "--since", "1h", "--workflow", "greet", "--json").json["runs"]) == 3
    shop("ls", "--since", "2100-01-01T00:00", "--json").prints_json({"runs": [], "next": None})
    shop("ls", "--workflow", "nix").prints("no runs")
    shop("ls").prints(
        """
        run  workflow  status  created  took
        three  greet  pending  <time>
        two  greet  cancelled  <time>
        one  greet  pending  <time>
        """
    )


def test_cancel_ends_a_run_once(shop: Cli, rival: Rival) -> None:
    rival.run("greet", {"name": "ada"}, "a")
    shop("cancel", "a", "--json").prints_json({"run_id": "a", "cancelled": True, "status": "cancelled"})
    shop("cancel", "a", "--json").prints_json({"run_id": "a", "cancelled": False, "status": "cancelled"})
    shop("cancel", "a").prints("a has already ended: cancelled")
    ended = {"status": "cancelled", "completed_at": "<time>", "steps": [], "attempts": [], "folded": {}}
    cancelled = {
        "at": "<time>",
        "what": "cancelled",
        "path": None,
        "detail": {"open": []},
        "by": getpass.getuser(),
        "id": ...,
    }
    shown = {"run_id": "a", "input": {"name": "ada"}, **PENDING, **ended, "history": [cancelled]}
    shop("show", "a", "--history", "--json").prints_json(shown)


def test_wait_gives_up_and_the_run_goes_on(shop: Cli, rival: Rival) -> None:
    rival.run("greet", {"name": "ada"}, "a")
    shop("wait", "a", "--timeout", "0.25", code=1).complains(
        "rival: Run 'a' of workflow 'greet' was still pending after 0.25 s. It continues: wait again, or cancel it."
    )
    assert shop("wait", "a", "--timeout", "0.3", "--json", code=1).error["type"] == "WaitTimeout"


def test_a_dead_broker_does_not_keep_a_run_from_starting(shop: Cli) -> None:
    started = shop("run", "greet", '{"name": "ada"}', "--json", RIVAL_BROKER_URL="redis://127.0.0.1:1/0")
    started.stderr_is("the broker at redis://127.0.0.1:1/0 did not … (ConnectionError); the keeper …")
    assert shop("show", started.json["run_id"], "--json").json["status"] == "pending"


def test_workflows_are_listed_with_their_steps_and_schema(shop: Cli) -> None:
    found = shop("workflows", "--json")
    greet = {"name": "greet", "version": "<version>", "description": "Says hello", "step_count": 1}
    greet |= {"input_schema": ..., "plan": ..., "registered_at": "<time>"}
    greet |= {"policies": ..., "queue": None, "priority": None}
    found.prints_json({"workflows": [greet]})
    assert found.json["workflows"][0]["input_schema"]["required"] == ["name"]
    shop("workflows").prints(
        """
        workflow  version  steps  description
        greet  <version>  1  greet  Says hello
        """
    )


def test_what_users_put_into_a_run_does_not_reach_the_terminal_as_control(shop: Cli, rival: Rival) -> None:
    rival.run("greet", {"name": "\x1b[2Jgone [red]"}, "\x1b[31mred")
    shop("ls").prints(
        """
        run  workflow  status  created  took
        \ufffd[31mred  greet  pending  <time>
        """
    )
    shop("show", "\x1b[31mred").prints(
        """
        run  \ufffd[31mred
        workflow  greet (version <version>)
        status  pending
        created  <time>
        input  {"name": "\\u001b[2Jgone [red]"}

        no steps
        """
    )


# -- what a worker refuses --------------------------------------------------------------------------------


@pytest.mark.slow
def test_worker_refuses_broken_files_with_every_problem_at_once(cli: Cli) -> None:
    (cli.directory / "one.py").write_text("def first(nonsense, more): ...\nsteps = [first]")
    (cli.directory / "two.py").write_text("import nowhere")
    answer = cli("worker", "--workflows", "one.py", "--workflows", "two.py", "--json", code=1)
    assert answer.error["type"] == "DefinitionError"
    assert len(answer.error["problems"]) == 2
    cli("worker", "-w", "one.py", "-w", "two.py", code=1).complains(
        """
        rival: one.py:2: workflow 'one': steps[0]: first: cannot inject parameters 'nonsense', 'more': a step may ask for … (<folder>/one.py:1)
        two.py: cannot be imported: ModuleNotFoundError: No module named 'nowhere' (<folder>/two.py:1)
        """  # noqa: E501
    )


@pytest.mark.slow
def test_worker_refuses_to_start_with_nothing_to_do(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    cli("worker", code=1).complains(
        "rival: No workflows are given. Use `rival worker --workflows PATH` or set RIVAL_WORKFLOWS."
    )
    cli("worker", "-w", "nothing", code=1).complains(
        "rival: nothing: no workflow found (give a .py file with a list `steps`)"
    )
    cli("worker", "-w", "missing.py", code=1).complains("rival: missing.py: this file or directory does not exist")


def test_worker_refuses_a_schema_that_is_behind(cli: Cli, empty_url: str) -> None:
    cli("worker", "-w", "flows.py", code=1, RIVAL_DATABASE_URL=empty_url).complains(
        "rival: The database's schema is at nothing, this worker needs …. Run `rival db upgrade` (it is safe while "
        "workers run)."
    )


def test_flower_without_a_broker_says_what_to_do(bare: Cli) -> None:
    bare("flower", code=1).complains(
        "rival: No broker is given. Start `rival dev` in this folder, or set RIVAL_BROKER_URL."
    )


def test_a_misspelt_command_or_workflow_suggests_the_right_one(shop: Cli) -> None:
    shop("wrokflows", code=2).complains(
        "rival: No such command 'wrokflows' (did you mean 'workflows'?) (see `rival --help`)"
    )
    shop("zzz", code=2).complains("rival: No such command 'zzz' (see `rival --help`)")
    suggested = UNKNOWN.format("'Greeet'", " (did you mean 'greet'?)")
    shop("run", "Greeet", code=1).complains(f"rival: {suggested}")
