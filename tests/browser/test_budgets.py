"""Sizes: what a first visit loads, and runs with thousands of steps."""

from __future__ import annotations

import time
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import OpenPage, Site

FIRST_LOAD = 60_000
NODES = 1_500


def test_a_first_visit_loads_little(browser: Browser, site: Site, cookies: Any) -> None:
    page = browser.new_context(storage_state=cookies).new_page()
    sizes: dict[str, int] = {}
    page.on("requestfinished", lambda request: sizes.update({request.url: request.sizes()["responseBodySize"]}))
    page.goto(site.url + "runs")
    page.get_by_role("grid").wait_for()
    files = {url: size for url, size in sizes.items() if "/api/" not in url}
    page.context.close()
    assert len(files) > 10
    assert sum(files.values()) <= FIRST_LOAD, sorted(files.items(), key=lambda one: -one[1])[:8]


def nodes(page: Page) -> int:
    return int(page.evaluate("document.querySelectorAll('*').length"))


def seconds_to_use(page: Page, path: str, ready: str) -> float:
    """From following the link until the graph is drawn and answers a key."""
    began = time.monotonic()
    page.evaluate("path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')) }", path)
    page.locator(ready).first.wait_for()
    page.locator(ready).first.focus()
    page.keyboard.press("ArrowDown")
    page.locator("[role=treeitem][aria-selected=true]").wait_for()
    return time.monotonic() - began


def test_runs_of_ten_thousand_steps_stay_small_and_quick(open_page: OpenPage, site: Site) -> None:
    site.enlarge()
    page = open_page("runs/order-done")
    page.get_by_role("tree").wait_for()
    for run_id, ready, told in (
        ("big-items", '[data-path="accounts"]', "10,000 of 10,000"),
        ("big-flow", '[data-path="onboarding"]', "10,001 checkpoints"),
    ):
        # Generous: the limit of a second holds on a machine that does nothing else.
        assert seconds_to_use(page, f"runs/{run_id}", ready) < 5
        expect(page.get_by_role("tree")).to_contain_text(told)
        assert nodes(page) < NODES
        answer = site.api.get(f"runs/{run_id}", params={"fold": 20})
        assert len(answer.content) < 200_000
        page.keyboard.press("2")
        expect(page.get_by_role("region", name="Timeline")).to_be_visible(timeout=20_000)
        assert nodes(page) < NODES
