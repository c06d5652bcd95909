"""Formats exceptions: the user's frames, chained causes and exception groups, without local variables.

It omits frames of the engine, shortens long runs of library frames, and bounds the text.
"""

from __future__ import annotations

import sysconfig
import traceback
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import rival_client
import rival_workers
from rival_client.model.masking import storable_error
from rival_workers.definition.return_types import written_function

MAX_TRACEBACK = 16_000
#: Characters of one part: the frames of one exception, or its message.
_MAX_PART = 4_000
#: The number of first and last library frames in a row that are shown.
_FIRST, _LAST = 1, 2

_ENGINE = tuple(f"{Path(package.__file__ or '').parent}/" for package in (rival_client, rival_workers))
_STANDARD = tuple(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib"))
_INSTALLED = ("/site-packages/", "/dist-packages/")


def traceback_text(error: BaseException) -> str:
    """The whole exception as Python prints it, without the omitted frames."""
    summary = traceback.TracebackException.from_exception(error)
    for one in _related(summary):
        one.stack = traceback.StackSummary.from_list(_outside_the_engine(list(one.stack)))
    return shortened(storable_error("".join(_with_gaps(summary))), MAX_TRACEBACK)


def location(error: BaseException, function: Any = None) -> str | None:
    """`file:line in name` of the innermost frame in the user's code. Without one: where `function` is defined."""
    frames = traceback.extract_tb(error.__traceback__)
    for chosen in (_is_users, _is_outside):
        for frame in reversed(frames):
            if chosen(frame.filename):
                return f"{readable_path(frame.filename)}:{frame.lineno} in {frame.name}"
    return function_location(function)


def function_location(function: Any) -> str | None:
    code = getattr(written_function(function) if callable(function) else None, "__code__", None)
    if code is None or not _is_outside(code.co_filename):
        return None
    return f"{readable_path(code.co_filename)}:{code.co_firstlineno} in {code.co_name}"


def readable_path(filename: str) -> str:
    """Relative to the working directory if it is below it."""
    try:
        return str(Path(filename).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return filename


def shortened(text: str, limit: int) -> str:
    """The beginning and the end of the text: the end has the error, the beginning the first frames."""
    if len(text) <= limit:
        return text
    head = limit // 4
    return f"{text[:head]}\n  … {len(text) - limit:,} characters left out …\n{text[head - limit :]}"


def _related(summary: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    """The exception, its causes and contexts, and the members of groups. An iterative walk: chains can be long."""
    seen: set[int] = set()
    waiting: list[traceback.TracebackException | None] = [summary]
    while waiting:
        one = waiting.pop()
        if one is not None and id(one) not in seen:
            seen.add(id(one))
            waiting += [one.__cause__, one.__context__, *(one.exceptions or ())]
            yield one


def _outside_the_engine(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    """Omits frames of the engine, and frames of the standard library between those and the user's. A result that is not
    JSON has no frames left. A stack without frames of the engine does not change.
    """
    outside = [frame for frame in frames if _is_outside(frame.filename)]
    if len(outside) == len(frames):
        return _folded(frames)
    users = (index for index, frame in enumerate(outside) if not frame.filename.startswith(_STANDARD))
    return _folded(outside[next(users, len(outside)) :])


def _folded(frames: list[traceback.FrameSummary]) -> list[traceback.FrameSummary]:
    kept: list[traceback.FrameSummary] = []
    for users, group in groupby(frames, lambda frame: _is_users(frame.filename)):
        row = list(group)
        left_out = len(row) - _FIRST - _LAST
        if users or left_out < 2:
            kept += row
        else:
            gap = traceback.FrameSummary(_GAP, left_out, "", lookup_line=False, line="")
            kept += [*row[:_FIRST], gap, *row[-_LAST:]]
    return kept


#: The file name of a frame that replaces several others; its line is their number.
_GAP = "…"


def _with_gaps(summary: traceback.TracebackException) -> Iterator[str]:
    for part in summary.format():
        if f'File "{_GAP}"' in part:
            indent = part[: len(part) - len(part.lstrip())] or "  "
            number = part.partition("line ")[2].partition(",")[0].strip()
            part = f"{indent}… {number} more frames in libraries …\n"
        yield shortened(part, _MAX_PART)


def _is_outside(filename: str) -> bool:
    return not filename.startswith(_ENGINE) and not filename.startswith("<frozen ")


def _is_users(filename: str) -> bool:
    installed = any(part in filename for part in _INSTALLED)
    return _is_outside(filename) and not installed and not filename.startswith(_STANDARD)
