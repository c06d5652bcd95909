"""The runs of the demo, how each must end, and what happens to them: a killed worker, a cancelled run."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, Self

from rival_client.api.client import Rival
from rival_client.errors import RivalError
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.kinds import HANDLER
from rival_client.model.records import RunState
from rival_client.model.step_records import Step
from rival_workers.runtime.host import host_name
from rival_workers.store import Store

TIMEOUT = 60.0
_POLL_INTERVAL = 0.08
#: The worker is killed when its step has run this long: the first once all other runs have ended, else the second.
_KILL_AFTER = (1.0, 2.5)
_CANCEL_AFTER = 1.5

States = Mapping[str, RunState]


class View(Protocol):
    """Shows the runs while they change."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...
    def report(self, event: str) -> None:
        """Shows an event that is not part of a run's state: a kill, a cancel."""

    def update(self, states: States) -> None: ...


# -- the runs ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DemoRun:
    """One run: its input, and the check of its final state."""

    name: str
    workflow: str
    input: dict[str, Any]
    shows: str
    check: Callable[[RunState], bool]


def problems(run: DemoRun, state: RunState) -> list[str]:
    """Why the final state is not the expected one; empty if it is."""
    try:
        as_expected = run.check(state)
    except (KeyError, TypeError):  # a step that was never reached, or without a result
        as_expected = False
    if as_expected:
        return []
    steps = ", ".join(f"{step.path} {step.status} (attempt {step.attempts})" for step in state.steps)
    return [f"{run.name} ended {state.status}, not as expected: {steps}"]


def _steps(state: RunState) -> dict[str, Step]:
    return {step.path: step for step in state.steps}


def _retried(state: RunState) -> bool:
    steps = _steps(state)
    outcomes = [attempt.outcome for attempt in state.attempts if attempt.path == "charge"]
    charged = steps["charge"].attempts == 3 and outcomes[:2] == [entries.FAILED, entries.FAILED]
    return state.status == statuses.COMPLETED and charged and steps["notify"].result["sent_to"] == "ada@example.com"


def _skipped(state: RunState) -> bool:
    return state.status == statuses.COMPLETED and _steps(state)["notify"].status == statuses.SKIPPED


def _timed_out(state: RunState) -> bool:
    outcomes = [attempt.outcome for attempt in state.attempts if attempt.path == "render"]
    rendered = state.status == statuses.COMPLETED and _steps(state)["render"].result == {"pages": 12}
    return rendered and outcomes[0] == entries.TIMED_OUT and _steps(state)["render"].attempts == 2


def _taken_over(state: RunState) -> bool:
    encode = _steps(state)["encode"]
    return state.status == statuses.COMPLETED and encode.lost == 1 and encode.attempts == 1


def _handled(state: RunState) -> bool:
    """Failed at the charge; its own handler ran before the workflow's; no later step was started."""
    failed = state.status == statuses.FAILED and state.failed_step == "charge_card"
    handlers = [step.path for step in state.steps if step.kind == HANDLER and step.status == statuses.COMPLETED]
    return failed and handlers == ["charge_card!on_error", "!on_error"] and "extend" not in _steps(state)


def _cancelled(state: RunState) -> bool:
    return state.status == statuses.CANCELLED and _steps(state)["await_answer"].status == statuses.CANCELLED


KILLED, CANCELLED = "video", "quote"
_ORDER = {"customer": "Ada", "items": {"axe": 1, "rope": 2}, "email": "ada@example.com"}
_SMALL_ORDER = {"customer": "Ben", "items": {"gloves": 1}}
_RENEWAL = {"account": "acme", "card": "4000-0002"}
_TIMEOUT_SHOWN = "the renderer hangs: timeout, then a retry"
_TAKEOVER_SHOWN = "its worker is killed with SIGKILL: takeover"
_HANDLERS_SHOWN = "the card is declined: on_error handlers, then failed"
_CANCEL_SHOWN = "waits for an answer until it is cancelled"

