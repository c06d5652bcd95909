"""The tracebacks of a run's failed attempts as text: one block per step and traceback."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Iterator

import click
from rich.console import Console
from rich.text import Text

from rival_client.model.records import RunState
from rival_workers.cli.display.formats import printable

_FRAME = re.compile(r'([ |]*)File "(.*)", line \d+.*', re.DOTALL)
#: Frames that were left out where the traceback was made.
_FOLDED = re.compile(r"([ |]*)… ([\d,]+) more frames in libraries …")
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python3\.\d+t?/|^<frozen ")
#: The maximum number of blocks without --all.
MANY = 10

Block = tuple[str, str]


def show_tracebacks(out: Console, state: RunState, *, every: bool, full: bool = False) -> None:
    found = blocks(state)
    for (path, traceback), attempts in list(found.items())[: None if every else MANY]:
        out.print()
        out.print(Text(f"{printable(path)}, {_attempts(attempts)}", style="bold"))
        shown = indented(traceback if full else readable(traceback))
        out.print(shown, markup=False, highlight=False, soft_wrap=True)
    if len(found) > MANY and not every:
        out.print(f"… and {len(found) - MANY:,} more tracebacks (--all shows each)", markup=False)


def readable(traceback: str) -> str:
    """Without the frames of libraries: those of the user remain, and how many others there are between them."""
    lines: list[str] = []
    for is_library, group in itertools.groupby(_parts(traceback), _is_of_library):
        parts = list(group)
        if is_library:
            lines.append(_gap(parts))
        else:
            lines += [line for part in parts for line in part]
    return "\n".join(lines)


def _parts(traceback: str) -> Iterator[list[str]]:
    """A frame with its lines of code, which are further to the right, or a line that belongs to none."""
    part: list[str] = []
    for line in traceback.rstrip().split("\n"):
        if part and _FRAME.match(part[0]) and line.startswith(f"{_margin(part[0])}  "):
            part.append(line)
            continue
        if part:
            yield part
        part = [line]
    yield part


def _margin(line: str) -> str:
    """The spaces before a frame; in a group of exceptions also its bars."""
    return _FRAME.sub(r"\1", line)


def _is_of_library(part: list[str]) -> bool:
    found = _FRAME.match(part[0])
    return _FOLDED.match(part[0]) is not None or (found is not None and _LIBRARY.search(found[2]) is not None)


def _gap(parts: list[list[str]]) -> str:
    folded = [int(found[2]) for part in parts if (found := _FOLDED.match(part[0]))]
    number = sum(folded) + len(parts) - len(folded)
    margin = parts[0][0][: len(parts[0][0]) - len(parts[0][0].lstrip(" |"))]
    return f"{margin}… {number:,} {'frame' if number == 1 else 'frames'} in libraries (--full-traceback)"


def blocks(state: RunState) -> dict[Block, list[int]]:
    """(step, traceback) -> the attempts that failed with it. Of a flow's steps only the last attempt is known."""
    found: dict[Block, list[int]] = {}
    for path, number, traceback in _failures(state):
        numbers = found.setdefault((path, traceback), [])
        if number not in numbers:
            numbers.append(number)
    return found


def _failures(state: RunState) -> Iterator[tuple[str, int, str]]:
    for attempt in state.attempts:
        if (attempt.error or {}).get("traceback"):
            yield attempt.path, attempt.attempt, (attempt.error or {})["traceback"]
    for step in state.steps:
        # A composite has the error of a step inside it.
        if step.error and step.error.get("traceback") and not step.is_composite:
            yield step.path, step.error.get("attempt", step.attempts), step.error["traceback"]


def _attempts(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"attempt {numbers[0]}:"
    return f"attempts {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}:"


full_option = click.option(
    "--full-traceback", "full", is_flag=True, help="Tracebacks also with the frames of libraries."
)


def indented(traceback: str) -> str:
    return textwrap.indent(printable(traceback.rstrip()), "  ")
