"""The tables as the code has them are the tables that the migrations make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Column, Index, inspect, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateIndex

from rival_client.db import metadata
from rival_client.db.database import Database
from rival_workers.store import migrations

VERSIONS = Path(migrations.__file__).parent / "versions"


@pytest.fixture(params=["postgres", "sqlite"])
def database(request: pytest.FixtureRequest) -> Any:
    url = request.getfixturevalue("database_url" if request.param == "postgres" else "sqlite_url")
    opened = Database(url)
    yield opened
    opened.dispose()


def test_models_and_migrations_make_the_same_tables(database: Database) -> None:
    with database.transaction() as connection:
        options = {
            "version_table": migrations.VERSION_TABLE,
            "compare_type": True,
            # SQLite has no identity columns to compare with.
            "compare_server_default": database.is_postgres,
        }
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, metadata) == []


def test_constraints_and_partial_indexes_are_the_same_too(database: Database) -> None:
    """What Alembic's comparison leaves out."""
    found = inspect(database.engine)
    for table in metadata.sorted_tables:
        checks = {c["name"] for c in found.get_check_constraints(table.name)}
        wanted = {c.name for c in table.constraints if type(c).__name__ == "CheckConstraint"}
        assert checks == wanted, table.name
        # SQLAlchemy reads no expressions of indexes: see the next test.
        indexes = {i["name"]: i["column_names"] for i in found.get_indexes(table.name) if None not in i["column_names"]}
        plain = [i for i in table.indexes if not _has_expressions(i)]
        assert indexes == {i.name: [c.name for c in i.columns] for i in plain}, table.name


def test_indexes_of_expressions_are_the_same_too(sqlite_url: str) -> None:
    """SQLite keeps the text as it was written."""
    database = Database(sqlite_url)
    wanted = [one for table in metadata.sorted_tables for one in table.indexes if _has_expressions(one)]
    with database.autocommit() as connection:
        for index in wanted:
            query = text("SELECT sql FROM sqlite_master WHERE type = 'index' AND name = :name")
            found = connection.scalar(query, {"name": index.name})
            assert str(found).split() == str(CreateIndex(index).compile(dialect=sqlite.dialect())).split()
    assert [one.name for one in wanted] == ["rival_runs_singleton_order"]
    database.dispose()


def _has_expressions(index: Index) -> bool:
    return any(not isinstance(one, Column) for one in index.expressions)


def test_a_constraint_says_the_same_in_the_database_and_in_the_code(sqlite_url: str) -> None:
    """SQLite keeps the text as it was written."""
    database = Database(sqlite_url)
    found = inspect(database.engine)
    for table in metadata.sorted_tables:
        texts = {c["name"]: " ".join(c["sqltext"].split()) for c in found.get_check_constraints(table.name)}
        for constraint in table.constraints:
            if type(constraint).__name__ == "CheckConstraint":
                assert texts[str(constraint.name)] == " ".join(str(constraint.sqltext).split())  # type: ignore[attr-defined]
    database.dispose()


def test_the_newest_file_is_the_newest_revision() -> None:
    """Workers read the files' names alone."""
    assert ScriptDirectory.from_config(migrations.alembic_config()).get_heads() == [migrations.head()]


def test_upgrading_twice_changes_nothing(database: Database) -> None:
    assert migrations.version(database) == migrations.head()
    assert migrations.upgrade(database) == migrations.head()


@pytest.mark.parametrize("path", sorted(VERSIONS.glob("*.py")), ids=lambda path: path.stem)
def test_a_migration_imports_only_frozen_code(path: Path) -> None:
    """A migration that imports live code creates other tables once that code changes."""
    modules = [line.split()[1] for line in path.read_text().splitlines() if line.startswith(("import ", "from "))]
    ours = {name for name in modules if name.startswith(("rival_client", "rival_workers"))}
    assert ours <= {"rival_workers.store.migrations.frozen"}
