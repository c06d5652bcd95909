"""Brings a database's schema up to what this code needs. Additive within a major version, so that a fleet of two
adjacent versions runs on one schema; guarded by a lock, so that a whole fleet may call it at once.
"""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from rival_client.database import Database

VERSION_TABLE = "rival_schema_version"
#: An arbitrary number that only Rival's migrations use.
_LOCK = 7_263_548_190


def upgrade(database: Database) -> str:
    """Run what is missing, in one transaction, one caller at a time; the version it is at now."""
    with database.transaction() as connection:
        if database.is_postgres:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK})
        if _version(connection) != head():
            command.upgrade(_config(connection), "head")
    return head()


def version(database: Database) -> str | None:
    """None: Rival has never been installed in this database."""
    with database.transaction() as connection:
        return _version(connection)


def head() -> str:
    return str(ScriptDirectory.from_config(_config()).get_current_head())


def _version(connection: Connection) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision()


def _config(connection: Connection | None = None) -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    return config
