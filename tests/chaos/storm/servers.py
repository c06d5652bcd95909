"""The servers that the faults break: a Redis, and a Postgres on a small disk whose fleet is not the owner."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import redis

from rival_client.db.database import Database
from rival_workers.dev.broker_server import BrokerServer
from rival_workers.dev.postgres_server import PostgresServer
from rival_workers.store import migrations

#: The role that workers and producers connect as.
ROLE = "fleet"
MAX_CONNECTIONS = 90
#: Small enough to be filled at once, large enough for the load of ten minutes.
DISK_MEGABYTES = 600
CLONE_NEWNS, MS_REC, MS_PRIVATE = 0x00020000, 0x4000, 0x40000


class SmallPostgres(PostgresServer):
    """With fewer connections than a development server has, so that they can be used up."""

    def _settings(self) -> list[str]:
        own = {"max_connections": MAX_CONNECTIONS, "min_wal_size": "32MB", "max_wal_size": "192MB"}
        return [*super()._settings(), *(part for name, value in own.items() for part in ("-c", f"{name}={value}"))]


class Servers:
    """Everything in `directory`; started by the constructor, gone with `close`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.disk = _mount(directory / "disk")
        self.postgres = SmallPostgres(directory / "disk")
        self.broker = BrokerServer(directory / "broker")
        self.postgres.start()
        self.broker.start()
        self._prepare()

    @property
    def database_url(self) -> str:
        """As the fleet sees it."""
        parts = urlsplit(self.postgres.url)
        return urlunsplit(parts._replace(netloc=f"{ROLE}@"))

    @property
    def broker_url(self) -> str:
        return self.broker.url

    def _prepare(self) -> None:
        database = Database(self.postgres.url)
        migrations.upgrade(database)
        database.dispose()
        with self.admin() as admin:
            admin.execute(f"CREATE ROLE {ROLE} LOGIN")
            admin.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {ROLE}")

    def admin(self) -> psycopg.Connection[Any]:
        """A superuser's connection, on which no fault of ours has an effect."""
        return psycopg.connect(
            self.postgres.url,
            autocommit=True,
            application_name="chaos",
            connect_timeout=20,
            options="-c default_transaction_read_only=off -c statement_timeout=60s",
        )

    def redis(self) -> redis.Redis:
        return redis.Redis.from_url(self.broker.url, socket_timeout=10, socket_connect_timeout=10)

    def restart_postgres(self, stop: Callable[[], None], seconds: float, sleep: Callable[[float], Any]) -> None:
        stop()
        sleep(seconds)
        self.ensure_postgres()

    def stop_postgres_immediately(self) -> None:
        """As `pg_ctl stop -m immediate`: no checkpoint, recovery at the next start."""
        pid = self.postgres.pid
        if pid is not None:
            os.kill(pid, signal.SIGQUIT)
        _until(lambda: not self.postgres.running, 20)
        self.postgres.kill()

    def ensure_postgres(self, timeout: float = 60.0) -> None:
        """Started if it has ended, and answering: after a crash it may still be recovering."""
        until = time.monotonic() + timeout
        while True:
            try:
                self.postgres.start()
                with self.admin() as admin:
                    admin.execute("SELECT 1")
                    return
            except Exception:
                if time.monotonic() > until:
                    raise
                time.sleep(0.2)

    def close(self) -> None:
        self.broker.stop()
        self.postgres.stop()
        if self.disk is not None:
            subprocess.run(["umount", "-l", str(self.disk)], check=False)


def _mount(place: Path) -> Path | None:
    """A tmpfs in a mount namespace of this process, so that it is gone with it; None where that is forbidden. Must be
    called before any thread is started: threads that exist already would not see it."""
    place.mkdir(parents=True, exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)
    if os.geteuid() != 0 or libc.unshare(CLONE_NEWNS) != 0:
        return None
    if libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        return None
    options = f"size={DISK_MEGABYTES}m,mode=0700".encode()
    if libc.mount(b"tmpfs", str(place).encode(), b"tmpfs", 0, options) != 0:
        return None
    return place


def _until(condition: Callable[[], bool], timeout: float) -> None:
    until = time.monotonic() + timeout
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
