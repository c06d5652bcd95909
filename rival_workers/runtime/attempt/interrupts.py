"""Distinguishes exceptions that a signal handler has raised (Ctrl-C, the shutdown of a pool) from exceptions that user
code has raised. The former end the process, the latter fail the step.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import Any


def are_visible() -> bool:
    """Whether Ctrl-C cannot come here, or has a handler of Python code."""
    if threading.get_ident() != threading.main_thread().ident:
        return True
    return signal.getsignal(signal.SIGINT) is not signal.default_int_handler


@contextmanager
def visible_interrupts() -> Iterator[None]:
    """Makes Ctrl-C recognizable within the block: Python's own handler is written in C and leaves no frame."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def is_from_signal(error: BaseException) -> bool:
    """True if a signal handler has raised the exception: its traceback contains the handler's code."""
    raised_in = _codes(error.__traceback__)
    return any(_code_of(signal.getsignal(number)) in raised_in for number in signal.valid_signals())


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _codes(trace: TracebackType | None) -> set[CodeType]:
    found = set()
    while trace is not None:
        found.add(trace.tb_frame.f_code)
        trace = trace.tb_next
    return found


def _code_of(handler: Any) -> CodeType | None:
    function = getattr(handler, "__func__", handler)
    return getattr(function, "__code__", None)
