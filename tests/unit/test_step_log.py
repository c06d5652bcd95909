"""`log` in a step: entries belong to their run, are limited in size, have no secrets, and can always be stored."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import BaseModel

from rival_client.errors import DatabaseUnavailable
from rival_client.model.payload import dump
from rival_client.model.run_entries import LogEntry
from rival_workers.runtime.logs import step_log
from rival_workers.runtime.logs.process_log import JsonLines
from rival_workers.runtime.logs.step_log import MAX_FIELDS, MAX_MESSAGE, StepLog
from tests.support.output import is_printed


@pytest.fixture
def log() -> StepLog:
    return StepLog("order-1", "order", "charge", 2)


class Shelf:
    """A store's side: what was appended, and whether it may have been there already."""

    def __init__(self) -> None:
        self.entries: list[LogEntry] = []
        self.calls: list[tuple[str, int, bool]] = []
        self.away = False

    def __call__(self, run_id: str, entries: Sequence[LogEntry], again: bool) -> None:
        self.calls.append((run_id, len(entries), again))
        if self.away:
            raise DatabaseUnavailable("away")
        self.entries += entries


def written(log: StepLog) -> list[LogEntry]:
    shelf = Shelf()
    log.store(shelf)
    return shelf.entries


def test_an_entry_knows_its_step_attempt_and_level(log: StepLog) -> None:
    for level in ("debug", "info", "warning", "error"):
        getattr(log, level)("hello", n=1)
    assert [(e.level, e.path, e.attempt, e.message, e.fields) for e in written(log)] == [
        (level, "charge", 2, "hello", {"n": 1}) for level in ("debug", "info", "warning", "error")
    ]


def test_it_goes_to_the_process_log_with_run_and_attempt(log: StepLog, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rival.steps"):
        log.info("searching", tree="oak", password="hunter2")
        log.debug("not shown at this level")
    assert caplog.messages == ["order.charge run=order-1 attempt=2 searching tree='oak' password='***'"]


def test_the_process_log_as_json_keeps_the_parts_of_an_entry(log: StepLog, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "rival.steps"):
        log.warning("two\nlines", tree="oak")
    line = JsonLines().format(caplog.records[0])
    assert "\n" not in line
    entry = json.loads(line)
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "warning",
        "logger": "rival.steps",
        "message": "two\nlines",
        "run": "order-1",
        "workflow": "order",
        "step": "charge",
        "attempt": 2,
        "fields": {"tree": "oak"},
    }


def test_the_process_log_as_json_is_one_line_also_for_a_traceback(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("boom")
    except ValueError:
        logging.getLogger("rival.elsewhere").exception("it %s", "broke")
    line = JsonLines().format(caplog.records[0])
    assert "\n" not in line
    entry = json.loads(line)
    assert entry["message"] == "it broke"
    shown = ["Traceback (most recent call last):", '  File "…", line …, in …', '    raise ValueError("boom")']
    assert is_printed([*shown, "ValueError: boom"], entry["exception"].splitlines())


class Account(BaseModel):
    name: str
    password: str


def test_secrets_are_hidden_at_any_depth_whatever_they_are_kept_in(log: StepLog) -> None:
    account = Account(name="jo", password="hunter2")
    log.info("login", user={"name": "jo", "password": "hunter2"}, all=[{"token": "hunter2"}, 3], account=account)
    log.info("no JSON", account=account, odd=object())
    log.info("password=hunter2", note="with api_key='hunter2'")
    entries = written(log)
    assert entries[0].fields == {
        "user": {"name": "jo", "password": "***"},
        "all": [{"token": "***"}, 3],
        "account": {"name": "jo", "password": "***"},
    }
    assert "hunter2" not in repr(entries)
    assert entries[2].message == "password=***"


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


@pytest.mark.parametrize(
    "value", [object(), float("nan"), "\x00", "\ud800", {1, 2}, "x" * 20_000, lambda: 1, Unshowable(), {"a": {1: {2}}}]
)
def test_fields_that_are_not_json_are_kept_as_their_repr_and_bounded(log: StepLog, value: Any) -> None:
    log.info("odd", value=value, **{"a\x00b": 1})
    [entry] = written(log)
    dump(entry.fields, what="fields")
    assert len(entry.fields["value"]) <= MAX_MESSAGE
    assert len(entry.fields) == 2


def test_an_entry_is_bounded_and_says_that_fields_are_missing(log: StepLog) -> None:
    log.info("much", **{f"field_{n}": "x" * 3000 for n in range(50)})
    [entry] = written(log)
    assert len(dump(entry.fields, what="fields")) < MAX_FIELDS + 500
    assert entry.fields["…"] == "45 more fields left out"


@pytest.mark.parametrize("message", ["nul \x00", "surrogate \ud800", "x" * 10_000, 42, None, Unshowable()])
def test_any_message_can_be_stored(log: StepLog, message: Any) -> None:
    log.info(message)
    stored = written(log)[0].message
    stored.encode()
    assert "\x00" not in stored
    assert len(stored) <= MAX_MESSAGE + 10


def test_a_step_that_logs_without_end_is_cut_off_and_the_log_says_so(
    log: StepLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_log, "MAX_ENTRIES", 5)
    shelf = Shelf()
    for number in range(12):
        log.debug("again", n=number)
        log.store(shelf)
    log.end()
    log.store(shelf)
    assert [entry.fields.get("n") for entry in shelf.entries] == [0, 1, 2, 3, 4, None, None]
    full, dropped = shelf.entries[5:]
    message = "the log of this attempt is full: further entries are in the process log only"
    assert (full.level, full.message) == ("warning", message)
    assert (dropped.level, dropped.fields) == ("warning", {"dropped": 7})


def test_the_bytes_of_an_attempts_log_are_bounded_too(log: StepLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(step_log, "MAX_BYTES", 10_000)
    for _ in range(100):
        log.debug("x" * 1000)
    assert len(written(log)) == 11


def test_what_could_not_be_stored_waits_and_is_tried_again_in_order(log: StepLog) -> None:
    shelf = Shelf()
    log.info("one")
    shelf.away = True
    with pytest.raises(DatabaseUnavailable):
        log.store(shelf)
    log.info("two")
    shelf.away = False
    log.store(shelf)
    log.info("three")
    log.store(shelf)
    assert [entry.message for entry in shelf.entries] == ["one", "two", "three"]
    assert shelf.calls == [("order-1", 1, False), ("order-1", 2, True), ("order-1", 1, False)]
    assert log.waiting == 0


def test_no_two_entries_of_an_attempt_have_the_same_time(log: StepLog) -> None:
    for _ in range(500):
        log.debug("quick")
    times = [entry.at for entry in written(log)]
    assert times == sorted(set(times))
