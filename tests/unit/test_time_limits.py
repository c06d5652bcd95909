"""A step that overstays is killed with its process: after its timeout is committed, and with nothing else."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from rival_client.model.policies.step_config import StepConfig
from rival_workers.runtime.attempt import time_limits
from rival_workers.runtime.attempt.time_limits import TimeLimits

CONFIG = StepConfig(timeout=0.05, kill_on_timeout=True)


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    done = threading.Event()
    monkeypatch.setattr(time_limits.os, "kill", lambda *_: done.set())
    monkeypatch.setattr(time_limits, "KILL_SLACK", 60.0)
    return done


def killing() -> TimeLimits:
    made = TimeLimits(before_kill=lambda: None)
    made.may_kill = True
    return made


def test_an_attempt_that_ends_while_its_timeout_is_committed_does_not_go_on_to_another_message(
    killed: threading.Event,
) -> None:
    committing, commit = threading.Event(), threading.Event()

    def when_over() -> bool:
        committing.set()
        return commit.wait(30)

    def attempt() -> bool:
        with killing().kept(CONFIG, when_over):
            assert committing.wait(30)
        return killed.is_set()  # what comes now would be another message

    with ThreadPoolExecutor(1) as child:
        gone_before = child.submit(attempt)
        assert committing.wait(30)
        assert not gone_before.done()
        commit.set()
        assert gone_before.result(30)


def test_an_attempt_that_has_ended_is_not_killed(killed: threading.Event) -> None:
    over: list[object] = []
    with killing().kept(CONFIG, lambda: bool(over.append(1))) as timer:
        timer.put_off(60)
    assert (over, killed.is_set()) == ([], False)


def test_a_timeout_that_could_not_be_committed_kills_nothing(killed: threading.Event) -> None:
    asked = threading.Event()

    def when_over() -> bool:
        asked.set()
        return False

    with killing().kept(CONFIG, when_over):
        assert asked.wait(30)
    assert not killed.is_set()
