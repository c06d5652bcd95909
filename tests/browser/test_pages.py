"""Every page in both themes and on a phone: no violation of accessibility rules, nothing in the console."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage, follow

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
    "fleet": "fleet",
    "events": "events?topic=expense.decided",
    "schedules": "schedules",
    "limits": "limits",
    "bulk": "bulk",
    "audit": "audit",
}


def violations(page: Page) -> list[str]:
    """Of WCAG 2.2 A and AA and best practices; by the browser's debugger, since the page's policy lets no script in."""
    tags = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
    session = page.context.new_cdp_session(page)
    session.send("Runtime.evaluate", {"expression": AXE})
    run = f"axe.run(document, {{runOnly: {json.dumps(tags)}}})"
    told = session.send("Runtime.evaluate", {"expression": run, "awaitPromise": True, "returnByValue": True})
    session.detach()
    found = told["result"]["value"]["violations"]
    return [f"{one['id']}: {[node['html'][:200] for node in one['nodes'][:3]]}" for one in found]


@pytest.fixture(scope="module", params=["light", "dark"])
def wide(request: pytest.FixtureRequest, open_pages: OpenPage) -> Page:
    return open_pages(color_scheme=request.param)


@pytest.fixture(scope="module")
def phone(open_pages: OpenPage) -> Page:
    return open_pages(viewport={"width": 390, "height": 844}, has_touch=True)


def shown(page: Page, name: str) -> None:
    follow(page, PAGES[name])
    expect(page.get_by_role("main")).to_have_count(1)
    expect(page.locator(".load")).to_have_count(0)
    page.wait_for_timeout(250)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_no_violations(wide: Page, name: str) -> None:
    shown(wide, name)
    assert violations(wide) == []


@pytest.mark.parametrize("name", ["runs", "run", "timeline", "workflow", "fleet", "events"])
def test_a_page_fits_a_phone(phone: Page, name: str) -> None:
    shown(phone, name)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    assert violations(phone) == []
