"""Every page in both themes and on a phone: no violation of accessibility rules, nothing in the console."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import OpenPage, Site, follow

AXE = (Path(__file__).parent / "vendor/axe.min.js").read_text()
PAGES = {
    "runs": "runs",
    "runs-chosen": "runs?status=failed",
    "run": "runs/order-refused",
    "run-flow": "runs/onboarding-ann",
    "preview": "runs/order-refused?do=rewind&step=in-stock%3F/pick",
    "timeline": "runs/order-refused?tab=timeline",
    "history": "runs/order-refused?tab=history",
    "logs": "runs/order-refused?tab=logs",
    "family": "runs/order-refused?tab=family",
    "data": "runs/order-refused?tab=data",
    "compare": "runs/order-refused?tab=compare",
    "diff": "runs/order-refused/diff/order-done",
    "workflows": "workflows",
    "workflow": "workflows/order_fulfilment",
    "start": "workflows/order_fulfilment/start",
    "fleet": "fleet",
    "events": "events?topic=expense.decided",
    "schedules": "schedules",
    "limits": "limits",
    "bulk": "bulk",
    "audit": "audit",
}
#: Chromium writes a message for each.
NOT_THERE = {
    "versions": "workflows/order_fulfilment/diff/none/none",
    "unknown-run": "runs/none",
    "unknown": "none/at/all",
}
ALL = PAGES | NOT_THERE
EXPECTED = "404"


#: WCAG 2.2 A and AA and best practices.
RULES = {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]}
#: All that can differ between two themes of one page.
COLOURS = {"type": "rule", "values": ["color-contrast"]}


def violations(page: Page, rules: dict[str, object] = RULES) -> list[str]:
    """By the browser's debugger, since the page's policy lets no script in."""
    session = page.context.new_cdp_session(page)
    session.send("Runtime.evaluate", {"expression": AXE})
    run = f"axe.run(document, {{runOnly: {json.dumps(rules)}}})"
    told = session.send("Runtime.evaluate", {"expression": run, "awaitPromise": True, "returnByValue": True})
    session.detach()
    found = told["result"]["value"]["violations"]
    return [f"{one['id']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found]


def violations_of_both_themes(page: Page) -> list[str]:
    found = violations(page)
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    in_the_dark = violations(page, COLOURS)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    return found + in_the_dark


@pytest.fixture(scope="module")
def wide(open_pages: OpenPage) -> Page:
    return open_pages(expects=EXPECTED, color_scheme="light")


@pytest.fixture(scope="module")
def phone(open_pages: OpenPage) -> Page:
    return open_pages(expects=EXPECTED, viewport={"width": 390, "height": 844}, has_touch=True)


def settled(page: Page) -> None:
    """Waits until the page has all that it asks for at first."""
    expect(page.get_by_role("main")).to_have_count(1)
    expect(page.locator(".load")).to_have_count(0)
    for _ in range(2):
        page.evaluate("new Promise((done) => requestIdleCallback(done, {timeout: 400}))")


def shown(page: Page, name: str) -> None:
    follow(page, ALL[name])
    settled(page)


@pytest.mark.parametrize("name", ALL)
def test_a_page_has_no_violations_in_either_theme(wide: Page, name: str) -> None:
    shown(wide, name)
    assert violations_of_both_themes(wide) == []


@pytest.mark.parametrize("name", ALL)
def test_a_page_fits_a_phone(phone: Page, name: str) -> None:
    shown(phone, name)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(phone) == []


OVERLAYS = {
    "palette": ("runs", lambda page: page.keyboard.press("Control+k")),
    "help": ("runs", lambda page: page.keyboard.press("?")),
    "menu": ("runs/order-refused", lambda page: page.get_by_role("button", name="More").click()),
    "new schedule": ("schedules", lambda page: page.get_by_role("button", name="New schedule…").click()),
    "send": ("events", lambda page: page.get_by_role("button", name="Send an event…").click()),
    "answer": ("events", lambda page: page.get_by_role("button", name="Answer an external step…").click()),
    "new rule": ("limits", lambda page: page.get_by_role("button", name="New rule…").click()),
    "reveal": ("runs/order-done?tab=data", lambda page: page.get_by_role("button", name="show…").click()),
}


@pytest.mark.parametrize("name", OVERLAYS)
def test_what_opens_over_a_page_has_no_violations(wide: Page, name: str) -> None:
    path, open_it = OVERLAYS[name]
    follow(wide, path)
    settled(wide)
    open_it(wide)
    expect(wide.locator("dialog[open], [role=menu]")).to_be_visible()
    assert violations_of_both_themes(wide) == []
    wide.keyboard.press("Escape")
    expect(wide.locator("dialog[open], [role=menu]")).to_have_count(0)


def test_the_login_and_a_shared_run_have_no_violations(browser: Browser, site: Site) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.url)
    expect(page.get_by_role("form", name="Log in")).to_be_visible()
    assert violations(page) == []
    page.goto(site.url + site.post("shares", run="order-refused", hours=1)["url"])
    expect(page.get_by_role("tree")).to_be_visible()
    assert violations(page) == []
    context.close()
