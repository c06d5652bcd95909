"""Brings a database's schema up to what this code needs. Additive within a major version, so that a fleet of two
adjacent versions runs on one schema; guarded by a lock, so that a whole fleet may call it at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from rival_client.db.database import Database

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE = "rival_schema_version"
#: An arbitrary number that only Rival's migrations use.
_LOCK = 7_263_548_190
_HERE = Path(__file__).parent


def upgrade(database: Database) -> str:
    """Run what is missing, in one transaction, one caller at a time; the version it is at now."""
    with database.transaction() as connection:
        if database.is_postgres:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        if _version(connection) != head():
            _run_migrations(connection)
    return head()


def version(database: Database) -> str | None:
    """None: Rival has never been installed in this database."""
    with database.transaction() as connection:
        return _version(connection)


def head() -> str:
    """The newest revision. It is read from the files' names (0005_schedules.py), since every worker asks."""
    return max(path.name.partition("_")[0] for path in (_HERE / "versions").glob("[0-9]*_*.py"))


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return found


def _run_migrations(connection: Connection) -> None:
    # A fifth of a worker's start, and only who migrates needs it.
    from alembic import command

    command.upgrade(alembic_config(connection), "head")


def alembic_config(connection: Connection | None = None) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_HERE))
    config.attributes["connection"] = connection
    return config
