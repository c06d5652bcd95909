"""What happened in a run, for people and for assertions: its timeline by the lab's clock, and a picture of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rival_client.model.kinds import ITEM
from rival_client.model.records import Attempt, HistoryEntry, RunState, Step

#: The most lines of each kind in a picture.
SHOWN = 100


@dataclass(frozen=True)
class TimelineEntry:
    """One thing that happened. Times are seconds since the run was started, by the lab's clock."""

    at: float
    #: The step's path; None: the run itself.
    path: str | None
    #: completed, skipped, failed, timed_out, lost, cancelled, late_result_refused; of the run also started.
    what: str
    #: Which attempt it was; None: no attempt, but a composite, or the run.
    attempt: int | None = None
    #: When the attempt began.
    began: float | None = None
    error: dict[str, Any] | None = None

    def __str__(self) -> str:
        number = f" (attempt {self.attempt})" if self.attempt else ""
        error = f": {self.error.get('type')}: {self.error.get('message')}" if self.error else ""
        return f"{self.at:>12.3f}  {self.path or '(run)'} {self.what}{number}{error}"


def timeline(state: RunState, history: list[HistoryEntry]) -> list[TimelineEntry]:
    """In the order in which it happened; a composite after the last of its steps, the run after all."""
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
        # Attempts are a microsecond apart, to be told apart; a person wants to see that no time has passed.
        return None if at is None else round((at - self._state.created_at).total_seconds(), 3)

    def _entry(self, at: dt.datetime, path: str | None, what: str, **more: Any) -> Dated:
        return at, TimelineEntry(self._since(at) or 0.0, path, what, **more)

    def start(self) -> Iterator[TimelineEntry]:
        if self._state.started_at is not None:
            yield TimelineEntry(self._since(self._state.started_at) or 0.0, None, "started")

    def end(self) -> Iterator[TimelineEntry]:
        state = self._state
        if state.completed_at is not None:
            yield TimelineEntry(self._since(state.completed_at) or 0.0, None, state.status, error=state.error)

    def of_attempts(self) -> Iterator[Dated]:
        for tried in self._state.attempts:
            yield self._of_attempt(tried)

    def _of_attempt(self, tried: Attempt) -> Dated:
        began = self._since(tried.started_at)
        return self._entry(
            tried.ended_at, tried.path, tried.outcome, attempt=tried.attempt, began=began, error=tried.error
        )

    def of_steps(self) -> Iterator[Dated]:
        """Only what did not simply succeed the first time has a row of its own for each attempt."""
        listed = {(tried.path, tried.ended_at) for tried in self._state.attempts}
        for step in self._state.steps:
            told = step.status != "cancelled" and (step.path, step.completed_at) in listed
            if step.completed_at is not None and step.kind != ITEM and not told:
                yield self._of_step(step, step.completed_at)

    def _of_step(self, step: Step, at: dt.datetime) -> Dated:
        is_attempt = step.attempts > 0 and step.status != "cancelled"
        return self._entry(
            at, step.path, step.status, attempt=step.attempts if is_attempt else None,
            began=self._since(step.started_at), error=step.error,
        )  # fmt: skip

    def of_history(self, history: list[HistoryEntry]) -> Iterator[Dated]:
        """What neither attempts nor steps tell."""
        for told in history:
            if told.what == "late_result_refused":
                yield self._entry(told.at, told.path, told.what, attempt=told.detail.get("attempt"))


def picture(state: RunState, entries: list[TimelineEntry], now: dt.datetime) -> str:
    """All that there is to see of a run, for an error message."""
    lines = [f"Run {state.run_id!r} of workflow {state.workflow!r} is {state.status}."]
    if state.parked:
        lines.append(f"It is parked: {state.parked}.")
    if entries:
        earlier = [f"  (and {len(entries) - SHOWN} before)"] if len(entries) > SHOWN else []
        lines += ["What happened (seconds since its start):", *earlier, *map(str, entries[-SHOWN:])]
    waiting = [step for step in state.steps if step.completed_at is None]
    if waiting:
        lines += [f"What is open, {(now - state.created_at).total_seconds():.3f} s after its start:"]
        lines += [f"  {_open(step, state.created_at)}" for step in waiting[:SHOWN]]
    return "\n".join(lines)


def _open(step: Step, since: dt.datetime) -> str:
    due = f", due at {(step.due_at - since).total_seconds():.3f}" if step.due_at else ""
    parked = f", parked: {step.parked}" if step.parked else ""
    return f"{step.path} ({step.kind}) {step.status}, {step.attempts} attempt(s){due}{parked}"
