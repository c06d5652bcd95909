"""Actions of the dashboard with every field that they take: the texts for a shell, for Python and for curl have all."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest

from rival_workers.dashboard.routes import TABLE
from tests.contract.test_dashboard_commands import NAMES, OF_A_BROWSER, TOKEN, parsed, route_of, site
from tests.support.dashboard import Site

__all__ = ["site"]

#: Words of the command, the path, the fields without which it is not possible, and those that may be left out.
CASES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("run", "runs", {"workflow": "w"}, {"input": {"n": True, "m": None}, "run_id": "new"}),
    ("retry", "runs/f/retry", {}, {}),
    ("rewind", "runs/f/rewind", {"step": "a"}, {}),
    ("skip", "runs/r/skip", {"step": "b", "reason": "no"}, {}),
    ("set-result", "runs/r/set-result", {"step": "b", "reason": "no"}, {"result": {"at": None}}),
    ("pause", "runs/r/pause", {}, {}),
    ("resume", "runs/r/resume", {}, {}),
    ("cancel", "runs/r/cancel", {}, {}),
    (
        "emit",
        "events",
        {"topic": "t"},
        {"payload": [None], "key": "k", "delivery": "all", "expires": 5.5, "event_id": "e"},
    ),
    ("emit", "events", {"topic": "t"}, {"payload": 1, "run_id": "r", "event_id": "e", "expires": 5}),
    ("recover", "fleet/recover", {}, {}),
    ("complete", "external/complete", {"token": TOKEN}, {"result": {"done": True}}),
    ("fail", "external/fail", {"token": TOKEN, "message": "no"}, {"retry": True}),
    ("limit set", "limits/slots", {"max": 3}, {}),
    ("limit rm", "limits/slots/reset", {}, {}),
    ("breaker open", "breakers/bank/open", {}, {"seconds": 2.5, "force": True}),
    ("breaker close", "breakers/bank/close", {}, {}),
    ("breaker reset", "breakers/bank/reset", {}, {}),
    ("key drop", "idempotency-keys/drop", {"key": "k", "workflow": "w"}, {"step": "a"}),
    (
        "policy set",
        "policies",
        {"options": {"timeout": 5}},
        {"match": {"name": "a"}, "workflow": "w", "reason": "slow", "until": "2h"},
    ),
    ("policy set", "policies", {"options": {"timeout": 5}}, {"until": "2126-01-01T00:00:00+01:00"}),
    ("policy rm", "policies/1/remove", {}, {}),
    ("dlq redrive", "dead-letters/redrive", {"runs": ["f"]}, {"rate": 2.0}),
    ("dlq drop", "dead-letters/drop", {"runs": ["f"]}, {}),
    (
        "schedule add",
        "schedules/n",
        {"workflow": "w", "cron": "0 3 * * *"},
        {"timezone": "Europe/Berlin", "catch_up": "all", "input": {"n": False}},
    ),
    ("schedule add", "schedules/n", {"workflow": "w", "every": 90.0}, {"catch_up": "last"}),
    ("schedule pause", "schedules/s/pause", {}, {}),
    ("schedule resume", "schedules/s/resume", {}, {}),
    ("schedule fire", "schedules/s/fire", {}, {}),
    ("schedule backfill", "schedules/s/backfill", {"since": "2d"}, {"until": "1d", "limit": 7}),
    ("schedule backfill", "schedules/s/backfill", {"since": "2026-01-01"}, {"until": "2026-01-02T03:04:05.5+02:00"}),
]
#: Fields of a start from another run, which has its own tests.
ELSEWHERE = {"dry_run", "like", "patch"}


def texts_of(site: Site, words: str, path: str, body: dict[str, Any]) -> dict[str, str]:
    found = site.ask(route_of(words).method, path, json={**body, "dry_run": True})
    assert found.status_code in (200, 201), found.text
    return dict(found.json()["commands"])


def body_of(curl: str) -> dict[str, Any]:
    words = shlex.split(curl)
    return dict(json.loads(words[words.index("-d") + 1]))


def test_all_fields_of_all_actions_are_tried_here() -> None:
    of_verbs = {"step", "reason", "result"}
    for route in TABLE:
        if not route.writes or route.path in OF_A_BROWSER or route.body is None:
            continue
        tried = {name for words, _, needed, more in CASES if words == route.does for name in (*needed, *more)}
        fields = set(route.body.model_fields) - ELSEWHERE
        # All verbs have one form; those that do not need a field do not take it.
        assert fields - tried <= (of_verbs if route.path.startswith("/runs/{run_id}") else set()), route.does


@pytest.mark.parametrize(("words", "path", "needed", "more"), CASES, ids=lambda one: one if type(one) is str else None)
def test_the_texts_of_an_action_with_all_of_its_fields_are_taken(
    site: Site, words: str, path: str, needed: dict[str, Any], more: dict[str, Any]
) -> None:
    texts = texts_of(site, words, path, needed | more)
    for line in texts["shell"].splitlines():
        assert parsed(line) == words
    assert body_of(texts["curl"]).items() >= (needed | more).items()
    for left_out in more:
        given = {name: one for name, one in (needed | more).items() if name != left_out}
        without = texts_of(site, words, path, given)
        assert [kind for kind, text in texts.items() if text == without[kind]] == [], left_out
    eval(texts["python"], {**NAMES, "rival": site.inline.rival})


#: What a bulk action needs, and fields of the filter or of the order.
FILTERS: list[tuple[str, dict[str, Any]]] = [
    ("status", {"status": "failed,cancelled"}),
    ("times", {"since": "2h", "until": "1h", "ended_since": "2026-01-01T00:00:00Z", "ended_until": "30m"}),
    ("texts", {"workflow": "fails", "error": "it's", "parent": "-x"}),
    ("paused", {"paused": True}),
    ("values", {"input": {"n": [None, True]}, "result": {"a": {"b": 1.5}}, "labels": {"tenant": "a b"}}),
]


@pytest.mark.parametrize("chosen", [one for _, one in FILTERS], ids=[name for name, _ in FILTERS])
def test_the_texts_of_a_bulk_action_have_all_fields_of_its_filter(site: Site, chosen: dict[str, Any]) -> None:
    def asked(given: dict[str, Any]) -> dict[str, str]:
        found = site.ask("POST", "bulk", json={"verb": "retry", "filter": given, "dry_run": True})
        assert found.status_code == 202, found.text
        return dict(found.json()["commands"])

    texts = asked(chosen)
    assert parsed(texts["shell"]) == "retry"
    for left_out in chosen:
        without = asked({name: one for name, one in chosen.items() if name != left_out})
        assert (texts["shell"] != without["shell"], texts["python"] != without["python"]) == (True, True), left_out
    assert eval(texts["python"], {**NAMES, "rival": site.inline.rival}).verb == "retry"


def test_all_fields_of_a_filter_are_tried_here() -> None:
    from rival_workers.dashboard.api.filters import RunQuery

    assert set(RunQuery.model_fields) == {name for _, one in FILTERS for name in one}
