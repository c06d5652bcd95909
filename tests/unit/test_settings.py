"""Settings come from arguments, then the environment, then defaults; what makes no sense is said at once."""

from __future__ import annotations

import os
from dataclasses import fields
from typing import Any

import pytest

from rival_client import ConfigurationError, InvalidSetting, Rival
from rival_client.db.database_urls import libpq_url, sqlalchemy_url
from rival_client.settings import Settings, masked
from rival_workers.settings import WorkerSettings
from tests.support.output import whole

PG, REDIS = "postgresql://me:x@h/db", "redis://h:6379/0"


def test_without_anything_the_defaults_hold() -> None:
    settings = WorkerSettings.from_env({})
    assert (settings.database_url, settings.broker_url, settings.queue) == (None, None, "rival")
    assert (settings.lease, settings.continuation_budget, settings.near, settings.max_lost) == (15, 1, 30, 3)


@pytest.mark.parametrize(
    ("env", "database", "broker"),
    [
        ({"DATABASE_URL": PG, "CELERY_BROKER_URL": REDIS}, PG, REDIS),
        (
            {"RIVAL_DATABASE_URL": PG, "DATABASE_URL": "d", "RIVAL_BROKER_URL": REDIS, "CELERY_BROKER_URL": "b"},
            PG,
            REDIS,
        ),
        ({"RIVAL_DATABASE_URL": "", "DATABASE_URL": PG, "RIVAL_BROKER_URL": ""}, PG, None),
    ],
)
def test_rivals_own_names_come_before_the_common_ones_and_empty_is_not_set(
    env: dict[str, str], database: str | None, broker: str | None
) -> None:
    settings = Settings.from_env(env)
    assert (settings.database_url, settings.broker_url) == (database, broker)


def test_the_process_environment_is_read_when_none_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RIVAL_QUEUE", "from-the-environment")
    assert Settings.from_env().queue == "from-the-environment"


def test_every_setting_can_be_given_in_the_environment_and_has_its_type() -> None:
    env = {
        "RIVAL_LEASE": "4.5",
        "RIVAL_MAX_LOST": "7",
        "RIVAL_CONTINUATION_BUDGET": "0",
        "RIVAL_MAX_PAYLOAD": "2048",
        "RIVAL_WORKFLOWS": f"a{os.pathsep}b/c.py",
        "RIVAL_QUEUE": "q",
        "RIVAL_RETENTION": "86400",
    }
    settings = WorkerSettings.from_env(env)
    assert (settings.lease, settings.max_lost, settings.continuation_budget) == (4.5, 7, 0.0)
    assert (settings.max_payload, settings.queue, settings.retention) == (2048, "q", 86400.0)
    assert settings.workflow_paths == ["a", "b/c.py"]


def test_arguments_come_before_the_environment_and_none_is_not_given() -> None:
    env = {"RIVAL_LEASE": "4", "RIVAL_QUEUE": "env"}
    settings = WorkerSettings.from_env(env, lease=9.0, queue=None)
    assert (settings.lease, settings.queue) == (9.0, "env")


#: Settings by what they are, with what errors say is expected; a new one must be added here.
NUMBERS = {
    "max_payload": "a whole number of bytes from 1 to 1,073,741,823",
    "ring_grace": "a number of seconds from 0.001 to 86,400",
    "event_retention": "a number of seconds from 0 to 3,153,600,000",
    "max_events_per_topic": "a whole number from 0 to 2,147,483,647",
    "lease": "a number of seconds from 2 to 86,400; with less, a busy machine loses its own leases",
    "continuation_budget": "a number of seconds from 0 to 86,400",
    "near": "a number of seconds from 0 to 86,400",
    "keeper_interval": "a number of seconds from 0.001 to 86,400",
    "max_lost": "a whole number from 0 to 2,147,483,647",
    "retention": "a number of seconds from 0 to 3,153,600,000",
    "shutdown_grace": "a number of seconds from 0 to 86,400",
    "patience": "a number of seconds from 0 to 3,153,600,000",
    "stalled_after": "a number of seconds from 0.001 to 3,153,600,000",
}
DATABASE_URL = "a database URL: give postgresql://user:password@host:5432/name or sqlite:///file.db"
PAGE_URL = "the address of a page: give https://flower.example.com, without a password"
PAGE_LINKS = (
    "a list of links with spaces between them: give Logs=https://logs.example.com/?run={run_id}&step={step}, without "
    "passwords; {workflow} can be named, too"
)
URLS = {
    "database_url": DATABASE_URL,
    "broker_url": "a broker URL: give redis://user:password@host:6379/0 or amqp://user:password@host:5672//",
    "flower_url": PAGE_URL,
    "dashboard_url": PAGE_URL,
    "dashboard_database_url": DATABASE_URL,
    "dashboard_links": PAGE_LINKS,
}
TEXTS = {
    "queue": "a usable text: give 1 to 200 characters of Unicode without NUL",
    "key_prefix": "a usable text: give at most 200 characters of Unicode without NUL",
    "failpoint": "a usable text: give at most 200 characters of Unicode without NUL",
    "redact": "a usable text: give at most 32,000 characters of Unicode without NUL",
    "proxy_secret": "a usable text: give at most 200 characters of Unicode without NUL",
}
WORKFLOWS = "a usable text: give at most 32,000 characters of Unicode without NUL"
OTHERS = {"workflows", "allow_shell", "log_format", "queues", "priorities"}
NOT_NUMBERS = [
    "soon",
    "1.5.2",
    "10s",
    "-1",
    "-0.5",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "9" * 30,
    "9" * 5000,
    "1\x00",
    " ",
    "0x10",
]
NOT_URLS = [
    "nonsense",
    "h:5432/db",
    "mysql://me:s3cret@h/db",
    "postgresql://me:s3cret@h:port/db",
    "postgresql://me:s3cret@h:99999999/db",
    "postgres\x00://me:s3cret@h/db",
    "redis://:s3cret@h:port/0",
    "redis://:s3cret@h:70000/0",
    "localhost:6379",
    "reddis://:s3cret@h/0",
    "redis://:s3cret@h/0;nonsense",
    "\udcff://h",
    f"redis://:s3cret@{'h' * 10_000}/0",
    "redis://[::1/0",
    "http://me:s3cret@h/",
]


