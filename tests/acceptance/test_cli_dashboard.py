"""`rival dashboard` and the dashboard of `rival dev`: options, links, and which proxy is believed."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request

import pytest

from tests.acceptance.conftest import Cli, stop
from tests.support.workers import lines_like, wait_until

SECRET = {"RIVAL_PROXY_SECRET": "a-secret-of-the-proxy"}


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            ("--trusted-proxy", "10.0.0.1/8"),
            "Invalid value for '--trusted-proxy': 10.0.0.1/8 has host bits set: give …",
        ),
        (("--trusted-proxy", "proxy"), "Invalid value for '--trusted-proxy': 'proxy' does not appear to be …: give …"),
        (("--user-header", "X-User"), "--user-header needs --trusted-proxy, and RIVAL_PROXY_SECRET in the environment"),
        (("--groups-header", "X-Groups"), "--groups-header and --group need --user-header"),
        (("--group", "sre=boss"), "Invalid value for '--group': sre=boss: give GROUP=ROLE, with one of viewer, …"),
        (("--group", "=admin"), "Invalid value for '--group': =admin: give GROUP=ROLE, with one of viewer, …"),
        (
            ("--user-header", "X-User", "--trusted-proxy", "10.0.0.0/8", "--groups-header", "X-Groups"),
            "--groups-header and --group need each other",
        ),
    ],
)
def test_options_of_a_proxy_that_do_not_fit_are_refused(cli: Cli, options: tuple[str, ...], complaint: str) -> None:
    given = SECRET if len(options) > 2 else {}
    cli("dashboard", "--port", "0", *options, code=2, **given).complains(
        f"rival: {complaint} (see `rival dashboard --help`)"
    )


def test_a_proxy_that_names_users_needs_its_secret(cli: Cli) -> None:
    cli("dashboard", "--user-header", "X-User", "--trusted-proxy", "10.0.0.0/8", code=2).complains(
        "rival: --user-header needs --trusted-proxy, and RIVAL_PROXY_SECRET in the environment "
        "(see `rival dashboard --help`)"
    )


def me(url: str, **headers: str) -> tuple[int, dict[str, object]]:
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    request = urllib.request.Request(f"{url}api/v1/me", headers={"Sec-Fetch-Site": "same-origin", **named})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.0/8"])
def test_a_served_dashboard_believes_its_proxy_and_no_other(cli: Cli, address: str) -> None:
    """We ask from 127.0.0.1, which is the proxy's address in one case only."""
    options = (
        "--trusted-proxy",
        address,
        "--user-header",
        "X-User",
        "--groups-header",
        "X-Groups",
        "--group",
        "sre=admin",
    )
    served = cli.start("dashboard", "--port", "0", *options, log="dashboard.log", **SECRET)
    cli.wait_for("dashboard.log", "Dashboard: http://127.0.0.1:…")
    url = cli.log("dashboard.log").split()[1]
    assert "token" not in url
    says = {"X_User": "ann", "X_Groups": "sre", "X_Rival_Proxy_Secret": SECRET["RIVAL_PROXY_SECRET"]}
    code, found = me(url, **says)
    if address == "127.0.0.1":
        assert (code, found["name"], found["role"]) == (200, "ann", "admin")
        assert me(url, **says | {"X_Rival_Proxy_Secret": "guess"})[1]["role"] is None
    else:
        assert (code, found["code"]) == (403, "ProxyNotTrusted")
    assert me(url)[1]["role"] is None
    assert SECRET["RIVAL_PROXY_SECRET"] not in cli.log("dashboard.log")
    stop(served, signal.SIGTERM)


@pytest.mark.slow
def test_dev_opens_the_link_that_it_prints(bare: Cli) -> None:
    opener = bare.directory / "opener"
    opener.write_text(f'#!/bin/sh\necho "$1" > {bare.directory}/opened\n')
    opener.chmod(0o700)
    dev = bare.start("dev", "--open", log="dev.log", BROWSER=f"{opener} %s")
    opened = bare.directory / "opened"
    wait_until(lambda: opened.exists() and opened.read_text().endswith("\n"), 60, "the browser is started")
    bare.wait_for("dev.log", "Ctrl-C stops it; the data stays in .rival/.")
    assert lines_like(bare.log("dev.log"), "…Dashboard: …") == [f"  Dashboard: {opened.read_text().strip()}"]
    assert stop(dev) == 0


@pytest.mark.slow
def test_dev_without_the_dashboard_prints_no_link(bare: Cli) -> None:
    dev = bare.start("dev", "--no-dashboard", log="dev.log")
    bare.wait_for("dev.log", "Ctrl-C stops it; the data stays in .rival/.")
    assert lines_like(bare.log("dev.log"), "…Dashboard…") == []
    assert stop(dev) == 0
