"""Postgres' locks, for tests that force two transactions to meet."""

from __future__ import annotations

import time

from sqlalchemy import text

from rival_client.db.database import Database

BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


def until_blocked(database: Database, most: int = 1) -> None:
    """So many transactions wait for a lock."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with database.autocommit() as connection:
            if (connection.scalar(text(BLOCKED)) or 0) >= most:
                return
        time.sleep(0.01)
    raise AssertionError("no transaction waits for a lock")
