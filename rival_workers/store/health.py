"""Reads the state of a database for `rival doctor`. Each read is short and uses an index; nothing is written."""

from __future__ import annotations

import datetime as dt
import time
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Select, Table, func, literal_column, or_, select, text

from rival_client.db import metadata
from rival_client.db.database import Database
from rival_client.db.fleet_tables import executors
from rival_client.db.run_tables import in_status, runs, steps
from rival_client.db.types import after, now
from rival_client.errors import DatabaseUnavailable
from rival_client.model import statuses
from rival_client.model.starts.queues import DEFAULT_QUEUE
from rival_client.model.statuses import RUN_ACTIVE
from rival_workers.store.sql.guards import RUNNING

#: Seconds after which a due row counts as overlooked by the keepers.
OVERDUE = 60.0
#: Seconds after which an open transaction is reported. Dead rows that it can still see are not removed, and the head of
#: a queue that is used all the time has one for each step that has waited there.
OLD_TRANSACTION = 300.0
#: Upper bound for counting stray attempts.
_MAX_STRAYS = 1000
#: Settings of the server that durability depends on.
DURABILITY = ("fsync", "synchronous_commit", "full_page_writes")


@dataclass(frozen=True)
class Server:
    """Facts about the database server."""

    version: str
    #: Seconds of one round trip, the best of three.
    latency: float
    #: Seconds by which this machine's clock is ahead of the database's.
    skew: float
    settings: dict[str, str]
    connections: tuple[int, int] | None


@dataclass(frozen=True)
class Backlog:
    """Rows that wait longer than they should."""

    open_runs: bool
    overdue: int
    parked: int
    parked_why: str | None


@dataclass(frozen=True)
class Liveness:
    live: int
    stale: int


@dataclass(frozen=True)
class Access:
    """The permissions of the role in this database."""

    #: Why nothing can be written; None: the database is writable.
    read_only: str | None
    #: "INSERT on rival_steps"
    missing: tuple[str, ...]


@dataclass(frozen=True)
class StrayAttempts:
    """Attempts that run in the table, but on no live executor."""

    count: int
    #: "run order-1 step charge"
    example: str | None


@dataclass(frozen=True)
class OpenTransaction:
    """The oldest transaction whose snapshot keeps dead rows of this database from being removed."""

    pid: int
    #: "psql of ana"
    session: str
    seconds: float


def read_server(database: Database) -> Server:
    with database.autocommit() as connection:
        latency, skew = min(_clocks(connection) for _ in range(3))
        if not database.is_postgres:
            version = connection.scalar(text("SELECT sqlite_version()"))
            return Server(f"SQLite {version}", latency, skew, {}, None)
        return Server(
            f"Postgres {connection.scalar(text('SHOW server_version'))}",
            latency,
            skew,
            {name: str(connection.scalar(text(f"SHOW {name}"))) for name in DURABILITY},
            _connections(connection),
        )


def _clocks(connection: Connection) -> tuple[float, float]:
    """(round trip, how far our clock is ahead), assuming that the server read its clock halfway through the
    round trip."""
    before = time.time()
    theirs = connection.scalar(select(_wall_clock(connection)))
    after_it = time.time()
    there = theirs.timestamp() if isinstance(theirs, dt.datetime) else float(theirs or 0)
    return after_it - before, (before + after_it) / 2 - there


def _wall_clock(connection: Connection) -> Any:
    return now() if connection.dialect.name == "sqlite" else func.clock_timestamp()


def _connections(connection: Connection) -> tuple[int, int]:
    used = connection.scalar(text("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"))
    return int(used or 0), int(connection.scalar(text("SHOW max_connections")) or 0)


_OLDEST_TRANSACTION = """
SELECT pid, concat_ws(' of ', nullif(application_name, ''), usename) AS session,
       extract(epoch FROM now() - xact_start) AS seconds
FROM pg_stat_activity
WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
  AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
  AND xact_start < now() - make_interval(secs => :older_than)
ORDER BY xact_start LIMIT 1
"""


def read_old_transaction(database: Database, older_than: float = OLD_TRANSACTION) -> OpenTransaction | None:
    """Sessions of other roles are seen by members of pg_read_all_stats only."""
    if not database.is_postgres:
        return None
    with database.autocommit() as connection:
        found = connection.execute(text(_OLDEST_TRANSACTION), {"older_than": older_than}).first()
    return None if found is None else OpenTransaction(found.pid, found.session, float(found.seconds))


def read_liveness(database: Database) -> Liveness:
    alive = executors.c.expires_at > now()
    with database.autocommit() as connection:
        counted = select(func.count().filter(alive), func.count().filter(~alive)).select_from(executors)
        live, stale = connection.execute(counted).one()
    return Liveness(live, stale)


