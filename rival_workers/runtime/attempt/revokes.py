"""Applies a revoke of a Celery task id (Flower, `celery control revoke`): the attempt that the id names fails.

A worker's own memory of revoked ids plays no part: it would block every later attempt with the same id, after a rewind
for instance. What is revoked is the attempt that the row shows now, under its token.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from rival_client.broker.doorbell import Doorbell
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.host import host_name
from rival_workers.store.interface import Claim, Claimed, NamedAttempt, Store

log = logging.getLogger("rival.revoke")

BY = "revoke"
#: A task id, `run:step:attempt+lost`, may be read in as many ways as it has colons.
MOST_READINGS = 20
_ATTEMPT = re.compile(r"(.+):(\d{1,9})(?:\+(\d{1,9}))?", re.DOTALL | re.ASCII)


@dataclass(frozen=True)
class Revoked:
    """What a revoke has done. `pid`: the process that ran the attempt, which nobody needs any more."""

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
        """None: the id names no attempt that could be revoked here; that is harmless."""
        done = self._revoke_attempt(task_id, terminate) or self._revoke_start(task_id)
        if done is not None:
            log.warning("task %s was revoked: its %s", task_id, "run is cancelled" if done.what == "run"
                        else "attempt has failed")  # fmt: skip
        return done

    def _revoke_start(self, task_id: str) -> Revoked | None:
        """The message that starts a run has the run's id: a run that has not begun is cancelled."""
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
            if found.lost == lost and found.attempts + (found.status != "running") == attempt:
                return self._revoke_running(found, task_id) if found.status == "running" and terminate \
                    else self._revoke_waiting(found, task_id)  # fmt: skip
        return None

    def _revoke_running(self, found: NamedAttempt, task_id: str) -> Revoked | None:
        """Only by the worker that runs it, which can end the process, too."""
        for executor in self._store.executors_on(host_name()):
            if (executor.id, executor.worker) == (found.executor, self._worker):
                done = self._transitions.revoke(found.running(found.claim), task_id)
                return Revoked("attempt", executor.pid) if done else None
        return None

    def _revoke_waiting(self, found: NamedAttempt, task_id: str) -> Revoked | None:
        """An attempt that a message has been published for: it is claimed, so that the message is stale, and fails.
        One that runs is left alone, as Celery does without `terminate`; so is one that is due later.
        """
        if found.status == "running":
            return None
        claimed = self._store.claim_step(found.claim, None, self._executor(), within=self._near)
        if not isinstance(claimed, Claimed):
            return None
        claim = Claim(claimed.run_id, claimed.path, claimed.token)
        return Revoked("attempt") if self._transitions.revoke(found.running(claim), task_id) else None


def _readings(text: str) -> list[tuple[str, str]]:
    cuts = [found.start() for found in re.finditer(":", text)][:MOST_READINGS]
    return [(text[:cut], text[cut + 1 :]) for cut in cuts if text[:cut] and text[cut + 1 :]]
