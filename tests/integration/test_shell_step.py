"""`shell_step` with real commands: only where it is allowed, without a shell, and never longer than it is wanted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from rival_workers import DefinitionError, StepError, embedded, shell_step
from rival_workers.definition.define import define_workflow
from rival_workers.definition.registry import Registry
from tests.support.inline import Inline, opened
from tests.support.output import is_printed, whole
from tests.support.workers import ROOT, wait_until


def run(command: Any, *, allow: bool = True, is_over: Any = lambda: False, item: Any = None, **options: Any) -> Any:
    """The step's function, as an attempt calls it."""
    spec = shell_step(command, **options)
    assert spec.problems == ()
    return spec.function(ctx=SimpleNamespace(allow_shell=allow, is_over=is_over, item=item))


def gone(pid_file: Path) -> bool:
    pid = int(pid_file.read_text())
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def written(file: Path) -> bool:
    return file.exists() and file.read_text().strip() != ""


# -- whether --------------------------------------------------------------------------------------------------


def test_no_command_is_started_unless_the_worker_allows_it(tmp_path: Path) -> None:
    with pytest.raises(
        StepError,
        match=whole(
            "this worker does not run commands: set RIVAL_ALLOW_SHELL=1 for the workers that may (embedded(…, "
            "allow_shell=True) in library mode)"
        ),
    ):
        run(["touch", str(tmp_path / "touched")], allow=False)
    assert not (tmp_path / "touched").exists()


@pytest.mark.parametrize(("allowed", "status"), [(False, "failed"), (True, "completed")])
def test_the_setting_decides(sqlite_url: str, allowed: bool, status: str) -> None:
    with opened(lambda: Inline(sqlite_url, allow_shell=allowed)) as inline:
        inline.define("w", shell_step(["echo", "{input[x]}"]))
        run_id = inline.rival.run("w", {"x": "$(id) ; * 'y'"}).run_id
        inline.drain()
        state = inline.rival.state(run_id)
        assert state.status == status
        if allowed:
            assert state.result["stdout"] == "$(id) ; * 'y'\n"


# -- what -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("rm -rf /", "a command is a list of arguments, not a text: shell_step([…]). No shell splits it"),
        ([], "the program, the first of the list, must be a constant: not a template, not a function"),
        (["{input.command}"], "the program, the first of the list, must be a constant: …"),
        ([lambda: "ls"], "the program, the first of the list, must be a constant: …"),
        (["ls", None], "argument 1: give a text, a number, a path or a function, not None"),
        (["ls", "{os.environ}"], "argument 1: template {os.environ} begins with 'os'; a template begins with one of …"),
        (["sh", "-c", "echo {input.word}"], "a value inside the code for sh would run as code: give it as …"),
        (["/usr/bin/python3", "-c", "print('{input.word}')"], "a value inside the code for python3 would run as …"),
    ],
)
def test_what_could_become_code_is_refused_at_registration(command: Any, said: str) -> None:
    with pytest.raises(DefinitionError) as refused:
        define_workflow("w", [shell_step(command)])
    assert is_printed([f"workflow 'w': steps[0]: {said}"], refused.value.problems)


def test_a_value_is_one_argument_and_no_option() -> None:
    assert run(["echo", "-n", "{item}", 7], item="a  b; c")["stdout"] == "a  b; c 7"
    with pytest.raises(
        StepError,
        match=whole(
            "argument 1 begins with '-' after it was filled in: ls would read it as an option. Put '--' before "
            "it in the list if the command supports that, or give a function."
        ),
    ):
        run(["ls", "{item}"], item="--help")
    assert run(["printf", "--", "{item}"], item="-x")["stdout"] == "-x"


def test_a_value_may_go_to_a_script_as_an_argument() -> None:
    assert run(["sh", "-c", 'echo "<$1>"', "sh", "{item}"], item="$(id)")["stdout"] == "<$(id)>\n"


def test_a_command_sees_little_of_the_workers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIVAL_DATABASE_URL", "postgresql://user:s3cret@db")
    monkeypatch.setenv("LANG", "C.UTF-8")
    seen = run(["env"], env={"MINE": "{item}"}, item="yes")["stdout"].splitlines()
    assert {line.partition("=")[0] for line in seen} <= {"PATH", "HOME", "LANG", "MINE", "_", "PWD", "SHLVL"}
    assert "MINE=yes" in seen


