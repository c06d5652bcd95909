"""The conditions of a measurement: the machine, the servers, the code, and whether something else keeps it busy."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks import databases, venvs

#: More than this share of all cores in use by others: the figures cannot be trusted.
BUSY_SHARE = 0.10
_LOOK_S = 2.0


def busy_share() -> float:
    """How much of all cores other programs use now."""
    return psutil.cpu_percent(_LOOK_S) / 100


def warning(share: float) -> str | None:
    """What to say about a machine that is not quiet."""
    if share <= BUSY_SHARE:
        return None
    return f"WARNING: other programs use {share:.0%} of this machine; the figures cannot be trusted"


def commit_of(directory: Path) -> str:
    """The commit that is checked out, with `+` when files differ from it."""
    git = ["git", "-C", str(directory)]
    commit = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True)
    changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True)
    return commit.stdout.strip() + ("+" if changed.stdout.strip() else "")


def conditions(database_url: str, load: str) -> dict[str, Any]:
    """What must be known to compare the figures with others. Refuses servers without durability."""
    settings = databases.durability(database_url)
    if settings["fsync"] != "on" or settings["synchronous_commit"] != "on":
        raise RuntimeError(f"Postgres must be durable to be measured: {settings}")
    share = busy_share()
    said = warning(share)
    if said:
        print(said, file=sys.stderr, flush=True)
    return {
        "load": load,
        "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "commit": commit_of(venvs.ROOT),
        "cpus": os.cpu_count(),
        "platform": platform.platform(),
        "python": platform.python_version(),
        "postgres": settings,
        "busy_before": round(share, 3),
        "load_average_before": os.getloadavg(),
    }
