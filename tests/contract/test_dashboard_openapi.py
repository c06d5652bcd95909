"""The description of the API: names for generated clients, and all problems that an operation may answer with."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from rival_client.errors import DatabaseUnavailable
from rival_workers import step
from rival_workers.dashboard.api import live
from rival_workers.dashboard.api.openapi import description
from rival_workers.dashboard.problem_json import _STATUSES
from rival_workers.dashboard.routes import TABLE
from tests.support.dashboard import Site
from tests.support.inline import Inline

API: dict[str, Any] = description(TABLE, "http://127.0.0.1/api/v1")


@pytest.fixture
def site(file_url: str) -> Iterator[Site]:
    inline = Inline(file_url)
    inline.define("w", step(lambda: 1, name="a"))
    opened = Site(inline)
    yield opened
    opened.close()
    inline.close()


def operation(method: str, path: str) -> dict[str, Any]:
    return dict(API["paths"][path][method.lower()])


def test_each_operation_has_a_name_that_is_an_identifier_and_its_own() -> None:
    names = [operation(route.method, route.path)["operationId"] for route in TABLE]
    assert [name for name in names if not re.fullmatch("[A-Za-z0-9]+", name)] == []
    assert [name for name, times in Counter(names).items() if times > 1] == []
    found = [operation("GET", path)["operationId"] for path in ("/runs/{run_id}", "/idempotency-keys/one")]
    assert found == ["getRunsRunId", "getIdempotencyKeysOne"]


def test_each_operation_has_all_statuses_of_errors() -> None:
    of_errors = {status for _, status in _STATUSES}
    for route in TABLE:
        told = {int(status) for status in operation(route.method, route.path)["responses"]}
        assert {400, 401, 403, 421, 500, 503, 504} <= told
        # A topic that is full and a run that has moved concern writes only.
        assert of_errors - told <= (set() if route.writes else {412, 429}), route.path


def test_a_dry_run_of_a_start_and_of_an_event_is_described(site: Site) -> None:
    for path, body in (("/runs", {"workflow": "w", "input": {}}), ("/events", {"topic": "t"})):
        for given in ({"dry_run": True}, {}):
            found = site.ask("POST", path[1:], json={**body, **given})
            assert found.status_code == (200 if given else 201)
            assert str(found.status_code) in operation("POST", path)["responses"]
    assert set(operation("POST", "/bulk")["responses"]) >= {"202", "409"}
    assert "200" not in operation("POST", "/bulk")["responses"]


def test_the_refusal_of_live_updates_that_are_late_is_described(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_PATIENCE", 0.05)
    monkeypatch.setattr(site.board.hub, "look", lambda _: 10**9)
    found = site.ask("GET", "updates")
    told = operation("GET", "/updates")["responses"][str(found.status_code)]
    assert (found.status_code, found.json()["code"]) == (503, "ServerBusy")
    assert set(told["headers"]) == {"Retry-After"}
    assert found.headers["retry-after"] == "2"


def refusals(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str, Any]]:
    """Requests of five routes that are refused in every way that is not about the values of one route."""
    ask = site.ask
    for method, path, sent in (
        ("GET", "/runs", "runs"),
        ("GET", "/runs/{run_id}", "runs/none"),
        ("POST", "/runs/{run_id}/rewind", "runs/none/rewind"),
        ("PUT", "/limits/{limit}", "limits/none"),
        ("POST", "/bulk", "bulk"),
    ):
        yield method, path, site.client().request(method, f"/api/v1/{sent}", json={})
        yield method, path, ask(method, sent, headers={"sec-fetch-site": "cross-site"}, json={})
        yield method, path, ask(method, sent, headers={"host": "other.example"})
        yield method, path, ask(method, sent, params={"none": 1}, json={"none": 1})
        yield method, path, ask(method, sent, json={})
        yield method, path, ask(method, sent, json={"step": "a", "max": 1})
        yield method, path, ask(method, sent, content="x" * (3 * 2**20), headers={"content-type": "application/json"})
        yield method, path, ask(method, sent, content="x", headers={"content-type": "text/plain"})
        yield method, path, ask(method, sent, content="x", headers={"content-type": "application/json"})
        with monkeypatch.context() as patched:
            patched.setattr(site.sessions, "identify", _unavailable)
            yield method, path, ask(method, sent)


def _unavailable(*_: Any) -> Any:
    raise DatabaseUnavailable("gone")


def test_the_refusals_of_five_routes_are_described(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set()
    for method, path, found in refusals(site, monkeypatch):
        assert str(found.status_code) in operation(method, path)["responses"], (method, path, found.text)
        seen.add(found.status_code)
    assert seen >= {400, 401, 403, 404, 413, 415, 422, 503}
