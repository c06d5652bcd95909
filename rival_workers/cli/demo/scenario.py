"""The demo's course: start the runs, watch them, kill a worker, cancel a run, and go on until all have ended."""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import signal
import time
from collections.abc import Mapping

from rival_client.api.client import Rival
from rival_client.errors import RivalError
from rival_client.model.records import RunState, Step
from rival_workers.cli.demo.runs import CANCELLED, CAST, KILLED
from rival_workers.cli.demo.view import View
from rival_workers.runtime.host import host_name
from rival_workers.store import Store

TIMEOUT = 60.0
_LOOK_EVERY = 0.08
#: The step to be killed runs for at least the first, at most the second of these before the blow falls.
_BLOW = (1.0, 2.5)
_PATIENCE = 1.5

States = Mapping[str, RunState]


class Show:
    def __init__(self, rival: Rival, store: Store, view: View) -> None:
        self._rival, self._store, self._view = rival, store, view
        self._killed = self._cancelled = False

    def run(self) -> States:
        """Every run's last state."""
        ids = self._start()
        until = time.monotonic() + TIMEOUT
        with self._view:
            while True:
                states = {name: self._rival.state(run_id) for name, run_id in ids.items()}
                self._view.update(states)
                if all(state.is_terminal for state in states.values()):
                    return states
                if time.monotonic() > until:
                    raise RivalError(f"The demo's runs have not ended within {TIMEOUT:g} s: {_open(states)}")
                self._interfere(states)
                time.sleep(_LOOK_EVERY)

    def _start(self) -> dict[str, str]:
        suffix = secrets.token_hex(3)
        return {role.name: self._rival.run(role.workflow, role.input, f"{role.name}-{suffix}").run_id for role in CAST}

    def _interfere(self, states: States) -> None:
        encode = _step(states[KILLED], "encode")
        if not self._killed and encode is not None and self._is_time_to_kill(encode, states):
            self._kill_worker_of(encode)
        waiting = _step(states[CANCELLED], "await_answer")
        if not self._cancelled and waiting is not None and waiting.status == "waiting_retry":
            self._cancel_when_patience_ends(states[CANCELLED])

    def _is_time_to_kill(self, step: Step, states: States) -> bool:
        """In the middle of the step; after the others, if they are quick enough, so that each shows its own thing."""
        if step.status != "running" or step.started_at is None:
            return False
        others = [state for name, state in states.items() if name not in (KILLED, CANCELLED)]
        soonest, latest = _BLOW
        return _age(step.started_at) > (soonest if all(state.is_terminal for state in others) else latest)

    def _kill_worker_of(self, step: Step) -> None:
        pids = {row.id: row.pid for row in self._store.executors_on(host_name())}
        if step.executor in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pids[step.executor], signal.SIGKILL)
            self._killed = True
            self._view.say(f"SIGKILL to worker process {pids[step.executor]}, in the middle of {KILLED}.{step.path}")

    def _cancel_when_patience_ends(self, state: RunState) -> None:
        if _age(state.created_at) > _PATIENCE:
            self._cancelled = self._rival.cancel(state.run_id, by="demo")
            self._view.say(f"cancelled {CANCELLED}, which was waiting for its next try")


def _step(state: RunState, path: str) -> Step | None:
    return next((step for step in state.steps if step.path == path), None)


def _age(since: dt.datetime) -> float:
    return (dt.datetime.now(dt.UTC) - since).total_seconds()


def _open(states: States) -> str:
    return ", ".join(f"{name} is {state.status}" for name, state in states.items() if not state.is_terminal)
