"""Live updates: one thread per process polls the database for all viewers, and keeps what has changed in a buffer.

A viewer has a position in the buffer and nothing else, so that 200 viewers cost as many statements as one, and a stream
that was cut goes on where it was. The thread runs while there is a viewer.
"""

from __future__ import annotations

import datetime as dt
import logging
import secrets
import threading
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from rival_client.db.read_only import Cost, counted
from rival_client.errors import RivalError
from rival_workers.dashboard.live_polls import Polls
from rival_workers.dashboard.live_watch import Event, Watch
from rival_workers.dashboard.values import moment

log = logging.getLogger("rival.dashboard")

#: Events that are kept for viewers that come back.
KEPT = 2000
#: Seconds after the last request of a viewer until what it watches is not polled any more.
KEEP_INTEREST = 60.0
#: Seconds between two polls: while things change, and while nothing does.
BUSY, QUIET = 0.25, 1.0
#: Seconds between two reports of the cost.
COST_EVERY = 5.0
#: Events that come at their own times: heartbeats change the fleet always.
_REGULAR = ("fleet", "counts")
#: Changes of one run that a viewer gets at once; with more it reads the run again.
MANY = 200


class Hub:
    def __init__(self, polls: Polls) -> None:
        self._polls = polls
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._interest: dict[tuple[str, str], float] = {}
        #: The round that has seen a topic for the first time, for all viewers that ask for it.
        self._ready: dict[tuple[str, str], int] = {}
        self._events: deque[Event] = deque(maxlen=KEPT)
        self._last = 0
        #: Whether the last round has found changes, so that more may follow soon.
        self._moves = False
        self._epoch = secrets.token_hex(4)
        self._cost, self._cost_since = Cost(), time.monotonic()
        self.rounds = 0
        #: Since when rounds fail; None: the last one has succeeded.
        self.outage: str | None = None
        self.is_closed = False
        self.viewers = 0

    # -- viewers ------------------------------------------------------------------------------------------

    def look(self, watch: Watch) -> int:
        """Register interest; the number of the round that will have seen it all."""
        now = time.monotonic()
        with self._lock:
            topics = watch.topics()
            fresh = topics - self._interest.keys()
            self._interest |= dict.fromkeys(topics, now)
            self._ready |= dict.fromkeys(fresh, self.rounds + 2)
            ready = max((self._ready[topic] for topic in topics), default=self.rounds)
            if self._thread is None and not self.is_closed:
                self._thread = threading.Thread(target=self._run, name="rival-hub", daemon=True)
                self._thread.start()
        if fresh:
            self._wake.set()
        return ready

    @property
    def last(self) -> int:
        """The number of the newest event."""
        return self._last

    @property
    def cursor(self) -> str:
        return self.cursor_at(self._last)

    def cursor_at(self, number: int) -> str:
        return f"{self._epoch}-{number}"

    def position(self, cursor: str | None) -> int | None:
        """The place in the buffer; None: it is not known here, or too long ago."""
        epoch, _, number = (cursor or "").partition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdigit() and len(number) < 16):
            return None
        with self._lock:
            first = self._events[0].number if self._events else self._last + 1
        return int(number) if first - 1 <= int(number) <= self._last else None

    def since(self, position: int, watch: Watch) -> tuple[list[Event], int]:
        """Returns the events for a viewer, and its new position."""
        with self._lock:
            last = self._last
            found = [event for event in self._events if event.number > position and watch.wants(event)]
        return _bounded(found), last

    # -- the thread ---------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self.is_closed:
            self._moves = False
            self.try_once()
            with self._lock:
                if not self._interest:
                    self._thread = None
                    return
            self._wake.wait(BUSY if self._moves else QUIET)
            self._wake.clear()

    def try_once(self) -> None:
        """One round. Viewers get an event when rounds begin to fail, and one when they succeed again."""
        try:
            self.poll_once()
        except Exception as error:
            if not isinstance(error, RivalError):
                log.exception("live updates failed; the next round follows")
            elif self.outage is None:
                log.warning("live updates: %s", error)
            self._set_outage(self.outage or moment(dt.datetime.now(dt.UTC)))
        else:
            self._set_outage(None)

    def _set_outage(self, since: str | None) -> None:
        if since != self.outage:
            self.outage = since
            self._add("outage", "", {"since": since})

    def poll_once(self) -> None:
        """Polls once for all viewers. The number of statements does not depend on the number of viewers."""
        with counted() as cost:
            for kind, about, data in self._polls.round(self._topics()):
                self._add(kind, about, data)
                self._moves = self._moves or kind not in _REGULAR
        self._count(cost)
        self.rounds += 1

    def _topics(self) -> set[tuple[str, str]]:
        oldest = time.monotonic() - KEEP_INTEREST
        with self._lock:
            self._interest = {topic: seen for topic, seen in self._interest.items() if seen >= oldest}
            self._ready = {topic: self._ready[topic] for topic in self._interest}
            return set(self._interest)

    def _add(self, kind: str, about: str, data: dict[str, Any]) -> None:
        with self._lock:
            self._last += 1
            self._events.append(Event(self._last, kind, about, data))

    def _count(self, cost: Cost) -> None:
        self._cost.add(cost)
        seconds = time.monotonic() - self._cost_since
        if seconds >= COST_EVERY:
            about = {"queries_per_s": self._cost.queries / seconds, "ms_per_s": self._cost.ms / seconds}
            rounded = {name: round(value, 1) for name, value in about.items()}
            self._add("cost", "", {"viewers": self.viewers, **rounded})
            self._cost, self._cost_since = Cost(), time.monotonic()

    def end_streams(self) -> None:
        self.is_closed = True
        self._wake.set()

    def close(self) -> None:
        self.end_streams()
        if self._thread is not None:
            self._thread.join(timeout=5)


def _bounded(events: Iterable[Event]) -> list[Event]:
    """Events in their order; of a run with very many changes only that it must be read again."""
    found = list(events)
    changes: dict[str, int] = {}
    for event in found:
        if event.kind == "steps":
            changes[event.about] = changes.get(event.about, 0) + len(event.data["changes"])
    many = {run_id for run_id, number in changes.items() if number > MANY}
    kept = [event for event in found if event.kind != "steps" or event.about not in many]
    last = found[-1].number if found else 0
    return [*kept, *(Event(last, "reset", one, {"run": one, "why": "very much has changed"}) for one in sorted(many))]
