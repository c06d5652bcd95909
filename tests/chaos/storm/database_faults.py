"""Faults of the database: restarted, crashed, frozen, cut, cancelled, locked, revoked, read-only, full, occupied."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg

from tests.chaos.storm.faults import Fault
from tests.chaos.storm.fleet import LEASE, Fleet
from tests.chaos.storm.servers import MAX_CONNECTIONS, ROLE, Servers

#: What a worker or a producer writes to.
TABLES = (
    "rival_steps",
    "rival_runs",
    "rival_history",
    "rival_attempts",
    "rival_executors",
    "rival_events",
    "rival_waits",
)
OWN = f"usename = '{ROLE}'"
NOT_STRANGE = "application_name <> 'stranger'"


class RestartPostgres(Fault):
    """A fast shutdown and a start."""

    seconds = (0.0, LEASE + 2)

    def inject(self) -> str:
        self.servers.postgres.stop()
        return ""

    def heal(self) -> None:
        self.servers.ensure_postgres()


class CrashPostgres(RestartPostgres):
    """An immediate shutdown or SIGKILL: the next start recovers."""

    seconds = (0.0, 2.0)

    def inject(self) -> str:
        if self.random.random() < 0.5:
            self.servers.stop_postgres_immediately()
            return "immediately"
        self.servers.postgres.kill()
        return "with SIGKILL"


class FreezePostgres(Fault):
    """SIGSTOP of all its processes."""

    seconds = (1.0, LEASE + 2)

    def inject(self) -> str:
        self.servers.postgres.freeze()
        return ""

    def heal(self) -> None:
        self.servers.postgres.thaw()


class _Repeated(Fault):
    """A statement again and again."""

    seconds = (2.0, 4.0)
    statement = ""
    every = 0.3

    def inject(self) -> str:
        return ""

    def hold(self, seconds: float, wait: Callable[[float], object]) -> None:
        with self.servers.admin() as admin:
            for _ in range(int(seconds / self.every)):
                admin.execute(self.statement)
                wait(self.every)


class TerminateBackends(_Repeated):
    """pg_terminate_backend of half of the fleet's connections, three times a second."""

    statement = f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OWN} AND random() < 0.5"


class CancelBackends(_Repeated):
    """pg_cancel_backend of whatever runs, many times a second."""

    statement = f"SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE {OWN} AND state <> 'idle'"
    every = 0.02


class LockTable(Fault):
    """LOCK TABLE … ACCESS EXCLUSIVE."""

    seconds = (1.0, LEASE + 2)

    def inject(self) -> str:
        self.connection = self.servers.admin()
        self.table = self.random.choice(TABLES)
        self.connection.execute("BEGIN")
        self.connection.execute(f"LOCK TABLE {self.table} IN ACCESS EXCLUSIVE MODE")
        return self.table

    def heal(self) -> None:
        self.connection.close()


class RevokePrivileges(Fault):
    """REVOKE of some or all of the fleet's privileges on some or all tables."""

    seconds = (1.0, 6.0)

    def inject(self) -> str:
        what = self.random.choice(["INSERT", "UPDATE", "INSERT, UPDATE, DELETE", "SELECT", "ALL"])
        of = self.random.choice([*TABLES, "ALL TABLES IN SCHEMA public", "ALL TABLES IN SCHEMA public"])
        with self.servers.admin() as admin:
            admin.execute(f"REVOKE {what} ON {of} FROM {ROLE}")
        return f"{what} on {of}"

    def heal(self) -> None:
        with self.servers.admin() as admin:
            admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {ROLE}")


class RefuseLogin(Fault):
    """The fleet's role may not log in, and has lost the connections that it had."""

    seconds = (1.0, 4.0)

    def inject(self) -> str:
        with self.servers.admin() as admin:
            admin.execute(f"ALTER ROLE {ROLE} NOLOGIN")
            admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OWN}")
        return ""

    def heal(self) -> None:
        with self.servers.admin() as admin:
            admin.execute(f"ALTER ROLE {ROLE} LOGIN")


class ReadOnlyMode(Fault):
    """default_transaction_read_only for the whole server, as after a failover to a standby."""

    seconds = (1.0, 6.0)

    def inject(self) -> str:
        self._set("SET default_transaction_read_only = on")
        return ""

    def heal(self) -> None:
        self._set("RESET default_transaction_read_only")

    def _set(self, what: str) -> None:
        with self.servers.admin() as admin:
            admin.execute(f"ALTER SYSTEM {what}")
            admin.execute("SELECT pg_reload_conf()")


class FullDisk(Fault):
    """The disk of the data and the write-ahead log has no byte left. Postgres reports errors, or stops."""

    seconds = (2.0, 6.0)

    @classmethod
    def is_possible(cls, servers: Servers, fleet: Fleet) -> str | None:
        return None if servers.disk is not None else "only root can mount a small disk: NOT TESTED HERE"

    def inject(self) -> str:
        assert self.servers.disk is not None
        free = os.statvfs(self.servers.disk)
        with contextlib.suppress(OSError), self._filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize)
        self._fill_the_rest()
        return f"{self._filler.stat().st_size >> 20} MB"

    def _fill_the_rest(self) -> None:
        with contextlib.suppress(OSError), self._filler.open("ab", buffering=0) as file:
            while True:
                file.write(b"\0" * 4096)

    def hold(self, seconds: float, wait: Callable[[float], object]) -> None:
        # Without work that needs new space a full disk would go unnoticed.
        for _ in range(int(seconds / 0.5)):
            with contextlib.suppress(psycopg.Error), self.servers.admin() as admin:
                admin.execute("CREATE TABLE chaos_space AS SELECT repeat('x', 900) FROM generate_series(1, 9000)")
                admin.execute("DROP TABLE chaos_space")
            wait(0.5)

    def heal(self) -> None:
        self._filler.unlink(missing_ok=True)
        self.servers.ensure_postgres()
        with self.servers.admin() as admin:
            admin.execute("DROP TABLE IF EXISTS chaos_space")

    @property
    def _filler(self) -> Path:
        return self.servers.directory / "disk" / "filler"


class ExhaustConnections(Fault):
    """Strangers hold every connection that the server has, and the fleet has lost its own."""

    seconds = (2.0, 6.0)
    taken: list[psycopg.Connection[Any]]

    def inject(self) -> str:
        self.taken = []
        self._take_all()
        with self.servers.admin() as admin:
            admin.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {OWN} AND {NOT_STRANGE}")
        self._take_all()
        return f"{len(self.taken)} taken"

    def _take_all(self) -> None:
        for _ in range(MAX_CONNECTIONS):
            try:
                self.taken.append(
                    psycopg.connect(self.servers.database_url, application_name="stranger", connect_timeout=5)
                )
            except psycopg.OperationalError:
                return

    def hold(self, seconds: float, wait: Callable[[float], object]) -> None:
        for _ in range(int(seconds / 0.5)):
            self._take_all()
            wait(0.5)

    def heal(self) -> None:
        for connection in self.taken:
            connection.close()


DATABASE_FAULTS = (
    RestartPostgres,
    CrashPostgres,
    FreezePostgres,
    TerminateBackends,
    CancelBackends,
    LockTable,
    RevokePrivileges,
    RefuseLogin,
    ReadOnlyMode,
    FullDisk,
    ExhaustConnections,
)
