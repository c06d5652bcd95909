"""Tells an exception that a signal handler of this process has raised (Ctrl-C, a pool's shutdown) from the same kind of
exception raised by user code. The first ends the process or its work, the second is the step's failure.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType, TracebackType
from typing import Any


@contextmanager
def visible_interrupts() -> Iterator[None]:
    """Within the block a Ctrl-C can be recognized. Python's own handler is written in C and leaves no frame behind."""
    if threading.current_thread() is not threading.main_thread() or (
        signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    signal.signal(signal.SIGINT, _interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def is_from_signal(error: BaseException) -> bool:
    """Whether a signal handler has raised it: its traceback then ends in the handler's code."""
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