def test_a_command_runs_in_the_given_directory(tmp_path: Path) -> None:
    assert run(["pwd"], cwd=tmp_path)["stdout"].strip() == str(tmp_path.resolve())
    with pytest.raises(
        StepError, match=whole("command 'pwd' cannot be started: [Errno 2] No such file or directory: '…nowhere'")
    ):
        run(["pwd"], cwd=str(tmp_path / "nowhere"))


# -- how it ends ----------------------------------------------------------------------------------------------


def test_a_failure_says_how_it_ended_and_the_end_of_its_stderr() -> None:
    with pytest.raises(StepError) as error:
        run(["sh", "-c", "echo nonsense; seq 100000 >&2; echo the reason >&2; exit 3"])
    assert error.value.behavior == "retry"
    assert str(error.value).startswith("command 'sh' ended with 3")
    assert str(error.value).endswith("the reason")
    assert len(str(error.value)) < 3000
    with pytest.raises(StepError, match=whole("command 'sh' was killed by signal 9")):
        run(["sh", "-c", "kill -9 $$"])
    with pytest.raises(
        StepError, match=whole("command 'no-such-command-anywhere' is missing or not executable on this worker's PATH")
    ):
        run(["no-such-command-anywhere"])


def test_output_is_cut_and_does_not_block_the_command() -> None:
    result = run(["sh", "-c", "seq 300000; echo done; seq 300000 >&2"], max_output=1000)
    assert result["stdout"].endswith("done\n")
    assert (len(result["stdout"]), result["truncated"]) == (1000, True)


def test_output_that_is_not_text_can_be_kept() -> None:
    assert run(["printf", r"\000\377x"])["stdout"] == "\ufffd\ufffdx"


def test_children_left_behind_do_not_hold_the_step_up(tmp_path: Path) -> None:
    before = time.monotonic()
    assert run(["sh", "-c", f"sleep 600 & echo $! > {tmp_path}/pid; echo hi"])["stdout"] == "hi\n"
    assert time.monotonic() - before < 600
    wait_until(lambda: gone(tmp_path / "pid"), what="the child is gone")


def test_a_command_whose_attempt_is_over_is_ended_with_its_children(tmp_path: Path) -> None:
    over = iter([False, True])
    with pytest.raises(StepError, match=whole("command 'sh' was killed: the attempt is no longer valid")):
        run(["sh", "-c", f"sleep 60 & echo $! > {tmp_path}/pid; wait"], is_over=lambda: next(over))
    wait_until(lambda: gone(tmp_path / "pid"), what="the child is gone")


@pytest.mark.parametrize("how", ["timeout", "cancel"])
def test_a_timeout_and_a_cancel_end_the_command(tmp_path: Path, how: str) -> None:
    registry = Registry()
    script = f"trap '' TERM; echo $$ > {tmp_path}/pid; while :; do sleep 0.1; done"
    options = {"timeout": 0.5} if how == "timeout" else {}
    registry.add(define_workflow("w", [shell_step(["sh", "-c", script], **options)]))
    with embedded(tmp_path / "app.db", registry=registry, allow_shell=True) as rival:
        run_id = rival.run("w").run_id
        wait_until(lambda: written(tmp_path / "pid"), what="the command runs")
        if how == "cancel":
            rival.cancel(run_id)
        result = rival.wait("w", run_id, timeout=10)
        assert result.status == ("failed" if how == "timeout" else "cancelled")
        if how == "timeout":
            assert (result.error or {})["type"] == "StepTimeout"
        wait_until(lambda: gone(tmp_path / "pid"), what="the command is gone")


KILLED_WORKER = """
from types import SimpleNamespace
from rival_workers import shell_step
step = shell_step(["sh", "-c", "echo $$ > {pid}; exec sleep 60"])
step.function(ctx=SimpleNamespace(allow_shell=True, is_over=lambda: False))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's death")
def test_a_command_dies_with_a_killed_worker(tmp_path: Path) -> None:
    script = KILLED_WORKER.format(pid=tmp_path / "pid")
    worker = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT)
    try:
        wait_until(lambda: written(tmp_path / "pid"), what="the command runs")
    finally:
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait(10)
    wait_until(lambda: gone(tmp_path / "pid"), what="the command is gone")
