"""The dashboard within other web applications and in library mode."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from runpy import run_path
from types import SimpleNamespace
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


def test_it_can_be_mounted_in_django(rival: EmbeddedRival) -> None:
    async def django(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"django"})

    made = example("django_app.py")["make_application"](django, rival)
    staff = SimpleNamespace(is_staff=True, is_superuser=False, get_username=lambda: "ann")

    async def logged_in(scope: Any, receive: Any, send: Any) -> None:
        has_user = (b"x-user", b"ann") in scope.get("headers", ())
        await made({**scope, "user": staff if has_user else None}, receive, send)

    client = TestClient(logged_in)
    check(client)
    assert client.get("/other").text == "django"
    assert client.get("/rivals").text == "django"


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
