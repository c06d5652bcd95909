"""Describes a run of a lab for assertions and messages: its timeline by the lab's clock, and its steps."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import ITEM
from rival_client.model.records import RunState
from rival_client.model.run_entries import HistoryEntry
from rival_client.model.step_records import Attempt, Step

#: The maximum number of lines of each kind in a description.
SHOWN = 100


@dataclass(frozen=True)
class TimelineEntry:
    """One event of a run. Times are seconds since the start of the run, by the lab's clock."""

    at: float
    #: The step's path; None: the run itself.
    path: str | None
    #: completed, skipped, failed, timed_out, lost, cancelled, late_result_refused; of the run also started.
    what: str
    #: The number of the attempt; None: a composite, or the run.
    attempt: int | None = None
    #: When the attempt began.
    began: float | None = None
    error: dict[str, Any] | None = None

    def __str__(self) -> str:
        number = f" (attempt {self.attempt})" if self.attempt else ""
        error = f": {self.error.get('type')}: {self.error.get('message')}" if self.error else ""
        return f"{self.at:>12.3f}  {self.path or '(run)'} {self.what}{number}{error}"


def timeline(state: RunState, history: list[HistoryEntry]) -> list[TimelineEntry]:
    """In the order of events; a composite after the last of its steps, the run last."""
    reading = _Reading(state)
    entries = [*reading.of_attempts(), *reading.of_steps(), *reading.of_history(history)]
    entries.sort(key=lambda found: (found[0], -_depth(found[1].path)))
    return [*reading.start(), *(entry for _, entry in entries), *reading.end()]


def _depth(path: str | None) -> int:
    return 0 if path is None else 1 + path.count("/") + path.count("[") + path.count("!")


Dated = tuple[dt.datetime, TimelineEntry]


class _Reading:
    def __init__(self, state: RunState) -> None:
        self._state = state

    def _since(self, at: dt.datetime | None) -> float | None:
        # Each attempt takes a microsecond, so that the order is defined; rounding hides it.
        return None if at is None else round((at - self._state.created_at).total_seconds(), 3)

    def _entry(self, at: dt.datetime, path: str | None, what: str, **more: Any) -> Dated:
        return at, TimelineEntry(self._since(at) or 0.0, path, what, **more)

    def start(self) -> Iterator[TimelineEntry]:
        if self._state.started_at is not None:
            yield TimelineEntry(self._since(self._state.started_at) or 0.0, None, entries.STARTED)

    def end(self) -> Iterator[TimelineEntry]:
        state = self._state
        if state.completed_at is not None:
            yield TimelineEntry(self._since(state.completed_at) or 0.0, None, state.status, error=state.error)

    def of_attempts(self) -> Iterator[Dated]:
        for attempt in self._state.attempts:
            yield self._of_attempt(attempt)

    def _of_attempt(self, attempt: Attempt) -> Dated:
        began = self._since(attempt.started_at)
        return self._entry(
            attempt.ended_at, attempt.path, attempt.outcome, attempt=attempt.attempt, began=began, error=attempt.error
        )

    def of_steps(self) -> Iterator[Dated]:
        """A step that succeeded at its first attempt has no row for the attempt: read it from the step."""
        listed = {(attempt.path, attempt.ended_at) for attempt in self._state.attempts}
        for step in self._state.steps:
            is_listed = step.status != statuses.CANCELLED and (step.path, step.completed_at) in listed
            if step.completed_at is not None and step.kind != ITEM and not is_listed:
                yield self._of_step(step, step.completed_at)

    def _of_step(self, step: Step, at: dt.datetime) -> Dated:
        is_attempt = step.attempts > 0 and step.status != statuses.CANCELLED
        number = step.attempts if is_attempt else None
        began = self._since(step.started_at)
        return self._entry(at, step.path, step.status, attempt=number, began=began, error=step.error)

    def of_history(self, history: list[HistoryEntry]) -> Iterator[Dated]:
        """Yields the entries that only the history has."""
        for found in history:
            if found.what == entries.LATE_RESULT_REFUSED:
                yield self._entry(found.at, found.path, found.what, attempt=found.detail.get("attempt"))


def describe(state: RunState, entries: list[TimelineEntry], now: dt.datetime) -> str:
    """The state and the events of a run, for an error message."""
    lines = [f"Run {state.run_id!r} of workflow {state.workflow!r} is {state.status}."]
    if state.parked:
        lines.append(f"It is parked: {state.parked}.")
    if entries:
        earlier = [f"  (and {len(entries) - SHOWN} before)"] if len(entries) > SHOWN else []
        lines += ["Events (seconds since its start):", *earlier, *map(str, entries[-SHOWN:])]
    waiting = [step for step in state.steps if step.completed_at is None]
    if waiting:
        lines += [f"Open steps, {(now - state.created_at).total_seconds():.3f} s after its start:"]
        lines += [f"  {_open(step, state.created_at)}" for step in waiting[:SHOWN]]
    return "\n".join(lines)


def _open(step: Step, since: dt.datetime) -> str:
    due = f", due at {(step.due_at - since).total_seconds():.3f}" if step.due_at else ""
    parked = f", parked: {step.parked}" if step.parked else ""
    return f"{step.path} ({step.kind}) {step.status}, {step.attempts} attempt(s){due}{parked}"
