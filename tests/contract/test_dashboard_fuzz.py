"""Any request: schemathesis makes them from the description of the API, for every operation and every role, about what
exists and what does not, while earlier requests change it. The API answers or refuses, and never fails."""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from starlette.testclient import TestClient

from rival_workers import StepError, limit, step, wait_event_step
from rival_workers.dashboard.api import live
from rival_workers.dashboard.api.openapi import description
from rival_workers.dashboard.ids import in_path
from rival_workers.dashboard.roles import ROLES
from rival_workers.dashboard.routes import TABLE
from rival_workers.dashboard.users import Users
from tests.support.dashboard import BROWSER, Site
from tests.support.effort import examples, long_but_first
from tests.support.inline import Inline

PASSWORD = "correct horse battery"
RANKS = ("none", *ROLES)
#: How often each operation is tried in a round, and how many rounds an admin has.
EXAMPLES, ROUNDS = examples(4), 2
#: What a request may ask about; answers add to it.
KNOWN: dict[str, list[Any]] = {
    "run_id": ["r", "f", "g"],
    "other": ["f"],
    "run": ["r", "f"],
    "runs": [["f"], ["r", "none"]],
    "like": ["r", None],
    "step": ["a", "b", "none"],
    "under": ["a"],
    "workflow": ["waits", "fails"],
    "topic": ["t"],
    "event_id": ["e"],
    "schedule": ["s"],
    "limit": ["slots"],
    "breaker": ["bank"],
    "rule": ["1"],
    "cron": ["0 3 * * *", None],
    "every": [None, 60.0],
    "timezone": ["UTC", "Europe/Berlin"],
    "options": [{"timeout": 5}],
    "match": [{}, {"name": "a"}],
    "since": ["2h", "2026-01-01T00:00:00Z"],
    "until": [None, "1h"],
    "status": ["failed", None],
    "pointer": ["", "/password"],
    "of": ["input", "result"],
    "max": [1, 3],
}
#: Names of fields of an answer -> the names under which a later request may use their values.
HARVESTED = {
    "run": ("run_id", "run"),
    "event": ("event_id",),
    "id": ("bulk_id", "entry_id", "id"),
    "next": ("after",),
    "url": ("token",),
}
#: What a limit is called in a path, and a number of items in a query.
_NUMBERS = {"limit"}


def boom() -> None:
    raise StepError("no")


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    users = Users(tmp_path / "users.toml")
    for role in ROLES:
        users.add(role, PASSWORD, role)
    inline = Inline(request.getfixturevalue(request.param))
    inline.define(
        "waits", step(lambda: 1, name="a", concurrency_limit=limit("slots", 2)), wait_event_step("t", name="b")
    )
    inline.define("fails", step(lambda: 1, name="a"), step(boom, name="b", max_attempts=1, on_failure="dead_letter"))
    for workflow, run_id in (("waits", "r"), ("fails", "f"), ("fails", "g")):
        inline.rival.run(workflow, {"password": "hunter2"}, run_id)
    inline.drain()
    inline.rival.schedule("waits", "0 3 * * *", name="s")
    inline.rival.open_breaker("bank", force=True)
    inline.rival.send_event("nobody", {}, event_id="e")
    opened = Site(inline, users=users)
    yield opened
    opened.close()
    inline.close()


