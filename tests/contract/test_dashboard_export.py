"""Lists of runs as files, what the doctor says, and links to Flower."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from collections.abc import Iterator

import pytest

from rival_client.errors import InvalidSetting
from rival_workers import step
from rival_workers.dashboard.api import export
from rival_workers.dashboard.board_options import Options
from rival_workers.dashboard.launch import Address, Launch
from rival_workers.settings import WorkerSettings
from tests.support.dashboard import Site
from tests.support.inline import Inline
from tests.support.output import whole

FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " =1", "\r=1")


def explode(input: dict[str, str]) -> None:
    raise ValueError(input["text"])


@pytest.fixture
def site(file_url: str) -> Iterator[Site]:
    inline = Inline(file_url)
    inline.define("bad", step(explode))
    inline.define("good", step(lambda: 1, name="one"))
    opened = Site(inline)
    yield opened
    opened.close()
    inline.close()


def rows(site: Site, **query: object) -> list[dict[str, str]]:
    found = site.ask("GET", "runs/export", params=query)
    assert found.status_code == 200, found.text
    return list(csv.DictReader(io.StringIO(found.text, newline="")))


def test_a_list_is_downloaded_as_csv(site: Site) -> None:
    site.inline.rival.run("bad", {"text": 'a "quoted", text\nand a line'}, "b-1")
    site.inline.rival.run("good", None, "g-1")
    site.inline.drain()
    found = site.ask("GET", "runs/export", params={"format": "csv"})
    assert found.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    assert found.headers["content-disposition"].startswith('attachment; filename="runs-')
    assert found.headers["x-rival-more"] == "false"
    assert found.text.splitlines()[0] == ",".join(export.COLUMNS)
    good, bad = rows(site)
    assert (good["run"], good["workflow"], good["status"], good["error"]) == ("g-1", "good", "completed", "")
    assert dt.datetime.fromisoformat(good["created_at"]) <= dt.datetime.fromisoformat(good["completed_at"])
    assert float(good["seconds"]) >= 0
    assert (bad["failed_step"], bad["error_type"]) == ("explode", "ValueError")
    assert bad["error"] == 'a "quoted", text\nand a line'
    assert [row["run"] for row in rows(site, status="failed")] == ["b-1"]
    assert [row["run"] for row in rows(site, status="failed,cancelled")] == ["b-1"]
    assert [row["run"] for row in rows(site, error="ValueError")] == ["b-1"]
    assert [row["run"] for row in rows(site, q="g-")] == ["g-1"]


def test_json_lines_are_the_rows_of_the_list(site: Site) -> None:
    site.inline.rival.run("good", None, "g-1")
    site.inline.rival.run("good", None, "g-2")
    found = site.ask("GET", "runs/export", params={"format": "jsonl"})
    assert found.headers["content-type"] == "application/x-ndjson"
    assert [json.loads(line) for line in found.text.splitlines()] == site.get("runs")["items"]


@pytest.mark.parametrize("text", FORMULAS)
def test_a_text_that_a_spreadsheet_would_compute_is_made_harmless(site: Site, text: str) -> None:
    site.inline.rival.run("bad", {"text": text}, "b-1")
    site.inline.drain()
    [row] = rows(site)
    assert row["error"] == f"'{text}"
    assert export.harmless(text) == f"'{text}"


@pytest.mark.parametrize("text", ["a=1", "1-1", "'=1", "", "order-1", "a@b"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert export.harmless(text) == text


def test_run_ids_are_made_harmless_too(site: Site) -> None:
    site.inline.rival.run("good", None, "=cmd|x")
    assert [row["run"] for row in rows(site)] == ["'=cmd|x"]


def test_secrets_are_hidden_in_a_file_as_on_the_page(site: Site) -> None:
    site.inline.rival.run("bad", {"text": "password=hunter2"}, "b-1")
    site.inline.drain()
    for format in ("csv", "jsonl"):
        assert "hunter2" not in site.ask("GET", "runs/export", params={"format": format}).text
    assert "hunter2" not in json.dumps(site.get("runs"))


def test_a_file_is_read_page_by_page_and_says_that_there_is_more(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "_PAGE", 3)
    for number in range(8):
        site.inline.rival.run("good", None, f"g-{number}")
    assert [row["run"] for row in rows(site)] == [f"g-{number}" for number in reversed(range(8))]
    assert [row["run"] for row in rows(site, limit=7)] == [f"g-{number}" for number in range(7, 0, -1)]
    found = site.ask("GET", "runs/export", params={"limit": 7})
    assert found.headers["x-rival-more"] == "true"
    assert site.ask("GET", "runs/export", params={"limit": 8}).headers["x-rival-more"] == "false"


@pytest.mark.parametrize(
    "query", [{"limit": 10_001}, {"limit": 0}, {"format": "xls"}, {"input": '{"a": 1}'}, {"result": '{"a": 1}'}]
)
def test_what_an_export_cannot_do_is_refused(site: Site, query: dict[str, object]) -> None:
    assert site.ask("GET", "runs/export", params=query).status_code in (400, 422)


# -- doctor, Flower ---------------------------------------------------------------------------------------


def test_the_doctor_says_what_rival_doctor_says(site: Site) -> None:
    checks = {one["name"]: one for one in site.get("doctor")["checks"]}
    assert {"settings", "broker", "database", "schema", "workers"} <= checks.keys()
    assert checks["schema"]["state"] == "ok"
    assert checks["workers"].keys() == {"name", "state", "text", "do"}
    assert all(one["state"] in ("ok", "warning", "failed") for one in checks.values())


def test_one_examination_serves_all_viewers_for_a_while(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first = site.get("doctor")["checks"]
    monkeypatch.setattr("rival_workers.dashboard.api.fleet_status._checks", lambda settings: iter(()))
    assert site.get("doctor")["checks"] == first


def test_the_password_of_the_broker_is_not_shown(file_url: str) -> None:
    inline = Inline(file_url)
    settings = WorkerSettings(database_url=file_url, broker_url="redis://:hunter2@127.0.0.1:1/0")
    site = Site(inline, options=Options(settings=settings))
    assert "hunter2" not in json.dumps(site.get("doctor"))
    assert [one["state"] for one in site.get("doctor")["checks"] if one["name"] == "broker"] == ["failed"]
    site.close()
    inline.close()


def test_the_address_of_flower_is_a_setting(site: Site) -> None:
    settings = WorkerSettings.from_env({"RIVAL_FLOWER_URL": "https://flower.example.com/", "RIVAL_DATABASE_URL": ""})
    launch = Launch(settings.with_(database_url=site.inline.rival.settings.database_url), port=0)
    assert launch._options(Address("127.0.0.1", 1)).flower == "https://flower.example.com"
    for url in ("javascript:alert(1)", "flower", "https://u:p@flower", "https://flower?x=1", "https://"):
        with pytest.raises(
            InvalidSetting,
            match=whole(
                "RIVAL_FLOWER_URL='…' is not the address of a page: give https://flower.example.com, without a "
                "password."
            ),
        ):
            WorkerSettings.from_env({"RIVAL_FLOWER_URL": url})
