"""Which server programs the tests start: `python -m tests.support.servers` prints `postgres 18 valkey`."""

from __future__ import annotations

import subprocess

from rival_workers.dev.binaries import find_broker, find_postgres


def broker_kind() -> str:
    """By what the program says of itself: its file may have any name."""
    said = subprocess.run([find_broker(), "--version"], capture_output=True, text=True, check=True).stdout
    return "valkey" if said.lower().startswith("valkey") else "redis"


if __name__ == "__main__":
    print(f"postgres {find_postgres().major_version()} {broker_kind()}")
