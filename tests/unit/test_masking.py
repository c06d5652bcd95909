"""What people see of a URL or of a text about one has no secrets in it."""

from __future__ import annotations

import time

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import IntegrityError

from rival_client.model.masking import masked, storable_error, without_secrets
from rival_client.settings import Settings
from rival_workers.runtime.attempt.invoke import error_record
from rival_workers.settings import WorkerSettings

WITH_SECRETS = [
    ("postgresql://me:s3cret@host/db", "postgresql://me:***@host/db"),
    ("postgresql://me:s3c/ret?x#y@host/db", "postgresql://me:***@host/db"),
    ("postgresql://me:s3%40cret@host/db", "postgresql://me:***@host/db"),
    ("postgresql://host/db?sslpassword=s3cret&sslmode=require", "postgresql://host/db?sslpassword=***&sslmode=require"),
    ("postgresql://host/db?user=me&password=s3cret", "postgresql://host/db?user=me&password=***"),
    ("postgresql://host/db?PassWord=s3c@ret", "postgresql://host/db?PassWord=***"),
    ("postgresql://host/db?p%61ssword=s3cret", "postgresql://host/db?p%61ssword=***"),
    ("postgresql://host/db?oauth_client_secret=s3cret", "postgresql://host/db?oauth_client_secret=***"),
    ("host=h user=me password=s3cret dbname=d", "host=h user=me password=*** dbname=d"),
    ("host=h password = 's3 c\\'ret' dbname=d", "host=h password = *** dbname=d"),
    ("host=h sslpassword='s3cret", "host=h sslpassword=***"),
    ("host=h password=s3\\ cret dbname=d", "host=h password=*** dbname=d"),
    ("me:s3cret@host/db", "me:***@host/db"),
    ("rediss://:s3cret@h:6380/0?ssl_keyfile_password=s3cret", "rediss://:***@h:6380/0?ssl_keyfile_password=***"),
    ("amqp://a:s3cret@x//;amqp://b:s3cret@y//", "amqp://a:***@x//;amqp://b:***@y//"),
    ("sentinel://:s3c;ret@x:1;sentinel://:s3cret@y:2", "sentinel://:***@x:1;sentinel://:***@y:2"),
    ("sqs://KEY:s3cret@", "sqs://KEY:***@"),
]


@pytest.mark.parametrize(("url", "shown"), WITH_SECRETS)
def test_a_url_or_a_connection_string_is_shown_without_its_secrets(url: str, shown: str) -> None:
    assert masked(url) == shown


@pytest.mark.parametrize("url", ["postgresql://host/db?passfile=/etc/pgpass&sslmode=require", "sqlite:///app.db"])
def test_what_is_not_secret_is_shown(url: str) -> None:
    assert masked(url) == url


@pytest.mark.parametrize("url", [b"postgresql://me:s3cret@host", 7, ["postgresql://me:s3cret@host"]])
def test_what_is_not_text_is_not_shown(url: object) -> None:
    assert "s3cret" not in masked(url)


@pytest.mark.parametrize("text", ['could not translate host name "{}"', "invalid port: '{}'", "no such option {}=1"])
@pytest.mark.parametrize("password", ["s3cret", "s3%40c/ret", "s3c?ret#word"])
def test_a_drivers_text_is_shown_without_the_password_and_its_parts(text: str, password: str) -> None:
    url = f"postgresql://me:{password}@host/db"
    for quoted in (url, password, password.replace("%40", "@"), password.partition("/")[2] or password):
        said = without_secrets(text.format(quoted), url)
        assert not [part for part in ("s3c", "ret") if part in said]


@pytest.mark.parametrize("kind", [Settings, WorkerSettings])
def test_settings_do_not_show_a_password_in_their_repr(kind: type[Settings]) -> None:
    settings = kind(database_url="postgresql://me:s3cret@h/d", broker_url="redis://:s3cret@h")
    assert "s3cret" not in repr(settings)


def test_an_error_of_sqlalchemy_is_stored_without_its_sql_and_values() -> None:
    with create_engine("sqlite://").connect() as connection:
        connection.execute(text("CREATE TABLE people (name TEXT UNIQUE)"))
        twice = text("INSERT INTO people\n\nVALUES (:name), (:name)")
        with pytest.raises(IntegrityError) as caught:
            connection.execute(twice, {"name": "s3cret"})
    try:
        raise ExceptionGroup("several", [caught.value]) from caught.value
    except ExceptionGroup as group:
        for error in (caught.value, group, RuntimeError(str(caught.value))):
            record = error_record(error, 1)
            assert not [word for word in ("INSERT", "s3cret") if word in record["message"]]
            assert "[SQL" not in record["traceback"]
            assert "s3cret" not in record["traceback"].replace('"s3cret"', "")
    assert error_record(caught.value, 1)["message"] == "(sqlite3.IntegrityError) UNIQUE constraint failed: people.name"


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("cannot connect to redis://me:s3cret@host:1/0", "cannot connect to redis://me:***@host:1/0"),
        ("amqp://:s3c/r:et@h, postgresql://u:s3cret@[::1]/d", "amqp://:***@h, postgresql://u:***@[::1]/d"),
        ("see https://example.org:8080/a@b and mailto:x@y", "see https://example.org:8080/a@b and mailto:x@y"),
        ("nothing", "nothing"),
    ],
)
def test_the_text_of_any_error_is_stored_without_passwords_in_urls(said: str, kept: str) -> None:
    assert storable_error(said) == kept


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "a://" * 50_000, "a://b:" * 30_000, "\n[SQL: " * 20_000, "://:@" * 40_000]
)
def test_a_text_of_any_form_is_scrubbed_at_once(text: str) -> None:
    """In processor time; quadratic would be minutes."""
    began = time.process_time()
    masked(text)
    storable_error(text)
    assert time.process_time() - began < 20
