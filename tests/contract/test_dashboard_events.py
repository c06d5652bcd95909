"""Events, waits, schedules, the audit and `why` through the dashboard's API."""

from __future__ import annotations

from typing import Any

from httpx import Response
from pydantic import BaseModel, SecretStr

from rival_client.sql.reads.schedule_reads import ScheduleRecord
from rival_workers import step, wait_event_step
from tests.support.dashboard import Site


def test_a_topic_shows_who_waits_and_which_event_nearly_fits(site: Site) -> None:
    site.inline.define("waits", wait_event_step("re/ply", name="b", key="ann"))
    site.inline.rival.run("waits", {}, "w")
    site.inline.drain()
    sent = site.ask(
        "POST", "events", json={"topic": "re/ply", "payload": {"token": "x"}, "key": "Ann", "event_id": "e"}
    )
    assert (sent.status_code, sent.json()["status"]) == (201, "sent")
    site.inline.drain()
    [topic] = site.get("topics")["items"]
    assert (topic["topic"], topic["kept"], topic["waiting"]["count"]) == ("re/ply", 1, 1)
    [wait] = site.get("topics/re~2Fply/waits")["items"]
    assert (wait["run"], wait["key"], wait["nearest"]) == ("w", "ann", {"event": "e", "key": "Ann", "differs": ["key"]})
    [event] = site.get("events", topic="re/ply")["items"]
    assert event["payload"]["value"] == {"token": "***"}
    site.post("events", topic="re/ply", key="ann")
    site.inline.drain()
    received = [one for one in site.get("events", limit=1)["items"] if one["status"] == "consumed"]
    assert site.get(f"events/{received[0]['id']}")["deliveries"][0]["run"] == "w"
    first = site.get("events", limit=1)
    assert site.get("events", limit=1, after=first["next"])["items"][0]["id"] == "e"
    assert [one["what"] for one in site.audited()] == ["send_event", "send_event"]


def test_schedules_can_be_made_paused_fired_and_removed(site: Site) -> None:
    site.inline.define("report", step(lambda: 1, name="a"))
    made = site.ask("PUT", "schedules/my~20report", json={"workflow": "report", "cron": "0 3 * * *"})
    assert made.status_code == 200
    assert len(made.json()["next"]) == 5
    assert site.post("schedules/my~20report/pause")["changed"] is True
    [shown] = site.get("schedules")["items"]
    assert (shown["paused_by"], shown["next_at"]) == ("owner@dashboard", None)
    run_id = site.post("schedules/my~20report/fire")["run"]
    assert run_id.startswith("my report@")
    assert site.post("schedules/my~20report/resume")["changed"] is True
    found = site.post("schedules/my~20report/backfill", since="3d", dry_run=True)
    assert len(found["runs"]) in (2, 3)
    assert site.ask("DELETE", "schedules/my~20report").json()["removed"] is True
    assert site.ask("POST", "schedules/none/pause", json={}).status_code == 404
    whats = [one["what"] for one in site.audited()]
    assert whats == ["remove_schedule", "resume_schedule", "fire_schedule", "pause_schedule", "put_schedule"]
    site.inline.drain()


def test_why_is_an_answer_of_the_api(site: Site) -> None:
    site.inline.define("waits", wait_event_step("reply", name="b"))
    site.inline.rival.run("waits", {}, "w")
    site.inline.drain()
    found = site.get("runs/w/why")
    assert found["reasons"][0]["what"] == "event"
    assert found["sentence"] == "b waits for an event of topic reply."
    assert site.ask("GET", "runs/none/why").status_code == 404


class Card(BaseModel):
    number: SecretStr
    note: str | None = "none yet"


def test_a_schedule_hides_the_secrets_of_its_workflow_and_keeps_what_a_change_does_not_name(site: Site) -> None:
    site.inline.define("pay", step(lambda: 1, name="a"), input=Card)
    labels = {"labels": {"team": "blue"}, "priority": "high"}
    site.inline.rival.schedule("pay", "0 3 * * *", name="nightly", input={"number": "4000-1"}, **labels)  # type: ignore[arg-type]
    [shown] = site.get("schedules")["items"]
    assert shown["input"]["value"] == {"number": "***"}
    assert "4000-1" not in str(shown)

    def change(**given: Any) -> Response:
        return site.ask("PUT", "schedules/nightly", json={"workflow": "pay", "cron": "0 4 * * *", **given})

    def stored() -> ScheduleRecord:
        [found] = site.inline.rival.schedules()
        return found

    command = change(dry_run=True).json()["commands"]["shell"]
    assert command == (
        "# Put in the hidden values (***) first:\n"
        """# rival schedule add nightly pay '0 4 * * *' '{"number": "***"}' --priority high --label team=blue"""
    )
    assert change().status_code == 200
    assert (stored().input, stored().cron, stored().options) == ({"number": "4000-1"}, "0 4 * * *", labels)
    assert change(input={"number": "***", "note": None}).status_code == 200
    assert stored().input == {"number": "4000-1", "note": None}
    refused = site.ask("PUT", "schedules/other", json={"workflow": "pay", "every": 60, "input": {"number": "***"}})
    assert (refused.status_code, refused.json()["errors"][0]["pointer"]) == (422, "/input/number")
