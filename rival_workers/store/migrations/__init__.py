"""Upgrades the schema of a database to the version that this code needs. Migrations are additive within a major
version, so that two adjacent versions can run on one schema. A lock allows a whole fleet to call `upgrade` at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, inspect, text

from rival_client.db.database import Database

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE = "rival_schema_version"
#: Advisory lock of the migrations; an arbitrary number.
_LOCK = 7_263_548_190
_HERE = Path(__file__).parent


def upgrade(database: Database) -> str:
    """Run the missing migrations in one transaction, one caller at a time. Returns the version of the schema."""
    with database.transaction() as connection:
        if database.is_postgres:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        if _version(connection) != head():
            _run_migrations(connection)
    return head()


def version(database: Database) -> str | None:
    """The version of the schema; None: Rival has never been installed in this database."""
    with database.transaction() as connection:
        return _version(connection)


def head() -> str:
    """The newest revision, from the file names (0005_schedules.py): every worker asks, and importing Alembic is
    slow."""
    return max(path.name.partition("_")[0] for path in (_HERE / "versions").glob("[0-9]*_*.py"))


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    found: str | None = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()
    return found


def _run_migrations(connection: Connection) -> None:
    # Imported here: Alembic takes a fifth of a worker's start time, and only a migration needs it.
    from alembic import command

    command.upgrade(alembic_config(connection), "head")


def alembic_config(connection: Connection | None = None) -> Config:
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_HERE))
    config.attributes["connection"] = connection
    return config
