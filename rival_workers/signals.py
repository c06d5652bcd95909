"""Signals of a worker process: plain functions that are called when something has happened, for metrics and traces.

A receiver gets keyword arguments, in the thread of the attempt, after the commit. Its errors are logged and change
nothing. Signals are those of one process: each worker connects its own receivers.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["attempt_ended", "attempt_started", "breaker_moved", "limit_waited", "run_ended"]

log = logging.getLogger("rival.signals")

Receiver = TypeVar("Receiver", bound=Callable[..., Any])


class Signal:
    """`attempt_ended.connect(function)`; also as a decorator."""

    def __init__(self, name: str, *arguments: str) -> None:
        self.name, self.arguments = name, arguments
        self.receivers: tuple[Callable[..., Any], ...] = ()

    def connect(self, receiver: Receiver) -> Receiver:
        """Call the function with the arguments of the signal. The same function is connected once."""
        if not callable(receiver):
            raise TypeError(f"{self.name}.connect: give a function, not {receiver!r}")
        if inspect.iscoroutinefunction(receiver):
            raise TypeError(f"{self.name}.connect: {receiver.__name__} is async: give a plain function")
        self.receivers = (*(one for one in self.receivers if one != receiver), receiver)
        return receiver

    def disconnect(self, receiver: Callable[..., Any]) -> bool:
        """False: it was not connected."""
        left = tuple(one for one in self.receivers if one != receiver)
        found, self.receivers = len(left) < len(self.receivers), left
        return found

    def send(self, **arguments: Any) -> None:
        for receiver in self.receivers:
            try:
                receiver(**arguments)
            except Exception:
                log.exception("a receiver of the signal %s failed", self.name)


attempt_started = Signal("attempt_started", "run_id", "workflow", "step", "attempt", "metadata", "label")
attempt_ended = Signal(
    "attempt_ended", "run_id", "workflow", "step", "attempt", "metadata", "label", "outcome", "error"
)
run_ended = Signal("run_ended", "run_id", "workflow", "status")
limit_waited = Signal("limit_waited", "run_id", "workflow", "step", "attempt", "metadata", "label", "limits", "waited")
breaker_moved = Signal("breaker_moved", "name", "state", "run_id", "step")
