"""Names that look like markup stay text; pages work without a stream, and a shared run without a login."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Route, expect

from tests.browser import shop
from tests.browser.conftest import OpenPage, Site, follow, wait_for_status
from tests.support.workers import wait_until

MARKUP = "<img src=x onerror=alert(1)>/../a b"


def test_markup_in_names_events_errors_and_logs_stays_text(open_page: OpenPage, site: Site) -> None:
    site.start("expense", MARKUP, number=MARKUP, amount=1)
    site.post("runs", workflow=shop.HOSTILE, input={}, run_id="hostile-1")
    site.post("events", topic="<b>topic</b>", payload={"text": MARKUP}, key=MARKUP, delivery="one")
    site.api.put(f"schedules/{shop.in_path('<i>')}", json={"workflow": shop.HOSTILE, "cron": "0 3 * * *", "input": {}})
    wait_for_status(site, "hostile-1", "failed")
    page = open_page("runs?workflow=expense")
    page.get_by_role("link", name=MARKUP[:20]).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(MARKUP)
    expect(page.get_by_role("complementary")).to_contain_text(MARKUP)
    for path, place in (
        ("events?topic=%3Cb%3Etopic%3C%2Fb%3E", "Events"),
        ("runs/hostile-1", "Why"),
        ("runs/hostile-1?tab=logs", "Logs"),
        ("runs/hostile-1?tab=history", "History"),
        ("runs/hostile-1?tab=data", "Input and result"),
        ("schedules", "Schedules"),
    ):
        follow(page, path)
        expect(page.get_by_role("region", name=place, exact=True)).to_contain_text("onerror")
        assert page.locator("img, main b:has(i)").count() == 0, path
    for path in ("runs", "workflows", f"workflows/{shop.in_path(shop.HOSTILE)}"):
        follow(page, path)
        expect(page.get_by_role("main")).to_contain_text("onerror")
        assert page.locator("img").count() == 0, path


def test_a_page_without_a_stream_asks_for_updates(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "polled-1", number="55", amount=1)
    page = open_page("fleet", expects="/stream?", viewport={"width": 1200, "height": 800})
    page.route("**/stream?*", lambda route: route.abort())
    page.goto(site.url + "runs/polled-1")
    expect(page.get_by_role("status").filter(has_text="asking every 2 s")).to_be_visible(timeout=15_000)
    site.post("runs/polled-1/skip", step="decision", reason="by polling", dry_run=False)
    expect(page.locator(".rh .facts")).to_contain_text("completed", timeout=15_000)


def test_a_page_that_watches_a_run_outlives_a_restart_of_the_server(open_page: OpenPage, site: Site) -> None:
    """What happened meanwhile is shown once the server is there again, and the stream goes on."""
    site.start("slow_steps", "watched-1", seconds=3)
    site.start("expense", "watched-2", number="watched-2", amount=1)
    page = open_page("runs/watched-1", expects="ERR_CONNECTION_REFUSED")
    live = page.get_by_role("banner").get_by_role("status")
    expect(live).to_have_text("live")
    expect(page.locator(".rh .facts")).to_contain_text("running")
    site.stop()
    try:
        expect(live).to_contain_text("offline, as of")
        expect(page.get_by_role("tree")).to_be_visible()
    finally:
        site.restart()
    expect(live).to_have_text("live")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    expect(page.locator(".rh .facts")).to_contain_text("completed")
    for step in ("first", "second", "third"):
        expect(page.locator(f'[data-path="{step}"]')).to_have_class(re.compile("completed"))
    page.keyboard.press("3")
    expect(page.get_by_role("region", name="History")).to_contain_text("third")
    follow(page, "runs/watched-2")
    expect(page.locator(".rh .facts")).to_contain_text("suspended")
    site.post("runs/watched-2/cancel", dry_run=False)
    expect(page.locator(".rh .facts")).to_contain_text("cancelled")
    # With the stream it stops polling: nothing is asked after the interval of the polls either.
    page.wait_for_timeout(2500)
    assert not [url for url in asked if "/updates?" in url]
    expect(live).to_have_text("live")


def test_a_view_that_cannot_be_loaded_says_so(open_page: OpenPage) -> None:
    page = open_page("runs/order-done", expects="Failed to load resource")
    page.route("**/run/history.js", lambda route: route.abort())
    page.get_by_role("tree").wait_for()
    page.keyboard.press("3")
    expect(page.get_by_role("alert")).to_contain_text("This view could not be loaded")
    page.unroute("**/run/history.js")


def test_a_run_that_is_deleted_while_it_is_shown_says_so(open_page: OpenPage, site: Site) -> None:
    site.start(shop.SHORT_LIVED, "short-1", seconds=0)
    wait_for_status(site, "short-1", "completed")
    page = open_page("runs/short-1", expects="404")
    page.get_by_role("tree").wait_for()
    site.delete_short_lived()
    # The tab is looked at again.
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.get_by_role("alert")).to_contain_text("This run has been deleted")
    expect(page.get_by_role("tree")).to_contain_text("seal")
    expect(page.get_by_role("toolbar", name="Actions")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("alert")).to_contain_text("short-1")
    expect(page.get_by_role("tree")).to_have_count(0)


def test_a_run_that_is_deleted_before_its_step_is_read_is_reported_once(open_page: OpenPage, site: Site) -> None:
    site.start(shop.SHORT_LIVED, "short-2", seconds=0)
    wait_for_status(site, "short-2", "completed")
    page = open_page(expects="404")
    waiting: list[Route] = []
    page.route("**/runs/short-2/step?*", lambda route: waiting.append(route))
    with page.expect_request("**/runs/short-2/step?*"):
        page.goto(site.url + "runs/short-2")
    site.delete_short_lived()
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    expect(page.get_by_role("alert")).to_contain_text("This run has been deleted")
    with page.expect_response("**/runs/short-2/step?*") as answer:
        waiting[0].continue_()
    assert answer.value.status == 404
    expect(page.get_by_role("complementary", name="Step seal")).to_contain_text("completed")
    assert page.get_by_role("alert").count() == 1


def test_a_mistake_in_a_page_leaves_the_others_usable(open_page: OpenPage) -> None:
    page = open_page("runs", expects="Cannot read properties")
    page.route("**/api/v1/audit*", lambda route: route.fulfill(json={"items": [{"id": 1}], "next": None}))
    follow(page, "audit")
    expect(page.get_by_role("alert")).to_contain_text("This page cannot be shown")
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Runs").click()
    expect(page.get_by_role("grid", name="Runs")).to_be_visible()
    page.unroute("**/api/v1/audit*")


def test_a_shared_run_is_shown_without_a_login(browser: Browser, site: Site) -> None:
    made = site.post("shares", run="order-refused", hours=1)
    page = browser.new_context().new_page()
    page.goto(site.url + made["url"])
    expect(page.get_by_role("heading", level=1)).to_contain_text("order-refused")
    expect(page.get_by_role("tree")).to_contain_text("book_carrier")
    assert "4000000000000077" not in page.content()
    page.goto(site.url + "runs")
    expect(page.get_by_role("form", name="Log in")).to_be_visible()
    page.context.close()


def test_a_link_that_has_expired_shows_nothing(browser: Browser, site: Site) -> None:
    made = site.post("shares", run="order-refused", hours=0.0001)
    wait_until(lambda: site.api.get(f"shares/{made['url'].removeprefix('share/')}").status_code == 404)
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.url + made["url"])
    expect(page.get_by_role("alert")).to_contain_text("not valid, or has expired")
    assert "book_carrier" not in page.content()
    context.close()
