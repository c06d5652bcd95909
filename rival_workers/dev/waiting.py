"""Waiting for something outside this process: a condition, a deadline, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout: float, every: float = 0.01) -> bool:
    """Whether `condition` came true before `timeout` seconds were over."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() >= deadline:
            return False
        time.sleep(every)
    return True
