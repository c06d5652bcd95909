"""What sounds like a secret is not logged."""

from __future__ import annotations

import time
from typing import Any

import pytest

from rival_workers.runtime.logs.redaction import DEFAULT, Redaction


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "PASSWORD",
        "db_passwd",
        "client_secret",
        "access_token",
        "api_key",
        "apiKey",
        "X-API-Key",
        "Authorization",
        "aws.access-key",
        "privateKey",
        "Set-Cookie",
        "credentials",
    ],
)
def test_a_field_whose_name_sounds_like_a_secret_is_hidden(key: str) -> None:
    assert DEFAULT.value(key, "hunter2") == "***"
    assert DEFAULT.value("outer", [{"inner": {key: ["hunter2"]}}]) == [{"inner": {key: "***"}}]


@pytest.mark.parametrize(
    ("key", "value"),
    [("name", "jo"), ("prompt_tokens", 120), ("has_password", True), ("secret", None), ("keys", 3), ("author", "jo")],
)
def test_what_is_not_a_secret_is_shown(key: str, value: Any) -> None:
    assert DEFAULT.value(key, value) == value


def test_a_number_may_be_a_password() -> None:
    assert DEFAULT.value("password", 1234) == "***"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("password=hunter2", "password=***"),
        ("login with DB_PASSWORD = hunter2, next", "login with DB_PASSWORD = ***, next"),
        ('{"api_key": "hunter 2", "n": 1}', '{"api_key": "***", "n": 1}'),
        ("Account(name='jo', password='hunter 2')", "Account(name='jo', password='***')"),
        ("GET /x?token=hunter2&page=2", "GET /x?token=***&page=2"),
        ("Authorization: Basic aHVudGVyMg==", "Authorization: ***"),
        ("sent bearer abcdefgh.ijkl", "sent bearer ***"),
        ("calling with Bearer abcdef", "calling with Bearer ***"),
        ("401 for Bearer sk12345", "401 for Bearer ***"),
        ("Bearer x1y", "Bearer ***"),
        ("the bearer token has expired", "the bearer token has expired"),
        ("sent Basic dXNlcjpwYXNz", "sent Basic ***"),
        ("sent Basic am86cHc=", "sent Basic ***"),
        ("401 for Token 9944b09199c6", "401 for Token ***"),
        ("a basic understanding, token expired", "a basic understanding, token expired"),
        ("postgresql://me:hunter2@host/db is down", "postgresql://me:***@host/db is down"),
        ("used tokens=120", "used tokens=120"),
        ("the secret: be kind to basic understanding", "the secret: be kind to basic understanding"),
        ("a=1 b=2", "a=1 b=2"),
    ],
)
def test_secrets_within_a_text_are_hidden_where_they_are_assigned(text: str, shown: str) -> None:
    assert DEFAULT.text(text) == shown


def test_further_words_come_from_a_setting() -> None:
    redaction = Redaction.of(" IBAN, social_security ,,")
    assert redaction.value("customer_iban", "DE1") == "***"
    assert redaction.value("socialSecurityNumber", "1") == "***"
    assert redaction.value("password", "hunter2") == "***"
    assert redaction.text("iban=DE1 social-security=2 name=jo") == "iban=*** social-security=*** name=jo"
    assert DEFAULT.value("customer_iban", "DE1") == "DE1"


_LONG = ["token" * 800, "token-" * 700 + "=", "://" * 1300, 'password="' * 400, "a " * 2000, "basic " * 700]


@pytest.mark.parametrize("text", [*_LONG, "bearer " * 600, "token " + "a" * 4000])
def test_no_message_can_make_it_slow(text: str) -> None:
    """In processor time: what others on the machine do is not in it. Quadratic would be seconds."""
    before = time.process_time()
    DEFAULT.text(text)
    assert time.process_time() - before < 0.2
