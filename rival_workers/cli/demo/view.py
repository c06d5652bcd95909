"""The demo's view of its runs: a live table in a terminal, one line per change everywhere else."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from rival_client.model.kinds import HANDLER, INTERNAL
from rival_client.model.records import RunState, Step
from rival_workers.cli.demo.runs import Role
from rival_workers.cli.output import status_text, table
from rival_workers.cli.show import status_of

_SIGNS = {
    "pending": ("○", "dim"), "running": ("●", "cyan"), "waiting_retry": ("↻", "yellow"), "waiting": ("…", "yellow"),
    "completed": ("✓", "green"), "skipped": ("»", "green dim"), "failed": ("✗", "red"), "cancelled": ("⊘", "magenta"),
}  # fmt: skip


class View(Protocol):
    def __enter__(self) -> View: ...
    def __exit__(self, *_: object) -> None: ...
    def say(self, what: str) -> None:
        """Something happened that no run shows: a kill, a cancel."""

    def update(self, states: Mapping[str, RunState]) -> None: ...


class Cast:
    """The demo's runs with the names of all their steps, also of those not reached yet."""

    def __init__(self, roles: Sequence[Role], plans: Mapping[str, list[str]]) -> None:
        self.roles, self.plans = roles, plans

    def steps_of(self, role: Role, state: RunState) -> list[tuple[str, Step | None]]:
        reached = {step.path: step for step in state.steps}
        planned: list[tuple[str, Step | None]] = [(name, reached.get(name)) for name in self.plans[role.workflow]]
        return planned + [(step.path, step) for step in state.steps if step.kind == HANDLER]


def _is_told(step: Step) -> bool:
    """What a composite asks and what an item is about is no step of the story."""
    return step.kind not in INTERNAL


def _mark(name: str, step: Step | None) -> Text:
    sign, style = _SIGNS[status_of(step) if step else "pending"]
    tries = f"({step.attempts})" if step and step.attempts > 1 else ""
    lost = "(worker lost)" if step and step.lost else ""
    return Text(f"{sign}{name}{tries}{lost}  ", style=style)


class LiveView:
    def __init__(self, cast: Cast, console: Console) -> None:
        self._cast, self._console = cast, console
        self._said: list[str] = []
        self._states: Mapping[str, RunState] = {}
        self._live = Live(console=console, refresh_per_second=12)

    def __enter__(self) -> View:
        self._live.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.__exit__(None, None, None)

    def say(self, what: str) -> None:
        self._said.append(what)
        self.update(self._states)

    def update(self, states: Mapping[str, RunState]) -> None:
        self._states = states
        rows = [self._row(role, states[role.name]) for role in self._cast.roles if role.name in states]
        said = [Text(f"→ {line}", style="bold") for line in self._said]
        self._live.update(Group(table(("run", "status", "steps"), rows), Text(), *said))

    def _row(self, role: Role, state: RunState) -> tuple[str, Text, Text]:
        steps = Text.assemble(*(_mark(name, step) for name, step in self._cast.steps_of(role, state)))
        return role.name, status_text(state.status), steps


class PlainView:
    """For logs and pipes: a line for every change."""

    def __init__(self, cast: Cast, console: Console) -> None:
        self._cast, self._console = cast, console
        self._seen: dict[tuple[str, str], str] = {}
        self._since = time.monotonic()

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def say(self, what: str) -> None:
        self._console.print(f"{time.monotonic() - self._since:5.1f} s  → {what}", markup=False)

    def update(self, states: Mapping[str, RunState]) -> None:
        for name, state in states.items():
            for step in filter(_is_told, state.steps):
                tries = f" (attempt {step.attempts})" if step.attempts > 1 else ""
                lost = " (worker lost)" if step.lost else ""
                self._tell(name, step.path, status_of(step) + tries + lost)
            self._tell(name, "", state.status)

    def _tell(self, run: str, path: str, status: str) -> None:
        if self._seen.get((run, path)) != status:
            self._seen[run, path] = status
            what = f"{run}.{path}" if path else run
            self._console.print(f"{time.monotonic() - self._since:5.1f} s  {what:32} {status}", markup=False)


def open_view(cast: Cast, console: Console) -> View:
    return LiveView(cast, console) if console.is_terminal else PlainView(cast, console)
