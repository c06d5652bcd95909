"""Every command with hostile arguments and options, in this process: an exit code and a message, never a traceback.

The parameters are found in the commands themselves, so that new ones are covered. RIVAL_FUZZ=all tries every one.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import click
import pytest

from rival_workers.cli.main import COMMANDS, Cli, cli
from tests.support.hostile import TIMEOUT, some_of
from tests.support.inline import Inline

#: They start servers or processes that go on, and read files of workflows that are code.
LEFT_OUT = {"worker", "dev", "demo", "flower", "plan", "dashboard"}
HOSTILE = [
    "",
    " ",
    "a\x00b",
    "\udcff",
    "x" * 8000,
    "\U0001f600" * 200,
    "-1",
    "0",
    "1",
    "1e400",
    "nan",
    "inf",
    "-inf",
    "9" * 5000,
    "9" * 30,
    "0x10",
    "true",
    "null",
    "[]",
    "{}",
    '{"a":NaN}',
    "[" * 100_000,
    '{"a":' * 300 + "1" + "}" * 300,
    '{"a',
    "@",
    "@/no/such/file",
    "@.",
    "@/dev/null",
    "-",
    "--",
    "--no-such-option",
    "'; DROP TABLE x; --",
    "%s %(id)s :id {0}",
    "\x1b[2J",
    "done",
    "failed",
    "echo",
    "a/b/call:c",
    "../..",
    "9999-12-31T23:59:59-14:00",
    "0001-01-01T00:00:00+14:00",
    "99999999999w",
    "2026-01-01",
    "1m",
    "*/5 * * * *",
    "61 * * * *",
    "a=1",
    "a.b.c=[",
    "=",
    "a=" + "[" * 100_000,
    "rvl_",
    "rvl_AAAA",
    "WyJ4Il0",
]
USUAL = {
    "run_id": "failed",
    "workflow": "echo",
    "topic": "paid",
    "value": "{}",
    "step": "fails",
    "token": "rvl_x",
    "message": "down",
    "name": "hourly",
    "when": "3600",
    "reason": "a test",
    "since": "1h",
    "max": "5",
    "shell": "bash",
    "options": "timeout=60",
    "rule": "1",
    "key": "charge:7",
    "run": "failed",
}


@dataclass(frozen=True)
class Typed:
    """A command, with one hostile word for one of its parameters."""

    command: tuple[str, ...]
    parameter: str
    hostile: str
    as_json: bool

    def __str__(self) -> str:
        return f"rival {' '.join(self.command)} {self.parameter}={self.hostile[:60]!r}{' --json' * self.as_json}"

    def words(self) -> list[str]:
        command = command_of(self.command)
        arguments = [self._word(one) for one in command.params if isinstance(one, click.Argument)]
        options = [one for one in command.params if isinstance(one, click.Option)]
        named = [
            f"{one.opts[0]}={self._word(one)}"
            for one in options
            if not one.is_flag and (one.required or one.name == self.parameter)
        ]
        if self.command == ("wait",) and self.parameter != "timeout":
            # A run that another command has opened again does not end here.
            named.append("--timeout=0.1")
        return [*self.command, *named, *["--json"] * self.as_json, *(["--", *arguments] if arguments else [])]

    def _word(self, parameter: click.Parameter) -> str:
        if parameter.name == self.parameter:
            return self.hostile
        return "ended" if self.command == ("wait",) else USUAL[str(parameter.name)]


def command_of(names: tuple[str, ...]) -> click.Command:
    found: click.Command = cli
    for name in names:
        assert isinstance(found, click.Group)
        inner = found.get_command(click.Context(found), name)
        assert inner is not None
        found = inner
    return found


def commands() -> Iterator[tuple[str, ...]]:
    for name in COMMANDS:
        command = command_of((name,))
        if name in LEFT_OUT:
            continue
        if isinstance(command, click.Group):
            yield from ((name, inner) for inner in command.commands)
        else:
            yield (name,)


def all_typed() -> list[Typed]:
    return [
        Typed(command, str(parameter.name), hostile, as_json)
        for command in commands()
        for parameter in command_of(command).params
        if not getattr(parameter, "is_flag", False)
        for hostile in HOSTILE
        for as_json in (False, True)
        if not (as_json and "as_json" not in {one.name for one in command_of(command).params})
    ]


def run_command(words: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        assert isinstance(cli, Cli)
        code = cli._run(words, "rival", as_json="--json" in words)
    return code, out.getvalue(), err.getvalue()


def judge(typed: Typed) -> str | None:
    try:
        code, _, err = run_command(typed.words())
    except BaseException as raised:
        return f"{typed} raised {type(raised).__module__}.{type(raised).__qualname__}: {str(raised)[:200]}"
    if code not in (0, 1, 2):
        return f"{typed} exits with {code}"
    if "Traceback" in err or "sqlalchemy" in err or "psycopg" in err:
        return f"{typed} says {err[:300]}"
    return f"{typed}: {len(err):,} signs of error" if len(err) > 20_000 else None


@pytest.fixture
def terminal(inline: Inline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Inline:
    """The commands' own settings and standard input."""
    inline.define("echo", echo)
    inline.define("fails", fails)
    for run_id in ("done", "ended"):
        inline.rival.run("echo", {"n": 1}, run_id)
    inline.rival.run("fails", None, "failed")
    inline.drain()
    monkeypatch.setenv("RIVAL_DATABASE_URL", inline.settings.database_url or "")
    monkeypatch.delenv("RIVAL_BROKER_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert os.environ["RIVAL_DATABASE_URL"]
    return inline


def echo(input: object) -> object:
    return input


def fails() -> None:
    raise ValueError("no")


@pytest.mark.timeout(TIMEOUT)
def test_no_hostile_word_makes_a_command_raise(terminal: Inline) -> None:
    chosen = some_of(all_typed(), 0.2)
    wrong = [problem for typed in chosen if (problem := judge(typed)) is not None]
    assert not wrong, f"{len(wrong)} of {len(chosen)}:\n" + "\n".join(wrong[:100])
    assert run_command(["ls", "--json", "--limit", "100000"])[0] == 0