class Fuzzer:
    def __init__(self, site: Site) -> None:
        self.site, self.random = site, random.Random(7)
        self.known: dict[str, list[Any]] = defaultdict(list, {name: list(values) for name, values in KNOWN.items()})
        self.problems: list[str] = []
        self.statuses: dict[str, Counter[int]] = defaultdict(Counter)

    def client(self, role: str) -> TestClient:
        made = self.site.client()
        if role != "none":
            assert made.post("/api/v1/session", json={"name": role, "password": PASSWORD}).status_code == 200
        return made

    def try_operation(self, client: TestClient, operation: Any, role: str) -> None:
        route = next(one for one in TABLE if one.path == operation.path and one.method == operation.method.upper())
        may = RANKS.index(role) >= RANKS.index(route.role)

        @seed(7)
        @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def ask(case: Any) -> None:
            self.judge(client, case, f"{route.method} {route.path}", role, may)

        ask()

    def judge(self, client: TestClient, case: Any, name: str, role: str, may: bool) -> None:
        sent = self.request(case)
        found = client.request(**sent, headers=BROWSER)
        self.statuses[name][found.status_code] += 1
        code = found.json().get("code") if found.status_code >= 400 else None
        told = f"{role} {sent}: {found.status_code} {found.text[:300]}"
        if str(found.status_code) not in case.operation.definition.raw["responses"]:
            self.problems.append(f"not described: {told}")
        if found.status_code >= 500 or (
            found.status_code >= 400 and "problem+json" not in found.headers["content-type"]
        ):
            self.problems.append(told)
        elif not may and (found.status_code, code) not in ((401, "LoginNeeded"), (403, "Forbidden")):
            self.problems.append(f"not refused: {told}")
        elif may and found.status_code in (401, 403) and "/bulk" not in name and "/session" not in name:
            self.problems.append(f"refused: {told}")
        if found.is_success and "json" in found.headers.get("content-type", ""):
            self.harvest(found.json())

    def request(self, case: Any) -> dict[str, Any]:
        """What schemathesis has made, in two of three requests with values that exist."""
        parts = case.as_transport_kwargs()
        sent = {key: parts[key] for key in ("method", "url", "params", "json", "data") if parts.get(key) is not None}
        if self.random.random() < 0.34:
            return sent
        names = re.sub(r"\{(\w+)\}", lambda found: in_path(str(self.one_of(found[1], "x"))), case.operation.path)
        sent["url"] = f"/api/v1{names}"
        for part in ("params", "json"):
            if isinstance(sent.get(part), dict):
                sent[part] = {key: self.one_of(key, value) for key, value in sent[part].items()}
        return sent

    def one_of(self, name: str, other: Any) -> Any:
        known = self.known.get(name)
        usable = known and not (name in _NUMBERS and isinstance(other, int)) and self.random.random() < 0.9
        return self.random.choice(known) if usable and known else other

    def harvest(self, answer: Any) -> None:
        if isinstance(answer, list):
            for one in answer[:5]:
                self.harvest(one)
        if not isinstance(answer, dict):
            return
        for name, value in answer.items():
            if isinstance(value, str | int):
                for use in HARVESTED.get(name, ()):
                    text = str(value).removeprefix("share/")
                    if text not in self.known[use][-20:]:
                        self.known[use].append(text)
            else:
                self.harvest(value)


@pytest.mark.slow
@pytest.mark.parametrize("site", long_but_first("postgres_url", "file_url"), indirect=True)
@pytest.mark.parametrize("role", long_but_first(*reversed(RANKS)))
def test_no_request_makes_the_api_fail(site: Site, role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # A busy machine makes live updates late, which is an answer of its own: `test_updates_that_are_late_say_why`.
    monkeypatch.setattr(live, "_PATIENCE", 60.0)
    api = schemathesis.openapi.from_dict(description(TABLE, "http://127.0.0.1/api/v1"))
    operations = [one.ok() for one in api.get_all_operations()]
    assert len(operations) == len(TABLE)
    fuzzer, last = Fuzzer(site), ("/stream", "/session")
    for _ in range(ROUNDS if role == "admin" else 1):
        fuzzer.random.shuffle(operations)
        client = fuzzer.client(role)
        for operation in operations:
            if operation.path not in last:
                fuzzer.try_operation(client, operation, role)
        client.close()
        site.inline.drain()
    # A stream ends with the hub, and a login that fails often must wait: last.
    site.board.hub.is_closed = True
    for operation in operations:
        if operation.path in last:
            fuzzer.try_operation(fuzzer.client(role), operation, role)
    assert fuzzer.problems[:5] == []
    assert len(fuzzer.statuses) == len(TABLE)
    done = {name for name, statuses in fuzzer.statuses.items() if any(status < 300 for status in statuses)}
    # Some need several values that fit together. By chance it is about four of five.
    assert role != "admin" or len(done) > 0.75 * len(TABLE), sorted(set(fuzzer.statuses) - done)


@pytest.mark.parametrize("site", ["file_url", "postgres_url"], indirect=True)
def test_a_text_that_postgres_cannot_store_is_refused(site: Site) -> None:
    """No run can have such an id: it is either refused or not found, and never a failure of the database."""
    asked = [
        site.ask("GET", "runs", params={"first": "\x00"}),
        *(site.ask("GET", f"{path}/~00") for path in ("runs", "events", "limits", "bulk")),
        site.ask("DELETE", "schedules/~00"),
        site.ask("POST", "shares", json={"run": "a\x00b"}),
        site.ask("POST", "runs", json={"workflow": "waits", "like": "\x00"}),
        site.ask("POST", "bulk", json={"preview": "\x00"}),
    ]
    assert {found.status_code for found in asked[1:]} <= {404, 422}, [found.text for found in asked]
    assert asked[0].status_code in (200, 422)
