"""Places where a test can stop the process dead, as a power cut would: RIVAL_FAILPOINT=name."""

from __future__ import annotations

import os
import signal

_armed: str = ""


def arm(name: str) -> None:
    global _armed
    _armed = name


def failpoint(name: str) -> None:
    """Die here if this point is armed."""
    if _armed and _armed == name:
        os.kill(os.getpid(), signal.SIGKILL)
