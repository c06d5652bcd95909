"""The dashboard behind a proxy: what is believed from its addresses, and that nothing is from others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from rival_client.errors import ConfigurationError
from rival_workers import wait_event_step
from rival_workers.dashboard.forwarded import is_within
from rival_workers.dashboard.launch import Launch
from rival_workers.dashboard.sessions import Proxy
from rival_workers.dashboard.users import Users
from rival_workers.settings import WorkerSettings
from tests.support.inline import Inline
from tests.support.output import whole

SECRET = "a-secret-of-the-proxy"
NETWORK = ("10.0.3.0/24", "fd00::/8")
HOST = "rival.example.com"
PROXY = Proxy(
    NETWORK, SECRET, "x-user", "x-groups", {"sre": "operator", "platform": "admin", "dev, all": "admin"}, "viewer"
)
SAYS = {"x-user": "ann", "x-groups": "dev,sre", "x-rival-proxy-secret": SECRET, "host": HOST}


class Behind:
    """A dashboard as `rival dashboard` makes it, asked from any address."""

    def __init__(self, inline: Inline, directory: Path, proxy: Proxy | None, **more: Any) -> None:
        launch = Launch(
            WorkerSettings(database_url=inline.rival.settings.database_url),
            port=0,
            allowed=(HOST,),
            directory=directory,
            trusted=NETWORK,
            proxy=proxy,
            **more,
        )
        self._opened = launch.opened(inline.rival)
        self.server = self._opened.__enter__()
        self._app: Any = self.server._server.config.app

    def ask(self, address: str, path: str = "/api/v1/me", method: str = "GET", **headers: str) -> httpx.Response:
        return self.ask_with(address, list(headers.items()), path, method)

    def ask_with(
        self, address: str, headers: list[tuple[str, str]], path: str = "/api/v1/me", method: str = "GET", **more: Any
    ) -> httpx.Response:
        client = TestClient(self._app, f"http://{HOST}", client=(address, 5), raise_server_exceptions=False)
        named = [(name.replace("_", "-"), text) for name, text in headers]
        return client.request(method, path, headers=[("sec-fetch-site", "same-origin"), *named], **more)

    def close(self) -> None:
        self._opened.__exit__(None, None, None)


@pytest.fixture
def inline(file_url: str) -> Iterator[Inline]:
    made = Inline(file_url)
    made.define("waits", wait_event_step("t", name="b"))
    made.rival.run("waits", None, "r")
    made.drain()
    yield made
    made.close()


@pytest.fixture
def site(inline: Inline, tmp_path: Path) -> Iterator[Behind]:
    opened = Behind(inline, tmp_path / "private", PROXY)
    yield opened
    opened.close()


@pytest.fixture
def plain(inline: Inline, tmp_path: Path) -> Iterator[Behind]:
    """A proxy that names no users: they log in with passwords."""
    Users(tmp_path / "private" / "users.toml").add("ann", "correct horse battery", "operator")
    opened = Behind(inline, tmp_path / "private", None)
    yield opened
    opened.close()


# -- users ------------------------------------------------------------------------------------------------


def test_the_proxys_users_have_the_highest_role_of_their_groups(site: Behind) -> None:
    assert "token" not in site.server.link
    for groups, role in (("dev,sre", "operator"), ("sre, platform", "admin"), ("platform", "admin")):
        found = site.ask("10.0.3.7", **{**SAYS, "x-groups": groups}).json()
        assert (found["name"], found["role"]) == ("ann", role)
    assert site.ask("fd00::1", **SAYS).json()["role"] == "operator"
    assert site.ask("::ffff:10.0.3.7", **SAYS).json()["role"] == "operator"


@pytest.mark.parametrize("groups", ["", "dev", "SRE", "sre-2", "xsre", "*", "dev, all", "sre;platform"])
def test_a_user_without_a_known_group_gets_in_nowhere(site: Behind, groups: str) -> None:
    assert site.ask("10.0.3.7", "/api/v1/runs", **{**SAYS, "x-groups": groups}).status_code == 401


@pytest.mark.parametrize("address", ["10.0.4.7", "127.0.0.1", "192.168.0.1", "::1", "testclient", ""])
def test_from_other_addresses_the_headers_are_refused_with_and_without_the_secret(site: Behind, address: str) -> None:
    for name in ("x-user", "x-groups", "x-rival-proxy-secret"):
        found = site.ask(address, "/api/v1/runs", **{name: SAYS[name], "host": HOST})
        assert (found.status_code, found.json()["code"]) == (403, "ProxyNotTrusted")
    assert site.ask(address, "/api/v1/runs", **SAYS).status_code == 403
    # X-Forwarded-For does not make an address one of the proxy's.
    found = site.ask(address, "/api/v1/runs", **SAYS, **{"x-forwarded-for": "10.0.3.7"})
    assert found.status_code == 403
    assert site.ask(address, "/api/v1/runs", host=HOST).status_code == 401


@pytest.mark.parametrize("secret", ["", "wrong", SECRET + "x", SECRET[:-1], "ä"])
def test_without_the_secret_the_proxys_own_address_is_not_enough(site: Behind, secret: str) -> None:
    headers = [(name, text) for name, text in SAYS.items() if name != "x-rival-proxy-secret"]
    assert site.ask_with("10.0.3.7", headers, "/api/v1/runs").status_code == 401
    if secret.isascii():
        given = [*headers, ("x-rival-proxy-secret", secret)]
        assert site.ask_with("10.0.3.7", given, "/api/v1/runs").status_code == 401


@pytest.mark.parametrize("name", ["x-user", "x-groups", "x-rival-proxy-secret", "x-forwarded-host"])
def test_a_header_that_is_there_twice_is_refused(site: Behind, name: str) -> None:
    """A proxy that adds its header to the browser's own: which of them is the proxy's is unknown."""
    given = [*SAYS.items(), *([("x-forwarded-host", HOST)] if name == "x-forwarded-host" else [])]
    found = site.ask_with("10.0.3.7", [(name, "admin"), *given], "/api/v1/runs")
    assert (found.status_code, found.json()["code"]) == (400, "BadRequest")


def test_a_cookie_and_a_password_do_not_count_beside_a_proxy_that_names_users(site: Behind) -> None:
    login = {"json": {"token": "x"}}
    assert site.ask_with("10.0.3.7", [("host", HOST)], "/api/v1/session", "POST", **login).status_code == 401
    assert site.ask("10.0.3.7", "/api/v1/me", host=HOST).json()["login"] == []


# -- host, scheme, path -----------------------------------------------------------------------------------


def test_host_and_scheme_of_the_browser_are_those_of_the_cookie_and_of_the_origin_check(plain: Behind) -> None:
    said = [("host", "backend:8233"), ("x-forwarded-host", HOST), ("x-forwarded-proto", "https")]
    said += [("x-forwarded-prefix", "/tools/rival/")]
    login = {"json": {"name": "ann", "password": "correct horse battery"}}
    found = plain.ask_with("10.0.3.7", said, "/api/v1/session", "POST", **login)
    assert found.status_code == 200, found.text
    cookie = found.headers["set-cookie"]
    assert "; Path=/tools/rival/; " in cookie
    assert cookie.endswith("; Secure")
    assert '<base href="/tools/rival/"' in plain.ask_with("10.0.3.7", said, "/runs").text
    # The same from another address: the host is the one of the request, which is not known.
    assert plain.ask_with("10.0.4.7", said, "/api/v1/session", "POST", **login).status_code == 421
    known = [("host", HOST), *said[1:]]
    found = plain.ask_with("10.0.4.7", known, "/api/v1/session", "POST", **login)
    assert "Secure" not in found.headers["set-cookie"]
    assert "; Path=/; " in found.headers["set-cookie"]


def test_a_host_that_the_proxy_passes_on_must_be_known(plain: Behind) -> None:
    found = plain.ask("10.0.3.7", host=HOST, **{"x-forwarded-host": "evil.example"})
    assert found.status_code == 421


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("x-forwarded-proto", "javascript"),
        ("x-forwarded-proto", "https, http"),
        ("x-forwarded-host", f"{HOST}, evil.example"),
        ("x-forwarded-host", f"{HOST}/path"),
        ("x-forwarded-prefix", "//evil.example"),
        ("x-forwarded-prefix", '/"><script>'),
        ("x-forwarded-prefix", "rival"),
        ("x-forwarded-prefix", "/a/../b?c"),
    ],
)
def test_values_that_no_proxy_sends_are_refused(plain: Behind, name: str, text: str) -> None:
    found = plain.ask("10.0.3.7", host=HOST, **{name: text})
    assert (found.status_code, found.json()["code"]) == (400, "BadRequest")


def test_failed_logins_count_for_the_browser_and_not_for_the_proxy(plain: Behind) -> None:
    def log_in(browser: str, name: str) -> int:
        said = [("host", HOST), ("x-forwarded-for", f"9.9.9.9, {browser}, 10.0.3.9")]
        login = {"json": {"name": name, "password": "wrong"}}
        return plain.ask_with("10.0.3.7", said, "/api/v1/session", "POST", **login).status_code

    assert [log_in("1.2.3.4", f"user-{n}") for n in range(7)][-1] == 429
    assert log_in("1.2.3.5", "other") == 401


# -- starting ---------------------------------------------------------------------------------------------


def test_beyond_the_machine_it_listens_with_a_proxy_that_names_users(inline: Inline, tmp_path: Path) -> None:
    opened = Behind(inline, tmp_path / "one", PROXY, listen="0.0.0.0")
    opened.close()
    with pytest.raises(
        ConfigurationError,
        match=whole(
            "The dashboard does not listen at 0.0.0.0 without a login: add a user first (`rival dashboard user "
            "add NAME --role operator`), let a proxy log users in (--trusted-proxy, --user-header), or let it "
            "listen on 127.0.0.1 only."
        ),
    ):
        Behind(inline, tmp_path / "two", None, listen="0.0.0.0")


def test_addresses_are_compared_as_addresses() -> None:
    assert is_within("10.0.0.5", ["10.0.0.0/29"])
    assert not is_within("10.0.0.8", ["10.0.0.0/29"])
    assert is_within("10.0.0.5", ["10.0.0.5"])
    assert not is_within("::1", ["127.0.0.0/8"])
    assert not any(is_within(text, ["0.0.0.0/0"]) for text in ("", "localhost", "10.0.0", "10.0.0.1/32", "010.0.0.1"))
