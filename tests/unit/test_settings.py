"""Settings come from arguments, then the environment, then defaults; what makes no sense is said at once."""

from __future__ import annotations

import os
from typing import Any

import pytest

from rival_client import ConfigurationError
from rival_client.db.database import libpq_url, sqlalchemy_url
from rival_client.settings import Settings, masked
from rival_workers.settings import WorkerSettings


def test_without_anything_the_defaults_hold() -> None:
    settings = WorkerSettings.from_env({})
    assert (settings.database_url, settings.broker_url, settings.queue) == (None, None, "rival")
    assert (settings.lease, settings.continuation_budget, settings.near, settings.max_lost) == (15, 1, 30, 3)


@pytest.mark.parametrize(
    ("env", "database", "broker"),
    [
        ({"DATABASE_URL": "d", "CELERY_BROKER_URL": "b"}, "d", "b"),
        ({"RIVAL_DATABASE_URL": "rd", "DATABASE_URL": "d", "RIVAL_BROKER_URL": "rb", "CELERY_BROKER_URL": "b"},
         "rd", "rb"),
        ({"RIVAL_DATABASE_URL": "", "DATABASE_URL": "d", "RIVAL_BROKER_URL": ""}, "d", None),
    ],
)  # fmt: skip
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
        "RIVAL_LEASE": "4.5", "RIVAL_MAX_LOST": "7", "RIVAL_CONTINUATION_BUDGET": "0", "RIVAL_MAX_PAYLOAD": "2048",
        "RIVAL_WORKFLOWS": f"a{os.pathsep}b/c.py", "RIVAL_QUEUE": "q", "RIVAL_RETENTION": "86400",
    }  # fmt: skip
    settings = WorkerSettings.from_env(env)
    assert (settings.lease, settings.max_lost, settings.continuation_budget) == (4.5, 7, 0.0)
    assert (settings.max_payload, settings.queue, settings.retention) == (2048, "q", 86400.0)
    assert settings.workflow_paths == ["a", "b/c.py"]


def test_arguments_come_before_the_environment_and_none_is_not_given() -> None:
    env = {"RIVAL_LEASE": "4", "RIVAL_QUEUE": "env"}
    settings = WorkerSettings.from_env(env, lease=9.0, queue=None)
    assert (settings.lease, settings.queue) == (9.0, "env")


@pytest.mark.parametrize("name", ["RIVAL_LEASE", "RIVAL_MAX_LOST", "RIVAL_RING_GRACE", "RIVAL_MAX_PAYLOAD"])
@pytest.mark.parametrize("value", ["soon", "1.5.2", "10s"])
def test_a_bad_number_names_its_variable_and_its_value(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}='{value}' is not a number"):
        WorkerSettings.from_env({name: value})


@pytest.mark.parametrize("lease", ["1.9", "0", "-3", "nan"])
def test_a_lease_below_two_seconds_is_refused(lease: str) -> None:
    with pytest.raises(ConfigurationError, match="is too short"):
        WorkerSettings.from_env({"RIVAL_LEASE": lease})


def test_a_missing_database_says_what_to_set() -> None:
    with pytest.raises(ConfigurationError, match="Set RIVAL_DATABASE_URL"):
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
    with pytest.raises(ConfigurationError, match="neither Postgres nor SQLite") as caught:
        sqlalchemy_url(url)
    assert "secret" not in str(caught.value)


def test_settings_with_changes_are_new_settings() -> None:
    first = Settings(queue="a")
    changed: Any = first.with_(queue="b")
    assert (first.queue, changed.queue) == ("a", "b")
