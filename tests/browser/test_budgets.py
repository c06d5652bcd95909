"""Sizes: what a first visit loads, and runs with thousands of steps."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from playwright.sync_api import Browser, CDPSession, Page, expect

from tests.browser.conftest import OpenPage, Site, follow
from tests.browser.test_pages import PAGES, settled

FIRST_LOAD = 60_000
#: What a view of a run adds that a link leads to at once: another tab than the graph, or the preview of a verb.
VIEW = 7_000
VIEWS = {f"tab={tab}": f"/run/{tab}.js" for tab in ("timeline", "history", "logs", "family", "data", "compare")}
VIEWS["do=rewind"] = "/run/preview.js"
NODES = 1_500
#: Seconds of work of the browser until a page can be used. Time that others on the machine take is not in it.
WORK = 1.0


@pytest.fixture(scope="module")
def visitor(browser: Browser, cookies: Any) -> Any:
    """A browser that keeps nothing from one page to the next."""
    context = browser.new_context(storage_state=cookies)
    page = context.new_page()
    page.context.new_cdp_session(page).send("Network.setCacheDisabled", {"cacheDisabled": True})
    yield page
    context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_first_visit_loads_little(visitor: Page, site: Site, name: str) -> None:
    sizes: dict[str, int] = {}
    take = lambda request: sizes.update({request.url: request.sizes()["responseBodySize"]})  # noqa: E731
    visitor.on("requestfinished", take)
    visitor.goto(site.url + PAGES[name])
    settled(visitor)
    view = VIEWS.get(PAGES[name].partition("?")[2].partition("&")[0])
    if view is not None and not any(view in url for url in sizes):
        visitor.wait_for_event("requestfinished", lambda request: view in request.url)
    visitor.remove_listener("requestfinished", take)
    files = {url: size for url, size in sizes.items() if "/api/" not in url}
    assert {"app.js", "first.js", "rival.css"} <= {url.rpartition("/")[2] for url in files}
    views = [files.pop(url) for url in list(files) if "/run/" in url]
    assert sum(files.values()) <= FIRST_LOAD, sorted(files.items(), key=lambda one: -one[1])[:12]
    assert sum(views) <= VIEW


def nodes(page: Page) -> int:
    return int(page.evaluate("document.querySelectorAll('*').length"))


class Work:
    """The time that the page's own thread has worked."""

    def __init__(self, page: Page) -> None:
        self._session: CDPSession = page.context.new_cdp_session(page)
        self._session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def seconds(self) -> float:
        found = self._session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in found if one["name"] == "TaskDuration"))


@pytest.fixture(scope="module")
def large(site: Site) -> Site:
    site.enlarge()
    return site


LARGE = [
    ("big-items", '[data-path="accounts"]', "10,000 of 10,000"),
    ("big-flow", '[data-path="onboarding"]', "10,001 checkpoints"),
]


@pytest.mark.parametrize(("run_id", "ready", "told"), LARGE)
def test_a_first_visit_of_a_large_run_is_soon_there(
    browser: Browser, cookies: Any, large: Site, run_id: str, ready: str, told: str
) -> None:
    """From an empty cache. What it reads is asked for once, and before the modules that show it have come."""
    context = browser.new_context(storage_state=cookies, reduced_motion="reduce")
    page = context.new_page()
    work = Work(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.removeprefix(large.url)))
    page.goto(large.url + f"runs/{run_id}")
    page.locator(ready).first.focus()
    page.keyboard.press("ArrowDown")
    page.locator("[role=treeitem][aria-selected=true]").wait_for()
    took = work.seconds()
    expect(page.get_by_role("tree")).to_contain_text(told)
    # The stream has begun, which asks only for what has changed since.
    expect(page.get_by_role("banner").get_by_text("live", exact=True)).to_be_visible()
    page.wait_for_timeout(600)
    assert [url for url in asked if url.startswith(f"api/v1/runs/{run_id}?") and "unless" not in url] == [
        f"api/v1/runs/{run_id}?fold=20"
    ]
    assert f"api/v1/runs/{run_id}/changes" not in asked
    server = median(large.get(f"runs/{run_id}", fold=20)["cost"]["ms"] for _ in range(5)) / 1000
    assert took + server < WORK
    context.close()


@pytest.mark.parametrize(("run_id", "ready", "told"), LARGE)
def test_a_run_of_ten_thousand_steps_is_small_and_soon_there(
    open_page: OpenPage, large: Site, run_id: str, ready: str, told: str
) -> None:
    page = open_page("runs/order-done")
    page.get_by_role("tree").wait_for()
    work = Work(page)
    began = work.seconds()
    follow(page, f"runs/{run_id}")
    page.locator(ready).first.wait_for()
    page.locator(ready).first.focus()
    page.keyboard.press("ArrowDown")
    page.locator("[role=treeitem][aria-selected=true]").wait_for()
    took = work.seconds() - began
    expect(page.get_by_role("tree")).to_contain_text(told)
    answers = [large.api.get(f"runs/{run_id}", params={"fold": 20}) for _ in range(5)]
    assert len(answers[0].content) < 200_000
    assert took + median(one.json()["cost"]["ms"] for one in answers) / 1000 < WORK
    assert nodes(page) < NODES
    for number, name in enumerate(["Timeline", "History", "Logs"], start=2):
        page.keyboard.press(str(number))
        expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()
        assert nodes(page) < NODES, name
    page.keyboard.press("1")
    page.keyboard.press("[")
    expect(page.get_by_role("region", name="Time travel")).to_contain_text("The run as it was at")
    expect(page.get_by_role("tree")).to_be_visible()
    assert nodes(page) < NODES
