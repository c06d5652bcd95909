"""Every command is in the dashboard, and every action of the dashboard says which command does the same."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator
from typing import Any

import click
import pytest

from rival_client import RunFilter
from rival_client.model.completion_token import CompletionToken
from rival_client.model.policies.option_fields import FIELDS
from rival_workers import StepError, limit, step, wait_event_step
from rival_workers.cli.main import COMMANDS, cli
from rival_workers.dashboard.route import Route
from rival_workers.dashboard.routes import TABLE
from tests.support.dashboard import Site
from tests.support.inline import Inline

#: What belongs to a terminal: processes, installation, and the server of the dashboard itself.
OF_A_TERMINAL = {"worker", "dev", "dashboard", "flower", "db", "demo", "completion"}
#: Actions that no command has, because they are about the browser or about what a page shows.
OF_A_BROWSER = {
    "/session",
    "/runs/{run_id}/reveal",
    "/shares",
    "/bulk",
    "/bulk/{bulk_id}/stop",
    "/workflows/{workflow}/validate",
}
TOKEN = str(CompletionToken("r", "b", 1))
#: Words of the command -> the path, the body, and the text for a shell. `-x` looks like an option.
ACTIONS: dict[str, tuple[str, dict[str, Any], str]] = {
    "run": ("runs", {"workflow": "w", "input": {"n": 1}, "run_id": "a b"}, """rival run w '{"n": 1}' --run-id 'a b'"""),
    "retry": ("runs/f/retry", {}, "rival retry f"),
    "rewind": ("runs/f/rewind", {"step": "a"}, "rival rewind f a"),
    "skip": ("runs/f/skip", {"step": "b", "reason": "it's ok"}, """rival skip f b --reason 'it'"'"'s ok'"""),
    "set-result": (
        "runs/f/set-result",
        {"step": "b", "result": -5, "reason": "-"},
        "rival set-result --reason=- -- f b -5",
    ),
    "pause": ("runs/-x/pause", {}, "rival pause -- -x"),
    "resume": ("runs/-x/resume", {}, "rival resume -- -x"),
    "cancel": ("runs/-x/cancel", {}, "rival cancel -- -x"),
    "emit": (
        "events",
        {"topic": "t", "payload": {"a": 1}, "key": "-k", "delivery": "all", "expires": 5.0, "event_id": "e"},
        """rival emit t '{"a": 1}' --key=-k --expires 5.0 --event-id e --all""",
    ),
    "recover": ("fleet/recover", {}, "rival recover"),
    "complete": ("external/complete", {"token": TOKEN, "result": [1]}, f"rival complete {TOKEN} '[1]'"),
    "fail": ("external/fail", {"token": TOKEN, "message": "no", "retry": True}, f"rival fail {TOKEN} no --retry"),
    "limit set": ("limits/slots", {"max": 3}, "rival limit set slots 3"),
    "limit rm": ("limits/slots/reset", {}, "rival limit rm slots"),
    "breaker open": ("breakers/bank/open", {"seconds": 60.0}, "rival breaker open bank --seconds 60.0"),
    "breaker close": ("breakers/bank/close", {}, "rival breaker close bank"),
    "breaker reset": ("breakers/bank/reset", {}, "rival breaker reset bank"),
    "key drop": (
        "idempotency-keys/drop",
        {"key": "charge:7", "workflow": "w", "step": "a"},
        "rival key drop charge:7 --workflow w --step a",
    ),
    "policy set": (
        "policies",
        {"match": {"kind": ["step"], "labels": {"tenant": "a"}}, "options": {"timeout": 5}, "reason": "slow bank"},
        "rival policy set timeout=5 --match kind=step --match label.tenant=a --reason 'slow bank'",
    ),
    "policy rm": ("policies/1/remove", {}, "rival policy rm 1"),
    "dlq redrive": ("dead-letters/redrive", {"runs": ["f", "-x"]}, "rival dlq redrive f\nrival dlq redrive -- -x"),
    "dlq drop": ("dead-letters/drop", {"runs": ["f"]}, "rival dlq drop f"),
    "schedule add": (
        "schedules/s",
        {"workflow": "w", "cron": "0 3 * * *", "timezone": "Europe/Berlin", "catch_up": "last", "input": {"n": 1}},
        """rival schedule add s w '0 3 * * *' '{"n": 1}' --timezone Europe/Berlin --catch-up last""",
    ),
    "schedule pause": ("schedules/s/pause", {}, "rival schedule pause s"),
    "schedule resume": ("schedules/s/resume", {}, "rival schedule resume s"),
    "schedule fire": ("schedules/s/fire", {}, "rival schedule fire s"),
    "schedule backfill": (
        "schedules/s/backfill",
        {"since": "2026-01-01T00:00:00+00:00"},
        "rival schedule backfill s --since 2026-01-01T00:00:00+00:00",
    ),
    "schedule rm": ("schedules/s?dry_run=true", {}, "rival schedule rm s"),
}
PUT = ("limit set", "schedule add")


def boom() -> None:
    raise StepError("no")


@pytest.fixture
def site(file_url: str) -> Iterator[Site]:
    inline = Inline(file_url)
    inline.define("w", step(lambda: 1, name="a"), wait_event_step("t", name="b"))
    inline.define("fails", step(lambda: 1, name="a"), step(boom, name="b", max_attempts=1, on_failure="dead_letter"))
    inline.define("limited", step(lambda: 1, name="a", concurrency_limit=limit("slots", 2)))
    for workflow, run_id in (("w", "r"), ("w", "-x"), ("fails", "f"), ("limited", "l")):
        inline.rival.run(workflow, {}, run_id)
    inline.drain()
    inline.rival.schedule("w", "0 4 * * *", name="s")
    inline.rival.open_breaker("bank", force=True)
    inline.rival.set_policy({"name": "none"}, {"timeout": 9})
    opened = Site(inline)
    yield opened
    opened.close()
    inline.close()


def leaves() -> Iterator[str]:
    """The commands, those of groups with two words."""
    context = click.Context(cli)
    for name in COMMANDS:
        command = cli.get_command(context, name)
        if isinstance(command, click.Group) and name not in OF_A_TERMINAL:
            yield from (f"{name} {inner}" for inner in command.commands)
        else:
            yield name


def test_every_command_is_in_the_dashboard() -> None:
    in_dashboard = {route.does for route in TABLE if route.does}
    assert in_dashboard | OF_A_TERMINAL == set(leaves())


def test_every_action_says_its_command_and_is_tried_here() -> None:
    acting = [route for route in TABLE if route.writes and route.path not in OF_A_BROWSER]
    assert [route.path for route in acting if route.does is None] == []
    assert {route.does for route in acting} == set(ACTIONS)


def route_of(words: str) -> Route:
    return next(route for route in TABLE if route.does == words)


@pytest.mark.parametrize("words", ACTIONS)
def test_an_action_shows_a_command_that_the_terminal_takes(site: Site, words: str) -> None:
    path, body, shell = ACTIONS[words]
    before = [site.inline.rival.history(run_id) for run_id in ("r", "-x", "f")]
    given = None if words == "schedule rm" else {**body, "dry_run": True}
    found = site.ask(route_of(words).method, path, json=given)
    assert found.status_code in (200, 201), found.text
    texts = found.json()["commands"]
    assert texts["shell"] == shell
    for line in shell.splitlines():
        assert parsed(line).startswith(words)
    compile(texts["python"], words, "eval")
    assert f"-X {route_of(words).method} " in texts["curl"]
    # A dry run changes nothing.
    assert [site.inline.rival.history(run_id) for run_id in ("r", "-x", "f")] == before
    assert site.audited() == []
    assert [one.paused_at for one in site.inline.rival.schedules()] == [None]
    assert [one.state for one in site.inline.rival.breakers()] == ["open"]


#: What the text for Python may use beside the client.
NAMES = {"RunFilter": RunFilter, "datetime": dt.datetime}


@pytest.mark.parametrize("words", ACTIONS)
def test_an_action_shows_a_call_that_the_client_takes(site: Site, words: str) -> None:
    path, body, _ = ACTIONS[words]
    given = None if words == "schedule rm" else {**body, "dry_run": True}
    text = site.ask(route_of(words).method, path, json=given).json()["commands"]["python"]
    eval(text, {**NAMES, "rival": site.inline.rival})


def parsed(line: str) -> str:
    """The command that the line is for, its arguments read by the command line's own parser."""
    program, *words = shlex.split(line)
    assert program == "rival"
    command: click.Command = cli
    context, names = click.Context(cli), list[str]()
    while isinstance(command, click.Group):
        found = command.get_command(context, words[0])
        assert found is not None, line
        command, names, words = found, [*names, words[0]], words[1:]
    command.make_context(names[-1], words, parent=context)
    return " ".join(names)


