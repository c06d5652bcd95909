"""What the dashboard's API says about runs, on both databases."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from rival_workers import StepError, delay_step, flow, for_each, step, wait_event_step
from rival_workers.dashboard.api import run_list
from tests.support.dashboard import Site


def run(site: Site, workflow: str, input: Any = None, run_id: str | None = None) -> str:
    started = site.inline.rival.run(workflow, input, run_id)
    site.inline.drain()
    return started.run_id


def boom() -> None:
    raise StepError("no such card, password=hunter2")


# -- the list ---------------------------------------------------------------------------------------------


def test_a_list_says_what_each_run_stands_at(site: Site) -> None:
    site.inline.define("ok", step(lambda: 1, name="a"))
    site.inline.define("bad", step(boom, name="charge", max_attempts=1))
    site.inline.define("waits", wait_event_step("reply", name="answer", key="ann"))
    site.inline.define("sleeps", delay_step(3600, name="nap"))
    for name in ("ok", "bad", "waits", "sleeps"):
        run(site, name, {}, f"r-{name}")
    found = {row["id"]: row for row in site.get("runs")["items"]}
    assert found["r-ok"]["at"] is None
    assert found["r-bad"]["at"]["step"] == "charge"
    assert found["r-bad"]["error"]["message"] == "no such card, password=***"
    assert found["r-waits"]["at"]["waits_for"] == "event"
    assert found["r-waits"]["at"]["text"] == "event reply, key ann"
    assert found["r-sleeps"]["at"]["waits_for"] == "time"
    assert found["r-sleeps"]["at"]["until"] is not None


def test_pages_follow_one_another(site: Site) -> None:
    site.inline.define("ok", step(lambda: 1, name="a"))
    ids = [run(site, "ok", {}, f"r{n}") for n in range(7)]
    first = site.get("runs", limit=3)
    second = site.get("runs", limit=3, after=first["next"])
    third = site.get("runs", limit=3, after=second["next"])
    assert [row["id"] for page in (first, second, third) for row in page["items"]] == ids[::-1]
    assert third["next"] is None


def test_a_page_that_begins_with_a_run_counts_the_newer_ones(site: Site) -> None:
    site.inline.define("ok", step(lambda: 1, name="a"))
    for n in range(7):
        run(site, "ok", {}, f"r{n}")
    page = site.get("runs", limit=2, first="r2")
    assert [row["id"] for row in page["items"]] == ["r2", "r1"]
    assert page["newer"] == {"count": 4, "more": False}
    assert [row["id"] for row in site.get("runs", limit=2, after=page["next"])["items"]] == ["r0"]
    from_the_top = site.get("runs", limit=1, first="gone")
    assert [row["id"] for row in from_the_top["items"]] == ["r6"]
    assert from_the_top["newer"] is None


def test_filters_are_those_of_the_command(site: Site) -> None:
    site.inline.define("ok", step(lambda: 1, name="a"))
    site.inline.define("bad", step(boom, name="charge", max_attempts=1))
    run(site, "ok", {"customer": {"id": 7}}, "r1")
    run(site, "ok", {"customer": {"id": 8}}, "r2")
    run(site, "bad", {}, "r3")
    assert [row["id"] for row in site.get("runs", workflow="ok")["items"]] == ["r2", "r1"]
    assert [row["id"] for row in site.get("runs", status="failed,cancelled")["items"]] == ["r3"]
    assert [row["id"] for row in site.get("runs", input='{"customer": {"id": 7}}')["items"]] == ["r1"]
    assert [row["id"] for row in site.get("runs", error="such card", since="1h")["items"]] == ["r3"]
    refused = site.ask("GET", "runs", params={"status": "broken"})
    assert (refused.status_code, refused.json()["code"]) == (422, "InvalidArgument")
    assert site.ask("GET", "runs", params={"statuss": "x"}).json()["errors"][0]["pointer"] == "?statuss"


@pytest.mark.parametrize("seconds", [0.0, 60.0])
def test_a_search_without_an_index_goes_on_where_it_stopped(
    site: Site, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_list, "WINDOW", 2)
    monkeypatch.setattr(run_list, "SEARCH_SECONDS", seconds)
    site.inline.define("ok", step(lambda: 1, name="a"))
    for number in range(12):
        run(site, "ok", {"even": number % 2 == 0}, f"r{number:02}")
    found, pages, after = list[str](), 0, None
    while after is not None or not pages:
        page = site.get("runs", input='{"even": true}', limit=4, **({"after": after} if after else {}))
        found += [row["id"] for row in page["items"]]
        assert page["searched_to"] is None or len(page["items"]) < 4
        pages, after = pages + 1, page["next"]
    assert found == [f"r{number:02}" for number in range(10, -1, -2)]
    assert pages > 5 if seconds == 0 else pages <= 3


def test_the_search_finds_a_run_by_the_start_of_its_id_and_an_attempt_by_its_task_id(site: Site) -> None:
    site.inline.define("ok", step(lambda: 1, name="a"))
    run(site, "ok", {}, "order:42")
    run(site, "ok", {}, "order:43")
    assert [row["id"] for row in site.get("runs", q="order:4")["items"]] == ["order:42", "order:43"]
    found = site.get("runs", q="order:42:a:1")
    assert found["open"] == {"run": "order:42", "step": "a", "attempt": 1}
    assert [row["id"] for row in found["items"]] == ["order:42"]


def test_counts_are_of_open_and_failed_runs(site: Site) -> None:
    site.inline.define("ok", step(lambda: 1, name="a"))
    site.inline.define("waits", wait_event_step("reply", name="answer"))
    site.inline.define("bad", step(boom, name="charge", max_attempts=1))
    for name in ("ok", "waits", "bad"):
        run(site, name, {})
    paused = run(site, "waits", {})
    site.inline.rival.pause(paused)
    found = site.get("runs/counts")
    assert found["suspended"] == {"count": 2, "more": False}
    assert found["open"]["count"] == 2
    assert found["paused"]["count"] == 1
    assert found["failed_24h"]["count"] == 1
    assert found["all"] == {"count": 4, "estimate": False}


# -- one run ----------------------------------------------------------------------------------------------


class Card(BaseModel):
    holder: str
    pin: SecretStr
    token: str = ""


def test_a_run_shows_its_steps_its_plan_and_no_secret(site: Site) -> None:
    site.inline.define("pay", step(lambda: {"api_key": "k-123"}, name="charge"), input=Card)
    run_id = run(site, "pay", {"holder": "Ann", "pin": "1234", "token": "t-1"}, "pay/1")
    found = site.get("runs/pay~2F1")
    assert found["run"]["id"] == run_id
    assert found["run"]["input"]["value"] == {"holder": "Ann", "pin": "***", "token": "***"}
    assert found["run"]["input"]["redacted"] == ["/pin", "/token"]
    assert found["run"]["result"]["value"] == {"api_key": "***"}
    assert [(one["path"], one["status"]) for one in found["steps"]] == [("charge", "completed")]
    assert found["graph"]["nodes"][0]["place"] == "charge"
    assert found["history_id"] > 0
    text = site.ask("GET", "runs/pay~2F1/payload", params={"of": "input"}).text
    assert "1234" not in text
    assert "1234" not in site.ask("GET", "runs").text


def test_a_large_value_is_a_preview_and_a_download(site: Site) -> None:
    site.inline.define("big", step(lambda: "x" * 50_000, name="a"))
    run_id = run(site, "big", {})
    found = site.get(f"runs/{run_id}")["run"]["result"]
    assert found["value"] is None
    assert len(found["preview"]) == 2000
    assert found["size"] == 50_002
    download = site.ask("GET", f"runs/{run_id}/payload", params={"of": "result"})
    assert download.headers["content-disposition"].startswith("attachment")
    assert len(download.json()) == 50_000


def test_a_run_says_how_long_its_history_and_its_log_are(site: Site) -> None:
    def talk(log: Any) -> None:
        for number in range(3):
            log.info("line", number=number)

    site.inline.define("talks", step(talk, name="a"))
    run(site, "talks", {}, "r")
    found = site.get("runs/r")["counts"]
    assert found["history"] == {"count": len(site.get("runs/r/history")["items"]), "more": False}
    assert found["logs"] == {"count": 3, "more": False}


def test_history_comes_in_pages_without_values(site: Site) -> None:
    site.inline.define(
        "many", for_each("lines", items=lambda: list(range(4)), do=[step(lambda item: "y" * 5000, name="x")])
    )
    run_id = run(site, "many", {"secret_thing": "s" * 5000})
    first = site.get(f"runs/{run_id}/history", limit=3)
    rest = site.get(f"runs/{run_id}/history", after=first["next"], limit=1000)
    entries = first["items"] + rest["items"]
    assert entries[0]["what"] == "started"
    assert not any(set(one["detail"]) & {"result", "input", "items", "item", "state"} for one in entries)
    assert next(one for one in entries if one["what"] == "fanned_out")["detail"]["item_count"] == 4
    newest = site.get(f"runs/{run_id}/history", order="newest", limit=2)["items"]
    assert [one["id"] for one in newest] == [entries[-1]["id"], entries[-2]["id"]]
    whole = site.get(f"runs/{run_id}/history/{entries[-1]['id']}")
    assert whole["what"] == "completed"


def test_a_flow_with_many_checkpoints_is_folded(site: Site) -> None:
    @flow(registry=site.inline.registry)
    def long(ctx: Any) -> int:
        for n in range(100):
            ctx.step(abs, n, name="one")
        return 100

    site.inline.process.register_workflows()
    run_id = run(site, "long", {})
    found = site.get(f"runs/{run_id}")
    assert found["folded"] == {"long": {"completed": 80}}
    assert len(found["steps"]) == 21
    assert len(site.get(f"runs/{run_id}", fold=200)["steps"]) == 101


def test_how_long_a_call_of_a_flow_took_is_not_known(site: Site) -> None:
    """It is recorded together with its end: zero seconds would be wrong."""

    @flow(registry=site.inline.registry)
    def calls(ctx: Any) -> int:
        return int(ctx.step(abs, -1, name="one"))

    site.inline.process.register_workflows()
    run_id = run(site, "calls", {})
    of_flow, of_call = site.get(f"runs/{run_id}")["steps"]
    assert (of_call["path"], of_call["duration"]) == ("calls/one", None)
    assert of_flow["duration"] > 0
    usual = site.get("workflows/calls/stats")["steps"]
    assert (usual["calls/one"]["n"], usual["calls/one"]["p50"]) == (1, None)
    assert usual["calls"]["p50"] >= 0


def test_what_does_not_exist_says_so(site: Site) -> None:
    for path in ("runs/none", "runs/none/history", "runs/none/logs", "runs/none/tree", "nothing", "runs/a%2Fb%20c"):
        found = site.ask("GET", path)
        assert found.status_code == 404, path
        assert found.headers["content-type"] == "application/problem+json"


def test_a_flow_stands_at_what_its_checkpoint_waits_for(site: Site) -> None:
    @flow("welcome", registry=site.inline.registry)
    def welcome(ctx: Any) -> Any:
        return ctx.await_event("reply", key="ann", timeout=600)

    site.inline.process.register_workflows()
    run(site, "welcome", None, "f")
    [row] = site.get("runs")["items"]
    assert row["at"]["text"] == "event reply, key ann"
    assert row["at"]["waits_for"] == "event"
    assert row["at"]["until"] is not None


def test_a_run_that_has_not_changed_is_not_read_again(site: Site) -> None:
    site.inline.define("ok", step(lambda: 1, name="a"))
    run(site, "ok", {}, "once")
    found = site.get("runs/once")
    again = site.ask("GET", "runs/once", params={"unless": found["mark"]})
    assert (again.status_code, again.content) == (204, b"")
    site.post("runs/once/rewind", step="a")
    site.inline.drain()
    after = site.get("runs/once", unless=found["mark"])
    assert after["history_id"] > found["history_id"]
    assert after["mark"] != found["mark"]
    assert site.ask("GET", "runs/none", params={"unless": "0-0"}).status_code == 404
