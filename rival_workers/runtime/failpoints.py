"""Named points at which a test can kill the process with SIGKILL (RIVAL_FAILPOINT=name) or end a flow's attempt."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

_armed: str = ""
_stops: Callable[[str, str], bool] | None = None


def arm(name: str) -> None:
    global _armed
    _armed = name


def failpoint(name: str) -> None:
    """Kill the process if this point is armed."""
    if _armed and _armed == name:
        os.kill(os.getpid(), signal.SIGKILL)


def stop_flows(when: Callable[[str, str], bool] | None) -> None:
    """`when(point, run_id)` decides whether the attempt of a flow ends at that point."""
    global _stops
    _stops = when


def asks_to_stop(name: str, run_id: str) -> bool:
    failpoint(name)
    return _stops is not None and _stops(name, run_id)
