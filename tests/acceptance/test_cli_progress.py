"""Progress of long operations: a line on a terminal, none for programs; and tracebacks of libraries."""

from __future__ import annotations

import pytest

from tests.acceptance.conftest import Cli
from tests.support.output import is_printed
from tests.support.terminal import Terminal
from tests.support.workers import READY

LIBRARY = """
import json

def parse():
    return json.loads("{x")

name = "parse"
steps = [parse]
"""


#: As Python prints them.
LIBRARIES = [
    'File "…/json/__init__.py", line …, in loads',
    "…",
    'File "…/json/decoder.py", line …, in decode',
    "…",
    'File "…/json/decoder.py", line …, in raw_decode',
    "…",
]


def traceback_in(printed: str) -> list[str]:
    """The last of it, without its indent, to the end."""
    return [line.strip() for line in printed[printed.rindex("Traceback") :].strip().splitlines()]


@pytest.fixture
def runs(shop: Cli) -> Cli:
    for number in range(3):
        shop("run", "greet", '{"name": "ada"}', "--run-id", f"g-{number}")
    return shop


def ended(terminal: Terminal) -> tuple[int, list[str]]:
    return terminal.end(), terminal.screen


def test_a_bulk_verb_counts_runs_and_leaves_only_its_summary(runs: Cli) -> None:
    with runs.terminal("pause", "--workflow", "greet", "--yes") as terminal:
        assert ended(terminal) == (0, ["paused 3 runs"])
        drawn = [part.split(b"\r")[0].decode() for part in terminal.raw.split(b"\r\x1b[K")[1:]]
    assert [line.rstrip("\n") for line in drawn] == ["pause 1: g-2", "pause 2: g-1", "pause 3: g-0", "paused 3 runs"]


def test_after_a_confirmation_the_number_of_runs_is_known(runs: Cli) -> None:
    with runs.terminal("cancel", "--workflow", "greet") as terminal:
        terminal.wait_for_text("cancel 3 runs? [y/N]:")
        terminal.press("y\n")
        code, screen = ended(terminal)
        assert (code, screen[-1]) == (0, "cancelled 3 runs")
        assert b"cancel 2 of 3: g-1" in terminal.raw


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        (("recover",), b"publish again: "),
        (("dlq", "redrive", "g-1"), b"redrive 1: g-1"),
        (("pause", "--workflow", "greet", "--yes"), b"pause 1: g-2"),
    ],
    ids=lambda one: one[0] if isinstance(one, tuple) else "",
)
def test_with_json_or_without_a_terminal_nothing_but_the_answer_is_printed(
    runs: Cli, command: tuple[str, ...], shown: bytes
) -> None:
    for args, is_shown in ((command, True), ((*command, "--json"), False)):
        with runs.terminal(*args) as terminal:
            terminal.end()
            assert (shown in terminal.raw) is is_shown
            assert (b"\x1b[K" in terminal.raw) is is_shown
            assert not any(line.startswith(shown.decode()) for line in terminal.screen)
        answer = runs(*args, code=1 if command[0] == "dlq" else 0)
        assert "\x1b" not in answer.out + answer.err
        runs("resume", "--workflow", "greet", "--yes")


@pytest.mark.slow
def test_frames_of_libraries_are_counted_unless_all_are_asked_for(cli: Cli) -> None:
    (cli.directory / "flows.py").write_text(LIBRARY)
    cli.start("worker", "-w", "flows.py", "-p", "1", log="worker.log")
    cli.wait_for("worker.log", READY)
    cli("run", "parse", "--run-id", "p-1", "--wait", code=1)
    own = [
        "Traceback (most recent call last):",
        f'File "{cli.directory}/flows.py", line 5, in parse',
        'return json.loads("{x")',
        "^^^^^^^^^^^^^^^^",
    ]
    error = "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"
    for command in (("show", "p-1"), ("logs", "p-1")):
        short, full = cli(*command).out, cli(*command, "--full-traceback").out
        frames = [*own, "… 3 frames in libraries (--full-traceback)", error]
        assert is_printed(frames, traceback_in(short)), short
        assert is_printed([*own, *LIBRARIES, error], traceback_in(full)), full
