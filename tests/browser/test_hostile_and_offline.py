"""Names that look like markup stay text; pages work without a stream, and a shared run without a login."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from tests.browser.conftest import OpenPage, Site

MARKUP = "<img src=x onerror=alert(1)>/../a b"


def test_markup_in_ids_events_and_errors_stays_text(open_page: OpenPage, site: Site) -> None:
    site.start("expense", MARKUP, number=MARKUP, amount=1)
    site.post("events", topic="<b>topic</b>", payload={"text": MARKUP}, key=MARKUP, delivery="one")
    page = open_page("runs?workflow=expense")
    page.get_by_role("link", name=MARKUP[:20]).click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(MARKUP)
    expect(page.get_by_role("complementary")).to_contain_text(MARKUP)
    page.get_by_role("link", name="Events").click()
    page.get_by_role("link", name="<b>topic</b>").click()
    expect(page.get_by_role("region", name="Events")).to_contain_text("onerror")
    assert page.locator("img").count() == 0


def test_a_page_without_a_stream_asks_for_updates(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "polled-1", number="55", amount=1)
    page = open_page("fleet", expects="/stream?")
    page.context.route("**/stream?*", lambda route: route.abort())
    page.goto(site.url + "runs/polled-1")
    expect(page.get_by_role("status").filter(has_text="asking every 2 s")).to_be_visible(timeout=15_000)
    site.post("runs/polled-1/skip", step="decision", reason="by polling", dry_run=False)
    expect(page.locator(".rh .facts")).to_contain_text("completed", timeout=15_000)


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
