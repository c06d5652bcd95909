"""What each role sees in the browser, and what it cannot do there; pages of other sites and other names of the host."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import CHROMIUM, OpenPage, Site
from tests.browser.test_pages import settled

FETCH = """async ([method, path, body]) => {
  const headers = {"Content-Type": "application/json"};
  return (await fetch(`api/v1/${path}`, {method, headers, body: JSON.stringify(body)})).status;
}"""
#: What each role may not do, as its own page would ask for it.
BEYOND = {
    "viewer": [
        ("POST", "runs/paused-1/resume", {}),
        ("POST", "runs", {"workflow": "slow_steps"}),
        ("POST", "events", {"topic": "t"}),
    ],
    "operator": [
        ("PUT", "limits/stamps", {"max": 1}),
        ("POST", "shares", {"run": "order-done"}),
        ("POST", "policies", {"options": {"timeout": 1}}),
    ],
}


def disabled(page: Page, name: str) -> bool:
    return page.get_by_role("button", name=name, exact=True).get_attribute("aria-disabled") == "true"


def test_a_viewer_sees_runs_and_cannot_change_them(open_page: OpenPage, site: Site) -> None:
    page = open_page("runs/order-refused", role="viewer")
    settled(page)
    expect(page.get_by_role("tree")).to_contain_text("book_carrier")
    assert disabled(page, "Retry…")
    page.get_by_role("button", name="Retry…").click(force=True)
    expect(page.get_by_role("region", name="Preview")).to_have_count(0)
    for name in ("Set result…", "Skip…", "show…"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    page.get_by_role("button", name="More").click()
    expect(page.get_by_role("menuitem", name="Share")).to_have_count(0)
    page.keyboard.press("Escape")
    page.keyboard.press("r")
    expect(page.get_by_role("region", name="Preview")).to_have_count(0)
    assert site.status("order-refused") == "failed"


@pytest.mark.parametrize(
    ("role", "path", "absent", "present"),
    [
        ("viewer", "workflows", "Start slow_steps", None),
        ("operator", "workflows", None, "Start slow_steps"),
        ("viewer", "events", "Send an event…", None),
        ("operator", "events", None, "Send an event…"),
        ("viewer", "fleet", "Recover…", None),
        ("operator", "fleet", "Recover…", None),
        ("admin", "fleet", None, "Recover…"),
    ],
)
def test_a_page_has_what_the_role_may_do(open_page: OpenPage, role: str, path: str, absent: Any, present: Any) -> None:
    page = open_page(path, role=role)
    settled(page)
    control = page.get_by_role("main").locator("a.b, button").filter(has_text=(absent or present).split()[0])
    expect(control).to_have_count(0) if absent else expect(control.first).to_be_visible()


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_only_an_admin_changes_schedules_limits_and_rules(open_page: OpenPage, role: str) -> None:
    page = open_page("schedules", role=role)
    settled(page)
    assert disabled(page, "New schedule…")
    page.get_by_role("button", name="Actions of reports").click()
    expect(page.get_by_role("menuitem", name="Remove…")).to_have_attribute("aria-disabled", "true")
    page.goto(page.url.replace("schedules", "limits"))
    settled(page)
    assert disabled(page, "New rule…")
    assert disabled(page, "Open one…") == (role == "viewer")


@pytest.mark.parametrize("role", BEYOND)
def test_the_server_refuses_what_the_page_does_not_offer(open_page: OpenPage, role: str) -> None:
    page = open_page("runs", role=role, expects="403 (Forbidden)")
    settled(page)
    for asked in BEYOND[role]:
        assert page.evaluate(FETCH, list(asked)) == 403, asked


def test_a_session_that_ends_shows_the_login(open_page: OpenPage, site: Site) -> None:
    page = open_page("runs", role="viewer", expects="401 (Unauthorized)", viewport={"width": 1300, "height": 800})
    settled(page)
    page.context.clear_cookies()
    # By the page's own reading, which may come before a click, or by that of a page that is opened.
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.get_by_role("form", name="Log in")).to_be_visible()


# -- other sites ------------------------------------------------------------------------------------------


@pytest.fixture
def other_site() -> Iterator[str]:
    """A page of another origin, on another port of the same machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>another site</title><body></body>")

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://localhost:{server.server_port}/"
    server.shutdown()


ATTACKS = """async (url) => {
  const how = {method: "POST", credentials: "include", body: "{}"};
  const told = [(answer) => answer.type, () => "blocked"];
  const ask = (more) => fetch(url + "api/v1/runs/paused-1/resume", {...how, ...more}).then(...told);
  const json = {headers: {"Content-Type": "application/json"}};
  const found = [await ask({}), await ask({mode: "no-cors"}), await ask(json)];
  found.push(await fetch(url + "api/v1/runs", {credentials: "include"}).then(() => "read", () => "blocked"));
  const frame = document.createElement("iframe");
  frame.src = url + "runs";
  document.body.append(frame);
  await new Promise((done) => { frame.onload = done; setTimeout(done, 3000); });
  let inside = "closed";
  try { inside = frame.contentDocument ? "open" : "closed"; } catch { inside = "closed"; }
  return {asked: found, inside};
}"""


def test_a_page_of_another_site_reads_and_changes_nothing(
    browser: Browser, site: Site, cookies: Any, other_site: str
) -> None:
    context = browser.new_context(storage_state=cookies)
    page = context.new_page()
    page.goto(other_site)
    found = page.evaluate(ATTACKS, site.url)
    assert found["asked"] == ["blocked"] * 4
    assert found["inside"] == "closed"
    assert site.get("runs/paused-1")["run"]["paused_at"] is not None
    page.set_content(f'<form method=post action="{site.url}api/v1/runs/paused-1/resume"><input name=a></form>')
    page.locator("form").evaluate("one => one.submit()")
    page.wait_for_url("**/resume")
    assert "CrossSite" in page.content() or "LoginNeeded" in page.content()
    assert site.get("runs/paused-1")["run"]["paused_at"] is not None
    context.close()


def test_another_name_for_this_machine_is_not_answered(browser: Browser, site: Site) -> None:
    """DNS rebinding: the name of another site points here."""
    port = urlsplit(site.url).port
    args = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
    deceived = browser.browser_type.launch(executable_path=CHROMIUM, args=args)
    page = deceived.new_page()
    answer = page.goto(f"http://evil.example:{port}/runs")
    assert answer is not None
    assert answer.status == 421
    assert "UnknownHost" in page.content()
    deceived.close()
