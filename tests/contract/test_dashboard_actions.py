"""Acting through the dashboard's API: verbs with previews, starting runs, workflows, the fleet."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path
from typing import Any

from pydantic import BaseModel, Field, SecretStr

from rival_workers import StepError, branch, create_workflow, for_each, rate, step, wait_event_step
from rival_workers.dashboard.board import Cached
from rival_workers.dashboard.ids import in_path
from rival_workers.definition.define import define_workflow
from rival_workers.testing import Lab
from tests.support.dashboard import Site
from tests.support.histories import assert_histories_are_complete


def run(site: Site, workflow: str, input: Any = None, run_id: str | None = None) -> str:
    started = site.inline.rival.run(workflow, input, run_id)
    site.inline.drain()
    return started.run_id


class Order(BaseModel):
    customer: int
    pin: SecretStr | None = None
    lines: list[int] = Field(default_factory=list, max_length=3)


def fails(input: Any) -> None:
    if input.customer == 7:
        raise StepError("no such card")


# -- verbs ------------------------------------------------------------------------------------------------


def test_a_preview_changes_nothing_and_the_verb_does_what_it_said(site: Site) -> None:
    site.inline.define("order", step(lambda: 1, name="a"), step(fails, name="charge", max_attempts=1), input=Order)
    run_id = run(site, "order", {"customer": 7}, "o/1")
    preview = site.post("runs/o~2F1/rewind", step="a", dry_run=True)
    assert preview["possible"] is True
    assert preview["runs_again"] == ["a", "charge"]
    assert preview["commands"]["shell"] == "rival rewind o/1 a"
    assert preview["commands"]["python"] == "rival.rewind('o/1', 'a')"
    assert "runs/o~2F1/rewind" in preview["commands"]["curl"]
    assert site.inline.rival.state(run_id).status == "failed"
    done = site.ask("POST", "runs/o~2F1/rewind", json={"step": "a"}, headers={"if-match": preview["etag"]})
    assert done.json()["runs_again"] == preview["runs_again"]
    stale = site.ask("POST", "runs/o~2F1/cancel", json={}, headers={"if-match": preview["etag"]})
    assert (stale.status_code, stale.json()["code"]) == (412, "RunHasMoved")
    site.inline.drain()
    entries = site.get("runs/o~2F1/history")["items"]
    assert next(one["by"] for one in entries if one["what"] == "rewind_run") == "owner@dashboard"


def test_what_is_not_possible_is_an_answer_of_a_preview_and_a_problem_of_the_verb(site: Site) -> None:
    site.inline.define("ok", step(lambda: 1, name="a"))
    run_id = run(site, "ok", {})
    preview = site.post(f"runs/{run_id}/retry", dry_run=True)
    assert preview["possible"] is False
    assert preview["reason"] == (
        f"Cannot retry run '{run_id}': it is completed: rewind it to the step from which it should run again. Nothing "
        "was changed."
    )
    refused = site.ask("POST", f"runs/{run_id}/retry", json={})
    assert (refused.status_code, refused.json()["code"]) == (409, "NotPossible")
    missing = site.ask("POST", f"runs/{run_id}/skip", json={"dry_run": True})
    assert [one["pointer"] for one in missing.json()["errors"]] == ["/step", "/reason"]
    assert site.ask("POST", "runs/none/retry", json={"dry_run": True}).status_code == 404


def test_every_verb_can_be_used(site: Site) -> None:
    site.inline.define("waits", step(lambda: 1, name="a"), wait_event_step("t", name="b"), step(lambda: 2, name="c"))
    run_id = run(site, "waits", {})
    assert site.post(f"runs/{run_id}/pause")["run"]["paused_at"] is not None
    assert site.post(f"runs/{run_id}/resume")["run"]["paused_at"] is None
    site.post(f"runs/{run_id}/set-result", step="b", result={"ok": True}, reason="test")
    site.inline.drain()
    assert site.inline.rival.result(run_id).results["b"] == {"ok": True}
    other = run(site, "waits", {})
    site.post(f"runs/{other}/skip", step="b", reason="test")
    site.inline.drain()
    third = run(site, "waits", {})
    assert site.post(f"runs/{third}/cancel")["run"]["status"] == "cancelled"
    assert site.post(f"runs/{third}/retry")["opened"] == ["b"]


# -- starting ---------------------------------------------------------------------------------------------


def test_an_input_is_checked_by_the_validator_that_admits_runs(site: Site) -> None:
    site.inline.define("order", step(lambda: 1, name="a"), input=Order)
    found = site.post("workflows/order/validate", input={"customer": "x", "lines": [1, "2", 3, 4]})
    assert found["ok"] is False
    assert {one["pointer"] for one in found["errors"]} == {"/customer", "/lines", "/lines/1"}
    assert site.post("workflows/order/validate", input={})["errors"][0]["pointer"] == "/customer"
    refused = site.ask("POST", "runs", json={"workflow": "order", "input": {}})
    assert (refused.status_code, refused.json()["code"]) == (422, "InvalidInput")
    assert site.post("workflows/order/validate", input={"customer": 1})["ok"] is True
    assert site.ask("POST", "workflows/none/validate", json={"input": 1}).status_code == 404


def test_a_run_starts_once_for_the_same_id(site: Site) -> None:
    site.inline.define("order", step(lambda: 1, name="a"), input=Order)
    first = site.ask("POST", "runs", json={"workflow": "order", "input": {"customer": 1}, "run_id": "x/1"})
    assert (first.status_code, first.json()["status"]) == (201, "started")
    assert first.headers["location"].endswith("/api/v1/runs/x~2F1")
    again = site.post("runs", workflow="order", input={"customer": 1}, run_id="x/1")
    assert again["status"] == "pending"
    other = site.ask("POST", "runs", json={"workflow": "order", "input": {"customer": 2}, "run_id": "x/1"})
    assert (other.status_code, other.json()["code"]) == (409, "RunConflict")
    site.inline.drain()
    assert site.post("runs", workflow="order", input={"customer": 1}, run_id="x/1")["status"] == "completed"


def test_the_history_of_a_run_says_who_has_asked_for_it(site: Site) -> None:
    site.inline.define("order", step(lambda: 1, name="a"), input=Order)
    site.post("runs", workflow="order", input={"customer": 1}, run_id="x")
    site.post("runs", workflow="order", input={"customer": 1}, run_id="x")
    site.inline.drain()
    entries = [(one.what, one.by) for one in site.inline.rival.history("x")]
    assert entries[0] == ("requested", "owner@dashboard")
    assert [what for what, _ in entries].count("requested") == 1
    assert site.get("runs/x")["run"]["started_by"] == "owner@dashboard"
    site.inline.rival.schedule("order", "0 3 * * *", name="nightly", input={"customer": 1})
    fired = site.post("schedules/nightly/fire")["run"]
    missed = site.post("schedules/nightly/backfill", since="2d")["runs"]
    site.inline.drain()
    for run_id in (fired, *missed):
        assert site.get(f"runs/{in_path(run_id)}")["run"]["started_by"] == "owner@dashboard"
    # The whole state can still be rebuilt from the history.
    assert assert_histories_are_complete(site.inline.store.database) > 1


def test_a_run_like_another_has_its_secrets_and_never_the_stars_that_hide_them(site: Site) -> None:
    site.inline.define("order", step(lambda input: input, name="a"), input=Order)
    run(site, "order", {"customer": 1, "pin": "1234"}, "first")
    shown = site.get("workflows/order/inputs")["items"][0]
    assert shown["input"]["value"] == {"customer": 1, "pin": "***"}
    copied = site.post("workflows/order/validate", input=shown["input"]["value"])
    assert [one["pointer"] for one in copied["errors"]] == ["/pin"]
    started = site.post("runs", workflow="order", like="first", patch={"customer": 2, "lines": [1]})
    site.inline.drain()
    stored = site.inline.rival.state(started["run"]).input
    assert stored == {"customer": 2, "pin": "1234", "lines": [1]}
    quoted = site.ask("POST", "workflows/order/validate", json={"like": "first", "patch": {"customer": "x"}}).text
    assert "1234" not in quoted


class Stock(BaseModel):
    pin: SecretStr
    note: str | None = "none yet"
    boxes: list[dict[str, str]] = []


def test_an_edited_copy_of_an_input_keeps_secrets_and_what_is_none(site: Site) -> None:
    site.inline.define("stock", step(lambda: 1, name="a"), input=Stock)
    boxes = [{"password": "one"}, {"password": "two"}]
    run(site, "stock", {"pin": "1234", "note": "x", "boxes": boxes}, "first")
    shown = site.get("runs/first")["run"]["input"]["value"]
    assert (shown["pin"], shown["boxes"][0]["password"]) == ("***", "***")
    started = site.post("runs", workflow="stock", like="first", input={**shown, "note": None})
    assert site.inline.rival.state(started["run"]).input == {"pin": "1234", "note": None, "boxes": boxes}
    # Which item of a list that has changed was which is not known.
    fewer = {"workflow": "stock", "like": "first", "input": {**shown, "boxes": shown["boxes"][1:]}}
    refused = site.ask("POST", "runs", json=fewer)
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/boxes/0/password")
    assert site.post("runs", workflow="stock", like="first", run_id="same")["status"] == "started"
    assert site.inline.rival.state("same").input["boxes"] == boxes


# -- workflows and the fleet ------------------------------------------------------------------------------


def test_a_workflow_shows_its_plan_its_versions_and_how_they_differ(site: Site) -> None:
    site.inline.define("w", branch("big?", when=lambda: True, then=[step(lambda: 1, name="x")]), input=Order)
    old = site.get("workflows/w")
    assert old["graph"]["nodes"][0]["lanes"][0] == {
        "name": "then",
        "nodes": [one for one in old["graph"]["nodes"][0]["lanes"][0]["nodes"] if one["place"] == "big?/x"],
    }
    assert old["input_schema"]["required"] == ["customer"]
    site.inline.registry.add(define_workflow("w", [step(lambda: 1, name="y")]), replace=True)
    site.inline.process.register_workflows()
    new = site.get("workflows/w")
    assert [one["current"] for one in new["versions"]] == [True, False]
    assert [one["workers"] for one in new["versions"]] in ([["inline"], []], [None, None])
    assert site.get("workflows/w", version=old["version"])["graph"] == old["graph"]
    found = site.get(f"workflows/w/diff/{old['version']}/{new['version']}")
    assert (found["added"], found["removed"], found["same"]) == (["y"], ["big?", "big?/x"], False)
    listed = site.get("workflows")["items"]
    assert [(one["name"], one["versions"], one["steps"]) for one in listed] == [("w", 2, 1)]


def test_the_fleet_shows_executors_and_what_waits(site: Site) -> None:
    site.inline.define("ok", step(lambda: 1, name="a"))
    site.inline.rival.run("ok", {})
    found = site.get("fleet")
    assert [one["state"] for one in found["executors"]] == ["alive"]
    assert found["queues"][0]["waiting"] == {"count": 1, "more": False}
    assert found["queues"][0]["oldest"] >= 0
    assert site.post("fleet/recover", dry_run=True)["done"] is False
    assert site.post("fleet/recover")["done"] is True
    assert [(one["what"], one["about"]) for one in site.audited()] == [("recover", "fleet")]
    site.inline.drain()


def test_what_a_paused_run_would_do_does_not_wait_for_a_worker(site: Site) -> None:
    site.inline.define("two", step(lambda: 1, name="a"), step(lambda: 1, name="b"))
    for run_id in ("begun", "new"):
        site.inline.rival.run("two", {}, run_id)
    assert site.get("fleet")["queues"][0]["waiting"]["count"] == 2
    for run_id in ("begun", "new"):
        site.inline.rival.pause(run_id)
    site.inline.drain()
    site.board.fleet = Cached(0.0)
    assert site.get("fleet")["queues"][0]["waiting"]["count"] == 0


def test_what_is_usual_comes_from_the_newest_runs(site: Site) -> None:
    site.inline.define("order", step(lambda: 1, name="a"), step(fails, name="charge", max_attempts=1), input=Order)
    for customer in (1, 2, 3, 7):
        run(site, "order", {"customer": customer})
    found = site.get("workflows/order/stats")
    assert (found["runs"]["n"], found["runs"]["failed"]) == (4, 0.25)
    assert found["runs"]["last_24h"]["failed"] == {"count": 1, "more": False}
    assert (found["steps"]["charge"]["failed"], found["steps"]["a"]["failed"]) == (0.25, 0.0)
    assert 0 <= found["steps"]["a"]["p5"] <= found["steps"]["a"]["p50"] <= found["steps"]["a"]["p95"]
    run_id = run(site, "order", {"customer": 1})
    assert site.get(f"runs/{run_id}/step", step="charge")["usual"]["n"] == 4
    assert [one["usual"] >= 0 for one in site.get("runs")["items"]] == [True] * 5
    assert site.ask("GET", "workflows/none/stats").status_code == 404


def test_two_runs_are_compared_without_their_secrets(site: Site) -> None:
    site.inline.define("order", step(lambda: 1, name="a"), step(fails, name="charge", max_attempts=1), input=Order)
    run(site, "order", {"customer": 7, "lines": [1, 2], "pin": "1111"}, "left")
    run(site, "order", {"customer": 8, "lines": [1, 3, 4], "pin": "2222"}, "right")
    found = site.get("runs/left/diff/right")
    assert [(one["pointer"], one["kind"]) for one in found["input"]] == [
        ("/customer", "changed"),
        ("/lines/1", "changed"),
        ("/lines/2", "right_only"),
    ]
    changes = {one["path"]: one["change"] for one in found["steps"]}
    assert changes["charge"] == "status"
    assert found["same_version"] is True
    assert site.ask("GET", "runs/left/diff/none").status_code == 404


def test_items_that_were_not_read_are_not_called_missing(site: Site) -> None:
    items = for_each("lines", items=lambda input: list(range(input["number"])), do=[step(lambda: 1, name="pack")])
    site.inline.define("many", items)
    run(site, "many", {"number": 21}, "left")
    run(site, "many", {"number": 2}, "right")
    found = site.get("runs/left/diff/right")
    assert [(one["path"], one["left"] is None, one["right"] is None) for one in found["steps"]] == [
        ("lines", False, False),
        ("lines!items", False, False),
    ]
    assert found["folded"] == ["lines"]


def test_dead_letters_are_listed_and_run_again(site: Site) -> None:
    site.inline.define("order", step(fails, name="charge", max_attempts=1, on_failure="dead_letter"), input=Order)
    run_id = run(site, "order", {"customer": 7}, "d")
    [letter] = site.get("dead-letters")["items"]
    assert (letter["run"], letter["step"]) == (run_id, "charge")
    assert site.post("dead-letters/redrive", runs=["d"], dry_run=True)["done"] == ["d"]
    assert site.post("dead-letters/redrive", runs=["d"])["done"] == ["d"]
    site.inline.drain()
    assert site.post("dead-letters/drop", runs=["d"])["dropped"] == 1
    assert site.get("dead-letters")["items"] == []


def test_limits_say_what_is_in_use(site: Site) -> None:
    site.inline.define("mails", step(lambda: 1, name="mail", rate_limit=rate(1, per=3600)))
    # One starts. Two of those that wait have been given their time.
    for run_id in ("r1", "r2", "r3", "r4", "r5"):
        site.inline.rival.run("mails", {}, run_id)
    site.inline.drain()
    [limit] = site.get("limits")["items"]
    assert (limit["name"], limit["maximum"], limit["per"]) == ("mails/mail!rate", 1, 3600.0)
    assert limit["keys"][0]["waiting"]["count"] == 4


def test_an_exported_test_passes_in_the_testing_kit(site: Site, rival_lab: Lab, tmp_path: Path) -> None:
    site.inline.define("order", step(lambda: {"n": 1}, name="a"), step(lambda steps: steps.a.result, name="b"))
    run_id = run(site, "order", {"customer": 1})
    found = site.get(f"runs/{run_id}/test")
    rival_lab.register(create_workflow("order").step(lambda: None, name="a").step(lambda: None, name="b"))
    file = tmp_path / found["filename"]
    file.write_text(found["text"])
    [(name, test)] = [(name, one) for name, one in run_path(str(file)).items() if name.startswith("test_")]
    assert name == file.stem
    test(rival_lab)
