"""`log` in a step: bound to its run, bounded, without secrets, and always storable."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from rival_client.payload import dump
from rival_workers.runtime.logs import MAX_ENTRIES, MAX_MESSAGE, StepLog, redacted


@pytest.fixture
def log() -> StepLog:
    return StepLog("order-1", "order.charge", "charge", 2)


def test_an_entry_knows_its_step_attempt_and_level(log: StepLog) -> None:
    for level in ("debug", "info", "warning", "error"):
        getattr(log, level)("hello", n=1)
    assert [(e.level, e.path, e.attempt, e.message, e.fields) for e in log.entries] == [
        (level, "charge", 2, "hello", {"n": 1}) for level in ("debug", "info", "warning", "error")
    ]


def test_it_goes_to_the_process_log_with_run_and_attempt(log: StepLog, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rival.steps"):
        log.info("searching", tree="oak", password="hunter2")
    assert caplog.messages == ["order.charge run=order-1 attempt=2 searching tree='oak' password='***'"]


@pytest.mark.parametrize(
    "key", ["password", "PASSWORD", "db_passwd", "client_secret", "access_token", "api_key", "apiKey", "Authorization"]
)
def test_what_sounds_like_a_secret_is_not_written(log: StepLog, key: str) -> None:
    log.info("login", **{key: "hunter2"})
    assert log.entries[0].fields == {key: "***"}


def test_secrets_within_fields_are_not_written_either(log: StepLog) -> None:
    log.info("login", user={"name": "jo", "password": "hunter2"}, all=[{"token": "hunter2"}, 3])
    assert log.entries[0].fields == {"user": {"name": "jo", "password": "***"}, "all": [{"token": "***"}, 3]}
    assert redacted("name", "jo") == "jo"


@pytest.mark.parametrize("value", [object(), float("nan"), "\x00", "\ud800", {1, 2}, "x" * 20_000, lambda: 1])
def test_fields_that_are_not_json_are_kept_as_their_repr_and_bounded(log: StepLog, value: Any) -> None:
    log.info("odd", value=value, **{"a\x00b": 1})
    [entry] = log.entries
    dump(entry.fields, what="fields")
    assert len(entry.fields["value"]) <= MAX_MESSAGE


@pytest.mark.parametrize("message", ["nul \x00", "surrogate \ud800", "x" * 10_000, 42])
def test_any_message_can_be_stored(log: StepLog, message: Any) -> None:
    log.info(message)
    stored = log.entries[0].message
    stored.encode()
    assert "\x00" not in stored
    assert len(stored) <= MAX_MESSAGE + 10


def test_a_step_that_logs_without_end_is_cut_off(log: StepLog) -> None:
    for number in range(MAX_ENTRIES + 10):
        log.debug("again", n=number)
    assert len(log.entries) == MAX_ENTRIES
