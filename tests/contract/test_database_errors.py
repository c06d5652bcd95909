"""A statement that the database rejects: an error of ours, without SQL and values, on both stores."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest
from sqlalchemy import text

from rival_client import Rival
from rival_client.broker.doorbell import open_doorbell
from rival_client.db.database import Database
from rival_client.db.prepared import PreparedPool
from rival_client.db.prepared_statement import Statement
from rival_client.errors import ConfigurationError, DatabaseError, DatabaseUnavailable, InvalidSetting
from tests.contract.stage import Stage
from tests.support.output import whole

REJECTED = [
    ("SELECT no_such_column FROM rival_runs WHERE id = :value", {"value": "s3cret"}),
    (
        "INSERT INTO rival_runs (id, workflow, version, status, created_at) VALUES (:value, 'w', 'v', 'odd', now())",
        {"value": "s3cret"},
    ),
    ("SELECT id FROM", {}),
]


@pytest.mark.parametrize(("sql", "values"), REJECTED)
@pytest.mark.parametrize("how", ["transaction", "autocommit", "snapshot"])
def test_a_rejected_statement_is_an_error_of_ours_without_its_sql_and_values(
    stage: Stage, how: str, sql: str, values: dict[str, str]
) -> None:
    with pytest.raises(DatabaseError) as caught, getattr(stage.database, how)() as connection:
        connection.execute(text(sql), values)
    assert not isinstance(caught.value, DatabaseUnavailable)
    shown = "".join(traceback.format_exception(caught.value, limit=0))
    assert "rejected a statement" in shown
    assert not [word for word in ("SELECT", "INSERT", "s3cret") if word in shown]
    assert caught.value.__cause__ is not None
    assert (caught.value.sqlstate is not None) == stage.database.is_postgres


def test_the_prepared_statements_answer_with_the_same_error(pg_stage: Stage) -> None:
    line = PreparedPool(pg_stage.database.url)
    with pytest.raises(
        DatabaseError,
        match=whole(
            'The database at postgresql://… has rejected a statement (UndefinedColumn: column "no_such_column" '
            "does not exist). Nothing was changed by it. `rival doctor` checks the database, its schema and the "
            "privileges of its role."
        ),
    ) as caught:
        line.fetch(Statement.of("odd", "SELECT no_such_column FROM rival_runs WHERE id = %(id)s"), {"id": "s3cret"})
    shown = "".join(traceback.format_exception(caught.value, limit=0))
    assert not [word for word in ("SELECT", "s3cret") if word in shown]
    line.close()


def test_a_text_with_nul_is_never_cut_off(pg_stage: Stage) -> None:
    line = PreparedPool(pg_stage.database.url)
    with pytest.raises(
        DatabaseError,
        match=whole(
            "The database at postgresql://… has rejected a statement (DataError: a text holds a NUL character, "
            "which Postgres cannot store). Nothing was changed by it. `rival doctor` checks the database, its "
            "schema and the privileges of its role."
        ),
    ):
        line.fetch(Statement.of("echo", "SELECT %(id)s::text"), {"id": "a\x00b"})
    line.close()


def test_a_database_without_tables_is_said_in_the_prepared_statements_too(pg_stage: Stage) -> None:
    line = PreparedPool(pg_stage.database.url)
    with pytest.raises(
        ConfigurationError,
        match=whole("The database at postgresql://… has no Rival tables yet. Run `rival db upgrade`."),
    ):
        line.fetch(Statement.of("none", "SELECT id FROM rival_none WHERE id = %(id)s"), {"id": "x"})
    line.close()


@pytest.mark.parametrize("password", ["s3cret", "s3c%2Fret", "s3c/ret", "s3c#ret", "s3c?ret", "s3c:ret"])
def test_no_password_is_in_an_error_about_an_unusable_url(password: str) -> None:
    database = Database(f"postgresql://me:{password}@127.0.0.1:1/none?connect_timeout=1")
    with pytest.raises((DatabaseError, ConfigurationError)) as caught, database.autocommit():
        pass
    assert not [word for word in ("s3c", "ret@") if word in str(caught.value)]


@pytest.mark.parametrize("url", ["redis://me:s3cret@host:port", "redis://:s3c#ret@host:1", "redis://:[s3cret@x"])
def test_an_unusable_broker_url_is_a_configuration_error_without_its_password(url: str) -> None:
    with pytest.raises(
        ConfigurationError,
        match=whole(
            "'redis://…:***@…' is not a broker URL (ValueError: …). Give RIVAL_BROKER_URL as in "
            "redis://user:password@host:6379/0 or amqp://user:password@host:5672//."
        ),
    ) as caught:
        open_doorbell(url, "q")
    assert "s3c" not in str(caught.value)


@pytest.mark.parametrize("url", ["nonsense", "localhost:6379", "nonsense://a", "amqp://host:port"])
def test_a_broker_that_is_not_a_url_is_an_invalid_setting_also_as_an_argument(tmp_path: Path, url: str) -> None:
    with pytest.raises(
        InvalidSetting,
        match=whole(
            "RIVAL_BROKER_URL='…' is not a broker URL: give redis://user:password@host:6379/0 or "
            "amqp://user:password@host:5672//."
        ),
    ) as caught:
        Rival(f"sqlite:///{tmp_path}/rival.db", url)
    assert caught.value.variable == "RIVAL_BROKER_URL"


@pytest.mark.parametrize("path", ["text.db", "none/rival.db", "."])
def test_a_path_that_is_not_that_of_a_database_is_named(tmp_path: Path, path: str) -> None:
    (tmp_path / "text.db").write_text("hello" * 1000)
    with pytest.raises(
        DatabaseUnavailable,
        match=whole(
            "The database at sqlite:///… cannot be opened (… database…). Give the path of a SQLite file that "
            "Rival has made, or of a new one in a folder that exists and that this process may write to."
        ),
    ):
        Database(f"sqlite:///{tmp_path / path}").autocommit().__enter__()