def test_a_dry_run_of_what_is_refused_says_why(site: Site) -> None:
    wrong_input = {"workflow": "w", "cron": "0 3 * *", "dry_run": True}
    found = site.ask("PUT", "schedules/x", json=wrong_input)
    assert (found.status_code, found.json()["possible"]) == (200, False)
    assert found.json()["reason"] == (
        "Invalid argument when: '0 3 * *' is not a cron expression: write five fields as in \"*/5 * * * *\" "
        "(minute, hour, day of month, month, day of week)."
    )
    found = site.ask("POST", "external/fail", json={"token": "rvl_x", "message": "m", "dry_run": True})
    assert found.json()["reason"] == (
        "This is not a token of an external step, or only a part of one. Give the whole text that "
        "`ctx.completion_token` has handed out; it begins with rvl_."
    )
    found = site.ask("POST", "policies", json={"options": {"timeoutt": 1}, "dry_run": True})
    known = ", ".join(FIELDS)
    assert found.json()["reason"] == (
        f"Invalid argument rule: the rule: unknown option 'timeoutt' (did you mean 'timeout'?); known are {known}."
    )
    assert site.ask("POST", "policies", json={"options": {"timeoutt": 1}}).status_code == 422


@pytest.mark.parametrize(
    ("order", "shell"),
    [
        ({"verb": "cancel", "filter": {"workflow": "w"}}, "rival cancel --workflow w --yes"),
        (
            {"verb": "rewind", "step": "a", "limit": 7, "filter": {"status": "failed,cancelled", "since": "2h"}},
            "rival rewind --since 2h --status failed --status cancelled --step a --limit 7 --yes",
        ),
        (
            {"verb": "set-result", "step": "b", "result": {"n": 1}, "reason": "r", "filter": {"error": "no"}},
            """rival set-result --error no --step b --value '{"n": 1}' --reason r --yes""",
        ),
        (
            {"verb": "pause", "filter": {"paused": False, "input": {"n": 1}, "labels": {"tenant": "a"}}},
            """rival pause --input '{"n": 1}' --label tenant=a --not-paused --yes""",
        ),
        (
            {"verb": "skip", "step": "b", "reason": "r", "runs": ["f", "r"]},
            "rival skip f b --reason r\nrival skip r b --reason r",
        ),
    ],
)
def test_a_bulk_action_shows_its_command(site: Site, order: dict[str, Any], shell: str) -> None:
    found = site.ask("POST", "bulk", json={**order, "dry_run": True})
    assert found.status_code == 202, found.text
    assert found.json()["commands"]["shell"] == shell
    for line in shell.splitlines():
        assert parsed(line) == order["verb"]
    done = eval(found.json()["commands"]["python"], {**NAMES, "rival": site.inline.rival})
    assert done.verb == order["verb"].replace("-", "_")


