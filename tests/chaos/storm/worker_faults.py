"""Faults of workers: killed, frozen, terminated; one, one prefork child, or all of them."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Sequence

from tests.chaos.storm.faults import Fault
from tests.chaos.storm.fleet import LEASE, Fleet, Place
from tests.chaos.storm.servers import Servers


class KillWorker(Fault):
    """SIGKILL of one worker and its children; another one takes its place after a while."""

    seconds = (0.2, 3.0)
    places: Sequence[Place] = ()

    def inject(self) -> str:
        self.places = self._victims()
        self.fleet.wait_until_busy(self.places)
        for place in self.places:
            self.fleet.kill(place)
        return ", ".join(place.worker.name for place in self.places)

    def _victims(self) -> list[Place]:
        return [self.fleet.choose(self.random)]

    def heal(self) -> None:
        for place in self.places:
            self.fleet.restart(place)


class KillAllWorkers(KillWorker):
    seconds = (0.5, LEASE + 2)

    def _victims(self) -> list[Place]:
        return list(self.fleet.places)


class TerminateWorker(Fault):
    """SIGTERM, as at a deployment: attempts end or are handed back."""

    seconds = (0.0, 0.5)

    def inject(self) -> str:
        self.place = self.fleet.choose(self.random)
        self.fleet.terminate(self.place)
        return self.place.worker.name

    def heal(self) -> None:
        self.fleet.restart(self.place)


class FreezeWorker(Fault):
    """SIGSTOP for longer than the lease: its attempts are taken over, and its late results must be refused."""

    seconds = (LEASE + 2, LEASE + 4)

    def inject(self) -> str:
        self.place = self.fleet.choose(self.random)
        self.fleet.wait_until_busy([self.place])
        self.place.worker.freeze()
        return self.place.worker.name

    def heal(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.place.worker.thaw()


class FreezeWorkerBriefly(FreezeWorker):
    """For less than the lease: nothing may be taken over."""

    seconds = (0.5, LEASE / 3)


class _OfPrefork(Fault):
    @classmethod
    def is_possible(cls, servers: Servers, fleet: Fleet) -> str | None:
        return None if fleet.pool == "prefork" else "only prefork has children"


class KillChild(_OfPrefork):
    """SIGKILL of one prefork child; its parent starts another."""

    seconds = (0.0, 0.5)

    def inject(self) -> str:
        place = self.fleet.choose(self.random)
        self.fleet.wait_until_busy([place])
        child = self.fleet.child_of(place, self.random)
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)
        return f"{place.worker.name} child {child}"


class FreezeChild(_OfPrefork):
    """SIGSTOP of one prefork child for longer than the lease."""

    seconds = (LEASE + 2, LEASE + 4)
    child: int | None = None

    def inject(self) -> str:
        place = self.fleet.choose(self.random)
        self.child = self.fleet.child_of(place, self.random)
        self._send(signal.SIGSTOP)
        return f"{place.worker.name} child {self.child}"

    def heal(self) -> None:
        self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.child, number)


WORKER_FAULTS = (
    KillWorker,
    KillAllWorkers,
    TerminateWorker,
    FreezeWorker,
    FreezeWorkerBriefly,
    KillChild,
    FreezeChild,
)
