"""Starts the runs of the demo, kills a worker and cancels a run."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import signal
import time
from collections.abc import Mapping
from typing import Protocol, Self

from rival_client.api.client import Rival
from rival_client.errors import RivalError
from rival_client.model import statuses
from rival_client.model.records import RunState
from rival_client.model.step_records import Step
from rival_workers.cli.demo.expected_runs import CANCELLED, DEMO_RUNS, KILLED
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
