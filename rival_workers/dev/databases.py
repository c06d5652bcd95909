"""Databases that come and go on a Postgres that is already there: for each test one, copied from a template."""

from __future__ import annotations

from urllib.parse import quote, urlsplit, urlunsplit

MAINTENANCE = "postgres"


def create_database(database_url: str, name: str, template: str | None = None) -> str:
    """Makes the database `name` on the server of `database_url`, a copy of `template`, and returns its URL."""
    copied = "" if template is None else f" TEMPLATE {_quoted(template)}"
    _execute(database_url, f"CREATE DATABASE {_quoted(name)}{copied}")
    return with_database(database_url, name)


def drop_database(database_url: str, name: str) -> None:
    """Drops the database, whoever is still connected to it; it need not exist."""
    _execute(database_url, f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)")


def with_database(database_url: str, name: str) -> str:
    return urlunsplit(urlsplit(database_url)._replace(path=f"/{quote(name, safe='')}"))


def _execute(database_url: str, statement: str) -> None:
    # Imported late: it takes longer than opening a stack that runs, and most who open one make no database.
    import psycopg

    # Not through the given database: one that somebody is connected to can neither be copied nor dropped.
    parts = urlsplit(with_database(database_url, MAINTENANCE))
    plain = urlunsplit(parts._replace(scheme=parts.scheme.partition("+")[0]))
    with psycopg.connect(plain, autocommit=True) as connection:
        connection.execute(statement.encode())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
