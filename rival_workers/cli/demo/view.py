"""Shows the runs of the demo: a live table on a terminal, else one line per change."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rival_client.model import statuses
from rival_client.model.kinds import HANDLER, INTERNAL
from rival_client.model.records import RunState
from rival_client.model.step_records import Step
from rival_workers.cli.demo.expected_runs import DemoRun
from rival_workers.cli.demo.scenario import View
from rival_workers.cli.display.formats import status_text
from rival_workers.cli.display.output import table
from rival_workers.cli.display.step_lines import status_of

#: Status -> symbol and style.
_SYMBOLS = {
    statuses.PENDING: ("○", "dim"),
    statuses.RUNNING: ("●", "cyan"),
    statuses.WAITING_RETRY: ("↻", "yellow"),
    statuses.WAITING: ("…", "yellow"),
    statuses.COMPLETED: ("✓", "green"),
    statuses.SKIPPED: ("»", "green dim"),
    statuses.FAILED: ("✗", "red"),
    statuses.CANCELLED: ("⊘", "magenta"),
}


class RunSteps:
    """The runs of the demo with the names of all their steps, including those not reached yet."""

    def __init__(self, runs: Sequence[DemoRun], plans: Mapping[str, list[str]]) -> None:
        self.runs, self.plans = runs, plans

    def steps_of(self, run: DemoRun, state: RunState) -> list[tuple[str, Step | None]]:
        reached = {step.path: step for step in state.steps}
        planned: list[tuple[str, Step | None]] = [(name, reached.get(name)) for name in self.plans[run.workflow]]
        return planned + [(step.path, step) for step in state.steps if step.kind == HANDLER]


def _is_shown(step: Step) -> bool:
    """False for rows that are not steps of the workflow: conditions, items, inputs of children."""
    return step.kind not in INTERNAL


def _mark(name: str, step: Step | None) -> Text:
    symbol, style = _SYMBOLS[status_of(step) if step else statuses.PENDING]
    tries = f"({step.attempts})" if step and step.attempts > 1 else ""
    lost = "(worker lost)" if step and step.lost else ""
    return Text(f"{symbol}{name}{tries}{lost}  ", style=style)


class LiveView:
    def __init__(self, steps: RunSteps, console: Console) -> None:
        self._steps, self._console = steps, console
        self._events: list[str] = []
        self._states: Mapping[str, RunState] = {}
        self._live = Live(console=console, refresh_per_second=12)

    def __enter__(self) -> Self:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def report(self, event: str) -> None:
        self._events.append(event)
        self.update(self._states)

    def update(self, states: Mapping[str, RunState]) -> None:
        self._states = states
        rows = [self._row(run, states[run.name]) for run in self._steps.runs if run.name in states]
        events = [Text(f"→ {event}", style="bold") for event in self._events]
        self._live.update(Group(table(("run", "status", "steps"), rows), Text(), *events))

    def _row(self, run: DemoRun, state: RunState) -> tuple[str, Text, Text]:
        steps = Text.assemble(*(_mark(name, step) for name, step in self._steps.steps_of(run, state)))
        return run.name, status_text(state.status), steps


class PlainView:
    """For logs and pipes: one line per change."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: dict[tuple[str, str], str] = {}
        self._since = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def report(self, event: str) -> None:
        self._console.print(f"{time.monotonic() - self._since:5.1f} s  → {event}", markup=False)

    def update(self, states: Mapping[str, RunState]) -> None:
        for name, state in states.items():
            for step in filter(_is_shown, state.steps):
                tries = f" (attempt {step.attempts})" if step.attempts > 1 else ""
                lost = " (worker lost)" if step.lost else ""
                self._print_change(name, step.path, status_of(step) + tries + lost)
            self._print_change(name, "", state.status)

    def _print_change(self, run: str, path: str, status: str) -> None:
        if self._seen.get((run, path)) != status:
            self._seen[run, path] = status
            what = f"{run}.{path}" if path else run
            self._console.print(f"{time.monotonic() - self._since:5.1f} s  {what:32} {status}", markup=False)


def open_view(steps: RunSteps, console: Console) -> View:
    return LiveView(steps, console) if console.is_terminal else PlainView(console)
