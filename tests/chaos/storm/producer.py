"""Producers: they start runs at a steady rate, send the events that runs await, answer for the vendor, wait for some
results, and operate on some runs while the faults go on.
"""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sqlalchemy import func, select

from rival_client import Rival, RivalError
from rival_client.db.event_tables import events
from rival_client.db.run_tables import runs
from rival_client.model.statuses import RUN_TERMINAL
from tests.chaos.storm.cases import CASES, Case, Input, amount
from tests.chaos.storm.ledger import Ledger
from tests.chaos.storm.operators import operate
from tests.chaos.storm.persistent_calls import PersistentCalls

#: The part of the runs that an operator does something to.
OPERATED = 0.15
#: Seconds between two runs of the schedule.
EVERY = 2
#: The part of the runs that a producer waits for.
WAITED = 0.1


@dataclass
class Accepted:
    """A run that `rival.run` has accepted, and what was done to it."""

    run_id: str
    case: Case
    input: Input
    verb: str | None = None
    #: Whether a cancel has returned True.
    cancelled: bool = False
    #: What `wait` has returned: status and result.
    waited: tuple[str, Any] | None = None


@dataclass(order=True)
class _Action:
    at: float
    number: int
    do: Callable[[], None] = field(compare=False)


class Producer:
    """`threads` start at most `rate` runs a second together, and none while `limit` runs are open."""

    def __init__(self, rival: Rival, ledger: Ledger, seed: int, rate: float, limit: int, threads: int = 6) -> None:
        self.rival, self.ledger, self.patience = rival, ledger, PersistentCalls()
        self.accepted: list[Accepted] = []
        self.errors: list[str] = []
        self._seed, self._rate, self._limit = seed, rate / threads, limit
        self._stop, self._stop_vendor = threading.Event(), threading.Event()
        self._open = 0
        self._numbers = itertools.count()
        self._threads = [self._thread(lambda n=n: self._produce(n)) for n in range(threads)]
        self._helpers = [self._thread(self._answer_letters), self._thread(self._count_open)]

    def start(self) -> None:
        self.start_ticks()
        for thread in [*self._threads, *self._helpers]:
            thread.start()

    def start_ticks(self) -> None:
        tick = {"n": 1}
        self.patience.call(lambda: self.rival.schedule("tick", EVERY, name="ticks", input=tick, catch_up="all"))

    def finish(self, timeout: float = 120.0) -> None:
        """No new runs; what was promised to runs is done. The vendor goes on until `close`."""
        self._stop.set()
        self.patience.call(lambda: self.rival.unschedule("ticks"))
        until = time.monotonic() + timeout
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
            if thread.is_alive():
                self.errors.append("a producer hangs")

    def close(self) -> None:
        self._stop_vendor.set()
        for thread in self._helpers:
            thread.join(20)

    def _thread(self, work: Callable[[], None]) -> threading.Thread:
        def safely() -> None:
            try:
                work()
            except Exception:
                self.errors.append(traceback.format_exc())

        return threading.Thread(target=safely, daemon=True)

    # -- starting runs ------------------------------------------------------------------------------------------

    def _produce(self, number: int) -> None:
        random, actions = Random(f"{self._seed}:producer:{number}"), list[_Action]()
        while not self._stop.wait(random.uniform(0.5, 1.5) / self._rate):
            if self._open < self._limit:
                self._start_one(random, f"r{number}-{next(self._numbers)}", actions)
            self._do_what_is_due(actions, time.monotonic())
        while actions:
            self._do_what_is_due(actions, actions[0].at)

    def _start_one(self, random: Random, run_id: str, actions: list[_Action]) -> None:
        case = random.choices(list(CASES.values()), [case.weight for case in CASES.values()])[0]
        run = Accepted(run_id, case, case.make_input(random))
        self.patience.call(lambda: self.rival.run(case.workflow, run.input, run_id=run_id))
        self.accepted.append(run)
        if case.awaits:
            self._plan(actions, random.uniform(0, 2), lambda: self.send(run, "first"))
        if random.random() < OPERATED:
            run.verb = random.choice(case.verbs)
            pause = random.uniform(0.3, 2)
            self._plan(actions, random.uniform(0, 3), lambda: operate(self, run, pause))
        elif random.random() < WAITED:
            self._plan(actions, 0.0, lambda: self._wait(run))

    def _plan(self, actions: list[_Action], delay: float, do: Callable[[], None]) -> None:
        heapq.heappush(actions, _Action(time.monotonic() + delay, next(self._numbers), do))

    def _do_what_is_due(self, actions: list[_Action], now: float) -> None:
        while actions and actions[0].at <= now:
            heapq.heappop(actions).do()

    def send(self, run: Accepted, which: str) -> None:
        """The event that the run awaits; its id makes a repeated call harmless."""
        payload, event_id = {"amount": amount(run.input)}, f"{run.run_id}-{which}"
        self.patience.call(lambda: self.rival.send_event("paid", payload, key=run.run_id, event_id=event_id))

    def _wait(self, run: Accepted) -> None:
        """In a thread of its own, for as long as it takes."""

        def wait() -> None:
            result = self.patience.call(lambda: self.rival.wait(run.case.workflow, run.run_id, timeout=600))
            run.waited = (result.status, result.result)

        self._thread(wait).start()

    # -- beside them --------------------------------------------------------------------------------------------

    def _answer_letters(self) -> None:
        """The vendor: completes every external step that has written to it. A stale token is refused, which is fine."""
        while not self._stop_vendor.wait(0.2):
            for token, answer in self.ledger.new_letters():
                self.patience.call(lambda token=token, answer=answer: self.rival.complete_step(token, answer))

    def _count_open(self) -> None:
        while not self._stop_vendor.wait(1.0):
            try:
                self._open = self.open_runs()
            except RivalError:
                continue

    def open_runs(self) -> int:
        with self.rival.database.autocommit() as connection:
            wanted = select(func.count()).select_from(runs).where(runs.c.status.not_in(RUN_TERMINAL))
            return int(connection.scalar(wanted) or 0)

    def undelivered(self) -> int:
        """Events that no worker has looked at yet."""
        with self.rival.database.autocommit() as connection:
            wanted = select(func.count()).select_from(events).where(events.c.status == "sent")
            return int(connection.scalar(wanted) or 0)
