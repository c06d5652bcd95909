"""Logs failures: one line per failed attempt and per failed run in the worker's log, with the location in the user's
file, and an entry with the traceback in the run's log. An error while logging never changes an outcome.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.durations import duration_text
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.run_entries import LogEntry
from rival_workers.engine import paths
from rival_workers.engine.decisions import Decision, End, Failure, FallBack, Retry
from rival_workers.engine.retries import configured_max, effective_max, why_not_retried
from rival_workers.runtime.logs.redaction import Redaction
from rival_workers.runtime.logs.step_log import Append
from rival_workers.runtime.logs.tracebacks import shortened

if TYPE_CHECKING:
    from rival_workers.runtime.attempt.position import Position

steps_log = logging.getLogger("rival.steps")
runs_log = logging.getLogger("rival.runs")
log = logging.getLogger("rival.logs")

#: Characters of a message in a line of the worker's log.
MAX_MESSAGE = 300
#: Characters of a traceback in a field of a log entry, which has at most 16 KiB.
MAX_TRACEBACK = 12_000

Keep = Callable[[Callable[[], None]], None]


def at_once(operation: Callable[[], None]) -> None:
    operation()


@dataclass(frozen=True)
class FailedAttempt:
    """A failure and its consequence, as text."""

    workflow: str
    run_id: str
    path: str
    attempt: int
    error: dict[str, Any]
    follows: str
    level: str

    @property
    def message(self) -> str:
        return f"{self.follows}: {error_line(self.error)}"

    @property
    def details(self) -> dict[str, Any]:
        """Location and traceback, if known."""
        found = {name: self.error.get(name) for name in ("location", "traceback")}
        return {name: shortened(text, MAX_TRACEBACK) for name, text in found.items() if text}


@dataclass(frozen=True)
class Failing:
    """The attempt that has failed, of a step of a plan or of a flow."""

    workflow: str
    run_id: str
    path: str
    attempt: int
    config: StepConfig


def failed_attempt(position: Position, outcome: Failure, decision: Decision) -> FailedAttempt:
    claim = position.claim
    failing = Failing(position.workflow, claim.run_id, claim.path, position.attempt, position.config)
    return describe(failing, outcome, decision)


def describe(one: Failing, outcome: Failure, decision: Decision, *, in_flow: bool = False) -> FailedAttempt:
    """`in_flow`: the flow may catch the failure, so it is only a warning."""
    most = effective_max(configured_max(one.config), outcome.max_attempts if outcome.behavior == "retry" else None)
    what = {entries.TIMED_OUT: "timed out", entries.REVOKED: "was revoked"}.get(outcome.outcome, "failed")
    after = _next(one, outcome, decision)
    follows = f"attempt {one.attempt} of {max(most, one.attempt)} {what}, {after}"
    level = "error" if isinstance(decision, End) and decision.hard and not in_flow else "warning"
    return FailedAttempt(one.workflow, one.run_id, one.path, one.attempt, outcome.error, follows, level)


def _next(one: Failing, outcome: Failure, decision: Decision) -> str:
    if isinstance(decision, FallBack) or decision.fallback is not None:
        return "the step falls back"
    if isinstance(decision, Retry):
        return f"next attempt in {duration_text(decision.delay)}"
    if paths.is_reaction(one.path):
        return _WITHOUT[paths.role_of(one.path)[1]]
    if decision.status == statuses.SKIPPED:
        return "the step is skipped"
    if not decision.hard:
        return "the run continues"
    if one.attempt >= (configured_max(one.config) or 1):
        return "no retry"
    return f"not retried: {_why_not(one, outcome, decision)}"


def _why_not(one: Failing, outcome: Failure, decision: End) -> str:
    why = (decision.error or {}).get("not_retried") or why_not_retried(one.config, one.attempt, outcome)
    # The error asks for a retry, and there is time for it.
    return why or f"the run has used its retry_budget of {one.config.retry_budget}"


_WITHOUT = {
    "on_error": "the outcome of the run does not change",
    "compensate": "so this step is not undone",
    "fallback": "so the step fails with its own error",
}


def error_line(error: dict[str, Any] | None, limit: int = MAX_MESSAGE) -> str:
    """Type, message and location in one line."""
    error = error or {}
    text = " ".join(f"{error.get('type', 'Error')}: {error.get('message', '')}".split())
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return f"{text} ({error['location']})" if error.get("location") else text


class FailureLog:
    def __init__(self, append: Append, redaction: Redaction) -> None:
        self._append, self._redaction = append, redaction

    def redacted(self, outcome: Failure) -> Failure:
        """Hides secrets in the message and in the source lines of the traceback."""
        return replace(outcome, error=self._redaction.value("", outcome.error))

    def store(self, failed: FailedAttempt, keep: Keep = at_once) -> None:
        """Write to the run's log, before the commit of the outcome: the entry exists when the run ends."""
        entry = LogEntry(
            dt.datetime.now(dt.UTC), failed.level, failed.path, failed.attempt, failed.message, failed.details
        )
        try:
            keep(lambda: self._append(failed.run_id, [entry], False))
        except Exception:
            log.exception("run %s step %s: the log entry of its failure was not stored", failed.run_id, failed.path)

    def log_attempt(self, failed: FailedAttempt) -> None:
        """Write to the worker's log. Call it after the commit."""
        about = {"run": failed.run_id, "workflow": failed.workflow, "step": failed.path, "attempt": failed.attempt}
        error = {name: failed.error.get(name) for name in ("type", "message")}
        extra = {"rival": {"message": failed.message, **about, "error": error, "fields": failed.details}}
        level, step = getattr(logging, failed.level.upper()), f"{failed.workflow}.{failed.path}"
        steps_log.log(level, "%s run=%s %s", step, failed.run_id, failed.message, extra=extra)


@dataclass(frozen=True)
class FlowFailures:
    """Logs the failed attempts of steps of one flow, before they are committed."""

    log: FailureLog
    workflow: str
    run_id: str
    keep: Keep = at_once

    def redacted(self, outcome: Failure) -> Failure:
        return self.log.redacted(outcome)

    def report(self, path: str, attempt: int, config: StepConfig, outcome: Failure, decision: Decision) -> None:
        failed = describe(Failing(self.workflow, self.run_id, path, attempt, config), outcome, decision, in_flow=True)
        self.log.store(failed, self.keep)
        self.log.log_attempt(failed)


def log_failed_run(run_id: str, workflow: str, step: str | None, error: dict[str, Any] | None) -> None:
    where = "" if step is None else f" at step {step}"
    message = f"failed{where}: {error_line(error)}"
    about = {"run": run_id, "workflow": workflow, "step": step}
    known = {name: (error or {}).get(name) for name in ("type", "message", "location")}
    extra = {"rival": {"message": message, **about, "error": known}}
    runs_log.error("run %s of %s %s", run_id, workflow, message, extra=extra)
