"""The dashboard within other web applications and in library mode."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from rival_workers import EmbeddedRival, Registry, embedded, step
from rival_workers.definition.define import define_workflow
from tests.support.workers import ROOT

EXAMPLES = ROOT / "examples" / "dashboard_mounts"
SAME = {"sec-fetch-site": "same-origin"}


@pytest.fixture
def rival() -> Iterator[EmbeddedRival]:
    registry = Registry()
    registry.add(define_workflow("greet", [step(lambda: "hello", name="say")]))
    with embedded(registry=registry) as opened:
        opened.run("greet", {}, "r").wait(timeout=30)
        yield opened


def example(name: str) -> dict[str, Any]:
    return run_path(str(EXAMPLES / name))


def check(client: Any) -> None:
    """Closed without a login, open with one, and every link is below the mount."""
    assert client.get("/rival/api/v1/runs", headers=SAME).status_code == 401
    found = client.get("/rival/api/v1/runs", headers={**SAME, "x-user": "ann"})
    assert found.status_code == 200
    assert [run["id"] for run in found.json()["items"]] == ["r"]
    shell = client.get("/rival/runs/r", headers=SAME)
    assert shell.status_code == 200
    assert 'href="/rival/"' in shell.text


def test_it_can_be_mounted_in_fastapi(rival: EmbeddedRival) -> None:
    app = example("fastapi_app.py")["make_app"](rival)
    with TestClient(app) as client:
        check(client)
        me = client.get("/rival/api/v1/me", headers={**SAME, "x-user": "ann"}).json()
        assert (me["name"], me["role"], me["features"]["live"]) == ("ann", "operator", "sse")


def test_it_can_be_mounted_in_django(tmp_path: Path) -> None:
    """With Django's own sessions and users, in a process of its own: Django is configured once per process."""
    command = [sys.executable, "-m", "tests.support.django_site", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {
        "nobody": [401, 401],
        "customer": [401, 401],
        "staff": [200, 201],
        "boss": [200, 201],
        "roles": [None, None, "operator", "admin"],
        "stream": [401, 200],
        "shell": True,
        "other": [200, 404],
    }


def test_it_can_be_mounted_in_flask(rival: EmbeddedRival) -> None:
    app = example("flask_app.py")["make_app"](rival)
    client = httpx.Client(transport=httpx.WSGITransport(app=app), base_url="http://127.0.0.1")
    check(client)
    me = client.get("/rival/api/v1/me", headers={**SAME, "x-user": "ann"}).json()
    assert me["features"]["live"] == "poll"
    updates = client.get("/rival/api/v1/updates?run=r", headers={**SAME, "x-user": "ann"}).json()
    assert updates["events"][0]["event"] == "hello"


def test_library_mode_serves_it_from_the_same_process(rival: EmbeddedRival) -> None:
    link = rival.dashboard(port=0)
    url, _, token = link.partition("#token=")
    with httpx.Client(base_url=url, headers=SAME) as client:
        assert client.post("api/v1/session", json={"token": token}).json()["role"] == "admin"
        assert client.get("api/v1/runs").json()["items"][0]["id"] == "r"
        started = client.post("api/v1/runs", json={"workflow": "greet", "input": {}, "run_id": "r2"})
        assert started.status_code == 201
    assert rival.wait("r2", timeout=30).result == "hello"
    with httpx.stream("GET", f"{url}api/v1/stream", headers=SAME) as refused:
        assert refused.status_code == 401


def test_nothing_of_it_is_imported_before_it_is_used() -> None:
    modules = "rival_client, rival_workers.library, rival_workers.cli.main, rival_workers.cli.dev"
    code = f"import sys, {modules}; assert 'starlette' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
