"""More actions with the keyboard alone: the way in and out, lists, schedules, keys, moments and several runs."""

from __future__ import annotations

import datetime as dt
import re
from pathlib import Path

from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import OpenPage, Site, wait_for_status
from tests.browser.keyboard import Keyboard
from tests.browser.site import PASSWORD


def test_the_login_the_theme_and_the_way_out(browser: Browser, site: Site) -> None:
    page = browser.new_context(color_scheme="light").new_page()
    page.goto(site.url + "fleet")
    keys = Keyboard(page)
    keys.fill("Name", "operator")
    keys.fill("Password", PASSWORD)
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Fleet")).to_be_visible()
    banner = page.get_by_role("banner")
    keys.button("Light or dark", banner)
    expect(page.locator("html")).to_have_attribute("data-theme", "dark")
    keys.button("operator, operator. Log out", banner)
    expect(page.get_by_role("form", name="Log in")).to_be_visible()
    page.context.close()


def test_a_list_is_filtered_kept_as_a_view_and_exported(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("grid").wait_for()
    keys = Keyboard(page)
    keys.press("/")
    page.keyboard.type("status:failed workflow:letters ")
    expect(page).to_have_url(re.compile(r"runs\?(status=failed&workflow=letters|workflow=letters&status=failed)$"))
    expect(page.locator('[data-run="letter-1"]')).to_be_visible()
    keys.menu("Views", "Save this view")
    expect(page.get_by_role("status").filter(has_text="The view is saved")).to_be_visible()
    with page.expect_download() as download:
        keys.menu("Export", "As CSV")
    lines = Path(download.value.path()).read_text().splitlines()
    assert "letter-1" in lines[-1]
    keys.button("Remove workflow letters")
    keys.button("Remove status failed")
    expect(page.locator('[data-run="order-done"]')).to_be_visible()
    keys.menu("Views", "status failed")
    expect(page).to_have_url(re.compile("workflow=letters"))
    expect(page.locator('[data-run="order-done"]')).to_have_count(0)


def test_a_column_is_hidden_and_stays_hidden(open_page: OpenPage) -> None:
    page = open_page("runs")
    keys = Keyboard(page)
    heading = page.get_by_role("columnheader", name="Workflow")
    expect(heading).to_be_visible()
    for is_hidden in (True, False):
        keys.menu("Columns", "Workflow")
        expect(heading).to_be_hidden() if is_hidden else expect(heading).to_be_visible()
        page.reload()
        page.get_by_role("grid", name="Runs").wait_for()
        expect(heading).to_be_hidden() if is_hidden else expect(heading).to_be_visible()


def test_a_schedule_is_started_changed_and_catches_up(open_page: OpenPage, site: Site) -> None:
    order = {"workflow": "slow_steps", "cron": "0 * * * *", "input": {"seconds": 0}}
    site.api.put("schedules/catches-up", json=order).raise_for_status()
    page = open_page("schedules")
    keys = Keyboard(page)
    dialog = page.get_by_role("dialog")
    keys.menu("Actions of catches-up", "Start now…")
    keys.button("Start now", dialog)
    expect(page.get_by_role("status").filter(has_text="Started")).to_be_visible()
    keys.menu("Actions of catches-up", "Backfill…")
    yesterday = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)
    type_moment(keys, page, dialog.get_by_label("From"), f"{yesterday:%m%d%Y}", "1200AM")
    type_moment(keys, page, dialog.get_by_label("Until"), f"{yesterday:%m%d%Y}", "0230AM")
    keys.button("Preview", dialog)
    expect(dialog).to_contain_text("3 runs:")
    expect(dialog.get_by_label("Command", exact=True)).to_contain_text("rival schedule backfill catches-up")
    keys.button("Start them", dialog)
    expect(page.get_by_role("status").filter(has_text="3 runs started")).to_be_visible()
    keys.menu("Actions of catches-up", "Change…")
    keys.fill("Cron: minute", "15 5 * * *", dialog)
    keys.button("Save", dialog)
    expect(page.get_by_role("row").filter(has_text="catches-up")).to_contain_text("15 5 * * *")
    site.api.request("DELETE", "schedules/catches-up", json={}).raise_for_status()


def type_moment(keys: Keyboard, page: Page, field: Locator, day: str, clock: str) -> None:
    """A year may have more than four digits, so the field does not go on to the hour by itself."""
    keys.tab_to(field)
    page.keyboard.type(day)
    keys.press("ArrowRight")
    page.keyboard.type(clock)


def test_a_key_is_dropped_and_an_external_step_fails(open_page: OpenPage, site: Site) -> None:
    site.start("charging", "key-charge", number="4711", amount=1)
    wait_for_status(site, "key-charge", "completed")
    site.post("runs", workflow="buying", run_id="key-refuses")
    wait_for_status(site, "key-refuses", "suspended")
    page = open_page("limits")
    keys = Keyboard(page)
    dialog = page.get_by_role("dialog")
    keys.button("Drop charge:4711")
    keys.button("Drop", dialog)
    expect(page.get_by_role("status").filter(has_text="charge:4711 dropped")).to_be_visible()
    keys.press("g", "e")
    token = site.get("runs/key-refuses/logs")["items"][0]["fields"]["reply_to"]
    keys.button("Answer an external step…")
    keys.fill("Token", token, dialog)
    keys.button("It has failed", dialog)
    # What is incomplete is not sent: the page fails the test on an answer that is a problem.
    keys.button("Fail the step", dialog)
    expect(dialog.get_by_role("alert")).to_have_text("Say what has failed.")
    keys.fill("What has failed", "the vendor is closed", dialog)
    expect(dialog.get_by_label("Command", exact=True)).to_contain_text("rival fail")
    keys.button("Fail the step", dialog)
    wait_for_status(site, "key-refuses", "failed")


def test_an_earlier_moment_and_another_run(open_page: OpenPage) -> None:
    page = open_page("runs/order-refused")
    keys = Keyboard(page)
    slider = page.get_by_role("slider", name="Moment")
    expect(slider).to_be_enabled()
    keys.tab_to(slider)
    keys.press("ArrowLeft")
    expect(page).to_have_url(re.compile(r"at=\d+"))
    keys.button("Back to now")
    expect(page).not_to_have_url(re.compile("at="))
    keys.press("7")
    keys.fill("Compare with run", "order-done")
    keys.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_have_text("Two runs of order_fulfilment")


def test_several_runs_are_paused_resumed_and_rewound(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "key-several", number="key-several", amount=1)
    wait_for_status(site, "key-several", "suspended")
    page = open_page()
    keys = Keyboard(page)
    asked = page.get_by_role("dialog")
    for verb, is_paused in (("Pause", True), ("Resume", False), ("Rewind", False)):
        page.goto(site.url + "runs?workflow=expense")
        row = page.locator('tr[data-run="key-several"]')
        keys.tab_to(row.get_by_role("checkbox"))
        keys.press("Space")
        keys.button(f"{verb}…", page.get_by_role("toolbar", name="What to do with the chosen runs"))
        if verb == "Rewind":
            keys.fill("To which step", "decision", asked)
        keys.button("Preview", asked)
        keys.button(f"{verb} 1 run")
        expect(page.locator(".facts")).to_contain_text("1 changed")
        assert bool(site.get("runs/key-several")["run"]["paused_at"]) is is_paused
