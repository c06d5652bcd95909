"""Postgres as the referee sees it: fresh databases, when a batch was done, how many transactions were committed.

Needs psycopg only, which both Rival's and DBOS' environments have.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import psycopg
from psycopg import sql

POLL_S = 0.1
LIMIT_S = 120.0


@dataclass(frozen=True)
class Drained:
    """The end of a batch by the database's clock, and how many looks it took to see it."""

    at: float
    looks: int


def fresh_database(admin_url: str, name: str, template: str = "template1") -> str:
    """A copy of `template` beside the database of `admin_url`; one of that name that was left over is dropped."""
    identifiers = {"name": sql.Identifier(name), "template": sql.Identifier(template)}
    with psycopg.connect(admin_url, autocommit=True) as connection:
        _wait_unused(connection, template)
        connection.execute(sql.SQL("DROP DATABASE IF EXISTS {name} WITH (FORCE)").format(**identifiers))
        connection.execute(sql.SQL("CREATE DATABASE {name} TEMPLATE {template}").format(**identifiers))
    return urlunsplit(urlsplit(admin_url)._replace(path=f"/{name}"))


def bare_commits(url: str, count: int) -> None:
    """Insert so many rows, each with its own commit, from one connection: what any durable start does at least."""
    with psycopg.connect(url, autocommit=True, prepare_threshold=0) as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS bare_commits (id text PRIMARY KEY, input text)")
        for number in range(count):
            connection.execute("INSERT INTO bare_commits VALUES (%s, %s)", [f"row-{number}", "{}"])
        connection.execute("DROP TABLE bare_commits")


def name_of(url: str) -> str:
    """The database that a URL names."""
    return urlsplit(url).path.removeprefix("/")


def wait_drained(url: str, query: str, run_ids: Sequence[str], limit_s: float = LIMIT_S) -> Drained:
    """Ask until no run of the batch is open. `query` gives (open runs, epoch of the last end) for an id array."""
    deadline = time.monotonic() + limit_s
    looks = 0
    with psycopg.connect(url, autocommit=True) as connection:
        while time.monotonic() < deadline:
            looks += 1
            open_runs, ended = connection.execute(query, [list(run_ids)], prepare=True).fetchone() or (
                1,
                None,
            )
            if open_runs == 0 and ended is not None:
                return Drained(float(ended), looks)
            time.sleep(POLL_S)
    raise TimeoutError(f"{open_runs} of {len(run_ids)} runs still open after {limit_s:.0f} s")


def settled_commits(admin_url: str, name: str) -> int:
    """Commits in a database so far. Waits for the end of all sessions, since a session reports its counts late."""
    with psycopg.connect(admin_url, autocommit=True) as connection:
        _wait_unused(connection, name)
        time.sleep(0.3)
        row = connection.execute("SELECT xact_commit FROM pg_stat_database WHERE datname = %s", [name]).fetchone()
    assert row is not None
    return int(row[0])


def wal_position(url: str) -> int:
    """Bytes of write-ahead log that the server has written since it was created."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone()
    assert row is not None
    return int(row[0])


def _wait_unused(connection: psycopg.Connection, name: str, limit_s: float = 15.0) -> None:
    """Until no session of a client is left in a database: the server ends them a little after their clients."""
    watch = "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND backend_type = 'client backend'"
    deadline = time.monotonic() + limit_s
    while connection.execute(watch, [name]).fetchone() != (0,):
        if time.monotonic() > deadline:
            raise TimeoutError(f"a session is still connected to database {name}")
        time.sleep(0.1)


def durability(url: str) -> dict[str, str]:
    """The settings that decide whether a commit survives a power cut."""
    names = ("fsync", "synchronous_commit", "full_page_writes", "server_version")
    with psycopg.connect(url, autocommit=True) as connection:
        return {name: str((connection.execute(f"SHOW {name}").fetchone() or [""])[0]) for name in names}
