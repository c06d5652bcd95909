"""No answer of the API shows a secret: neither one that is known by its name, nor one that only the schema of a
workflow marks. Every route that reads is asked about runs that have secrets in everything."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel, Field, SecretStr

from rival_workers import StepError, for_each, step, wait_event_step
from rival_workers.dashboard.ids import in_path
from rival_workers.dashboard.route import Route
from rival_workers.dashboard.routes import TABLE
from rival_workers.testing.world import migrated
from tests.support.dashboard import Site
from tests.support.inline import Inline

NAMED, MARKED = "hunter2-NAMED", "hunter2-MARKED"
SECRETS = {"password": NAMED, "pin": MARKED}


class Account(BaseModel):
    password: str
    pin: SecretStr = Field(json_schema_extra={"writeOnly": True})
    lines: list[dict[str, Any]] = []


def leaks(log: Any, state: Any, ctx: Any) -> dict[str, str]:
    log.info("log in", **SECRETS)
    log.info(f"log in with password={NAMED}")
    state.password, state.pin = NAMED, MARKED
    ctx.heartbeat(SECRETS)
    return dict(SECRETS)


def fails() -> None:
    raise StepError(f"declined password={NAMED}")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    file = tmp_path_factory.mktemp("secrets") / "rival.db"
    file.write_bytes(migrated())
    inline = Inline(f"sqlite:///{file}")
    each = for_each("lines", items=lambda input: input.lines, do=[step(leaks, name="pack")])
    wait = wait_event_step("t", name="w", where={"password": NAMED})
    inline.define("leaky", step(leaks, name="a"), each, wait, input=Account)
    inline.define(
        "fails", step(leaks, name="a"), step(fails, name="b", max_attempts=1, on_failure="dead_letter"), input=Account
    )
    for workflow, run_id in (("leaky", "ends"), ("leaky", "waits"), ("fails", "f"), ("fails", "g")):
        inline.rival.run(workflow, {**SECRETS, "lines": [SECRETS]}, run_id)
    inline.drain()
    inline.rival.send_event("t", SECRETS, event_id="e1", run_id="ends")
    inline.drain()
    inline.rival.send_event("t", {**SECRETS, "password": f"not {NAMED}"}, event_id="e2")
    inline.rival.schedule("leaky", "0 3 * * *", name="s", input=SECRETS)
    opened = Site(inline)
    yield opened
    opened.close()
    inline.close()


def names_in(site: Site) -> dict[str, list[str]]:
    """What the parameters of paths are asked with."""
    preview = site.post("bulk", verb="set-result", runs=["f"], step="b", result=SECRETS, reason="r")
    shares = [site.post("shares", run=one)["url"].removeprefix("share/") for one in ("ends", "f")]
    entries = site.get("runs/f/history")["items"]
    versions = {one["version"] for one in site.get("workflows/leaky")["versions"]}
    return {
        "run_id": ["ends", "waits", "f"],
        "other": ["g"],
        "workflow": ["leaky", "fails"],
        "topic": ["t"],
        "event_id": ["e1", "e2"],
        "schedule": ["s"],
        "bulk_id": [preview["id"]],
        "token": shares,
        "entry_id": [str(one["id"]) for one in entries],
        "old": sorted(versions),
        "new": sorted(versions),
    }


STEPS = [{"step": path} for path in ("a", "b", "lines", "lines[0]/pack", "w")]
VALUES = [{"of": of} for of in ("input", "result", "error")]
QUERIES: dict[str, list[dict[str, Any]]] = {
    "/runs/{run_id}/step": STEPS,
    "/runs/{run_id}/steps": [{"under": "lines"}],
    "/runs/{run_id}/policy": STEPS,
    "/runs/{run_id}/payload": [*VALUES, *({"of": of, **one} for of in ("step-result", "item") for one in STEPS)],
    "/runs/{run_id}/past": [{"id": str(number)} for number in range(1, 40)],
}


def asked(site: Site, route: Route) -> Iterator[str]:
    names = names_in(site)
    parts = re.findall(r"\{(\w+)\}", route.path)
    for given in itertools.product(*(names.get(part, ["1"]) for part in parts)):
        path = route.path
        for part, name in zip(parts, given, strict=True):
            path = path.replace(f"{{{part}}}", in_path(name), 1)
        for query in QUERIES.get(route.path, [{}]):
            found = site.ask("GET", path.lstrip("/"), params=query)
            if found.is_success:
                yield found.text


#: They are asked below, or have no values of runs.
OTHERS = ("/stream", "/updates")
READING = [route for route in TABLE if not route.writes and route.path not in OTHERS]
#: Nothing that exists here has them.
EMPTY = ("/limits/{limit}", "/breakers/{breaker}", "/idempotency-keys/one")


@pytest.mark.parametrize("route", READING, ids=lambda route: route.path)
def test_an_answer_has_no_secret(site: Site, route: Route) -> None:
    answers = list(asked(site, route))
    assert answers or route.path in EMPTY, "nothing was found to look at"
    for text in answers:
        assert NAMED not in text
        assert MARKED not in text


def test_live_updates_have_no_secret(site: Site) -> None:
    cursor = site.get("updates", run="live", logs="live")["cursor"]
    site.inline.rival.run("fails", {**SECRETS, "lines": [SECRETS]}, "live")
    site.get("updates", run="live", logs="live", rows="live", after=cursor)
    site.board.hub.try_once()
    site.inline.drain()
    for _ in range(2):
        site.board.hub._polls._due.clear()
        site.board.hub.try_once()
    found = site.ask("GET", "updates", params={"run": "live", "logs": "live", "rows": "live", "after": cursor}).text
    assert '"event":"logs"' in found
    assert NAMED not in found
    assert MARKED not in found