def refusal(name: str, value: str) -> str:
    """The error for the value of a setting's variable."""
    variable = f"RIVAL_{name.upper()}"
    with pytest.raises(InvalidSetting) as caught:
        WorkerSettings.from_env({variable: value})
    assert caught.value.variable == variable
    return str(caught.value)


def as_shown(value: str) -> str:
    """A value in an error: the beginning of its repr."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"


def test_each_setting_is_of_a_known_kind() -> None:
    assert {field.name for field in fields(WorkerSettings)} == {*NUMBERS, *URLS, *TEXTS, *OTHERS}


@pytest.mark.parametrize("name", sorted(NUMBERS))
@pytest.mark.parametrize("value", NOT_NUMBERS, ids=lambda value: value[:8].encode().hex())
def test_a_number_that_makes_no_sense_is_refused(name: str, value: str) -> None:
    assert refusal(name, value) == f"RIVAL_{name.upper()}={as_shown(value)} is not {NUMBERS[name]}."


@pytest.mark.parametrize("name", sorted(NUMBERS))
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1, "7", True, None])
def test_a_number_that_is_given_as_an_argument_is_checked_too(name: str, value: Any) -> None:
    with pytest.raises(InvalidSetting) as caught:
        WorkerSettings(**{name: value})
    assert str(caught.value) == f"RIVAL_{name.upper()}={value!r} is not {NUMBERS[name]}."


@pytest.mark.parametrize("lease", ["1.9", "0"])
def test_a_lease_below_two_seconds_is_refused(lease: str) -> None:
    assert refusal("lease", lease) == f"RIVAL_LEASE='{lease}' is not {NUMBERS['lease']}."


@pytest.mark.parametrize("value", ["0", "false", "No", "OFF", "False"])
def test_a_flag_can_be_off(value: str) -> None:
    assert WorkerSettings.from_env({"RIVAL_ALLOW_SHELL": value}).allow_shell is False


@pytest.mark.parametrize("value", ["1", "true", "Yes", "ON", "True"])
def test_a_flag_can_be_on(value: str) -> None:
    assert WorkerSettings.from_env({"RIVAL_ALLOW_SHELL": value}).allow_shell is True


@pytest.mark.parametrize("value", ["maybe", "2", "\x00", "y" * 9999])
def test_a_flag_that_is_neither_on_nor_off_is_refused(value: str) -> None:
    assert refusal("allow_shell", value) == (
        f"RIVAL_ALLOW_SHELL={as_shown(value)} is not a flag: give one of 1, true, yes, on or one of 0, false, no, off."
    )


@pytest.mark.parametrize("name", sorted({*TEXTS, "workflows"} - {"proxy_secret"}))
@pytest.mark.parametrize("value", ["a\x00b", "x" * 40_000], ids=["nul", "long"])
def test_a_text_that_no_server_takes_is_refused(name: str, value: str) -> None:
    expected = TEXTS.get(name, WORKFLOWS)
    assert refusal(name, value) == f"RIVAL_{name.upper()}={as_shown(value)} is not {expected}."


@pytest.mark.parametrize("value", ["s3cret\x00", "s3cret" * 40, "s3cret\udcff"], ids=["nul", "long", "bytes"])
def test_a_secret_that_cannot_be_used_is_not_shown(value: str) -> None:
    assert refusal("proxy_secret", value) == f"RIVAL_PROXY_SECRET='***' is not {TEXTS['proxy_secret']}."


@pytest.mark.parametrize("name", sorted({*TEXTS} - {"proxy_secret"}))
def test_bytes_that_are_not_unicode_are_refused_except_in_names_of_files(name: str) -> None:
    assert refusal(name, "\udcff") == rf"RIVAL_{name.upper()}='\udcff' is not {TEXTS[name]}."
    assert WorkerSettings.from_env({"RIVAL_WORKFLOWS": "\udcff.py"}).workflow_paths == ["\udcff.py"]


def test_a_queue_has_a_name_and_a_log_a_known_format() -> None:
    assert refusal("queue", "  ") == f"RIVAL_QUEUE='  ' is not {TEXTS['queue']}."
    assert refusal("log_format", "xml") == "RIVAL_LOG_FORMAT='xml' is not one of console, json."


@pytest.mark.parametrize("url", NOT_URLS, ids=range(len(NOT_URLS)))
@pytest.mark.parametrize("name", sorted(URLS))
def test_a_url_that_is_none_is_refused_without_showing_its_password(name: str, url: str) -> None:
    if (name, url.partition(":")[0]) == ("broker_url", "postgresql"):
        url = url.replace("postgresql", "amqp")
    assert refusal(name, url) == f"RIVAL_{name.upper()}={as_shown(url.replace('s3cret', '***'))} is not {URLS[name]}."


@pytest.mark.parametrize(
    "url",
    [
        "redis://h",
        "rediss://:p@h:6380/1",
        "unix:///run/redis.sock",
        "amqp://me:p@h:5672//",
        "memory://",
        "sentinel://a:26379;sentinel://b:26379",
        "sqs://",
        "redis+socket:///run/redis.sock",
        "my.transport:Own://h",
        "redis://[::1]:6379/0",
        "redis://me:p%40ss@h/0",
        "pgmq://me:p@h:5432/db",
    ],
)
def test_brokers_of_every_kind_are_taken(url: str) -> None:
    assert Settings.from_env({"RIVAL_BROKER_URL": url}).broker_url == url


@pytest.mark.parametrize(
    "url",
    [
        "postgresql:///db?host=/run/pg",
        "postgres://me@h",
        "sqlite:///app.db",
        "sqlite://",
        "postgresql://",
        "postgresql+asyncpg://me:p%40ss@[::1]:5432/db?sslmode=require",
        "postgresql://me:p@ss@h/db",
    ],
)
def test_databases_of_both_kinds_are_taken(url: str) -> None:
    assert Settings.from_env({"RIVAL_DATABASE_URL": url}).database_url == url


def test_an_error_names_the_variable_that_the_url_came_from() -> None:
    with pytest.raises(
        InvalidSetting,
        match=whole(
            "DATABASE_URL='mysql://me:***@h/db' is not a database URL: give "
            "postgresql://user:password@host:5432/name or sqlite:///file.db."
        ),
    ):
        Settings.from_env({"DATABASE_URL": "mysql://me:secret@h/db"})


def test_a_variable_that_an_argument_replaces_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "mysql://me:secret@h/db")
    monkeypatch.setenv("CELERY_BROKER_URL", "nonsense")
    with Rival("sqlite://", "memory://") as rival:
        assert (rival.settings.database_url, rival.settings.broker_url) == ("sqlite://", "memory://")


def test_a_missing_database_says_what_to_set() -> None:
    with pytest.raises(
        ConfigurationError,
        match=whole(
            "No database is given. Set RIVAL_DATABASE_URL (postgresql://…), or pass database_url=…; `rival dev` "
            "brings its own and prints both URLs."
        ),
    ):
        Settings.from_env({}).require_database()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (None, "(not set)"),
        ("", "(not set)"),
        ("postgresql://me:secret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
        ("redis://:secret@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://host:6379/0", "redis://host:6379/0"),
        ("postgresql://me:p@ss:w@rd@host/db", "postgresql://me:***@host/db"),
        ("postgresql:///db?host=/run/pg&password=secret&user=me", "postgresql:///db?host=/run/pg&password=***&user=me"),
        ("postgresql://me:secret@host/db?password=secret", "postgresql://me:***@host/db?password=***"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str | None, shown: str) -> None:
    assert masked(url) == shown


@pytest.mark.parametrize("scheme", ["postgres", "postgresql", "postgresql+psycopg", "postgresql+asyncpg"])
def test_any_spelling_of_postgres_is_taken_with_the_driver_that_is_there(scheme: str) -> None:
    assert sqlalchemy_url(f"{scheme}://me:x@h/db") == "postgresql+psycopg://me:x@h/db"
    assert libpq_url(f"{scheme}://me:x@h/db") == "postgresql://me:x@h/db"


@pytest.mark.parametrize("url", ["mysql://me:secret@h/db", "h:5432/db", ""])
def test_another_kind_of_database_is_refused_without_showing_its_password(url: str) -> None:
    with pytest.raises(
        ConfigurationError, match=whole("'…' is neither Postgres nor SQLite. Give postgresql://… or sqlite:///file.db.")
    ) as caught:
        sqlalchemy_url(url)
    assert "secret" not in str(caught.value)


def test_settings_with_changes_are_new_settings() -> None:
    first = Settings(queue="a")
    changed: Any = first.with_(queue="b")
    assert (first.queue, changed.queue) == ("a", "b")
