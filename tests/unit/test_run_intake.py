"""Places for the messages of a process: those that the broker was asked for, and those whose countdown is over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rival_client.broker.message import EventMessage, StepMessage
from rival_client.model.starts.queues import Route, ServedQueues
from rival_workers.runtime.attempt.step_scheduler import StepScheduler
from rival_workers.runtime.celery.run_intake import RunIntake
from tests.support.inline import CollectingDoorbell

DUE = StepMessage("run-1", "a", 2, "w", "v")


def nothing(*_: object) -> Any:
    yield from ()


@pytest.fixture
def coordinator() -> Any:
    return SimpleNamespace(stopping=False, beginning=nothing, attempting=nothing, delivering=nothing)


def intake_of(size: int, coordinator: Any) -> tuple[RunIntake, StepScheduler]:
    """Its scheduler has no threads: what is taken stays in hand."""
    store: Any = None
    scheduler = StepScheduler(store, CollectingDoorbell(), size)
    return RunIntake(scheduler, coordinator, ServedQueues()), scheduler


@pytest.mark.parametrize("message", [DUE, StepMessage("run-1", None, 0, "w", "v"), EventMessage("e", "topic")])
def test_a_due_message_is_taken_in_hand(coordinator: Any, message: StepMessage | EventMessage) -> None:
    intake, scheduler = intake_of(4, coordinator)
    assert intake.take_due(message)
    assert scheduler.in_hand == 1


def test_there_are_never_more_in_hand_than_slots_whatever_the_broker_gives(coordinator: Any) -> None:
    intake, scheduler = intake_of(4, coordinator)
    asked = intake.ask()
    while intake.take_due(DUE):
        pass
    assert scheduler.in_hand + asked == 4


def test_a_process_with_one_slot_leaves_it_to_the_message_that_it_has_asked_for(coordinator: Any) -> None:
    intake, _ = intake_of(1, coordinator)
    assert intake.ask() == 1
    assert not intake.take_due(DUE)
    intake.was_answered(0)
    assert intake.take_due(DUE)


def test_with_a_backlog_all_places_are_asked_for_at_once(coordinator: Any) -> None:
    intake, _ = intake_of(4, coordinator)
    assert intake.ask() == 3, "the answer may take long: one place is left for a due message"
    intake.was_answered(3)
    assert intake.ask() == 4, "more messages wait"
    intake.was_answered(2)
    assert intake.ask() == 3


def test_a_process_that_stops_takes_nothing(coordinator: Any) -> None:
    intake, _ = intake_of(4, coordinator)
    coordinator.stopping = True
    assert not intake.take_due(DUE)


def test_a_message_of_a_queue_that_it_does_not_serve_is_published(coordinator: Any) -> None:
    intake, _ = intake_of(4, coordinator)
    assert not intake.take_due(StepMessage("run-1", "a", 2, "w", "v", route=Route("gpu", 0)))
