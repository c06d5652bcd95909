"""Waits for threads of a test. `threading.Thread.join` also returns when its time is over."""

from __future__ import annotations

import threading
from collections.abc import Iterable


def join_all(threads: Iterable[threading.Thread], timeout: float = 30.0) -> None:
    for thread in threads:
        thread.join(timeout)
        assert not thread.is_alive(), f"{thread.name} has not ended within {timeout:g} s"
