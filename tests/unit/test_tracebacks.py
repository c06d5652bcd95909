"""Tracebacks for people: the user's frames, causes and groups; no engine, no endless library stacks, bounded."""

from __future__ import annotations

import asyncio
import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rival_client.errors import InvalidPayload
from rival_client.model.payload import dump
from rival_workers.engine.decisions import Failure
from rival_workers.runtime.attempt.invoke import error_record
from rival_workers.runtime.logs import tracebacks
from rival_workers.runtime.logs.failure_log import FailureLog
from rival_workers.runtime.logs.redaction import Redaction
from rival_workers.runtime.logs.tracebacks import location, traceback_text
from tests.support.output import is_printed

HERE = Path(__file__)


def raised(function: Callable[[], Any]) -> BaseException:
    try:
        function()
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


def reads_json() -> None:
    try:
        json.loads("{x")
    except ValueError as error:
        raise RuntimeError("the file is broken") from error


def test_a_cause_is_shown_before_what_it_has_caused() -> None:
    shown = [
        "Traceback (most recent call last):",
        f'  File "{HERE}", line …, in reads_json',
        '    json.loads("{x")',
        "…",
        "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        "",
        "The above exception was the direct cause of the following exception:",
        "",
        "Traceback (most recent call last):",
        f'  File "{HERE}", line …, in raised',
        "    function()",
        f'  File "{HERE}", line …, in reads_json',
        '    raise RuntimeError("the file is broken") from error',
        "RuntimeError: the file is broken",
    ]
    text = traceback_text(raised(reads_json))
    assert is_printed(shown, text.splitlines()), text


def test_a_context_that_is_suppressed_is_not_shown() -> None:
    def hides() -> None:
        try:
            json.loads("{x")
        except ValueError:
            raise RuntimeError("the file is broken") from None

    assert "JSONDecodeError" not in traceback_text(raised(hides))


def test_every_member_of_a_group_is_shown() -> None:
    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fails("one"))
            group.create_task(fails("two"))

    async def fails(what: str) -> None:
        raise ValueError(what)

    text = traceback_text(raised(lambda: asyncio.run(both())))
    assert "ValueError: one" in text
    assert "ValueError: two" in text
    assert text.count("in fails") == 2


def test_notes_are_shown() -> None:
    error = ValueError("no")
    error.add_note("order 42")
    assert traceback_text(error) == "ValueError: no\norder 42\n"


def test_a_row_of_library_frames_is_shortened_and_the_users_frames_stay(tmp_path: Path) -> None:
    library = tmp_path / "site-packages" / "deep.py"
    library.parent.mkdir()
    library.write_text(
        "def down(n, call):\n    if n:\n        return up(n, call)\n    return call()\n\n"
        "def up(n, call):\n    return down(n - 1, call)\n"
    )
    down = runpy.run_path(str(library))["down"]
    error = raised(lambda: down(20, lambda: down(20, reads_json)))
    text = traceback_text(error)
    assert text.count("more frames in libraries") == 2
    assert text.count(str(library)) == 6
    assert "in reads_json" in text
    assert (location(error) or "").endswith("in reads_json")


def test_frames_of_the_engine_are_left_out_and_a_result_that_is_not_json_has_none() -> None:
    error = raised(lambda: dump(object(), what="the result"))
    assert isinstance(error, InvalidPayload)
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # as if the engine had called it
    while error.__traceback__ and "rival_client" not in error.__traceback__.tb_frame.f_code.co_filename:
        error.__traceback__ = error.__traceback__.tb_next
    text = traceback_text(error)
    assert text == (
        "TypeError: object is not JSON\n\nThe above exception was the direct cause of the following exception:\n\n"
        "rival_client.errors.InvalidPayload: the result is not JSON: object is not JSON\n"
    )
    line = reads_json.__code__.co_firstlineno
    assert (location(error, reads_json) or "").endswith(f"{HERE.name}:{line} in reads_json")


def test_a_file_below_the_working_directory_is_named_relative_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    error = raised(reads_json)
    monkeypatch.chdir(HERE.parent)
    assert (location(error) or "").startswith(f"{HERE.name}:")
    monkeypatch.chdir("/")
    assert str(HERE).lstrip("/") in (location(error) or "")


def test_the_text_is_bounded_and_keeps_both_ends() -> None:
    def endless() -> None:
        endless()

    def chained(depth: int) -> None:
        try:
            if depth:
                chained(depth - 1)
        finally:
            raise ValueError(f"level {depth} " + "x" * 10_000)

    assert "RecursionError" in traceback_text(raised(endless))
    text = traceback_text(raised(lambda: chained(20)))
    assert len(text) < tracebacks.MAX_TRACEBACK + 100
    assert text.startswith("Traceback")
    assert text.rstrip().endswith("x")
    assert "characters left out" in text


def test_an_exception_that_cannot_be_shown_is_recorded_all_the_same() -> None:
    class Odd(Exception):
        __notes__ = property(lambda self: 1 / 0)  # type: ignore[assignment]

        def __str__(self) -> str:
            return "odd"

    record = error_record(raised(lambda: (_ for _ in ()).throw(Odd())), 1)
    assert (record["message"], record["attempt"]) == ("odd", 1)
    assert record["traceback"]


def test_secrets_are_taken_out_of_the_message_and_the_source_lines() -> None:
    def connects() -> None:
        raise ValueError("cannot connect with password=hunter2 to postgres://ada:hunter3@db/x")  # api_key="hunter4"

    failed = Failure(error_record(raised(connects), 1))
    kept = FailureLog(lambda *_: None, Redaction()).redacted(failed).error
    assert "hunter" not in json.dumps(kept)
    assert kept["location"].endswith("in connects")
