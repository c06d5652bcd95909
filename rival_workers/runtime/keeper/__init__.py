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
from functools import partial

from rival_client.broker.doorbell import Doorbell
from rival_client.broker.message import StepMessage
from rival_client.errors import DatabaseError
from rival_client.model.timers import BACKOFF_MAX
from rival_workers.runtime.attempt.step_transitions import StepTransitions
from rival_workers.runtime.fleet_rules import FleetRules
from rival_workers.runtime.host import host_name, is_alive
from rival_workers.runtime.keeper.failing_items import FailingItems
from rival_workers.runtime.keeper.overdue_rows import BATCH, OverdueRows, Round
from rival_workers.settings import WorkerSettings
from rival_workers.store.interface import Store
from rival_workers.store.sweep_records import RunningAttempt

log = logging.getLogger("rival.keeper")
#: Seconds for which the keeper skips a part of the round that has failed.
PART_PAUSE = 2.0
_CLEAN_UP_EVERY = 60.0
_RETENTION_BATCH = 500
#: Seconds between two sweeps of the gates of limits and of circuit breakers.
_SWEEP_EVERY = 10.0
#: Run and path of an attempt.
RunAndPath = tuple[str, str]


class Keeper:
    def __init__(
        self, settings: WorkerSettings, store: Store, doorbell: Doorbell, transitions: StepTransitions
    ) -> None:
        self._settings, self._store, self._doorbell, self._transitions = settings, store, doorbell, transitions
        #: A monotonic clock; the testing kit replaces it.
        self.clock: Callable[[], float] = time.monotonic
        self._failing = FailingItems(lambda: self.clock())
        self._failing.on_refusal = self._lose_contact
        self._steady_since: float | None = None
        #: Executors of this machine that this keeper has expired, since their processes are dead.
        self._ended_here: set[str] = set()
        self._clean_up_at = 0.0
        self._sweep_at = 0.0
        self._must_republish = False
        self._stop = threading.Event()
        self._overdue = OverdueRows(settings.ring_grace, store, doorbell, transitions, self._failing, self._stop)
        self._thread: threading.Thread | None = None
        #: The rules of the fleet that this process follows.
        self.rules: FleetRules | None = None
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
        self.look_for_taken()

    def look_for_taken(self) -> None:
        """Publish messages that were taken but could not be handled again, before their grace period ends."""
        self._overdue.taken_until = self.clock()

    # -- one round ----------------------------------------------------------------------------------------

    def run_once(self) -> Round:
        """Runs all parts. A part that fails does not stop the others."""
        done = Round()
        parts: dict[str, Callable[[Round], None]] = {
            "expire executors": self._expire_dead_local_executors,
            "republish": self._republish_all,
            "fire schedules": self._fire_schedules,
            "publish due steps": self._overdue.publish_steps,
            "publish events": self._overdue.publish_events,
            "follow rules": self._follow_rules,
            "take over": self._take_over,
            "sweep gates": self._sweep_gates,
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
                self._ended_here.add(executor.id)
                self._store.expire_executors(host_name(), executor.pid)

    def _republish_all(self, done: Round) -> None:
        """After a loss of broker data, or a failed publish: make all waiting rows due, in bounded batches."""
        self._must_republish = self._doorbell.check_epoch() or self._must_republish
        if not self._must_republish:
            return
        done.broker_lost_data = True
        self._overdue.make_all_due(BACKOFF_MAX)
        self._must_republish = False

    def _fire_schedules(self, done: Round) -> None:
        if fired := self._store.fire_schedules(BATCH):
            starts = [StepMessage(one.run_id, None, 0, one.workflow, one.version, route=one.route) for one in fired]
            self._doorbell.publish(starts)
            done.scheduled += len(fired)

    def _follow_rules(self, done: Round) -> None:
        """`due` has read the version of the fleet's rules; follow it."""
        if self.rules is not None:
            self.rules.follow(self._store.rules_version)
            self.rules.publish()

    def _take_over(self, done: Round) -> None:
        """Take over from dead executors. Wait for one lease of uninterrupted contact with the database first: after an
        outage, live executors must be able to beat. A process that is known to be dead cannot."""
        now = self.clock()
        if self._steady_since is None:
            self._steady_since = now
        dead = self._store.dead_executors()
        if now - self._steady_since < self._settings.lease:
            dead = [one for one in dead if one in self._ended_here]
            if not dead:
                return
        self._ended_here.intersection_update(dead)
        if dead and self._take_over_all(partial(self._store.lost_attempts, dead), done):
            self._store.delete_executors(dead)
            self.look_for_taken()
        self._overdue.make_taken_due(now)

    def _take_over_all(self, read: Callable[[int, RunAndPath | None], list[RunningAttempt]], done: Round) -> bool:
        """Take over all attempts, page by page: those that fail stay, and must not fill every page. Returns False when
        the keeper stops."""
        last: RunAndPath | None = None
        while not self._stop.is_set():
            attempts = read(BATCH, last)
            for attempt in attempts:
                last = (attempt.claim.run_id, attempt.claim.path)
                self._failing.attempt("take over", last, partial(self._transitions.take_over, attempt))
                done.taken_over += 1
            if len(attempts) < BATCH:
                return True
        return False

    def _sweep_gates(self, done: Round) -> None:
        """Grant what waits at a gate that has room, see `rival_workers.store.sql.sweeps`, and call what waits for a
        circuit breaker that would let it go."""
        if self.clock() < self._sweep_at:
            return
        self._sweep_at = self.clock() + _SWEEP_EVERY
        self._store.sweep_breakers()
        if granted := self._store.sweep_gates(BATCH):
            done.published += len(granted)
            self._doorbell.publish([one.message for one in granted])

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
        while not self._stop.is_set() and self._store.delete_expired_keys(_RETENTION_BATCH) == _RETENTION_BATCH:
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
