"""Every page in both themes and on a phone: no violation of accessibility rules, nothing in the console."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import WIDE, OpenPage, Site, follow
from tests.support.workers import wait_until

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
PHONE = {"width": 390, "height": 844}


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
    return open_pages(expects=EXPECTED, viewport=PHONE, has_touch=True)


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


#: Parts of the page that have to be scrolled sideways to be seen, and links of the navigation that something covers.
ASIDE = """[...document.querySelectorAll(".sx, .panel")].filter((one) => one.scrollWidth > one.clientWidth + 1)
    .map((one) => one.getAttribute("aria-label") ?? one.className)"""
COVERED_LINKS = """[...document.querySelectorAll("nav[aria-label=Pages] a")].filter((one) => {
    const at = one.getBoundingClientRect();
    return !one.contains(document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2));
}).map((one) => one.textContent)"""


#: Headings of panels that touch the frame, and first rows with a line of their own at the edge of their panel.
AT_THE_EDGE = """[...document.querySelectorAll(".ph h2, .panel tbody tr:first-child")].filter((one) =>
    one.checkVisibility() && (one.matches("tr") ? parseFloat(getComputedStyle(one).borderTopWidth) > 0
    : one.getBoundingClientRect().top - one.closest(".ph").getBoundingClientRect().top < 4))
    .map((one) => one.textContent)"""


@pytest.mark.parametrize("name", ALL)
def test_a_page_fits_a_phone(phone: Page, name: str) -> None:
    shown(phone, name)
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390
    assert phone.evaluate(ASIDE) == []
    assert phone.evaluate(AT_THE_EDGE) == []
    assert violations(phone) == []
    phone.mouse.wheel(0, 400)
    assert phone.evaluate(COVERED_LINKS) == []


@pytest.mark.parametrize("place", [50, 70, 87])
def test_a_note_on_the_timeline_fits_a_phone(open_page: OpenPage, site: Site, place: int) -> None:
    phone = open_page(viewport=PHONE)
    found = site.api.get("runs/order-refused/changes").json()
    path = found["paths"].index("in-stock?/payment/authorise")
    last = max(after for _, after, where, _ in found["rows"] if where == path)
    end = last * 96 / place
    shrink = (end - last) / (found["end"] - last)
    for row in found["rows"]:
        row[1] = row[1] if row[1] <= last else last + (row[1] - last) * shrink
    found["end"] = end
    phone.route("**/runs/order-refused/changes", lambda route: route.fulfill(json=found))
    shown(phone, "timeline")
    assert phone.get_by_text("2 attempts").is_visible() == (place == 50)
    assert phone.evaluate(ASIDE) == []


#: Names of steps in a plan, and headings and links in tables, that are cut so much that they cannot be read.
UNREADABLE = """[...document.querySelectorAll(".graph .nm, th, td a")].filter((one) =>
    one.checkVisibility() && one.scrollWidth > one.clientWidth + 1 && one.clientWidth < 60)
    .map((one) => one.textContent)"""
#: Headings of tables that are drawn over each other.
OVERLAPPING = """[...document.querySelectorAll("thead tr")].flatMap((row) => [...row.cells].slice(1)
    .filter((cell, at) => cell.checkVisibility()
        && cell.getBoundingClientRect().left < row.cells[at].getBoundingClientRect().right - 1)
    .map((cell) => cell.textContent))"""


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_read_on_a_small_laptop(wide: Page, name: str) -> None:
    wide.set_viewport_size({"width": 1024, "height": 768})
    shown(wide, name)
    assert wide.evaluate("document.documentElement.scrollWidth") <= 1024
    assert wide.evaluate(UNREADABLE) == []
    assert wide.evaluate(OVERLAPPING) == []
    wide.set_viewport_size(WIDE)


#: What can be used, and is not wholly inside the window: in one that is enlarged four times it could not be reached.
OUTSIDE = """[...document.querySelectorAll("main :is(a[href], button, input, select, textarea)")].filter((one) => {
    const at = one.getBoundingClientRect();
    return one.checkVisibility({ visibilityProperty: true }) && !one.closest(".cut, .code") && at.width > 1
        && (at.left < 0 || at.right > innerWidth + 1);
}).map((one) => one.ariaLabel ?? one.textContent)"""


@pytest.mark.parametrize("name", ALL)
def test_a_page_that_is_enlarged_four_times_needs_no_scrolling_sideways(wide: Page, name: str) -> None:
    wide.set_viewport_size({"width": 320, "height": 256})
    shown(wide, name)
    assert wide.evaluate("document.documentElement.scrollWidth") <= 320
    assert wide.evaluate(OUTSIDE) == []
    wide.set_viewport_size(WIDE)


#: What is chosen, and has neither the system's colour for that nor an outline.
UNMARKED = """[...document.querySelectorAll("[aria-current], [aria-pressed=true], [role=radio][aria-checked=true], "
    + "[role=tab][aria-selected=true], [role=treeitem][aria-selected=true], tr[aria-selected=true]")].filter((one) => {
    const box = one.matches("[role=treeitem]") ? one.querySelector(".n, .box") ?? one : one;
    const own = [one, box].map((it) => getComputedStyle(it));
    return !own.some((it) => it.outlineStyle === "solid" || it.forcedColorAdjust === "none");
}).map((one) => one.outerHTML.slice(0, 120))"""


@pytest.mark.parametrize("name", ["runs-chosen", "run", "timeline", "logs", "diff", "workflow", "fleet"])
def test_what_is_chosen_can_be_seen_in_the_colours_of_the_system(open_page: OpenPage, name: str) -> None:
    page = open_page(PAGES[name], forced_colors="active")
    settled(page)
    expect(page.get_by_role("heading", level=1)).to_be_attached()
    assert page.locator("[aria-current=page]").count() > 0
    assert page.evaluate(UNMARKED) == []


def test_a_bulk_action_has_no_violations_and_fits_a_phone(wide: Page, phone: Page, site: Site) -> None:
    bulk = site.post("bulk", verb="retry", runs=["order-refused", "order-done"], dry_run=True)
    for page in (wide, phone):
        follow(page, f"bulk/{bulk['id']}")
        settled(page)
        expect(page.locator(".facts")).to_contain_text("1 refused")
        assert violations_of_both_themes(page) == []
        for run_id in ("order-refused", "order-done"):
            link = page.get_by_role("region", name="Runs").get_by_role("link", name=run_id)
            assert link.evaluate("one => one.closest('td').clientWidth") > 100
    assert phone.evaluate("document.documentElement.scrollWidth") <= 390


def test_a_menu_closes_when_the_window_changes_its_size(wide: Page) -> None:
    """What a phone that is turned does, too."""
    shown(wide, "run")
    wide.get_by_role("button", name="More").click()
    expect(wide.get_by_role("menu")).to_be_visible()
    wide.set_viewport_size({"width": 1200, "height": 900})
    expect(wide.get_by_role("menu")).to_have_count(0)
    wide.set_viewport_size(WIDE)


def test_start_leads_to_the_form_on_a_phone(phone: Page) -> None:
    shown(phone, "workflows")
    phone.get_by_role("link", name="Start order_fulfilment").click()
    expect(phone.get_by_role("form", name="Start a run")).to_be_in_viewport(ratio=0.5)


def test_a_preview_can_be_made_small_on_a_phone_to_see_the_graph(phone: Page) -> None:
    shown(phone, "preview")
    panel = phone.get_by_role("region", name="Rewind in-stock?/pick")
    expect(panel).to_contain_text("runs again")
    height = "one => one.clientHeight"
    before = panel.evaluate(height)
    phone.get_by_role("button", name="Make the preview small").click()
    assert panel.evaluate(height) < before / 2
    expect(panel.get_by_role("button", name="Rewind", exact=True)).to_be_in_viewport()


#: What people can use, by its name.
CONTROLS = """[...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
    .filter((one) => one.checkVisibility({ visibilityProperty: true }))
    .map((one) => one.getAttribute("aria-label") ?? (one.textContent.trim() || one.id))"""
#: Made of what a screen has beside the page: rows have no column for the input, and no heading to choose all by.
ONLY_WIDE = {"Choose all on this page"}


@pytest.mark.parametrize("name", PAGES)
def test_a_narrow_page_has_every_control_of_a_wide_one(wide: Page, phone: Page, name: str) -> None:
    """Also in a window in which a page is enlarged four times."""
    shown(wide, name)
    shown(phone, name)
    missing: list[set[str]] = []

    def nothing_is_missing() -> bool:
        # Both are looked at each time: the names of some have counts, which change.
        missing.append(set(wide.evaluate(CONTROLS)) - ONLY_WIDE - set(phone.evaluate(CONTROLS)))
        return not missing[-1]

    wait_until(nothing_is_missing, timeout=15, what=lambda: f"on a phone without {missing[-1]}")


#: Items of the open menu that cannot be pressed, since something else is where they are.
COVERED = """[...document.querySelectorAll("[role=menuitem]")].filter((one) => {
    const at = one.getBoundingClientRect();
    return !one.contains(document.elementFromPoint(at.x + at.width / 2, at.y + at.height / 2));
}).map((one) => one.textContent)"""


@pytest.mark.parametrize("name", ["runs", "run", "start", "schedules", "limits"])
def test_every_item_of_a_menu_can_be_pressed(wide: Page, phone: Page, name: str) -> None:
    for page in (wide, phone):
        shown(page, name)
        menus = page.locator("main [aria-haspopup=menu]")
        expect(menus.first).to_be_visible()
        for menu in menus.all():
            menu.scroll_into_view_if_needed()
            menu.click()
            expect(page.get_by_role("menuitem").first).to_be_focused()
            assert page.evaluate(COVERED) == []
            page.keyboard.press("Escape")
            expect(page.get_by_role("menu")).to_have_count(0)


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
