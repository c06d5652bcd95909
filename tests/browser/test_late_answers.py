"""An answer that comes after the reader has gone on to another filter, topic, moment or word is not shown."""

from __future__ import annotations

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import OpenPage, Site, follow, wait_for_status

#: Two frames: by then the page has drawn what it has.
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


class Held:
    """Holds the first answer to requests of a kind back; others pass."""

    def __init__(self, page: Page, pattern: str) -> None:
        self._page = page
        self._held: list[Route] = []
        page.route(pattern, self._take)

    def _take(self, route: Route) -> None:
        self._held.append(route) if not self._held else route.continue_()

    def wait(self) -> None:
        while not self._held:
            self._page.wait_for_timeout(10)

    def release(self) -> None:
        [route] = self._held
        url = route.request.url
        with self._page.expect_response(lambda answer: answer.url == url) as late:
            route.continue_()
        late.value.finished()
        self._page.evaluate(DRAWN)


def test_of_another_moment(open_page: OpenPage, site: Site) -> None:
    wait_for_status(site, "etl-60", "completed")
    first = site.get("runs/etl-60/history")["items"][0]["id"]
    page = open_page("runs/etl-60")
    facts = page.locator(".rh .facts")
    expect(facts).to_contain_text("completed")
    past = Held(page, "**/runs/etl-60/past?*")
    follow(page, f"runs/etl-60?at={first}")
    past.wait()
    page.keyboard.press("l")
    expect(page.get_by_role("region", name="Time travel")).to_have_count(0)
    past.release()
    expect(facts).to_contain_text("completed")
    expect(page.get_by_role("tree")).to_contain_text("60 of 60")


def test_of_another_topic(open_page: OpenPage, site: Site) -> None:
    for topic in ("late-one", "late-two"):
        site.post("events", topic=topic, payload={"of": topic}, delivery="one")
    page = open_page("events")
    events = page.get_by_role("region", name="Events", exact=True)
    expect(events).to_contain_text("late-one")
    one = Held(page, "**/events?topic=late-one*")
    page.get_by_role("link", name="late-one").click()
    one.wait()
    expect(events.get_by_role("heading")).to_contain_text("late-one")
    # Not those of all topics under the name of this one.
    expect(events.get_by_role("row")).to_have_count(0)
    page.get_by_role("link", name="late-two").click()
    expect(events.get_by_role("table")).to_contain_text("late-two")
    one.release()
    expect(events.get_by_role("table")).to_contain_text("late-two")
    expect(events).not_to_contain_text("late-one")


def test_of_another_word(open_page: OpenPage) -> None:
    page = open_page("fleet")
    page.get_by_role("heading", name="Fleet").wait_for()
    page.keyboard.press("Control+k")
    word = Held(page, "**/runs?q=order-d*")
    page.get_by_role("combobox").fill("order-d")
    word.wait()
    page.get_by_role("combobox").fill("etl-6")
    expect(page.get_by_role("option", name="etl-60")).to_be_visible()
    word.release()
    expect(page.get_by_role("option", name="etl-60")).to_be_visible()
    expect(page.get_by_role("option", name="order-done")).to_have_count(0)
