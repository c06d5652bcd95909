"""Who may do what, and what a page of another site, a wrong host name or a hostile name cannot do."""

from __future__ import annotations

import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, SecretStr
from starlette.testclient import TestClient

from rival_client.errors import ConfigurationError, DatabaseUnavailable, InvalidArgument
from rival_workers import StepError, step, wait_event_step
from rival_workers.dashboard import dashboard, mounted
from rival_workers.dashboard.board_options import Options
from rival_workers.dashboard.ids import from_path, in_path
from rival_workers.dashboard.launch import Launch, private_key
from rival_workers.dashboard.roles import ROLES, Identity
from rival_workers.dashboard.route import Route
from rival_workers.dashboard.routes import TABLE
from rival_workers.dashboard.sessions import Proxy, Sessions
from rival_workers.dashboard.users import Users
from rival_workers.settings import WorkerSettings
from tests.support.dashboard import BROWSER, TOKEN, Site
from tests.support.inline import Inline
from tests.support.output import whole

PASSWORD = "correct horse battery"
HOSTILE = '<img src=x onerror="alert(1)">'


@pytest.fixture(scope="module")
def users_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made once: a password is hashed slowly."""
    file = tmp_path_factory.mktemp("users") / "users.toml"
    for role in ROLES:
        Users(file).add(role, PASSWORD, role)
    return file


@pytest.fixture
def users(users_file: Path, tmp_path: Path) -> Users:
    shutil.copy(users_file, tmp_path / "users.toml")
    return Users(tmp_path / "users.toml")


@pytest.fixture(scope="module")
def cookies() -> dict[str, str]:
    """Of the users by name: a session that was opened once is good for every site with the same key."""
    return {}


def logged_in(site: Site, who: str, cookies: dict[str, str]) -> TestClient:
    client = site.client()
    if who not in cookies:
        assert client.post("/api/v1/session", json={"name": who, "password": PASSWORD}).status_code == 200
        cookies[who] = client.cookies[site.sessions.cookie]
    client.cookies.set(site.sessions.cookie, cookies[who])
    return client


@pytest.fixture
def site(file_url: str, users: Users) -> Iterator[Site]:
    inline = Inline(file_url)
    inline.define("waits", wait_event_step("t", name="b"))
    inline.rival.run("waits", {"password": "hunter2"}, "r")
    inline.drain()
    opened = Site(inline, users=users)
    yield opened
    opened.close()
    inline.close()


# -- every route in every role -----------------------------------------------------------------------------


def path_of(route: Route) -> str:
    names = {"run_id": "r", "other": "r", "workflow": "waits", "topic": "t", "schedule": "s", "token": "x"}
    return "/api/v1" + re.sub(r"\{(\w+)\}", lambda found: names.get(found[1], "1"), route.path)


@pytest.mark.parametrize("route", TABLE, ids=lambda route: f"{route.method} {route.path}")
def test_every_route_refuses_users_without_its_role(site: Site, route: Route, cookies: dict[str, str]) -> None:
    if route.path == "/stream":
        site.board.hub.is_closed = True
    ranks = ("none", *ROLES)
    for who in ranks:
        client = site.client() if who == "none" else logged_in(site, who, cookies)
        found = client.request(route.method, path_of(route), json={} if route.writes else None)
        is_refused = found.status_code in (401, 403) and found.json()["code"] in ("LoginNeeded", "Forbidden")
        may = ranks.index(who) >= ranks.index(route.role)
        expected = 401 if who == "none" else 403
        if route.path == "/session":
            continue
        assert is_refused != may, f"{who}: {found.status_code} {found.text[:200]}"
        assert may or found.status_code == expected


def test_every_route_has_a_role_and_a_place_in_the_description(site: Site) -> None:
    found = site.get("openapi.json")
    for route in TABLE:
        assert route.role in ("none", *ROLES)
        assert route.method.lower() in found["paths"][route.path]
    open_to_all = {(route.method, route.path) for route in TABLE if route.role == "none"}
    assert open_to_all == {
        ("GET", "/me"),
        ("POST", "/session"),
        ("DELETE", "/session"),
        ("GET", "/shares/{token}"),
    }


def test_a_read_only_dashboard_refuses_every_write(file_url: str) -> None:
    inline = Inline(file_url)
    site = Site(inline, options=Options(read_only=True))
    for route in TABLE:
        if route.writes and not route.is_read:
            found = site.ask(route.method, path_of(route).removeprefix("/api/v1/"), json={})
            assert (found.status_code, found.json()["code"]) == (403, "ReadOnly"), route.path
    assert site.get("me")["features"]["verbs"] is False
    site.close()
    inline.close()


# -- logins -----------------------------------------------------------------------------------------------


def test_without_a_login_only_the_shell_is_served(site: Site) -> None:
    nobody = site.client()
    assert nobody.get("/api/v1/me").json()["role"] is None
    assert nobody.get("/runs/r").status_code == 200
    assert "hunter2" not in nobody.get("/runs/r").text
    for path in ("/api/v1/runs", "/api/v1/openapi.json", "/api/v1/stream"):
        assert nobody.get(path).status_code == 401
    assert nobody.get("/healthz").text == "ok"


def test_a_session_ends_with_its_time_its_user_or_its_logout(users: Users) -> None:
    now = [1000.0]
    sessions = Sessions(b"k" * 32, token=TOKEN, users=users, clock=lambda: now[0])
    _, cookie = sessions.log_in("a", None, "viewer", PASSWORD)

    def who(cookie: str) -> Any:
        return sessions.identify({}, {}, {sessions.cookie: cookie})

    assert who(cookie) == Identity("viewer", "viewer")
    assert who(cookie[:-1] + ("0" if cookie[-1] != "0" else "1")) is None
    assert who("") is None
    assert Sessions(b"x" * 32, token=TOKEN, users=users).identify({}, {}, {sessions.cookie: cookie}) is None
    users.remove("viewer")
    assert who(cookie) is None
    _, cookie = sessions.log_in("a", TOKEN, None, None)
    assert who(cookie).role == "admin"
    now[0] += 13 * 3600
    assert who(cookie) is None


def test_repeated_failures_must_wait(users: Users) -> None:
    now = [1000.0]
    sessions = Sessions(b"k" * 32, users=users, clock=lambda: now[0])
    for _ in range(5):
        with pytest.raises(
            Exception, match=whole("This login is not valid. Use the link that `rival dashboard` prints.")
        ):
            sessions.log_in("10.0.0.1", None, "viewer", "wrong password")
    with pytest.raises(Exception, match=whole("Too many failed logins: try again in 1 s.")):
        sessions.log_in("10.0.0.2", None, "viewer", PASSWORD)
    with pytest.raises(Exception, match=whole("Too many failed logins: try again in 1 s.")):
        sessions.log_in("10.0.0.1", None, "operator", PASSWORD)
    now[0] += 60
    assert sessions.log_in("10.0.0.1", None, "viewer", PASSWORD)[0].name == "viewer"


def test_a_failed_login_does_not_count_for_other_users(users: Users) -> None:
    sessions = Sessions(b"k" * 32, token=TOKEN, users=users)
    for _ in range(5):
        with pytest.raises(
            Exception, match=whole("This login is not valid. Use the link that `rival dashboard` prints.")
        ):
            sessions.log_in("10.0.0.1", None, "10.0.0.2", "a name that looks like an address")
        with pytest.raises(
            Exception, match=whole("This login is not valid. Use the link that `rival dashboard` prints.")
        ):
            sessions.log_in("10.0.0.3", "not the token", None, None)
    assert sessions.log_in("10.0.0.2", TOKEN, None, None)[0].role == "admin"


def test_a_bearer_token_needs_no_browser_and_expires(site: Site, users: Users) -> None:
    token = users.add_token("ci", "viewer", time.time() + 60)
    headers = {"authorization": f"Bearer {token}"}
    script = site.client()
    script.headers.pop("sec-fetch-site")
    assert script.get("/api/v1/runs", headers=headers).status_code == 200
    assert script.post("/api/v1/runs", headers=headers, json={}).json()["code"] == "Forbidden"
    assert token not in (users._file).read_text()
    expired = users.add_token("old", "viewer", time.time() - 1)
    for method, path in (("GET", "runs"), ("POST", "runs"), ("GET", "me")):
        found = script.request(method, f"/api/v1/{path}", headers={"authorization": f"Bearer {expired}"})
        assert (found.status_code, found.json()["detail"]) == (401, "This bearer token is not valid, or has expired.")


@pytest.mark.parametrize("name", ["", "  ", "\t", "a\nb", "\u200b", "x" * 201])
def test_a_token_and_a_user_need_a_name_that_people_can_read(users: Users, name: str) -> None:
    before = users._file.read_text()
    told = f"{name!r} is not a name of a {{}}: give 1 to 200 printable characters."
    with pytest.raises(ConfigurationError, match=whole(told.format("token"))):
        users.add_token(name, "viewer", None)
    with pytest.raises(ConfigurationError, match=whole(told.format("user"))):
        users.add(name, PASSWORD, "viewer")
    assert users._file.read_text() == before


def test_logins_are_in_the_audit_and_a_database_that_is_away_does_not_keep_people_out(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert site.client().post("/api/v1/session", json={"name": "viewer", "password": PASSWORD}).is_success
    assert site.client().post("/api/v1/session", json={"name": "viewer", "password": "wrong one"}).status_code == 401
    known = [(one["what"], one["by"], one["about"], one["detail"]) for one in site.get("audit")["items"]]
    where = {"address": "testclient"}
    assert known == [
        ("log_in", "viewer@dashboard", "user:viewer", {"way": "password", "role": "viewer", **where}),
        ("log_in", "owner@dashboard", "user:owner", {"way": "token", "role": "admin", **where}),
    ]

    def away() -> Any:
        raise DatabaseUnavailable("The database does not answer.")

    monkeypatch.setattr(site.board.rival.database, "transaction", away)
    assert site.client().post("/api/v1/session", json={"token": TOKEN}).is_success


def test_a_proxy_is_believed_only_from_its_address_and_with_the_secret() -> None:
    proxy = Proxy(("10.0.0.0/8",), "s3cret", groups_header="x-groups", roles={"ops": "operator", "dev": "viewer"})
    headers = {"x-forwarded-email": "ann@x", "x-rival-proxy-secret": "s3cret", "x-groups": "dev, ops"}
    assert proxy.identify(headers, "10.1.2.3") == Identity("ann@x", "operator")
    assert proxy.identify(headers, "192.168.0.1") is None
    assert proxy.identify({**headers, "x-rival-proxy-secret": "no"}, "10.1.2.3") is None
    assert proxy.identify({**headers, "x-groups": "opsadmin"}, "10.1.2.3") is None
    assert proxy.identify(headers, "not an address") is None


def test_beyond_the_machine_it_listens_only_with_users(tmp_path: Path, file_url: str) -> None:
    inline = Inline(file_url)
    settings_ = WorkerSettings(database_url=file_url)
    launch = Launch(settings_, listen="0.0.0.0", port=0, directory=tmp_path / "private")
    with (
        pytest.raises(
            ConfigurationError,
            match=whole(
                "The dashboard does not listen at 0.0.0.0 without a login: add a user first (`rival dashboard user "
                "add NAME --role operator`), let a proxy log users in (--trusted-proxy, --user-header), or let it "
                "listen on 127.0.0.1 only."
            ),
        ),
        launch.opened(inline.rival),
    ):
        pass
    Users(tmp_path / "private" / "users.toml").add("ann", PASSWORD, "admin")
    with launch.opened(inline.rival) as server:
        assert "token" not in server.link
    key = private_key(tmp_path / "private")
    assert (private_key(tmp_path / "private"), len(key)) == (key, 32)
    assert (tmp_path / "private" / "key").stat().st_mode & 0o077 == 0
    assert (tmp_path / "private" / "users.toml").stat().st_mode & 0o077 == 0
    inline.close()


# -- browsers ---------------------------------------------------------------------------------------------


def test_only_known_hosts_are_answered(site: Site) -> None:
    unknown = ("evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example", "[::2]", "localhost.")
    # The name of a known host, and more: commands with a bearer token are made of it.
    more = ("127.0.0.1:8233@evil.example", "127.0.0.1:evil.example", "[::1]evil.example", "127.0.0.1, evil.example")
    for host in (*unknown, *more):
        found = site.browser.get("/healthz", headers={"host": host})
        assert found.status_code == 421, host
    for host in ("127.0.0.1:8233", "LOCALHOST", "[::1]:8233"):
        assert site.browser.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "none"}, 403),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({}, 403),
        ({"origin": "http://127.0.0.1"}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
    ],
)
def test_a_write_must_come_from_the_dashboards_own_page(site: Site, headers: dict[str, str], status: int) -> None:
    site.browser.headers.pop("sec-fetch-site")
    found = site.browser.post("/api/v1/runs/r/pause", json={"dry_run": True}, headers=headers)
    assert found.status_code == status, found.text


def test_a_form_of_another_site_cannot_write(site: Site) -> None:
    found = site.browser.post("/api/v1/runs/r/pause", data={"dry_run": "true"})
    assert found.status_code == 415
    found = site.browser.post("/api/v1/runs/r/pause", content=b"{}", headers={"content-type": "text/plain"})
    assert found.status_code == 415


def test_every_answer_ties_the_browser_down(site: Site) -> None:
    for path in ("/", "/runs", "/api/v1/runs", "/api/v1/none", "/static/x/y", "/healthz"):
        headers = site.browser.get(path).headers
        assert "require-trusted-types-for 'script'" in headers["content-security-policy"], path
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers
    assert site.browser.get("/api/v1/runs").headers["cache-control"] == "no-store"
    cookie = site.client().post("/api/v1/session", json={"token": TOKEN}).headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


def test_a_body_that_is_too_large_is_refused(site: Site) -> None:
    found = site.browser.post("/api/v1/events", json={"topic": "t", "payload": "x" * 3_000_000})
    assert found.status_code == 413


JSON = {"content-type": "application/json"}
DEEP = "[" * 600 + "]" * 600


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("runs", '{"workflow": "waits", "input": %s}'),
        ("runs", '{"workflow": "waits", "like": "r", "patch": {"a": %s}}'),
        ("workflows/waits/validate", '{"input": %s}'),
        ("events", '{"topic": "t", "payload": %s}'),
        ("bulk", '{"verb": "set-result", "runs": ["r"], "step": "b", "reason": "x", "result": %s}'),
        ("bulk", '{"verb": "pause", "filter": {"input": {"a": %s}}}'),
        ("runs/r/set-result", '{"step": "b", "reason": "x", "result": %s, "dry_run": true}'),
    ],
)
def test_a_value_with_very_many_levels_is_refused(site: Site, path: str, body: str) -> None:
    found = site.browser.post(f"/api/v1/{path}", content=body % DEEP, headers=JSON)
    assert (found.status_code, found.json()["code"]) == (413, "InvalidPayload"), found.text[:200]
    assert "levels" in found.json()["detail"]


@pytest.mark.parametrize("body", ['{"like": "\\ud800"}', '{"input": {"\\ud800": 1}}', '{"run_id": "\\uDC00\\ud800"}'])
def test_half_a_character_is_refused(site: Site, body: str) -> None:
    found = site.browser.post("/api/v1/workflows/waits/validate", content=body, headers=JSON)
    assert (found.status_code, found.json()["code"]) == (400, "BadRequest"), found.text[:200]


def test_a_character_of_two_halves_is_taken(site: Site) -> None:
    body = '{"input": "\\ud83d\\ude00"}'
    assert site.browser.post("/api/v1/workflows/waits/validate", content=body, headers=JSON).json()["ok"] is True


@pytest.mark.parametrize("name", ["input", "result", "labels"])
def test_a_filter_with_very_many_levels_is_refused(site: Site, name: str) -> None:
    found = site.ask("GET", "runs", params={name: f'{{"a": {DEEP}}}'})
    assert (found.status_code, found.json()["code"]) == (413, "InvalidPayload")


# -- what is shown ----------------------------------------------------------------------------------------


def test_names_of_users_are_data_and_never_markup(site: Site) -> None:
    def fails(log: Any) -> None:
        log.info(HOSTILE)
        raise StepError(HOSTILE)

    site.inline.define("bad", step(fails, name="x", max_attempts=1), description=HOSTILE)
    site.inline.rival.run("bad", {HOSTILE: HOSTILE}, HOSTILE)
    site.inline.rival.send_event("topic", {"a": HOSTILE}, key=HOSTILE)
    site.inline.drain()
    run = in_path(HOSTILE)
    for path in ("runs", f"runs/{run}", f"runs/{run}/why", f"runs/{run}/logs", "events", "workflows/bad"):
        found = site.ask("GET", path)
        assert found.headers["content-type"] == "application/json"
        assert HOSTILE in str(found.json())
    page = site.ask("GET", f"runs/{run}/export")
    assert page.headers["content-disposition"].startswith("attachment")
    assert "<img" not in page.text
    compile(site.get(f"runs/{run}/test")["text"], "test", "exec")


def test_a_hidden_value_is_revealed_to_an_admin_with_a_reason_and_recorded(site: Site) -> None:
    assert "hunter2" not in site.ask("GET", "runs/r").text
    refused = site.ask("POST", "runs/r/reveal", json={"of": "input", "pointer": "/password", "reason": ""})
    assert refused.status_code == 400
    found = site.post("runs/r/reveal", of="input", pointer="/password", reason="ticket 7")
    assert found["value"] == "hunter2"
    [entry] = site.audited()
    assert (entry["what"], entry["by"], entry["about"]) == ("reveal", "owner@dashboard", "run:r")
    assert "hunter2" not in str(entry)
    assert site.ask("POST", "runs/r/reveal", json={"of": "input", "pointer": "/no", "reason": "x"}).status_code == 404


def test_a_shared_link_shows_one_run_without_secrets_until_it_expires(site: Site) -> None:
    url = site.post("shares", run="r", hours=1)["url"]
    stranger = site.client()
    token = url.removeprefix("share/")
    found = stranger.get(f"/api/v1/shares/{token}")
    assert found.json()["run"]["run"]["id"] == "r"
    assert "hunter2" not in found.text
    assert stranger.get("/api/v1/runs/r").status_code == 401
    old = site.sessions.signed({"share": "r", "expires": time.time() - 1})
    assert stranger.get(f"/api/v1/shares/{old}").status_code == 404
    assert stranger.get(f"/api/v1/shares/{token[:-2]}").status_code == 404
    cookie = site.browser.cookies[site.sessions.cookie]
    assert stranger.get(f"/api/v1/shares/{cookie}").status_code == 404
    assert stranger.get("/api/v1/runs", cookies={site.sessions.cookie: token}).status_code == 401


# -- names in paths ---------------------------------------------------------------------------------------


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=50))
def test_any_name_goes_into_a_path_and_back(name: str) -> None:
    written = in_path(name)
    assert re.fullmatch(r"[A-Za-z0-9._~-]+", written)
    assert written.strip(".")
    assert from_path(written) == name


def test_a_run_can_have_the_name_of_a_resource(site: Site) -> None:
    """Where a path has a name, another route may have a word."""
    split = [(one.method, one.path.split("/")) for one in TABLE]
    words = {
        word
        for method, parts in split
        for other, its in split
        for at, (part, word) in enumerate(zip(parts, its, strict=False))
        if method == other and len(parts) == len(its) and parts[:at] == its[:at] and part[:1] == "{" != word[:1]
    }
    assert words >= {"counts", "export"}
    for word in words:
        assert in_path(word) != word
        site.inline.rival.run("waits", {}, word)
        assert site.get(f"runs/{in_path(word)}")["run"]["id"] == word


def test_a_link_is_valid_in_all_processes_with_the_same_key(site: Site) -> None:
    def process(key: bytes | None) -> TestClient:
        app = dashboard(site.inline.rival, authorize=lambda scope: Identity("ann", "admin"), key=key)
        return TestClient(app, "http://127.0.0.1", headers=BROWSER)

    key = b"k" * 32
    link = process(key).post("/api/v1/shares", json={"run": "r"}).json()["url"]
    path = f"/api/v1/shares/{link.removeprefix('share/')}"
    assert process(key).get(path).json()["run"]["run"]["id"] == "r"
    assert process(None).get(path).status_code == 404
    with pytest.raises(
        InvalidArgument,
        match=whole("Invalid argument key: give at least 32 random bytes, and the same to each process"),
    ):
        process(b"short")


def test_the_path_of_a_mount_that_comes_from_the_request_is_escaped(site: Site) -> None:
    outer = mounted(site.app, f"/{HOSTILE}", site.app)
    client = TestClient(outer, "http://127.0.0.1", headers=BROWSER)
    page = client.get(f"/{quote(HOSTILE)}/runs").text
    assert "<img" not in page
    assert f'href="/{quote(HOSTILE)}/"' in page


@given(st.text(max_size=30))
def test_a_path_is_read_or_refused(part: str) -> None:
    found = from_path(part)
    assert found is None or in_path(found) == part or "~" in part or found.strip(".") == ""


# -- what is hidden stays hidden --------------------------------------------------------------------------


class Card(BaseModel):
    number: SecretStr
    amount: int = 1


@pytest.mark.parametrize("looks_for", [{"number": "4000-1"}, {"password": "hunter2"}, {"a": [{"number": "4000-1"}]}])
def test_only_an_admin_finds_runs_by_what_is_hidden(
    site: Site, cookies: dict[str, str], looks_for: dict[str, Any]
) -> None:
    site.inline.define("pay", step(lambda: 1, name="a"), input=Card)
    site.inline.rival.run("pay", {"number": "4000-1"}, "p")
    query = {"input": json.dumps(looks_for)}
    for who, status in (("viewer", 403), ("operator", 403), ("admin", 200)):
        client = logged_in(site, who, cookies)
        for more in ({}, {"workflow": "pay"}):
            assert client.get("/api/v1/runs", params=query | more).status_code == status
        bulk = {"verb": "pause", "filter": {"input": looks_for}}
        assert client.post("/api/v1/bulk", json=bulk).status_code in (202, 403)
        assert who == "admin" or client.post("/api/v1/bulk", json=bulk).status_code == 403
    viewer = logged_in(site, "viewer", cookies)
    assert viewer.get("/api/v1/runs", params={"input": '{"amount": 1}'}).status_code == 200
    # Another workflow has this name in the open.
    in_the_open = {"workflow": "waits", "input": '{"number": 1}'}
    assert viewer.get("/api/v1/runs", params=in_the_open).status_code == 200


def test_the_commands_of_an_action_on_many_runs_show_no_secret(site: Site) -> None:
    secret = {"password": "hunter2", "card": 7}
    order = {"verb": "set-result", "runs": ["r"], "step": "b", "result": secret, "reason": "x"}
    assert site.ask("POST", "bulk", json=order).status_code == 202
    chosen = {"verb": "pause", "filter": {"input": {"password": "hunter2"}}}
    assert site.ask("POST", "bulk", json=chosen).status_code == 202
    found = site.ask("GET", "bulk").text
    assert "hunter2" not in found
    assert "card" in found


def test_a_stream_follows_no_list_that_is_found_by_what_is_hidden(site: Site, cookies: dict[str, str]) -> None:
    viewer = logged_in(site, "viewer", cookies)
    wanted = {"list": urlencode({"input": json.dumps({"password": "hunter2"})})}
    assert viewer.get("/api/v1/updates", params=wanted).status_code == 200
    assert not [kind for kind, _ in site.board.hub._interest if kind == "list"]
    assert site.ask("GET", "updates", params=wanted).status_code == 200
    assert [kind for kind, _ in site.board.hub._interest if kind == "list"]
