"""Every page and every action with the keyboard alone."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage, Site, follow, wait_for_status
from tests.browser.keyboard import Keyboard
from tests.browser.test_pages import PAGES, settled, violations

#: Marks what a person can use, and says how many there are. Of a group of radio buttons one has the focus.
CONTROLS = """() => {
  const all = [...document.querySelectorAll('a[href], button, input, select, textarea, [tabindex="0"]')];
  const usable = (one) => one.tabIndex >= 0 && !one.disabled && one.type !== "radio";
  const seen = all.filter((one) => usable(one) && one.checkVisibility({visibilityProperty: true}));
  seen.forEach((one, at) => { one.dataset.control = at; });
  document.activeElement?.blur();
  return seen.length;
}"""
FOCUSED = """() => {
  const one = document.activeElement;
  const around = [one, one.parentElement ?? one, ...one.querySelectorAll(":scope > *, :scope > * > *")];
  const styles = around.map((box) => getComputedStyle(box));
  const ring = styles.some((style) => parseFloat(style.outlineWidth) > 0 && style.outlineStyle !== "none");
  const visible = ring || styles[0].boxShadow !== "none";
  return {control: one.dataset.control ?? null, html: one.outerHTML.slice(0, 160), visible};
}"""
MISSED = """(met) => {
  const all = [...document.querySelectorAll("[data-control]")];
  return all.filter((one) => !met.includes(one.dataset.control)).map((one) => one.outerHTML.slice(0, 160));
}"""


@pytest.fixture(scope="module")
def page(open_pages: OpenPage) -> Page:
    return open_pages()


@pytest.mark.parametrize("name", PAGES)
def test_tab_comes_to_every_control_of_a_page_and_shows_where_it_is(page: Page, name: str) -> None:
    follow(page, PAGES[name])
    settled(page)
    number = page.evaluate(CONTROLS)
    assert number > 5
    met, hidden = set[str | None](), list[str]()
    # A field for a date has several stops.
    for _ in range(2 * number):
        if len(met - {None}) == number:
            break
        page.keyboard.press("Tab")
        focused = page.evaluate(FOCUSED)
        met.add(focused["control"])
        if not focused["visible"] and focused["control"] is not None:
            hidden.append(focused["html"])
    missed = page.evaluate(MISSED, list(met))
    assert missed == []
    assert hidden == []


# -- verbs on one run -------------------------------------------------------------------------------------


def started(site: Site, open_page: OpenPage, run_id: str, query: str = "", **given: Any) -> tuple[Page, Keyboard]:
    if "fail" in given:
        site.start("slow_steps", run_id, seconds=0, **given)
        wait_for_status(site, run_id, "failed" if given["fail"] else "completed")
    else:
        site.start("expense", run_id, number=run_id, amount=1)
        wait_for_status(site, run_id, "suspended")
    page = open_page(f"runs/{run_id}{query}")
    page.get_by_role("tree").wait_for()
    return page, Keyboard(page)


def test_retry(open_page: OpenPage, site: Site) -> None:
    page, keys = started(site, open_page, "key-retry", fail=True)
    keys.press("r")
    keys.button("Retry key-retry", page.get_by_role("region", name="Retry key-retry"))
    expect(page.get_by_role("status").filter(has_text="opened again")).to_be_visible()


def test_rewind(open_page: OpenPage, site: Site) -> None:
    page, keys = started(site, open_page, "key-rewind", fail=False)
    keys.menu("Rewind", "second")
    panel = page.get_by_role("region", name="Rewind second")
    expect(panel.get_by_label("Command", exact=True)).to_have_text("rival rewind key-rewind second")
    keys.button("Rewind", panel)
    expect(page.get_by_role("status").filter(has_text="rewound")).to_be_visible()


def test_skip(open_page: OpenPage, site: Site) -> None:
    page, keys = started(site, open_page, "key-skip", "?step=decision")
    keys.menu("Skip", "decision")
    panel = page.get_by_role("region", name="Skip decision")
    keys.fill("Reason", "by phone", panel)
    keys.button("Skip", panel)
    wait_for_status(site, "key-skip", "completed")


def test_set_result(open_page: OpenPage, site: Site) -> None:
    page, keys = started(site, open_page, "key-set", "?step=decision")
    keys.button("Set result…")
    panel = page.get_by_role("region", name="Set the result of decision")
    keys.fill("Result as JSON", "7", panel)
    keys.fill("Reason", "by phone", panel)
    keys.tab_to(button := panel.get_by_role("button", name="Set the result", exact=True))
    expect(button).to_be_enabled()
    keys.press("Enter")
    wait_for_status(site, "key-set", "completed")


def test_pause_resume_and_cancel(open_page: OpenPage, site: Site) -> None:
    page, keys = started(site, open_page, "key-hold")
    for verb, open_it in (("Pause", "More"), ("Resume", ""), ("Cancel", "")):
        if open_it:
            keys.menu(open_it, f"{verb}…")
        else:
            keys.button(f"{verb}…")
        keys.button(f"{verb} key-hold", page.get_by_role("region", name=f"{verb} key-hold"))
        word = {"Pause": "paused", "Resume": "suspended", "Cancel": "cancelled"}[verb]
        expect(page.locator(".rh .facts")).to_contain_text(word)


def test_many_runs(open_page: OpenPage, site: Site) -> None:
    for number in (1, 2):
        site.start("slow_steps", f"key-bulk-{number}", seconds=0, fail=True)
        wait_for_status(site, f"key-bulk-{number}", "failed")
    page = open_page("runs?workflow=slow_steps&status=failed&error=told")
    page.locator('tr[data-run="key-bulk-1"]').wait_for()
    keys = Keyboard(page)
    keys.press("j", "x", "j", "x")
    keys.button("Cancel…", page.get_by_role("toolbar", name="What to do with the chosen runs"))
    keys.button("Preview", page.get_by_role("dialog"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("Preview: cancel 2 runs")
    expect(page.locator(".facts")).to_contain_text("2 refused")
    page.go_back()
    page.locator('tr[data-run="key-bulk-1"]').wait_for()
    keys.press("j", "x")
    keys.button("Retry…", page.get_by_role("toolbar", name="What to do with the chosen runs"))
    keys.button("Preview", page.get_by_role("dialog"))
    keys.button("Retry 1 run")
    expect(page.locator(".facts")).to_contain_text("1 changed", timeout=15_000)
    expect(page.get_by_role("progressbar", name="Progress")).to_have_attribute("aria-valuenow", "100")


# -- dialogues --------------------------------------------------------------------------------------------


def test_a_dialogue_keeps_the_focus_and_gives_it_back(open_page: OpenPage) -> None:
    page = open_page("schedules")
    keys = Keyboard(page)
    keys.button("New schedule…")
    dialog = page.get_by_role("dialog", name="New schedule")
    expect(dialog.get_by_label("Name")).to_be_focused()
    for _ in range(30):
        keys.press("Tab")
        # The browser's own controls come in between, and have no element.
        assert dialog.evaluate(
            "one => one.contains(document.activeElement) || document.activeElement === document.body"
        )
    keys.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="New schedule…")).to_be_focused()


def test_the_focus_goes_where_the_page_goes(open_page: OpenPage) -> None:
    """What had it has gone: a link of the page before, or the button that has opened a preview."""
    page = open_page("runs?q=order-refused")
    page.get_by_role("link", name="order-refused").focus()
    page.keyboard.press("Enter")
    page.get_by_role("tree").wait_for()
    expect(page.get_by_role("main")).to_be_focused()
    keys = Keyboard(page)
    keys.button("Retry…")
    expect(page.get_by_role("region", name="Retry order-refused")).to_be_focused()
    keys.press("Escape")
    expect(page.get_by_role("button", name="Retry…")).to_be_visible()
    expect(page.get_by_role("main")).to_be_focused()


def test_the_browsers_way_back_leaves_a_dialogue(open_page: OpenPage) -> None:
    page = open_page("runs")
    follow(page, "fleet")
    page.get_by_role("region", name="Workers").wait_for()
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.go_back()
    expect(page.get_by_role("grid", name="Runs")).to_be_visible()
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_a_schedule(open_page: OpenPage) -> None:
    page = open_page("schedules")
    keys = Keyboard(page)
    keys.button("New schedule…")
    dialog = page.get_by_role("dialog", name="New schedule")
    keys.fill("Name", "by-keys", dialog)
    keys.tab_to(dialog.get_by_label("Workflow"))
    page.keyboard.type("slow_steps")
    keys.fill("Cron: minute", "0 4 * * *", dialog)
    expect(dialog.get_by_label("Command", exact=True)).to_contain_text(
        "rival schedule add by-keys slow_steps '0 4 * * *'"
    )
    expect(dialog).to_contain_text("Next: ")
    keys.button("Save", dialog)
    row = page.get_by_role("row").filter(has_text="by-keys")
    expect(row).to_contain_text("0 4 * * *")
    for item, button, told in (
        ("Pause…", "Pause", "paused"),
        ("Resume…", "Resume", "resumed"),
        ("Remove…", "Remove", "removed"),
    ):
        keys.menu("Actions of by-keys", item)
        keys.button(button, page.get_by_role("dialog"))
        expect(page.get_by_role("status").filter(has_text=told)).to_be_visible()


def test_a_breaker_a_limit_and_a_rule(open_page: OpenPage, site: Site) -> None:
    page = open_page("limits")
    keys = Keyboard(page)
    dialog = page.get_by_role("dialog")
    keys.button("Open one…")
    keys.fill("Name", "by-keys", dialog)
    keys.tab_to(dialog.get_by_label("also if no registered workflow has it"))
    keys.press("Space")
    expect(dialog.get_by_label("Command", exact=True)).to_have_text("rival breaker open by-keys --force")
    keys.button("Open", dialog)
    breaker = page.get_by_role("region", name="Circuit breakers").get_by_role("row").filter(has_text="by-keys")
    expect(breaker).to_contain_text("open")
    keys.menu("Actions of by-keys", "Close…")
    keys.button("Close", dialog.locator("form"))
    expect(breaker).to_contain_text("closed")
    keys.menu("Actions of by-keys", "Reset…")
    keys.button("Reset", dialog)
    expect(breaker).to_have_count(0)
    keys.menu("Actions of stamps", "Change the maximum…")
    keys.fill("At a time", "3", dialog)
    expect(dialog.get_by_label("Command", exact=True)).to_have_text("rival limit set stamps 3")
    keys.button("Change", dialog)
    stamps = page.get_by_role("region", name="Limits").get_by_role("row").filter(has_text="stamps")
    expect(stamps).to_contain_text("of 3")
    keys.menu("Actions of stamps", "As the workflow defines it…")
    keys.button("Reset", dialog)
    expect(stamps).to_contain_text("of 2")
    keys.button("New rule…")
    keys.fill("Matches", "name=nothing", dialog)
    keys.fill("Reason", "by keys", dialog)
    expect(dialog.get_by_label("Command", exact=True)).to_contain_text(
        "rival policy set timeout=60 --match name=nothing"
    )
    keys.button("Set", dialog)
    rule = page.get_by_role("region", name="Rules of the fleet").get_by_role("row").filter(has_text="name=nothing")
    expect(rule).to_contain_text("by keys")
    number = rule.locator("td").first.inner_text()
    keys.button(f"Remove rule {number}")
    keys.button("Remove", dialog)
    expect(rule).to_have_count(0)
    assert site.get("policies")["items"] == []


def test_dead_letters(open_page: OpenPage, site: Site) -> None:
    for number in (1, 2):
        site.start("letters", f"key-letter-{number}", fail=True)
        wait_for_status(site, f"key-letter-{number}", "failed")
    page = open_page("limits")
    keys = Keyboard(page)
    letters = page.get_by_role("region", name="Dead letters")
    keys.tab_to(letters.get_by_label("Choose key-letter-1"))
    keys.press("Space")
    keys.button("Run 1 again…")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("1 run can be opened again")
    expect(dialog.get_by_label("Command", exact=True)).to_have_text("rival dlq redrive key-letter-1")
    keys.button("Run again", dialog)
    expect(page.get_by_role("status").filter(has_text="1 run opened again")).to_be_visible()
    keys.tab_to(letters.get_by_label("Choose key-letter-2"))
    keys.press("Space")
    keys.button("Remove…")
    expect(dialog.get_by_label("Command", exact=True)).to_have_text("rival dlq drop key-letter-2")
    keys.button("Remove", dialog)
    expect(letters.get_by_label("Choose key-letter-2")).to_have_count(0)
    assert site.status("key-letter-2") == "failed"


def test_an_event_and_an_external_step(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "key-event", number="key-event", amount=1)
    wait_for_status(site, "key-event", "suspended")
    site.post("runs", workflow="buying", run_id="key-vendor")
    wait_for_status(site, "key-vendor", "suspended")
    page = open_page("events")
    keys = Keyboard(page)
    dialog = page.get_by_role("dialog")
    keys.button("Send an event…")
    keys.fill("Topic", "expense.decided", dialog)
    keys.fill("Key", "key-event", dialog)
    expect(dialog.get_by_label("Command", exact=True)).to_have_text("rival emit expense.decided '{}' --key key-event")
    keys.button("Send", dialog)
    wait_for_status(site, "key-event", "completed")
    token = site.get("runs/key-vendor/logs")["items"][0]["fields"]["reply_to"]
    keys.button("Answer an external step…")
    keys.fill("Token", token, dialog)
    keys.fill("Result as JSON", '{"price": 7}', dialog)
    expect(dialog).to_contain_text("It is step ask_vendor of key-vendor")
    keys.button("Complete the step", dialog)
    wait_for_status(site, "key-vendor", "completed")


def test_a_hidden_value_is_revealed_and_recorded(open_page: OpenPage) -> None:
    page = open_page("runs/order-done?tab=data")
    keys = Keyboard(page)
    keys.button("show…")
    dialog = page.get_by_role("dialog", name="Show a hidden value")
    expect(dialog.get_by_label("Which")).to_have_value("/pay/number")
    keys.fill("Reason", "ticket 7", dialog)
    keys.button("Show", dialog)
    expect(dialog).to_contain_text("4000000000000077")
    keys.press("Escape")
    expect(dialog).to_have_count(0)
    assert "4000000000000077" not in page.content()
    follow(page, "audit")
    expect(page.get_by_role("row").filter(has_text="reveal").first).to_contain_text("ticket 7")


def test_recover(open_page: OpenPage) -> None:
    page = open_page("fleet")
    keys = Keyboard(page)
    keys.button("Recover…")
    dialog = page.get_by_role("dialog", name="Recover")
    expect(dialog.get_by_label("Command", exact=True)).to_have_text("rival recover")
    keys.button("Recover", dialog)
    expect(page.get_by_role("status").filter(has_text="Published again")).to_be_visible()


def test_a_run_is_shared_for_a_time_and_downloaded(open_page: OpenPage) -> None:
    page = open_page("runs/order-refused")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    keys = Keyboard(page)
    keys.menu("More", "Share a link")
    expect(page.get_by_role("status").filter(has_text=re.compile("Copied a link that ends"))).to_be_visible()
    assert "/share/" in page.evaluate("navigator.clipboard.readText()")
    with page.expect_download() as download:
        keys.menu("More", "Download as a test")
    assert download.value.suggested_filename == "test_order_refused.py"
    with page.expect_download() as download:
        keys.menu("More", "Download as one HTML file")
    assert download.value.suggested_filename == "run.html"


# -- rows of a timeline that are drawn only while they are in view ---------------------------------------------


def active(page: Page) -> Any:
    """The path of the row that keys are for, as a screen reader hears of it, and whether a reader can see it."""
    return page.evaluate("""() => {
      const tree = document.activeElement, row = document.getElementById(tree.getAttribute("aria-activedescendant"));
      const [around, box] = [tree.getBoundingClientRect(), row?.getBoundingClientRect()];
      const seen = box && box.top >= around.top - 1 && box.bottom <= around.bottom + 1;
      return [row?.dataset.path, row?.getAttribute("aria-selected"), Boolean(seen)];
    }""")


def test_keys_go_through_a_timeline_of_many_places(open_page: OpenPage, site: Site) -> None:
    site.enlarge()
    page = open_page("runs/many-places?tab=timeline")
    tree, keys = page.get_by_role("tree", name="Timeline of many-places"), Keyboard(page)
    keys.tab_to(tree)
    keys.press("Home")
    assert active(page) == ["parts", "true", True]
    keys.press("ArrowDown", "ArrowDown", "ArrowUp", "ArrowRight")
    assert active(page) == ["parts[0]/work-00", "true", True]
    # Far out of view at first: what is not in view is not in the document.
    assert page.locator('[data-path="parts[7]/work-19"]').count() == 0
    keys.press("End")
    assert active(page) == ["parts[7]/work-19", "true", True]
    expect(page).to_have_url(re.compile(r"work-19"))
    keys.press("ArrowLeft")
    assert active(page) == ["parts[7]", "true", True]
    keys.press("ArrowLeft")
    expect(page.locator('[data-path="parts[7]"]')).to_have_attribute("aria-expanded", "false")
    keys.press("End")
    assert active(page) == ["parts[7]", "true", True]
    keys.press("ArrowRight", "ArrowRight")
    assert active(page) == ["parts[7]/work-00", "true", True]
    keys.press("PageUp", "Home", "Enter")
    assert active(page) == ["parts", "true", True]
    expect(page).to_have_url(re.compile(r"step=parts(&|$)"))
    assert page.evaluate("document.querySelectorAll('*').length") < 1_500
    assert violations(page) == []
