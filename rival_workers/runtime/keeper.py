"""The keeper: the maintenance loop that runs in every worker. It publishes due rows, fires schedules, applies timeouts,
takes over attempts of dead executors, cancels orphans and deletes old runs. It never runs user code. Any number of
keepers may run at the same time.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
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
#: After this many publications (a quarter of an hour) a row is published again even if the queue has a backlog.
TRUST_LOOKS = 7
#: Seconds by which the clocks of publishing processes may differ.
CLOCK_MARGIN = 5.0
#: Seconds for which the keeper skips a part of the round that has failed.
PART_PAUSE = 2.0
_CLEAN_UP_EVERY = 60.0
_RETENTION_BATCH = 500


Waiting = TypeVar("Waiting", Due, DueEvent)
#: Run and path of an attempt.
Place = tuple[str, str]


@dataclass
class Round:
    """The counts of one round. `still_queued`: rows that are due but whose messages are probably still in the queue."""

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
        #: A monotonic clock; the testing kit replaces it.
        self.clock: Callable[[], float] = time.monotonic
        self._failing = FailingItems(lambda: self.clock())
        self._failing.on_refusal = self._lose_contact
        self._steady_since: float | None = None
        self._clean_up_at = 0.0
        self._must_republish = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        #: Called after each round, with its counts.
        self.after_round: Callable[[Round], None] = lambda done: None

    # -- the ticker ---------------------------------------------------------------------------------------

    def start(self) -> None:
        # The first round sets the epoch of a new queue. Messages published after it do not count as lost.
        self._round()
        self._thread = threading.Thread(target=self._run_until_stopped, name="rival-keeper", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=10)

    def _run_until_stopped(self) -> None:
        while not self._stop.wait(self._settings.keeper_interval * random.uniform(0.8, 1.2)):
            self._round()

    def _round(self) -> None:
        try:
            self.after_round(self.run_once())
        except DatabaseError as error:
            self._lose_contact()
            log.warning("keeper: %s", error)
        except Exception:
            log.exception("keeper: a round failed; the next one follows")

    def _lose_contact(self) -> None:
        """The database may have refused heartbeats as well: for one lease from now, the keeper takes nothing over."""
        self._steady_since = None

    # -- one round ----------------------------------------------------------------------------------------

    def run_once(self) -> Round:
        """Runs all parts. A part that fails does not stop the others."""
        done = Round()
        parts: dict[str, Callable[[Round], None]] = {
            "expire executors": self._expire_dead_local_executors,
            "republish": self._republish_all,
            "fire schedules": self._fire_schedules,
            "publish due steps": self._publish_due,
            "publish events": self._publish_events,
            "take over": self._take_over,
            "cancel orphans": self._cancel_orphans,
            "clean up": self._clean_up,
        }
        for what, part in parts.items():
            self._failing.attempt(what, (), partial(part, done), longest=PART_PAUSE)
        return done

    def _expire_dead_local_executors(self, done: Round) -> None:
        """Expire executors on this host whose process is dead, so that takeover does not wait for their lease."""
        for executor in self._store.executors_on(host_name()):
            if not is_alive(executor.pid):
                self._store.expire_executors(host_name(), executor.pid)

    def _republish_all(self, done: Round) -> None:
        """After a loss of broker data, or a failed publish: make all waiting rows due, in bounded batches."""
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

    def _publish_due(self, done: Round) -> None:
        while not self._stop.is_set():
            found = self._store.due(self._look)
            for due in found:
                if due.status == "running":
                    self._failing.attempt("time out", _named(due), partial(self._transitions.time_out_due, due))
                    done.timed_out += 1
            waiting = [due for due in found if due.status != "running"]
            messages = self._probably_lost(waiting, done.broker_lost_data)
            done.still_queued += len(waiting) - len(messages)
            done.published += len(messages)
            if messages:
                failpoint("after_due_commit")
                self._doorbell.publish([_message(due) for due in messages])
            if len(found) < BATCH:
                return

    def _publish_events(self, done: Round) -> None:
        """Publish events that no worker has delivered since they were sent."""
        while not self._stop.is_set():
            found = self._store.due_events(self._look)
            messages = self._probably_lost(found, done.broker_lost_data)
            done.still_queued += len(found) - len(messages)
            done.published += len(messages)
            if messages:
                self._doorbell.publish([EventMessage(event.id, event.topic) for event in messages])
            if len(found) < BATCH:
                return

    def _probably_lost(self, waiting: list[Waiting], broker_lost_data: bool) -> list[Waiting]:
        """The rows whose message is probably lost. While the queue has a backlog, an old message is not lost, and
        another copy would only make the queue longer. But queues are first in, first out: a message that was published
        well before the oldest one in the queue has left the queue.
        """
        first = [due for due in waiting if due.rings == NEVER_PUBLISHED]
        again = [due for due in waiting if due.rings != NEVER_PUBLISHED]
        if again and not broker_lost_data and (oldest := self._doorbell.oldest()) > 0:
            again = [due for due in again if self._waited(due) > oldest + CLOCK_MARGIN or due.rings >= TRUST_LOOKS]
        return first + again

    def _waited(self, due: Due | DueEvent) -> float:
        """Seconds since the row was published, at least: the backoff that has just ended."""
        return backoff(due.rings - 1, self._look.backoff, self._look.backoff_max)

    def _take_over(self, done: Round) -> None:
        """Take over from dead executors. Wait for one lease of uninterrupted contact with the database first: after an
        outage, live executors must be able to beat.
        """
        now = self.clock()
        if self._steady_since is None:
            self._steady_since = now
        if now - self._steady_since < self._settings.lease:
            return
        dead = self._store.dead_executors()
        if dead and self._take_over_all(partial(self._store.lost_attempts, dead), done):
            self._store.forget_executors(dead)

    def _take_over_all(self, read: Callable[[int, Place | None], list[RunningAttempt]], done: Round) -> bool:
        """Take over all attempts, page by page: those that fail stay, and must not fill every page. Returns False when
        the keeper stops.
        """
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
        """Cancel children whose parent was cancelled, has failed or was rewound, and that were not cancelled with it.
        A cancelled child may have children of its own: repeat until nothing is left to cancel.
        """
        while self._cancel_each_orphan(done):
            pass

    def _cancel_each_orphan(self, done: Round) -> bool:
        """Returns whether there were orphans to cancel. Those that fail are paged past and stay for a later round."""
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

    def _clean_up(self, done: Round) -> None:
        if self.clock() < self._clean_up_at:
            return
        self._clean_up_at = self.clock() + _CLEAN_UP_EVERY
        self._take_over_all(self._store.stray_attempts, done)
        while not self._stop.is_set() and self._store.delete_expired_events(_RETENTION_BATCH) == _RETENTION_BATCH:
            pass
        for workflow, age in self._store.retentions(self._settings.retention):
            self._failing.attempt(
                "delete ended runs of", (workflow,), partial(self._delete_old_runs, workflow, age, done)
            )

    def _delete_old_runs(self, workflow: str, age: float, done: Round) -> None:
        """Delete ended runs of a workflow in small batches, so that no transaction waits long for their locks."""
        deleted = _RETENTION_BATCH
        while deleted == _RETENTION_BATCH and not self._stop.is_set():
            deleted = self._store.delete_ended_before(age, _RETENTION_BATCH, workflow)
            done.deleted += deleted


def _named(due: Due) -> tuple[str, ...]:
    return (due.run_id, due.path or "(start)")


def _message(due: Due) -> StepMessage:
    message = StepMessage(due.run_id, due.path, due.token, due.workflow, due.version)
    return replace(message, attempt=due.attempts + 1, lost=due.lost, countdown=max(0.0, due.due_in))
