"""Sizes: what a first visit loads, and runs with thousands of steps."""

from __future__ import annotations

from statistics import median
from typing import Any

import pytest
from playwright.sync_api import Browser, CDPSession, Page, Request, expect

from tests.browser.conftest import OpenPage, Site, follow
from tests.browser.test_pages import PAGES, settled

FIRST_LOAD = 60_000
#: What a link can lead to at once: each page, and what its address makes it show. `<bulk>` and `<share>` are made.
VERBS = ("retry", "rewind", "skip", "set-result", "pause", "resume", "cancel")
DEEP = {
    **PAGES,
    "retry": "runs/order-refused?do=retry",
    "waits": "runs/expense-2209",
    **{f"{verb} of one that waits": f"runs/expense-2209?do={verb}&step=decision" for verb in VERBS},
    "another moment": "runs/order-refused?at=1",
    "another moment of a timeline": "runs/order-refused?at=1&tab=timeline",
    "a preview beside a timeline": "runs/order-refused?do=retry&tab=timeline",
    "a form like a run": "workflows/order_fulfilment/start?like=order-done",
    "a filled form": 'workflows/order_fulfilment/start?input={"customer":{"name":"Ann"}}',
    "versions": "workflows/letters",
    "a bulk action": "bulk/<bulk>",
    "a shared run": "<share>",
}
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


@pytest.fixture(scope="module")
def made(site: Site) -> dict[str, str]:
    bulk = site.post("bulk", verb="retry", runs=["order-refused"], dry_run=True)
    return {"<bulk>": bulk["id"], "<share>": site.post("shares", run="order-refused", hours=1)["url"]}


def loaded(visitor: Page, url: str) -> dict[str, int]:
    """The files that a visit loads, with the bytes of each as they are sent."""
    requests: list[Request] = []
    take = lambda request: requests.append(request)  # noqa: E731
    visitor.on("request", take)
    visitor.goto(url)
    expect(visitor.get_by_role("heading", level=1)).to_be_attached()
    settled(visitor)
    visitor.remove_listener("request", take)
    sizes: dict[str, int] = {}
    for one in requests:
        if "/api/" not in one.url:
            name = one.url.partition("/static/")[2].partition("/")[2]
            sizes[name] = max(sizes.get(name, 0), one.sizes()["responseBodySize"])
    return sizes


@pytest.mark.parametrize("name", DEEP)
def test_a_first_visit_loads_little(visitor: Page, site: Site, made: dict[str, str], name: str) -> None:
    path = DEEP[name]
    for placeholder, value in made.items():
        path = path.replace(placeholder, value)
    files = loaded(visitor, site.url + path)
    assert {"app.js", "first.js", "rival.css"} <= files.keys()
    assert sum(files.values()) <= FIRST_LOAD, sorted(files.items(), key=lambda one: -one[1])[:12]


@pytest.mark.parametrize("tab", ["timeline", "history", "logs", "family", "data", "compare"])
def test_a_view_of_a_run_loads_its_own_module_and_not_that_of_the_graph(visitor: Page, site: Site, tab: str) -> None:
    files = loaded(visitor, f"{site.url}runs/order-refused?tab={tab}")
    assert f"run/{tab}.js" in files
    assert "run/inspector.js" not in files


def test_the_login_loads_little(browser: Browser, site: Site) -> None:
    context = browser.new_context()
    files = loaded(context.new_page(), site.url)
    assert "pages/login.js" in files
    assert sum(files.values()) <= FIRST_LOAD
    context.close()


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
