"""What a fault is, and the lanes that carry out faults in the order of the seed.

There is a lane for the workers, one for the broker and one for the database, so that faults of different kinds overlap
and two of one kind do not. A lane deals its faults like a deck of cards: each comes once before any comes again.
"""

from __future__ import annotations

import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from tests.chaos.storm.fleet import Fleet
from tests.chaos.storm.servers import Servers

#: A fault that takes so much longer than it should is mentioned.
SLOW = 5.0


class Fault(ABC):
    """`inject` breaks something, `heal` repairs it, also when the injection was interrupted half-way."""

    #: How long it lasts, at least and at most.
    seconds: tuple[float, float] = (1.0, 4.0)

    def __init__(self, servers: Servers, fleet: Fleet, random: Random) -> None:
        self.servers, self.fleet, self.random = servers, fleet, random

    @property
    def name(self) -> str:
        return type(self).__name__

    @classmethod
    def is_possible(cls, servers: Servers, fleet: Fleet) -> str | None:
        """None, or why it cannot be had here."""
        return None

    @abstractmethod
    def inject(self) -> str:
        """Returns what exactly it has done, for the log."""

    def hold(self, seconds: float, wait: Callable[[float], object]) -> None:
        """While it lasts; some faults repeat themselves."""
        wait(seconds)

    def heal(self) -> None:
        """What is over by itself needs nothing."""
        return


@dataclass(frozen=True)
class Happened:
    """One fault as it was carried out; times in seconds since the epoch, as in ledger and history."""

    lane: str
    fault: str
    detail: str
    began: float
    healed: float


@dataclass
class Lane:
    """One sequence of faults in a thread of its own."""

    name: str
    kinds: Sequence[type[Fault]]
    random: Random
    servers: Servers
    fleet: Fleet
    stop: threading.Event
    report: Callable[[str], None]
    #: Seconds between two faults, at least and at most.
    gap: tuple[float, float]
    happened: list[Happened] = field(default_factory=list)
    #: Faults that could not be injected or healed: the harness is at fault, and the run is void.
    broken: list[str] = field(default_factory=list)

    def run(self) -> None:
        for kind in self._deck():
            if self.stop.wait(self.random.uniform(*self.gap)):
                return
            self._carry_out(kind(self.servers, self.fleet, Random(self.random.random())))

    def _deck(self) -> Iterator[type[Fault]]:
        while True:
            yield from self.random.sample(list(self.kinds), len(self.kinds))

    def _carry_out(self, fault: Fault) -> None:
        seconds, began, detail = self.random.uniform(*fault.seconds), time.time(), "interrupted"
        try:
            detail = fault.inject()
            self.report(f"{self.name}: {fault.name} {detail} for {seconds:.1f} s")
            fault.hold(seconds, self.stop.wait)
        except Exception:
            self.broken.append(f"{fault.name}: {traceback.format_exc()}")
        finally:
            self._heal(fault)
        self.happened.append(Happened(self.name, fault.name, detail, began, time.time()))
        if time.time() - began > seconds + SLOW:
            self.report(f"{self.name}: {fault.name} took {time.time() - began:.1f} s with its repair")

    def _heal(self, fault: Fault) -> None:
        try:
            fault.heal()
        except Exception:
            self.broken.append(f"healing {fault.name}: {traceback.format_exc()}")
