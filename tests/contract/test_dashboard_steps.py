"""Steps, the past of a run and actions on many runs, through the dashboard's API."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import select

from rival_client.db import operator_tables
from rival_client.sql import bulk_records
from rival_workers import StepError, branch, flow, for_each, loop, step, wait_event_step
from tests.support.dashboard import Site


def run(site: Site, workflow: str, input: Any = None, run_id: str | None = None) -> str:
    started = site.inline.rival.run(workflow, input, run_id)
    site.inline.drain()
    return started.run_id


def odd_fails(item: int) -> int:
    if item % 10 == 3:
        raise StepError(f"cannot pack {item}")
    return item


def test_items_come_in_pages_by_their_number_and_by_status(site: Site) -> None:
    packs = step(odd_fails, name="pack", max_attempts=1)
    site.inline.define("w", for_each("lines", items=lambda: list(range(30)), do=[packs], on_failure="continue"))
    run_id = run(site, "w", {}, "r")
    first = site.get(f"runs/{run_id}/steps", under="lines", limit=12)
    assert [one["index"] for one in first["items"]] == list(range(12))
    assert first["items"][5]["item"] == "5"
    assert (first["total"], first["counts"]) == (30, {"completed": 27, "failed": 3})
    last = site.get(f"runs/{run_id}/steps", under="lines", limit=20, **{"from": 20})
    assert (len(last["items"]), last["next"]) == (10, None)
    failed = site.get(f"runs/{run_id}/steps", under="lines", status="failed", limit=2)
    assert [one["index"] for one in failed["items"]] == [3, 13]
    rest = site.get(f"runs/{run_id}/steps", under="lines", status="failed", **{"from": failed["next"]})
    assert [one["index"] for one in rest["items"]] == [23]
    inside = site.get(f"runs/{run_id}/steps", under="lines[13]")
    assert [one["path"] for one in inside["items"]] == ["lines[13]/pack"]
    # Earlier moments are folded, too: the first, the last and the failed items, the others counted.
    past = site.get(f"runs/{run_id}/past", id=site.get(f"runs/{run_id}/changes")["at"])
    assert past["folded"] == {"lines": {"completed": 9}}
    shown = [one["path"] for one in past["steps"] if one["kind"] == "item"]
    assert shown == [f"lines[{index}]" for index in (*range(10), 13, *range(20, 30))]


def test_iterations_and_checkpoints_come_in_pages(site: Site) -> None:
    site.inline.define("l", loop("pages", do=[step(lambda: 1, name="x")], max_iterations=7))
    run_id = run(site, "l", {})
    found = site.get(f"runs/{run_id}/steps", under="pages", limit=5)
    assert [(one["path"], one["status"]) for one in found["items"]][4] == ("pages[4]", "completed")
    assert (found["next"], found["total"]) == ("5", 7)

    @flow(registry=site.inline.registry)
    def long(ctx: Any) -> int:
        for n in range(30):
            ctx.step(abs, n, name="one")
        return 1

    site.inline.process.register_workflows()
    run_id = run(site, "long", {})
    found = site.get(f"runs/{run_id}/steps", under="long", limit=20)
    more = site.get(f"runs/{run_id}/steps", under="long", limit=20, **{"from": found["next"]})
    assert [one["index"] for one in found["items"] + more["items"]] == list(range(30))
    assert found["total"] == 30


def test_one_step_has_its_attempts_with_tracebacks_and_its_logs(site: Site) -> None:
    def charge(log: Any) -> None:
        log.warning("asking the bank")
        raise StepError("declined, token=abc")

    site.inline.define("w", step(charge, name="charge", max_attempts=1, timeout=60))
    run_id = run(site, "w", {})
    found = site.get(f"runs/{run_id}/step", step="charge")
    assert found["step"]["status"] == "failed"
    [attempt] = found["attempts"]
    assert attempt["task_id"] == f"{run_id}:charge:1"
    assert "declined" in attempt["error"]["traceback"]
    assert "abc" not in attempt["error"]["traceback"]
    assert found["logs"][0]["message"] == "asking the bank"
    assert found["options"] == {"max_attempts": 1, "timeout": 60.0}
    assert site.ask("GET", f"runs/{run_id}/step", params={"step": "none"}).status_code == 404


def test_the_past_of_a_run_can_be_seen_at_each_entry(site: Site) -> None:
    site.inline.define("v", step(lambda: 1, name="a"), wait_event_step("t", name="b"), step(lambda: 1, name="c"))
    run_id = run(site, "v", {})
    site.inline.rival.send_event("t", {})
    site.inline.drain()
    site.inline.rival.rewind(run_id, "c", by="ann")
    site.inline.drain()
    found = site.get(f"runs/{run_id}/changes")
    names = [(found["paths"][where], found["statuses"][status]) for _, _, where, status in found["rows"]]
    assert names[:2] == [("a", "running"), ("a", "completed")]
    assert ("c", "deleted") in names
    assert any(mark[2] == "rewind_run" and mark[4] == "ann" for mark in found["marks"])
    waiting = next(row[0] for row, name in zip(found["rows"], names, strict=True) if name == ("b", "waiting"))
    past = site.get(f"runs/{run_id}/past", id=waiting)
    assert past["run"]["status"] == "suspended"
    assert {one["path"]: one["status"] for one in past["steps"]} == {"a": "completed", "b": "waiting"}
    assert site.ask("GET", f"runs/{run_id}/past", params={"id": 0}).status_code == 404


def test_the_past_says_which_side_a_branch_took_and_since_when_a_composite_was_open(site: Site) -> None:
    ways = {"then": [step(lambda: 1, name="x")], "otherwise": [step(lambda: 2, name="z")]}
    sides = branch("large?", when=lambda input: input["large"], **ways)  # type: ignore[arg-type]
    site.inline.define("w", sides, step(lambda: 1, name="y"))
    run_id = run(site, "w", {"large": True})
    now = site.get(f"runs/{run_id}")["steps"]
    past = site.get(f"runs/{run_id}/past", id=site.get(f"runs/{run_id}/changes")["at"])["steps"]
    [before, after] = [next(one for one in steps if one["path"] == "large?") for steps in (past, now)]
    assert (before["taken"], after["taken"]) == ("then", "then")
    inside = next(one for one in past if one["path"] == "large?/x")
    assert before["created_at"] <= inside["created_at"] <= before["completed_at"]
    assert all(one["created_at"] for one in past)


# -- many runs --------------------------------------------------------------------------------------------


def ended(site: Site, bulk_id: str) -> Any:
    until = time.monotonic() + 30
    while (found := site.get(f"bulk/{bulk_id}"))["state"] == "running":
        assert time.monotonic() < until, "the bulk action does not end"
    return found


def test_a_bulk_action_does_exactly_what_its_preview_has_shown(site: Site) -> None:
    site.inline.define("waits", wait_event_step("t", name="b"))
    ids = [run(site, "waits", {}, f"r{n}") for n in range(3)]
    refused = site.ask("POST", "bulk", json={"verb": "cancel", "runs": ids, "dry_run": False})
    assert refused.status_code == 422
    preview = site.ask("POST", "bulk", json={"verb": "cancel", "filter": {"workflow": "waits"}, "dry_run": True})
    assert preview.status_code == 202
    shown = ended(site, preview.json()["id"])
    assert {one["run"] for one in shown["outcomes"]} == set(ids)
    assert shown["commands"]["shell"] == "rival cancel --workflow waits --yes"
    run(site, "waits", {}, "later")
    site.inline.rival.cancel("r1")
    done = site.post("bulk", preview=shown["id"], dry_run=False)
    found = ended(site, done["id"])
    assert (found["state"], found["total"], found["refused"]) == ("done", 3, 1)
    assert site.inline.rival.state("later").status == "suspended"
    assert site.inline.rival.state("r0").status == "cancelled"
    assert [one["id"] for one in site.get("bulk")["items"]] == [done["id"], shown["id"]]
    [entry] = site.audited()
    assert (entry["what"], entry["about"]) == ("bulk", f"bulk:{done['id']}")
    kept = {name: entry["detail"][name] for name in ("verb", "changed", "refused", "of")}
    assert kept == {"verb": "cancel", "changed": 2, "refused": 1, "of": 3}


def test_a_preview_is_confirmed_once(site: Site) -> None:
    """A rewind that is confirmed twice would run its steps twice."""
    site.inline.define("one", step(lambda: 1, name="a"))
    run_id = run(site, "one", {}, "r")
    shown = ended(site, site.post("bulk", verb="rewind", runs=[run_id], step="a")["id"])
    with ThreadPoolExecutor(4) as threads:
        order = {"preview": shown["id"], "dry_run": False}
        answers = list(threads.map(lambda _: site.ask("POST", "bulk", json=order), range(4)))
    assert sorted(one.status_code for one in answers) == [202, 409, 409, 409]
    [done] = [one.json() for one in answers if one.status_code == 202]
    assert ended(site, done["id"])["refused"] == 0
    assert site.get(f"bulk/{shown['id']}")["confirmed"] is True
    site.inline.drain()
    rewound = [one for one in site.get("runs/r/history")["items"] if one["what"] == "rewind_run"]
    assert len(rewound) == 1


def test_another_process_of_the_dashboard_shows_a_bulk_action_with_its_outcomes(site: Site) -> None:
    site.inline.define("waits", wait_event_step("t", name="b"))
    ids = [run(site, "waits", {}, f"r{n}") for n in range(2)]
    shown = ended(site, site.post("bulk", verb="cancel", runs=ids, dry_run=True)["id"])
    site.inline.rival.cancel("r1")
    done = ended(site, site.post("bulk", preview=shown["id"], dry_run=False)["id"])
    other = Site(site.inline)
    known = {name: value for name, value in done.items() if name not in ("cost", "started_at", "ended_at")}
    found = other.get(f"bulk/{done['id']}")
    assert {name: found[name] for name in known} == known
    kept = [one["id"] for one in other.get("bulk")["items"]]
    assert kept == [done["id"]], "previews are of the process that made them"
    assert other.ask("GET", f"bulk/{shown['id']}").status_code == 404
    other.close()


def test_the_oldest_bulk_actions_go_with_their_outcomes(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_records, "KEPT", 2)
    site.inline.define("waits", wait_event_step("t", name="b"))
    made = []
    for number in range(4):
        shown = ended(site, site.post("bulk", verb="cancel", runs=[run(site, "waits", {}, f"r{number}")])["id"])
        made.append(ended(site, site.post("bulk", preview=shown["id"], dry_run=False)["id"])["id"])
    with site.inline.rival.database.transaction() as connection:
        kept = connection.execute(select(operator_tables.bulks.c.id)).scalars().all()
        outcomes = connection.execute(select(operator_tables.bulk_outcomes.c.bulk_id)).scalars().all()
    assert sorted(kept) == sorted(outcomes) == sorted(made[-2:])
