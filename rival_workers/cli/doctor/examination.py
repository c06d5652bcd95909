"""All checks in their order, for settings that are valid. Used by `rival doctor` and by the dashboard."""

from __future__ import annotations

from collections.abc import Iterator

from rival_client.db.database import Database
from rival_client.errors import ConfigurationError, DatabaseError, DatabaseUnavailable
from rival_workers.cli.doctor.broker_checks import check_broker
from rival_workers.cli.doctor.checks import Check, check_access, check_database, check_fleet, check_migrations
from rival_workers.settings import WorkerSettings


def examine(settings: WorkerSettings) -> Iterator[Check]:
    yield from check_broker(settings)
    if not settings.database_url:
        advice = "set RIVAL_DATABASE_URL (postgresql://…), or start `rival dev` in this folder"
        yield Check("database", "fail", "no database is given", advice)
        return
    try:
        database = Database(settings.database_url)
    except ConfigurationError as error:
        yield Check("database", "fail", str(error), "correct RIVAL_DATABASE_URL")
        return
    try:
        yield from _examine_database(database)
    finally:
        database.dispose()


def _examine_database(database: Database) -> Iterator[Check]:
    try:
        yield from check_database(database)
        yield from check_access(database)
        schema = check_migrations(database)
        yield schema
        if schema.status != "fail":
            yield from check_fleet(database)
    except DatabaseUnavailable as error:
        yield Check("database", "fail", str(error), "start it, or correct RIVAL_DATABASE_URL")
    except DatabaseError as error:
        yield Check("database", "fail", str(error), "correct what the other checks name, then run this again")
