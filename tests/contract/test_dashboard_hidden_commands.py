"""The commands of an action have the values that it takes; those that are hidden are left out, and the text says so."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, SecretStr

from rival_client.errors import RivalError
from rival_workers import step, wait_event_step
from tests.contract.test_dashboard_commands import NAMES, parsed
from tests.support.dashboard import Site
from tests.support.inline import Inline

GAP = "# Put in the hidden values (***) first:\n# "


class Card(BaseModel):
    holder: str = "ann"
    pin: SecretStr


@pytest.fixture
def site(file_url: str) -> Iterator[Site]:
    inline = Inline(file_url)
    inline.define("plain", step(lambda: 1, name="a"), wait_event_step("t", name="b"))
    inline.define("pay", step(lambda: 1, name="a"), input=Card)
    inline.rival.run("plain", {"n": 1, "tags": [None, True]}, "p")
    inline.rival.run("pay", {"holder": "ann", "pin": "1234"}, "c")
    inline.drain()
    opened = Site(inline)
    yield opened
    opened.close()
    inline.close()


def sent(site: Site, curl: str) -> Any:
    """The answer to the call of the text."""
    words = shlex.split(curl)
    assert words[:2] == ["curl", "-X"]
    path = words[3].removeprefix("http://127.0.0.1/api/v1/")
    return site.ask(words[2], path, json=json.loads(words[words.index("-d") + 1])).raise_for_status().json()


def test_a_start_like_another_run_has_its_input(site: Site) -> None:
    texts = site.post("runs", workflow="plain", like="p", run_id="q", dry_run=True)["commands"]
    assert texts["shell"] == """rival run plain '{"n": 1, "tags": [null, true]}' --run-id q"""
    assert texts["python"] == "rival.run('plain', {'n': 1, 'tags': [None, True]}, run_id='q')"
    patched = site.post("workflows/plain/validate", like="p", patch={"n": 2, "tags": None})["commands"]
    assert patched["shell"] == """rival run plain '{"n": 2}'"""
    eval(texts["python"], {**NAMES, "rival": site.inline.rival})
    assert site.inline.rival.state("q").input == {"n": 1, "tags": [None, True]}


def test_a_start_like_a_run_with_a_hidden_value_says_that_it_is_missing(site: Site) -> None:
    for given in ({"like": "c"}, {"like": "c", "input": {"holder": "ann", "pin": "***"}}):
        texts = site.post("workflows/pay/validate", **given)["commands"]
        assert texts["shell"] == GAP + """rival run pay '{"holder": "ann", "pin": "***"}'"""
        assert texts["python"] == GAP + "rival.run('pay', {'holder': 'ann', 'pin': '***'})"
        assert "1234" not in str(texts)
        # The server copies it.
        started = sent(site, texts["curl"])["run"]
        assert site.inline.rival.state(started).input == {"holder": "ann", "pin": "1234"}


def test_a_schedule_that_keeps_its_input_has_it_in_its_commands(site: Site) -> None:
    site.inline.rival.schedule("plain", "0 4 * * *", name="s", input={"n": 7})
    change = {"workflow": "plain", "cron": "0 5 * * *"}
    texts = site.ask("PUT", "schedules/s", json={**change, "dry_run": True}).json()["commands"]
    assert texts["shell"] == """rival schedule add s plain '0 5 * * *' '{"n": 7}'"""
    eval(texts["python"], {**NAMES, "rival": site.inline.rival})
    [stored] = site.inline.rival.schedules()
    assert (stored.cron, stored.input) == ("0 5 * * *", {"n": 7})


def ended(site: Site, bulk_id: str) -> Any:
    until = time.monotonic() + 60
    while (found := site.get(f"bulk/{bulk_id}"))["state"] == "running":
        assert time.monotonic() < until, "the bulk action does not end"
    return found


def test_the_call_for_curl_of_a_preview_does_what_it_has_shown(site: Site) -> None:
    preview = ended(site, site.post("bulk", verb="cancel", runs=["p"])["id"])
    done = ended(site, sent(site, preview["commands"]["curl"])["id"])
    assert (done["dry_run"], done["state"], done["preview"]) == (False, "done", preview["id"])
    assert site.inline.rival.state("p").status == "cancelled"


def test_the_calls_for_curl_of_an_action_do_it_again(site: Site) -> None:
    order = {"verb": "set-result", "runs": ["p"], "step": "b", "result": {"n": 1}, "reason": "it's late"}
    preview = ended(site, site.post("bulk", **order)["id"])
    done = ended(site, site.post("bulk", preview=preview["id"], dry_run=False)["id"])
    first, note, second = done["commands"]["curl"].splitlines()
    assert note == "# As soon as that preview has ended, with the `id` of the answer:"
    site.inline.drain()
    again = ended(site, sent(site, first)["id"])
    assert (again["dry_run"], again["ended"], again["refused"]) == (True, 1, 1)
    assert sent(site, second.replace("ID", again["id"]))["dry_run"] is False


def test_an_action_on_many_runs_with_a_hidden_value_says_that_it_is_missing(site: Site) -> None:
    order = {"verb": "set-result", "runs": ["p"], "step": "b", "result": {"pin": "1"}, "reason": "x"}
    preview = ended(site, site.post("bulk", **order)["id"])
    shell = """rival set-result p b '{"pin": "***"}' --reason x"""
    assert preview["commands"]["shell"] == GAP + shell
    done = ended(site, sent(site, preview["commands"]["curl"])["id"])
    assert done["commands"]["python"].startswith(GAP + "rival.bulk(")
    assert done["commands"]["curl"].startswith(GAP + "curl ")
    assert all(line.startswith("# ") for line in done["commands"]["curl"].splitlines())
    assert parsed(shell) == "set-result"
    found = site.post("bulk", verb="pause", filter={"input": {"pin": "1"}})["commands"]
    assert found["shell"] == GAP + """rival pause --input '{"pin": "***"}' --yes"""


@pytest.mark.parametrize(
    ("order", "pointers"),
    [
        ({"verb": "rewind"}, ["/step"]),
        ({"verb": "rewind", "step": ""}, ["/step"]),
        ({"verb": "rewind", "step": " "}, ["/step"]),
        ({"verb": "skip"}, ["/step", "/reason"]),
        ({"verb": "skip", "step": "b"}, ["/reason"]),
        ({"verb": "set-result", "step": "b", "result": 1}, ["/reason"]),
        ({"verb": "set-result", "reason": "x"}, ["/step"]),
    ],
)
def test_a_preview_without_what_its_verb_needs_is_refused(
    site: Site, order: dict[str, Any], pointers: list[str]
) -> None:
    for chosen in ({"runs": ["p"]}, {"filter": {"workflow": "plain"}}):
        found = site.ask("POST", "bulk", json={**order, **chosen})
        assert (found.status_code, found.json()["code"]) == (422, "InvalidArgument")
        assert [one["pointer"] for one in found.json()["errors"]] == pointers
    single = site.ask("POST", f"runs/p/{order['verb']}", json={n: one for n, one in order.items() if n != "verb"})
    assert single.status_code == 422
    assert [one["pointer"] for one in single.json()["errors"]] == pointers
    assert site.get("bulk")["items"] == []


def test_a_run_id_that_cannot_be_one_is_refused_before_the_preview(site: Site) -> None:
    found = site.ask("POST", "bulk", json={"verb": "pause", "runs": ["p", ""]})
    assert (found.status_code, found.json()["errors"][0]["pointer"]) == (422, "/runs/1")


def test_a_preview_that_has_failed_cannot_be_confirmed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise RivalError("not now")

    monkeypatch.setattr(type(site.board.rival), "bulk", fail)
    failed = ended(site, site.post("bulk", verb="pause", runs=["p"])["id"])
    assert (failed["state"], failed["error"]) == ("failed", "not now")
    assert site.ask("POST", "bulk", json={"preview": failed["id"], "dry_run": False}).status_code == 422
