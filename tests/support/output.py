"""Comparison of printed output with what is expected: line by line, in order, to the end.

In expected output "…" in a line stands for any text, and a line "…" for any lines. `normalised` replaces what differs
from run to run, so that the rest can be compared as it is.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.support.workers import ROOT

_PLACEHOLDERS = [
    (re.compile(pattern), placeholder)
    for pattern, placeholder in (
        (r"\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d+)?(?:\+00:00|Z)?", "<time>"),
        (r"[\w.-]+/[0-9a-f]{8}/\d+:\d+:[0-9a-f]{12}\b", "<executor>"),
        # Of runs and events.
        (r"\b[0-9a-f]{32,33}\b", "<id>"),
        (r"\b[0-9a-f]{12}\b", "<version>"),
        (r"\btest-[0-9a-f]{8}\b", "<queue>"),
        (r"\+\d+\.\d{3}\b", "+<seconds>"),
        # As the commands print what they have measured; a setting such as 0.01 s stays.
        (r"(?<![\d.])(?:\d+(?:\.\d)? ms|\d+\.\d s|\d+ min \d+ s)(?!\w)", "<duration>"),
        (r"(?<=127\.0\.0\.1:)\d{4,5}\b", "<port>"),
        (r"\bpid \d+", "pid <pid>"),
        # Columns are as wide as the widest cell, such as a duration.
        (r"(?<=\S) {2,}", "  "),
    )
]
#: Keys of JSON with measured numbers.
_MEASURED = ("duration", "queue_time", "took", "seconds")


def is_printed(shown: list[str], printed: list[str]) -> bool:
    """Line by line, in order, to the end; "…" in a line stands for any text, a line "…" for any number of lines."""
    text, lines = r"[^\n]*", r"(?:[^\n]*\n)*?"
    patterns = (lines if line == "…" else re.escape(line).replace("…", text) + r"\n" for line in shown)
    return re.fullmatch("".join(patterns), "".join(f"{line.rstrip()}\n" for line in printed)) is not None


def whole(message: str) -> str:
    """The pattern for `pytest.raises(match=…)` that compares the whole message; "…" in it stands for any text."""
    return rf"\A{re.escape(message).replace('…', '.*')}\Z"


def normalised(text: str, folder: Path | None = None) -> str:
    """With placeholders for ids, times, durations, ports, pids and folders; columns are two spaces apart."""
    if folder is not None:
        text = text.replace(str(folder), "<folder>")
    text = text.replace(str(ROOT), "<repository>")
    for pattern, placeholder in _PLACEHOLDERS:
        text = pattern.sub(placeholder, text)
    return text


def normalised_json(value: Any, folder: Path | None = None, key: str = "") -> Any:
    """The same for what a command prints with --json."""
    if isinstance(value, dict):
        return {name: normalised_json(one, folder, name) for name, one in value.items()}
    if isinstance(value, list):
        return [normalised_json(one, folder) for one in value]
    if isinstance(value, str):
        return normalised(value, folder)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return "<seconds>" if is_number and key in _MEASURED else value


def as_expected(expected: Any, found: Any) -> Any:
    """What was found, with the wildcards of `expected` where they match: ... for any value, "…" within texts. So the
    two can be compared with ==, which shows what differs."""
    if expected is ...:
        return expected
    if isinstance(expected, dict) and isinstance(found, dict):
        return {key: as_expected(expected.get(key), value) for key, value in found.items()}
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [as_expected(one, other) for one, other in zip(expected, found, strict=True)]
    if isinstance(expected, str) and isinstance(found, str) and is_printed(expected.splitlines(), found.splitlines()):
        return expected
    return found
