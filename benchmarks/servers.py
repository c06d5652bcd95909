"""The benchmark's own Postgres and Redis, and the environment that its drivers get."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks import venvs
from benchmarks.fleet import wait_until
from rival_workers.dev.stack import Stack, open_stack

PLACE = venvs.ROOT / ".bench"
STOP_S = 15.0


@contextmanager
def own_stack() -> Iterator[Stack]:
    """Servers of this benchmark alone, with their data on the repository's disk; removed when they have stopped."""
    PLACE.mkdir(exist_ok=True)
    directory = PLACE / f"stack-{os.getpid()}"
    remove_leftovers()
    stack = open_stack(directory)
    try:
        yield stack
    finally:
        stack.close()
        with suppress(TimeoutError):
            wait_until(lambda: not any(directory.rglob("postmaster.pid")), STOP_S, "Postgres' end", pause_s=0.1)
        shutil.rmtree(directory, ignore_errors=True)


def remove_leftovers() -> None:
    """The data of benchmarks that were killed; those that still run keep theirs."""
    for directory in PLACE.glob("stack-*"):
        try:
            os.kill(int(directory.name.removeprefix("stack-")), 0)
        except ProcessLookupError:
            shutil.rmtree(directory, ignore_errors=True)


def log_of(side: str) -> Path:
    """Where the workers of a side write."""
    return PLACE / f"{side}.log"


def driver_env(stack: Stack, side: str, code: Path) -> dict[str, str]:
    """The environment of a driver that imports from `code`, with empty files for its marks and its log."""
    marks = PLACE / f"{side}.marks"
    marks.unlink(missing_ok=True)
    log_of(side).unlink(missing_ok=True)
    return {
        "BENCH_SIDE": side,
        "BENCH_DATABASE_URL": stack.database_url,
        "BENCH_BROKER_URL": stack.broker_url,
        "BENCH_MARKS": str(marks),
        "BENCH_LOG": str(log_of(side)),
        "PYTHONPATH": str(code),
    }
