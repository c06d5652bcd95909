"""Places where a test can stop the process dead, as a power cut would (RIVAL_FAILPOINT=name), or end the attempt of a
flow.
"""

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
    """Die here if this point is armed."""
    if _armed and _armed == name:
        os.kill(os.getpid(), signal.SIGKILL)


def stop_flows(when: Callable[[str, str], bool] | None) -> None:
    """A test's function decides by the point's name and the run's id whether the attempt of a flow ends there."""
    global _stops
    _stops = when


def asks_to_stop(name: str, run_id: str) -> bool:
    failpoint(name)
    return _stops is not None and _stops(name, run_id)
