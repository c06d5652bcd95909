"""The keeper: the small loop in every worker that rings what is due, fires schedules, applies timeouts, takes over from
dead executors, cancels orphans and lets old runs go. It runs no user code, and any number of keepers may run beside one
another.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from rival_client.broker.doorbell import Doorbell
from rival_client.broker.message import EventMessage, StepMessage
from rival_client.errors import DatabaseError
from rival_client.model.timers import BACKOFF_MAX, NEVER_PUBLISHED, backoff
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.failing_items import FailingItems
from rival_workers.runtime.failpoints import failpoint
from rival_workers.runtime.host import host_name, is_alive
from rival_workers.settings import WorkerSettings
from rival_workers.store.interface import Due, DueEvent, RunningAttempt, Store, SweepOptions

log = logging.getLogger("rival.keeper")

BATCH = 500
#: After this many looks (a quarter of an hour) even a queue that does not tell its age is not believed any more.
TRUST_LOOKS = 7
#: Seconds by which the clocks of those who ring may differ.
CLOCK_MARGIN = 5.0
#: Seconds for which a part of the round that has failed is left out.
PART_PAUSE = 2.0
_CHORES_EVERY = 60.0
_RETENTION_BATCH = 500


Waiting = TypeVar("Waiting", Due, DueEvent)
#: Run and path of an attempt.
Place = tuple[str, str]


@dataclass
class Round:
    """What one round of the keeper did."""

    scheduled: int = 0
    published: int = 0
    still_queued: int = 0
    timed_out: int = 0
    taken_over: int = 0
    orphans: int = 0
    deleted: int = 0
    broker_lost_data: bool = False


class Keeper:
    def __init__(
        self, settings: WorkerSettings, store: Store, doorbell: Doorbell, transitions: StepTransitions
    ) -> None:
        self._settings, self._store, self._doorbell, self._transitions = settings, store, doorbell, transitions
        self._look = SweepOptions(BATCH, backoff=settings.ring_grace, backoff_max=BACKOFF_MAX)
        #: Seconds that only go forward; a lab has a clock that skips.
        self.clock: Callable[[], float] = time.monotonic
        self._failing = FailingItems(lambda: self.clock())
        self._failing.on_refusal = self._lose_contact
        self._steady_since: float | None = None
        self._chores_at = 0.0
        self._must_republish = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: Called after each round, with what it did.
        self.after_round: Callable[[Round], None] = lambda done: None

    # -- the ticker ---------------------------------------------------------------------------------------

    def start(self) -> None:
        # The first round at once: a new queue has no epoch yet, and what is rung from here on is not lost with it.
        self._round()
        self._thread = threading.Thread(target=self._run_for_ever, name="rival-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run_for_ever(self) -> None:
        while not self._stop.wait(self._settings.keeper_interval * random.uniform(0.8, 1.2)):
            self._round()

    def _round(self) -> None:
        try:
            self.after_round(self.run_once())
        except DatabaseError as error:
            self._lose_contact()
            log.warning("keeper: %s", error)
        except Exception:
            log.exception("keeper: a round failed; it goes on")

    def _lose_contact(self) -> None:
        """Heartbeats may have been refused, too: nothing is taken over for a lease from now."""
        self._steady_since = None

    # -- one round ----------------------------------------------------------------------------------------

    def run_once(self) -> Round:
        """Each part by itself: one that fails does not keep the others from their work."""
        done = Round()
        parts: dict[str, Callable[[Round], None]] = {
            "expire executors": self._expire_dead_local_executors, "republish": self._republish_all,
            "fire schedules": self._fire_schedules, "publish what is due": self._ring_what_is_due,
            "publish events": self._ring_events, "take over": self._take_over,
            "cancel orphans": self._cancel_orphans, "clean up": self._chores,
        }  # fmt: skip
        for what, part in parts.items():
            self._failing.attempt(what, (), partial(part, done), longest=PART_PAUSE)
        return done

    def _expire_dead_local_executors(self, done: Round) -> None:
        """Executors of this very machine whose process is gone need not run out their lease."""
        for executor in self._store.executors_on(host_name()):
            if not is_alive(executor.pid):
                self._store.expire_executors(host_name(), executor.pid)

    def _republish_all(self, done: Round) -> None:
        """The broker forgot everything, or was away when we rang: make all that waits due, in bounded batches."""
        self._must_republish = self._doorbell.check_epoch() or self._must_republish
        if not self._must_republish:
            return
        done.broker_lost_data = True
        while not self._stop.is_set() and self._store.ring_all(BACKOFF_MAX, BATCH) >= BATCH:
            pass
        self._must_republish = False

    def _fire_schedules(self, done: Round) -> None:
        fired = self._store.fire_schedules(BATCH)
        if fired:
            self._doorbell.publish([StepMessage(one.run_id, None, 0, one.workflow, one.version) for one in fired])
            done.scheduled += len(fired)

    def _ring_what_is_due(self, done: Round) -> None:
        while not self._stop.is_set():
            found = self._store.due(self._look)
            for due in found:
                if due.status == "running":
                    self._failing.attempt("time out", _named(due), partial(self._transitions.time_out_due, due))
                    done.timed_out += 1
            waiting = [due for due in found if due.status != "running"]
            messages = self._believed_lost(waiting, done.broker_lost_data)
            done.still_queued += len(waiting) - len(messages)
            done.published += len(messages)
            if messages:
                failpoint("after_due_commit")
                self._doorbell.publish([_ring(due) for due in messages])
            if len(found) < BATCH:
                return

    def _ring_events(self, done: Round) -> None:
        """Events that nobody has looked at since they were sent."""
        while not self._stop.is_set():
            found = self._store.due_events(self._look)
            messages = self._believed_lost(found, done.broker_lost_data)
            done.still_queued += len(found) - len(messages)
            done.published += len(messages)
            if messages:
                self._doorbell.publish([EventMessage(event.id, event.topic) for event in messages])
            if len(found) < BATCH:
                return

    def _believed_lost(self, waiting: list[Waiting], broker_lost_data: bool) -> list[Waiting]:
        """A ring that is merely old is not lost while the queue has a backlog: another would only make it longer.
        But queues are first in, first out: what was rung well before the oldest message there is in it no more.
        """
        first = [due for due in waiting if due.rings == NEVER_PUBLISHED]
        again = [due for due in waiting if due.rings != NEVER_PUBLISHED]
        if again and not broker_lost_data and (oldest := self._doorbell.oldest()) > 0:
            again = [due for due in again if self._waited(due) > oldest + CLOCK_MARGIN or due.rings >= TRUST_LOOKS]
        return first + again

    def _waited(self, due: Due | DueEvent) -> float:
        """Seconds since the row was rung, at least: the backoff that has just run out."""
        return backoff(due.rings - 1, self._look.backoff, self._look.backoff_max)

    def _take_over(self, done: Round) -> None:
        """Only after a whole lease of our own contact with the database: after it was away, the living beat first."""
        now = self.clock()
        if self._steady_since is None:
            self._steady_since = now
        if now - self._steady_since < self._settings.lease:
            return
        dead = self._store.dead_executors()
        if dead and self._give_to_others(partial(self._store.lost_attempts, dead), done):
            self._store.forget_executors(dead)

    def _give_to_others(self, read: Callable[[int, Place | None], list[RunningAttempt]], done: Round) -> bool:
        """Take over all attempts, a page at a time: those that fail stay, and must not fill every page. False: the
        keeper stops."""
        last: Place | None = None
        while not self._stop.is_set():
            attempts = read(BATCH, last)
            for attempt in attempts:
                last = (attempt.claim.run_id, attempt.claim.path)
                self._failing.attempt("take over", last, partial(self._transitions.take_over, attempt))
                done.taken_over += 1
            if len(attempts) < BATCH:
                return True
        return False

    def _cancel_orphans(self, done: Round) -> None:
        """Children of runs that were cancelled, have failed or were rewound, where that process did not cancel them.
        Cancelled ones may leave children of their own: so again, until there is nothing to cancel."""
        while self._cancel_each_orphan(done):
            pass

    def _cancel_each_orphan(self, done: Round) -> bool:
        """Whether any was there to be cancelled. Those that fail stay for a later round, and are paged past."""
        found, last = False, ""
        while not self._stop.is_set():
            page = self._store.orphans(BATCH, last)
            settled = {run_id: self._cancel_orphan(run_id, by) for run_id, by in page}
            cancelled = [run_id for run_id, now in settled.items() if now]
            if cancelled:
                self._doorbell.publish([], changed=cancelled)
            done.orphans += len(cancelled)
            found = found or any(now is not None for now in settled.values())
            if len(page) < BATCH:
                return found
            last = page[-1][0]
        return False

    def _cancel_orphan(self, run_id: str, by: str) -> bool | None:
        return self._failing.attempt("cancel", (run_id,), partial(self._store.cancel_orphan, run_id, by))

    def _chores(self, done: Round) -> None:
        if self.clock() < self._chores_at:
            return
        self._chores_at = self.clock() + _CHORES_EVERY
        self._give_to_others(self._store.stray_attempts, done)
        while not self._stop.is_set() and self._store.delete_expired_events(_RETENTION_BATCH) == _RETENTION_BATCH:
            pass
        for workflow, age in self._store.retentions(self._settings.retention):
            self._failing.attempt(
                "delete ended runs of", (workflow,), partial(self._delete_old_runs, workflow, age, done)
            )

    def _delete_old_runs(self, workflow: str, age: float, done: Round) -> None:
        """Ended runs of a workflow, in small batches: nobody waits for their locks."""
        deleted = _RETENTION_BATCH
        while deleted == _RETENTION_BATCH and not self._stop.is_set():
            deleted = self._store.delete_ended_before(age, _RETENTION_BATCH, workflow)
            done.deleted += deleted


def _named(due: Due) -> tuple[str, ...]:
    return (due.run_id, due.path or "(start)")


def _ring(due: Due) -> StepMessage:
    return StepMessage(
        due.run_id, due.path, due.token, due.workflow, due.version,
        attempt=due.attempts + 1, lost=due.lost, countdown=max(0.0, due.due_in),
    )  # fmt: skip
