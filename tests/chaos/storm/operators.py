"""Operators: what they do to some runs while faults go on, each verb until it has an answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rival_client import NotPossible
from tests.chaos.storm.cases import REWIND_TO, price

if TYPE_CHECKING:
    from tests.chaos.storm.producer import Accepted, Producer


def operate(producer: Producer, run: Accepted, pause: float) -> None:
    """Carry out the verb that was chosen for the run."""
    _VERBS[run.verb or ""](producer, run, pause)


def _pause(producer: Producer, run: Accepted, pause: float) -> None:
    producer.patience.call(lambda: producer.rival.pause(run.run_id))
    time.sleep(pause)
    producer.patience.call(lambda: producer.rival.resume(run.run_id))


def _cancel(producer: Producer, run: Accepted, pause: float) -> None:
    run.cancelled = producer.patience.call(lambda: producer.rival.cancel(run.run_id)) or run.cancelled


def _cancel_retry(producer: Producer, run: Accepted, pause: float) -> None:
    """The run goes on to its end. An event that it had got when it was cancelled may be gone: there is another."""
    _cancel(producer, run, pause)
    time.sleep(pause)
    _if_possible(producer, lambda: producer.rival.retry(run.run_id))
    if run.case.awaits:
        producer.send(run, "second")


def _rewind(producer: Producer, run: Accepted, pause: float) -> None:
    """What comes after the step is done again, also a wait: there is another event for it."""
    _if_possible(producer, lambda: producer.rival.rewind(run.run_id, REWIND_TO[run.case.workflow]))
    if run.case.awaits:
        producer.send(run, "second")


def _settle(producer: Producer, run: Accepted, pause: float) -> None:
    """The operator answers instead of the vendor."""
    answer = price(run.input)
    _if_possible(producer, lambda: producer.rival.set_result(run.run_id, "ask_vendor", answer, reason="chaos"))


def _if_possible(producer: Producer, verb: Callable[[], Any]) -> None:
    """A run that has not come so far, or that has ended by itself, refuses some verbs."""
    try:
        producer.patience.call(verb)
    except NotPossible as refusal:
        producer.patience.refused[f"NotPossible: {refusal.verb}"] += 1


_VERBS: dict[str, Callable[[Producer, Accepted, float], None]] = {
    "pause": _pause,
    "cancel": _cancel,
    "cancel_retry": _cancel_retry,
    "rewind": _rewind,
    "settle": _settle,
}
