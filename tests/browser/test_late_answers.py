"""An answer that comes after the reader has gone on to another filter, topic, moment or word is not shown."""

from __future__ import annotations

import re

from playwright.sync_api import APIResponse, Page, Route, expect

from tests.browser.conftest import PATIENCE, OpenPage, Site, follow, wait_for_status
from tests.support.workers import wait_until

#: Two frames: by then the page has drawn what it has.
DRAWN = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"


class LateAnswer:
    """Holds the first answer to requests of a kind back; others pass. `asked`: the server has made the answer already,
    else it makes it when it is released."""

    def __init__(self, page: Page, pattern: str, *, asked: bool = False) -> None:
        self._page, self._asked = page, asked
        self._held: list[tuple[Route, APIResponse | None]] = []
        self._seen = 0
        page.route(pattern, self._take)

    def _take(self, route: Route) -> None:
        self._seen += 1
        if self._seen > 1:
            route.continue_()
            return
        self._held.append((route, route.fetch() if self._asked else None))

    def wait(self) -> None:
        def is_held() -> bool:
            self._page.wait_for_timeout(10)
            return bool(self._held)

        wait_until(is_held, timeout=PATIENCE / 1000, what="the request is there")

    def release(self) -> None:
        [(route, made)] = self._held
        url = route.request.url
        with self._page.expect_response(lambda answer: answer.url == url) as late:
            route.continue_() if made is None else route.fulfill(response=made)
        late.value.finished()
        self._page.evaluate(DRAWN)


def test_of_the_time_before_a_newer_run(open_page: OpenPage, site: Site) -> None:
    page = open_page("runs?workflow=expense")
    page.locator("tbody tr").first.wait_for()
    page.get_by_role("status").filter(has_text="live").wait_for()
    answer = LateAnswer(page, "**/api/v1/runs?*first=*", asked=True)
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    answer.wait()
    site.start("expense", "newer-than-the-answer", number="300", amount=1)
    hint = page.get_by_role("button", name=re.compile("newer run"))
    expect(hint).to_be_visible()
    answer.release()
    expect(hint).to_be_visible()


def test_of_another_moment(open_page: OpenPage, site: Site) -> None:
    wait_for_status(site, "etl-60", "completed")
    first = site.get("runs/etl-60/history")["items"][0]["id"]
    page = open_page("runs/etl-60")
    facts = page.locator(".rh .facts")
    expect(facts).to_contain_text("completed")
    past = LateAnswer(page, "**/runs/etl-60/past?*")
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
    one = LateAnswer(page, "**/events?topic=late-one*")
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
    word = LateAnswer(page, "**/runs?q=order-d*")
    page.get_by_role("combobox").fill("order-d")
    word.wait()
    page.get_by_role("combobox").fill("etl-6")
    expect(page.get_by_role("option", name="etl-60")).to_be_visible()
    word.release()
    expect(page.get_by_role("option", name="etl-60")).to_be_visible()
    expect(page.get_by_role("option", name="order-done")).to_have_count(0)


#: What the page takes for the server's clock, against its own, in whole seconds, after answers of an age and a date.
CLOCK = """async () => {
    const shell = document.querySelector("script[src$='first.js']").src;
    const { now, setServerTime } = await import(shell.replace("first.js", "format.js"));
    return [[9, -9], [0, 3600], [0, -3600], [0, 0], [9, -3609]].map(([age, ahead]) => {
        setServerTime(new Date(Date.now() + ahead * 1000).toUTCString(), Date.now() - age * 1000);
        return Math.round((now() - Date.now()) / 1000);
    });
}"""


def test_an_answer_that_is_read_late_does_not_move_the_clock(open_page: OpenPage) -> None:
    """Its date may be as old as its request. One that is outside of that time is of another clock."""
    agrees, ahead, behind, agrees_again, late_and_behind = open_page("runs").evaluate(CLOCK)
    assert (agrees, agrees_again) == (0, 0)
    assert 3598 <= ahead <= 3600
    assert -3600 <= behind <= -3598
    assert -3600 <= late_and_behind <= -3598
