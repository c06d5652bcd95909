"""Tracebacks as commands print them: the frames of the user's code, and how many others there are."""

from __future__ import annotations

import json
from textwrap import dedent

import pytest

from rival_workers.cli.display.tracebacks import readable
from rival_workers.runtime.logs.tracebacks import traceback_text
from tests.support.output import is_printed

LIBRARY = "/opt/app/.venv/lib/python3.12/site-packages/httpx/_client.py"
STANDARD = "/usr/lib/python3.11/json/decoder.py"


def text(lines: str) -> str:
    return dedent(lines).strip("\n")


def test_frames_of_libraries_become_one_line_that_counts_them() -> None:
    given = text(f"""
        Traceback (most recent call last):
          File "/srv/app/flows.py", line 6, in charge
            return client.post(url)
                   ^^^^^^^^^^^^^^^^
          File "{LIBRARY}", line 914, in send
            response = self._send(request)
          … 12 more frames in libraries …
          File "{STANDARD}", line 3, in decode
          File "/srv/app/auth.py", line 9, in refresh
            raise Expired("token")
        app.auth.Expired: token
        """)
    assert readable(given) == text("""
        Traceback (most recent call last):
          File "/srv/app/flows.py", line 6, in charge
            return client.post(url)
                   ^^^^^^^^^^^^^^^^
          … 14 frames in libraries (--full-traceback)
          File "/srv/app/auth.py", line 9, in refresh
            raise Expired("token")
        app.auth.Expired: token
        """)


def test_causes_and_groups_keep_their_form() -> None:
    given = text(f"""
        Traceback (most recent call last):
          File "{STANDARD}", line 355, in raw_decode
            raise JSONDecodeError("Expecting value", s, err.value)
        json.decoder.JSONDecodeError: Expecting value

        The above exception was the direct cause of the following exception:

          + Exception Group Traceback (most recent call last):
          |   File "/srv/app/flows.py", line 3, in both
          |     async with asyncio.TaskGroup() as group:
          | ExceptionGroup: two (1 sub-exception)
          +-+---------------- 1 ----------------
            | Traceback (most recent call last):
            |   File "{LIBRARY}", line 1, in get
            |     raise Timeout
            | httpx.Timeout
            +------------------------------------
        """)
    assert readable(given) == text("""
        Traceback (most recent call last):
          … 1 frame in libraries (--full-traceback)
        json.decoder.JSONDecodeError: Expecting value

        The above exception was the direct cause of the following exception:

          + Exception Group Traceback (most recent call last):
          |   File "/srv/app/flows.py", line 3, in both
          |     async with asyncio.TaskGroup() as group:
          | ExceptionGroup: two (1 sub-exception)
          +-+---------------- 1 ----------------
            | Traceback (most recent call last):
            |   … 1 frame in libraries (--full-traceback)
            | httpx.Timeout
            +------------------------------------
        """)


@pytest.mark.parametrize("given", ["", "ValueError: no", 'File "x', '  File "a", line 1', "a\n\n  b\n   c", "… 3 more"])
def test_what_is_not_a_traceback_stays_as_it_is(given: str) -> None:
    assert readable(given) == given.rstrip()


def test_messages_of_several_lines_are_not_taken_for_frames() -> None:
    given = text("""
        Traceback (most recent call last):
          File "/srv/app/flows.py", line 6, in charge
            raise ValueError(text)
        ValueError: first
            second, further to the right
          third
        """)
    assert readable(given) == given


def test_a_real_traceback_shows_the_users_frame_and_the_error() -> None:
    try:
        json.loads("{x")
    except ValueError as error:
        lines = readable(traceback_text(error)).splitlines()
    assert is_printed(
        [
            "Traceback (most recent call last):",
            f'  File "{__file__}", line …, in test_a_real_traceback_shows_the_users_frame_and_the_error',
            '    json.loads("{x")',
            "  … 3 frames in libraries (--full-traceback)",
            "json.decoder.JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
        ],
        lines,
    ), lines