def read_backlog(database: Database) -> Backlog:
    is_open: Select[Any] = select(literal_column("1")).where(or_(*map(in_status, RUN_ACTIVE))).limit(1)
    with database.without_seqscan() as connection:
        overdue = sum(_count(connection, table, table.c.ring_at < after(-OVERDUE)) for table in (runs, steps))
        # Parked rows have a `ring_at`, so the partial index can serve the condition.
        parked = sum(_count(connection, t, t.c.ring_at.is_not(None) & t.c.parked.is_not(None)) for t in (runs, steps))
        return Backlog(connection.scalar(is_open) is not None, overdue, parked, _why(connection) if parked else None)


def _count(connection: Connection, table: Table, condition: Any) -> int:
    return int(connection.scalar(select(func.count()).select_from(table).where(condition)) or 0)


def _why(connection: Connection) -> str | None:
    for table in (runs, steps):
        parked = table.c.ring_at.is_not(None) & table.c.parked.is_not(None)
        reason = connection.scalar(select(table.c.parked).where(parked).limit(1))
        if reason is not None:
            return str(reason)
    return None


# -- what can be written ----------------------------------------------------------------------------------

_PRIVILEGES = """
SELECT privilege || ' on ' || name FROM unnest(CAST(:tables AS text[])) AS name
CROSS JOIN unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
WHERE to_regclass(name) IS NOT NULL AND NOT has_table_privilege(to_regclass(name), privilege)
ORDER BY 1
"""


def read_access(database: Database) -> Access:
    if not database.is_postgres:
        return Access(_sqlite_read_only(database), ())
    with database.autocommit() as connection:
        standby = connection.scalar(text("SELECT pg_is_in_recovery()"))
        read_only = connection.scalar(text("SHOW transaction_read_only")) == "on"
        missing = connection.scalars(text(_PRIVILEGES), {"tables": [table.name for table in metadata.sorted_tables]})
        why = "it is a standby" if standby else "default_transaction_read_only is on" if read_only else None
        return Access(why, tuple(missing))


def _sqlite_read_only(database: Database) -> str | None:
    """A transaction takes the write lock at once, so opening one is enough."""
    try:
        with database.transaction():
            return None
    except DatabaseUnavailable:
        return "its file cannot be written"


def read_stray_attempts(database: Database) -> StrayAttempts:
    """Executors that stopped within the last minute are left out: their attempts are being taken over."""
    known = (
        select(executors.c.id)
        .where(executors.c.id == steps.c.executor_id, executors.c.expires_at > after(-OVERDUE))
        .exists()
    )
    with database.without_seqscan() as connection:
        found = connection.execute(RUNNING.where(~known).limit(_MAX_STRAYS)).all()
    example = f"run {found[0].run_id} step {found[0].path}" if found else None
    return StrayAttempts(len(found), example)


def read_problems(database: Database) -> list[str]:
    """The problems that live executors report."""
    columns = (executors.c.worker, executors.c.host, executors.c.pid, executors.c.problem)
    with database.autocommit() as connection:
        found = connection.execute(
            select(*columns).where(executors.c.problem.is_not(None), executors.c.expires_at > now())
        )
        problems = [(row, line) for row in found for line in row.problem.splitlines()]
        return [f"{row.worker} (pid {row.pid} on {row.host}): {line}" for row, line in problems]


#: Upper bound for the number of queues examined.
_MAX_QUEUES = 100


@dataclass(frozen=True)
class UnservedQueue:
    """A queue with steps or runs that can start, and no live executor that serves it."""

    queue: str
    #: "run order-1 step render"
    example: str


def read_unserved_queues(database: Database) -> list[UnservedQueue]:
    """Executors that have not stored their queues count as serving the fleet's own queue."""
    with database.without_seqscan() as connection:
        queue_lists = connection.scalars(select(executors.c.queues).where(executors.c.expires_at > now())).all()
        served = {queue for queues in queue_lists for queue in queues or (DEFAULT_QUEUE,)}
        # Rows that wait to start have a `ring_at`, so the partial index can serve the condition.
        ready = steps.c.ring_at.is_not(None) & (steps.c.status != statuses.RUNNING)
        is_due = runs.c.due_at.is_(None) | (runs.c.due_at <= now())
        not_begun = runs.c.ring_at.is_not(None) & (runs.c.status == statuses.PENDING) & is_due
        example = func.min(steps.c.run_id + " step " + steps.c.path)
        waiting = (
            select(runs.c.queue, func.min(runs.c.id)).where(not_begun).group_by(runs.c.queue),
            select(steps.c.queue, example).where(ready).group_by(steps.c.queue),
        )
        found = [tuple(row) for some in waiting for row in connection.execute(some.limit(_MAX_QUEUES))]
    examples = {queue or DEFAULT_QUEUE: f"run {one}" for queue, one in found}
    return [UnservedQueue(queue, one) for queue, one in examples.items() if queue not in served]
