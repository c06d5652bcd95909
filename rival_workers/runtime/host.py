"""Identifies this host and its process-id namespace, so that a keeper can check whether a local executor is alive."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path


@cache
def host_name() -> str:
    """The host name, and on Linux the boot id and the process-id namespace: two containers may share a host name."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()[:8]
        space = os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return socket.gethostname()
    return f"{socket.gethostname()}/{boot}/{space}"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False
