"""The tracebacks of a run's failed attempts as text: one block per step and traceback."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from rival_client.model.records import RunState
from rival_workers.cli.output import printable

#: The maximum number of blocks without --all.
MANY = 10

Block = tuple[str, str]


def show_tracebacks(out: Console, state: RunState, *, every: bool) -> None:
    found = blocks(state)
    for (path, traceback), attempts in list(found.items())[: None if every else MANY]:
        out.print()
        out.print(Text(f"{printable(path)}, {_attempts(attempts)}", style="bold"))
        out.print(indented(traceback), markup=False, highlight=False, soft_wrap=True)
    if len(found) > MANY and not every:
        out.print(f"… and {len(found) - MANY:,} more tracebacks (--all shows each)", markup=False)


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


def indented(traceback: str) -> str:
    return textwrap.indent(printable(traceback.rstrip()), "  ")
