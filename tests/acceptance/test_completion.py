"""Shell completion: what `rival completion` prints works in the shells, and the database's names are suggested."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rival_client import Rival
from rival_workers import step
from tests.acceptance.conftest import DOWN, Cli
from tests.support.inline import Inline

BIN = Path(sys.executable).parent


def suggested(cli: Cli, *words: str, **env: str) -> list[str]:
    """The suggestions for a Tab at the end of the last word."""
    line = " ".join(("rival", *words))
    asked = {"_RIVAL_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(words))}
    answer = cli(**asked, **env)
    assert answer.err == ""
    return [line.partition(",")[2] for line in answer.out.splitlines() if line]


def test_commands_and_options_are_suggested(bare: Cli) -> None:
    assert suggested(bare, "sch") == ["schedule"]
    assert suggested(bare, "ls", "--stat") == ["--status"]
    assert suggested(bare, "ls", "--status", "comp") == ["completed"]
    assert suggested(bare, "completion", "") == ["bash", "zsh", "fish"]


WORKFLOWS = (
    ("run",),
    ("plan",),
    ("ls", "--workflow"),
    ("schedule", "add", "nightly"),
    ("schedule", "ls", "--workflow"),
    ("retry", "--workflow"),
)
RUNS = (
    ("show",),
    ("wait",),
    ("logs",),
    ("tree",),
    ("cancel",),
    ("retry",),
    ("rewind",),
    ("pause",),
    ("resume",),
    ("skip",),
    ("set-result",),
    ("ls", "--parent"),
    ("emit", "topic", "--run-id"),
)


def test_names_of_workflows_are_suggested(shop: Cli) -> None:
    for words in WORKFLOWS:
        assert suggested(shop, *words, "") == suggested(shop, *words, "gr") == ["greet"], words
        assert suggested(shop, *words, "nix") == [], words


def test_ids_of_runs_are_suggested_by_their_beginning(shop: Cli, rival: Rival) -> None:
    for run_id in ("order-1", "order-2", "invoice-1"):
        rival.run("greet", {"name": "ada"}, run_id)
    for words in RUNS:
        assert suggested(shop, *words, "order-") == ["order-1", "order-2"], words
        assert suggested(shop, *words, "") == ["invoice-1", "order-2", "order-1"], "the newest first"


def test_old_runs_are_found_by_their_beginning_among_many(shop: Cli, rival: Rival) -> None:
    rival.run("greet", {"name": "ada"}, "the-old-one")
    rival.run_many("greet", [{"name": "ada"}] * 200)
    assert "the-old-one" not in suggested(shop, "show", "")
    assert len(suggested(shop, "show", "")) == 50
    assert suggested(shop, "show", "the-") == ["the-old-one"]


def test_nothing_is_suggested_that_a_shell_would_interpret(shop: Cli, rival: Rival) -> None:
    """Run ids come from users of the producer, and a shell inserts a suggestion as it is."""
    for run_id in ("$(reboot)", "a;reboot", "a b", "`reboot`", "a\nb", "-rf", "~root", "a|b", "a*", "\x1b[31m", "fine"):
        rival.run("greet", {"name": "ada"}, run_id)
    assert suggested(shop, "show", "") == ["fine"]
    assert suggested(shop, "show", "a") == []


def test_names_of_limits_breakers_and_schedules_are_suggested(shop: Cli, rival: Rival) -> None:
    rival.schedule("greet", 3600, name="nightly", input={"name": "ada"})
    for words in (("schedule", "pause"), ("schedule", "fire"), ("schedule", "rm")):
        assert suggested(shop, *words, "") == suggested(shop, *words, "ni") == ["nightly"], words
    with rival.database.transaction() as connection:
        connection.exec_driver_sql(
            "INSERT INTO rival_breakers (name, state, opened, successes, changed_at, changed_by)"
            " VALUES ('openai', 'closed', 0, 0, now(), 'ann')"
        )
        connection.exec_driver_sql("INSERT INTO rival_limits (name, max, updated_at) VALUES ('日本', 5, now())")
    for verb in ("open", "close", "reset"):
        assert suggested(shop, "breaker", verb, "op") == ["openai"], verb
    for verb in ("show", "set", "rm"):
        assert suggested(shop, "limit", verb, "") == ["日本"], verb


def test_steps_are_suggested_of_the_run_that_was_named(shop: Cli, rival: Rival) -> None:
    inline = Inline(rival.settings.database_url)
    inline.define("two", step(lambda: 1, name="first"), step(lambda: 2, name="second"))
    inline.rival.run("two", run_id="order-1")
    inline.drain()
    inline.close()
    for words in (("rewind",), ("skip",), ("policy", "explain")):
        assert suggested(shop, *words, "order-1", "") == ["first", "second"], words
        assert suggested(shop, *words, "order-1", "se") == ["second"], words
        assert suggested(shop, *words, "unknown", "") == [], words


@pytest.mark.parametrize("words", [("show", ""), ("run", ""), ("ls", "--workflow", "")])
def test_without_a_database_nothing_is_suggested_and_nothing_said(
    bare: Cli, empty_url: str, words: tuple[str, ...]
) -> None:
    assert suggested(bare, *words) == []
    assert suggested(bare, *words, RIVAL_DATABASE_URL=DOWN) == []
    assert suggested(bare, *words, RIVAL_DATABASE_URL="nonsense") == []
    assert suggested(bare, *words, RIVAL_DATABASE_URL=empty_url) == []


def test_a_locked_table_does_not_hold_up_the_shell(shop: Cli, rival: Rival) -> None:
    rival.run("greet", {"name": "ada"}, "order-1")
    with rival.database.transaction() as connection:
        connection.exec_driver_sql("LOCK TABLE rival_runs")
        assert suggested(shop, "show", "order") == []
    assert suggested(shop, "show", "order") == ["order-1"]


# -- the shells -------------------------------------------------------------------------------------------

BASH = """
eval "$(rival completion bash)"
COMP_WORDBREAKS=$' \\t\\n"\\'@><=;|&(:'
for line in "$@"; do
    COMP_LINE=$line COMP_POINT=${#line}
    _rival_completion rival
    printf '%s ' "${COMPREPLY[@]}"
    printf '\\n'
done
"""


def in_bash(cli: Cli, *lines: str) -> list[list[str]]:
    """What bash suggests at the end of each line, in a shell that has loaded the script."""
    env = cli.env | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-c", BASH, "bash", *lines], cwd=cli.directory, env=env, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [said.split() for said in done.stdout.splitlines()]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes(shop: Cli, rival: Rival) -> None:
    for run_id in ("order-1", "nightly@2026-01-01T00:00:00Z"):
        rival.run("greet", {"name": "ada"}, run_id)
    found = in_bash(shop, "rival run gr", "rival show nig", "rival show nightly@2026-01-01T00:")
    # Bash completes behind the last of the characters that end a word for it.
    assert found == [["greet"], ["nightly@2026-01-01T00:00:00Z"], ["00:00Z"]]


@pytest.mark.slow
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_the_shell_can_read(bare: Cli, shell: str) -> None:
    script = bare("completion", shell).out
    assert "_RIVAL_COMPLETE" in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True)