DEMO_RUNS = (
    DemoRun("order", "order-fulfilment", _ORDER, "the charge fails twice and is retried", _retried),
    DemoRun("order-2", "order-fulfilment", _SMALL_ORDER, "the last step skips itself", _skipped),
    DemoRun("report", "sales-report", {"month": "2030-01"}, _TIMEOUT_SHOWN, _timed_out),
    DemoRun(KILLED, "video-encoding", {"video": "lumberjack"}, _TAKEOVER_SHOWN, _taken_over),
    DemoRun("renewal", "subscription-renewal", _RENEWAL, _HANDLERS_SHOWN, _handled),
    DemoRun(CANCELLED, "supplier-quote", {"part": "saw chain"}, _CANCEL_SHOWN, _cancelled),
)


# -- what happens to them ---------------------------------------------------------------------------------


class Scenario:
    """Starts the runs, kills a worker, cancels a run, and returns when all runs have ended."""

    def __init__(self, rival: Rival, store: Store, view: View) -> None:
        self._rival, self._store, self._view = rival, store, view
        self._has_killed = self._has_cancelled = False

    def run(self) -> States:
        """Returns the final state of every run."""
        ids = self._start()
        until = time.monotonic() + TIMEOUT
        with self._view:
            while True:
                states = {name: self._rival.state(run_id) for name, run_id in ids.items()}
                self._view.update(states)
                if all(state.is_terminal for state in states.values()):
                    return states
                if time.monotonic() > until:
                    raise RivalError(f"The runs of the demo did not end within {TIMEOUT:g} s: {_open(states)}")
                self._interfere(states)
                time.sleep(_POLL_INTERVAL)

    def _start(self) -> dict[str, str]:
        suffix = secrets.token_hex(3)
        return {run.name: self._rival.run(run.workflow, run.input, f"{run.name}-{suffix}").run_id for run in DEMO_RUNS}

    def _interfere(self, states: States) -> None:
        encode = _step(states[KILLED], "encode")
        if not self._has_killed and encode is not None and self._is_time_to_kill(encode, states):
            self._kill_worker_of(encode)
        waiting = _step(states[CANCELLED], "await_answer")
        if not self._has_cancelled and waiting is not None and waiting.status == statuses.WAITING_RETRY:
            self._cancel_if_old_enough(states[CANCELLED])

    def _is_time_to_kill(self, step: Step, states: States) -> bool:
        """In the middle of the step, and after the other runs if they are quick enough, so that the kill does not
        change what they show."""
        if step.status != statuses.RUNNING or step.started_at is None:
            return False
        others = [state for name, state in states.items() if name not in (KILLED, CANCELLED)]
        soonest, latest = _KILL_AFTER
        return _age(step.started_at) > (soonest if all(state.is_terminal for state in others) else latest)

    def _kill_worker_of(self, step: Step) -> None:
        pids = {row.id: row.pid for row in self._store.executors_on(host_name())}
        if step.executor in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[step.executor], signal.SIGKILL)
            self._has_killed = True
            self._view.report(f"SIGKILL to worker process {pids[step.executor]}, in the middle of {KILLED}.{step.path}")

    def _cancel_if_old_enough(self, state: RunState) -> None:
        if _age(state.created_at) > _CANCEL_AFTER:
            self._has_cancelled = self._rival.cancel(state.run_id, by="demo")
            self._view.report(f"cancelled {CANCELLED}, which was waiting for its next attempt")


def _step(state: RunState, path: str) -> Step | None:
    return next((step for step in state.steps if step.path == path), None)


def _age(since: dt.datetime) -> float:
    return (dt.datetime.now(dt.UTC) - since).total_seconds()


def _open(states: States) -> str:
    return ", ".join(f"{name} is {state.status}" for name, state in states.items() if not state.is_terminal)
