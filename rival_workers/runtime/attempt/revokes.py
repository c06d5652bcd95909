"""Applies a revoke of a Celery task id (Flower, `celery control revoke`): the attempt that the id names fails.

It revokes the attempt that the row shows now, under its token. It does not use Celery's list of revoked ids, which
would also block later attempts with the same id, for example after a rewind.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rival_client.broker.doorbell import Doorbell
from rival_client.model import statuses
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.host import host_name
from rival_workers.store.claim_records import Claim, Claimed
from rival_workers.store.interface import Store
from rival_workers.store.sweep_records import NamedAttempt

log = logging.getLogger("rival.revoke")

BY = "revoke"
#: A task id, `run:step:attempt+lost`, is ambiguous if run or step contain colons. At most this many readings are tried.
MAX_READINGS = 20
_ATTEMPT = re.compile(r"(.+):(\d{1,9})(?:\+(\d{1,9}))?", re.DOTALL | re.ASCII)


@dataclass(frozen=True)
class Revoked:
    """The effect of a revoke. `pid`: the process that runs the attempt, which can be ended."""

    what: Literal["run", "attempt"]
    pid: int | None = None


class Revocations:
    def __init__(
        self,
        store: Store,
        transitions: StepTransitions,
        doorbell: Doorbell,
        near: float,
        worker: str,
        executor: Callable[[], str],
    ) -> None:
        self._store, self._transitions, self._doorbell = store, transitions, doorbell
        self._near, self._worker, self._executor = near, worker, executor

    def revoke(self, task_id: str, *, terminate: bool = False) -> Revoked | None:
        """Returns None if the id names no attempt that this worker can revoke."""
        done = self._revoke_attempt(task_id, terminate) or self._revoke_start(task_id)
        if done is not None:
            effect = "run is cancelled" if done.what == "run" else "attempt has failed"
            log.warning("task %s was revoked: its %s", task_id, effect)
        return done

    def _revoke_start(self, task_id: str) -> Revoked | None:
        """The task id of the message that starts a run is the run id: a run that has not begun is cancelled."""
        cancelled, ready = self._store.cancel_unbegun(task_id, BY)
        if not cancelled:
            return None
        self._doorbell.publish([] if ready is None else [ready.message], changed=[task_id])
        return Revoked("run")

    def _revoke_attempt(self, task_id: str, terminate: bool) -> Revoked | None:
        named = _ATTEMPT.fullmatch(task_id)
        if named is None:
            return None
        attempt, lost = int(named[2]), int(named[3] or 0)
        for found in self._store.attempts_named(_readings(named[1])):
            if found.lost == lost and found.attempts + (found.status != statuses.RUNNING) == attempt:
                is_terminated = found.status == statuses.RUNNING and terminate
                return self._revoke_running(found, task_id) if is_terminated else self._revoke_waiting(found, task_id)
        return None

    def _revoke_running(self, found: NamedAttempt, task_id: str) -> Revoked | None:
        """Only the worker that runs the attempt revokes it, since it can also end the process."""
        for executor in self._store.executors_on(host_name()):
            if (executor.id, executor.worker) == (found.executor, self._worker):
                done = self._transitions.revoke(found.running(found.claim), task_id)
                return Revoked("attempt", executor.pid) if done else None
        return None

    def _revoke_waiting(self, found: NamedAttempt, task_id: str) -> Revoked | None:
        """An attempt whose message is published: claim it, so that the message becomes stale, and fail it. A running
        attempt is not touched, as in Celery without `terminate`; neither is one that is due later.
        """
        if found.status == statuses.RUNNING:
            return None
        claimed = self._store.claim_step(found.claim, None, self._executor(), within=self._near)
        if not isinstance(claimed, Claimed):
            return None
        claim = Claim(claimed.run_id, claimed.path, claimed.token)
        return Revoked("attempt") if self._transitions.revoke(found.running(claim), task_id) else None


def _readings(text: str) -> list[tuple[str, str]]:
    cuts = [found.start() for found in re.finditer(":", text)][:MAX_READINGS]
    return [(text[:cut], text[cut + 1 :]) for cut in cuts if text[:cut] and text[cut + 1 :]]
