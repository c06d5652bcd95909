"""When attempts send Celery's events: with `--events`, or after an observer has asked for them."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery
from celery.events.dispatcher import EventDispatcher
from celery.worker.control import disable_events, enable_events

from rival_workers.runtime.attempt.telemetry import no_report
from rival_workers.runtime.celery.remote_control import AttemptEvents, ConsumerEvents


@pytest.fixture
def app() -> Iterator[Celery]:
    app = Celery(broker="memory://", set_as_current=False)
    yield app
    app.close()


def consumer_of(app: Celery, **options: Any) -> Any:
    """A consumer with the dispatcher that Celery's worker makes."""
    return SimpleNamespace(event_dispatcher=EventDispatcher(app.connection_for_write(), app=app, **options))


#: Without `--events`: for the heartbeats of the worker.
HEARTBEATS = {"groups": ["worker"]}


def test_a_worker_whose_heartbeats_alone_are_sent_wants_no_events_of_attempts(app: Celery) -> None:
    events = ConsumerEvents(consumer_of(app, **HEARTBEATS))
    assert not events.wanted
    assert AttemptEvents(events).attempt("w", "run-1", "a", 1, 0) is no_report


def test_an_observer_switches_events_of_attempts_on_and_off(app: Celery) -> None:
    consumer = consumer_of(app, **HEARTBEATS)
    state, events = SimpleNamespace(consumer=consumer), ConsumerEvents(consumer)
    enable_events(state)
    assert events.wanted
    disable_events(state)
    assert not events.wanted


def test_a_worker_with_all_events_wants_those_of_attempts(app: Celery) -> None:
    assert ConsumerEvents(consumer_of(app)).wanted


def test_a_dispatcher_that_is_off_or_not_there_yet_wants_none(app: Celery) -> None:
    assert not ConsumerEvents(consumer_of(app, enabled=False)).wanted
    assert not ConsumerEvents(SimpleNamespace(event_dispatcher=None)).wanted
