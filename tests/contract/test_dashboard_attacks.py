"""Logins that are tried at the same time, passwords that change, slow and large requests to a real server."""

from __future__ import annotations

import contextlib
import socket
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rival_workers import step
from rival_workers.dashboard import requests
from rival_workers.dashboard.launch import Launch
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.roles import Identity
from rival_workers.dashboard.sessions import Sessions
from rival_workers.dashboard.users import Users
from tests.contract.test_dashboard_security import PASSWORD, site, users, users_file
from tests.support.dashboard import TOKEN, Site

__all__ = ["site", "users", "users_file"]


def test_a_new_password_ends_the_sessions_of_the_one_before(users: Users) -> None:
    sessions = Sessions(b"k" * 32, users=users)
    _, cookie = sessions.log_in("a", None, "viewer", PASSWORD)
    assert sessions.identify({}, {}, {sessions.cookie: cookie}) == Identity("viewer", "viewer")
    users.add("viewer", "another password", "viewer")
    assert sessions.identify({}, {}, {sessions.cookie: cookie}) is None
    _, cookie = sessions.log_in("a", None, "viewer", "another password")
    assert sessions.identify({}, {}, {sessions.cookie: cookie}) == Identity("viewer", "viewer")


def test_passwords_that_are_tried_at_the_same_time_are_counted_too(users: Users) -> None:
    sessions = Sessions(b"k" * 32, users=users)

    def attempt(number: int) -> str:
        with pytest.raises(Refused) as refused:
            sessions.log_in("10.0.0.1", None, "viewer", f"wrong password {number}")
        return refused.value.code

    with ThreadPoolExecutor(20) as threads:
        codes = Counter(threads.map(attempt, range(20)))
    assert codes == {"LoginNeeded": 5, "TooManyLogins": 15}


def test_the_size_of_an_input_does_not_show_how_long_a_secret_is(site: Site) -> None:
    site.inline.define("login", step(lambda: 1, name="a"))
    for run_id, password in (("short", "x"), ("long", "x" * 100)):
        site.inline.rival.run("login", {"password": password}, run_id)
    found = [site.post("workflows/login/validate", like=run_id)["size"] for run_id in ("short", "long")]
    assert found[0] == found[1]


@pytest.mark.parametrize("sites", [["same-origin", "cross-site"], ["cross-site", "same-origin"]])
def test_a_header_of_the_browser_that_is_there_twice_is_refused(site: Site, sites: list[str]) -> None:
    client = site.client()
    client.headers.pop("sec-fetch-site")
    headers = [("sec-fetch-site", one) for one in sites]
    found = client.post("/api/v1/session", headers=headers, json={"token": TOKEN})
    assert (found.status_code, found.json()["code"]) == (403, "CrossSite")


def test_without_a_login_only_a_small_body_is_read(site: Site) -> None:
    found = site.client().post("/api/v1/session", json={"token": "x" * 20_000})
    assert (found.status_code, found.json()["detail"]) == (413, "The body is too large: at most 16,384 bytes.")


@pytest.fixture
def port(site: Site, tmp_path: Path) -> Iterator[int]:
    """Of a real server."""
    inline = site.inline
    with Launch(inline.settings, port=0, directory=tmp_path).opened(inline.rival) as server, server.in_background():
        yield int(server.link.split(":")[2].partition("/")[0])


def answer_to(port: int, sent: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        found = b""
        # A server that closes before it has read all of it resets the connection.
        with contextlib.suppress(ConnectionError):
            connection.sendall(sent)
            while part := connection.recv(65536):
                found += part
        return found


def test_a_body_that_does_not_arrive_is_not_waited_for(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "PATIENCE", 0.3)
    head = "Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 100\r\nSec-Fetch-Site: same-origin"
    found = answer_to(port, f"POST /api/v1/session HTTP/1.1\r\n{head}\r\n\r\n{{".encode())
    assert found.startswith(b"HTTP/1.1 408 ")
    assert b'"code":"TooSlow"' in found


def test_a_head_that_does_not_end_is_not_kept(port: int) -> None:
    head = b"GET /api/v1/me HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Much: "
    assert answer_to(port, head + b"x" * 200_000)[:13] in (b"", b"HTTP/1.1 400 ")
