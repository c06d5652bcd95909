"""Finds the place in the user's code where a workflow or flow was defined."""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any

_PACKAGE = str(Path(__file__).parents[1]) + os.sep
_STANDARD = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib"))
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
#: File names of code that was typed in.
_TYPED = ("<ipython-input", "<stdin>", "<python-input", "<console>")


@dataclass(frozen=True)
class Place:
    """Where a workflow or flow is defined. `executed`: the code that defined it, of a module or a function."""

    file: str
    name: str
    line: int
    executed: CodeType

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    def is_same(self, other: Place) -> bool:
        """The same code, called again, or loaded again from its file: then its lines may have moved."""
        return self.is_reloaded_by(other) or (self._function == other._function and self.line == other.line)

    def is_reloaded_by(self, other: Place) -> bool:
        return self._function == other._function and self.executed is not other.executed

    @property
    def _function(self) -> tuple[str, str]:
        return os.path.realpath(self.file), self.name


def caller() -> str:
    """The line outside of Rival that is being executed, such as one of a workflow file."""
    return str(calling_place())


def calling_place(function: Any = None) -> Place:
    """The same as a `Place`; of a decorated function, the place of that function."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    code = frame.f_code
    # The wrapper of another decorator has one place for all functions that it decorates.
    written = getattr(inspect.unwrap(function) if callable(function) else None, "__code__", None)
    if written is None:
        return Place(code.co_filename, code.co_qualname, frame.f_lineno, code)
    return Place(written.co_filename, written.co_qualname, written.co_firstlineno, code)


def is_ours(file: str) -> bool:
    """It belongs to Rival."""
    # "<string>" is the __init__ of a dataclass.
    return file.startswith(_PACKAGE) or file == "<string>"


def is_users_file(filename: str) -> bool:
    """It belongs neither to Python nor to an installed package."""
    if filename.startswith(("<frozen ", _PACKAGE, *_STANDARD)):
        return False
    return not any(part in filename for part in _INSTALLED)


def in_a_notebook() -> bool:
    """The line that is being executed is in a notebook or an interactive interpreter."""
    file = caller().rpartition(":")[0]
    return file.startswith(_TYPED) or "/ipykernel_" in file.replace(os.sep, "/")