def test_rules_limits_breakers_and_external_steps_are_changed(site: Site) -> None:
    """What the dry runs of above do for real."""
    rival = site.inline.rival
    made = site.post("policies", match={"name": "a"}, options={"timeout": 5}, reason="slow")["rule"]
    assert (made["match"], made["by"]) == ("name=a", "owner@dashboard")
    explained = site.get("runs/r/policy", step="a", next=True)
    assert [(one["name"], one["layer"]) for one in explained["options"]] == [("timeout", "fleet")]
    assert site.post(f"policies/{made['id']}/remove")["removed"] is True
    assert site.ask("PUT", "limits/slots", json={"max": 3}).json()["max"] == 3
    shown = site.get("limits/slots")
    assert (shown["max"], shown["defined_max"], shown["set_by"]) == (3, 2, "owner@dashboard")
    assert site.post("limits/slots/reset")["max"] == 2
    assert site.ask("GET", "limits/none").status_code == 404
    assert site.post("breakers/bank/close")["changed"] is True
    assert site.post("breakers/bank/close")["changed"] is False
    assert site.post("breakers/bank/reset")["changed"] is True
    assert rival.breakers() == []
    unknown = site.ask("POST", "breakers/none/open", json={})
    assert (unknown.status_code, unknown.json()["code"]) == (422, "InvalidArgument")
    assert site.post("breakers/none/open", force=True)["commands"]["shell"] == "rival breaker open none --force"
    assert [(one.name, one.state) for one in rival.breakers()] == [("none", "open")]
    assert site.post("external/complete", token=TOKEN)["accepted"] is False
    assert site.ask("POST", "external/complete", json={"token": "x"}).json()["code"] == "InvalidToken"
    whats = [one["what"] for one in site.audited()]
    assert whats[-3:] == ["set_limit", "remove_policy", "set_policy"]
