"""The list of runs: filter, keyboard, pages, newer runs, bulk actions."""

from __future__ import annotations

import re

from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import MOMENT, OpenPage, Site, follow, wait_for_status


def test_a_token_becomes_part_of_the_address_and_can_be_removed(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("grid").wait_for()
    page.keyboard.press("/")
    field = page.get_by_role("combobox", name="Filter")
    expect(field).to_be_focused()
    page.keyboard.type("status:failed workflow:order_fulfilment ")
    expect(page).to_have_url(re.compile(r"status=failed&workflow=order_fulfilment"))
    rows = page.get_by_role("grid").locator("tbody tr")
    expect(rows.filter(has_text="order-refused")).to_have_count(1)
    expect(rows.filter(has_text="completed")).to_have_count(0)
    page.get_by_role("button", name="Remove status failed").click()
    expect(rows.filter(has_text="order-done")).to_have_count(1)
    page.go_back()
    expect(rows.filter(has_text="order-done")).to_have_count(0)


def test_runs_are_found_by_their_input(open_page: OpenPage) -> None:
    page = open_page("runs?input.customer.name=Hill+%26+Sons")
    expect(page.get_by_role("link", name="order-waiting-list")).to_be_visible()
    expect(page.get_by_role("link", name="order-done")).to_have_count(0)


def test_a_row_has_the_name_of_the_step_and_room_for_its_error(open_page: OpenPage) -> None:
    page = open_page("runs?workflow=order_fulfilment&status=failed", viewport={"width": 1024, "height": 768})
    cell = page.locator("tbody tr").filter(has_text="order-refused").locator(".c-at")
    expect(cell.locator("code")).to_have_text("book_carrier")
    expect(cell.locator("code")).to_have_attribute("title", "in-stock?/send/book_carrier")
    assert cell.locator(".cut").evaluate("one => one.clientWidth") > 100


def test_the_row_of_a_paused_run_says_since_when(open_page: OpenPage) -> None:
    page = open_page("runs?paused=true")
    row = page.locator("tbody tr").filter(has_text="paused-1")
    expect(row.locator(".c-at")).to_have_text(re.compile(rf"since {MOMENT}, not begun"))


def test_the_filter_that_matches_nothing_says_so(open_page: OpenPage) -> None:
    page = open_page("runs?workflow=expense&status=failed&since=1h")
    expect(page.get_by_role("heading", name="No runs match")).to_be_visible()
    expect(page.get_by_role("link", name="Widen to 7 d")).to_be_visible()
    page.get_by_role("link", name="Clear the filter").click()
    expect(page.get_by_role("grid")).to_be_visible()


def test_rows_are_walked_chosen_and_opened_with_the_keyboard(open_page: OpenPage) -> None:
    page = open_page("runs?workflow=order_fulfilment")
    page.get_by_role("grid").wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    expect(page.get_by_role("toolbar", name="What to do with the chosen runs")).to_contain_text("1 chosen")
    page.keyboard.press("Escape")
    expect(page.get_by_role("toolbar", name="What to do with the chosen runs")).to_have_count(0)
    page.keyboard.press("k")
    chosen = page.locator("tr.cur").get_attribute("data-run")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text(str(chosen))


#: Presses keys from the moment at which a row is in the page, each in a task of its own, as the browser does; before
#: the page is painted.
AT_ONCE = """(keys) => new MutationObserver((_, observer) => {
  if (!document.querySelector("tbody tr")) return;
  observer.disconnect();
  const press = (key) => document.body.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
  const {port1, port2} = new MessageChannel();
  port1.onmessage = () => { press(keys.shift()); if (keys.length) port2.postMessage(null); };
  press(keys.shift());
  port2.postMessage(null);
}).observe(document, {childList: true, subtree: true})"""


def test_keys_work_as_soon_as_rows_are_there(open_page: OpenPage) -> None:
    page = open_page("none/at/all")
    page.get_by_role("heading", name="Unknown page").wait_for()
    page.evaluate(AT_ONCE, ["j", "j", "x"])
    follow(page, "runs?workflow=order_fulfilment")
    expect(page.get_by_role("toolbar", name="What to do with the chosen runs")).to_contain_text("1 chosen")
    rows = page.get_by_role("grid").locator("tbody tr")
    expect(rows.nth(1)).to_have_attribute("aria-selected", "true")
    expect(rows.nth(1)).to_have_class("cur")


def test_the_current_row_and_the_chosen_ones_stay_when_the_list_is_read_again(open_page: OpenPage, site: Site) -> None:
    for number in (1, 2):
        site.start("expense", f"stays-{number}", number=f"20{number}", amount=1)
    page = open_page("runs?workflow=expense")
    page.locator('tr[data-run="stays-1"]').wait_for()
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("x")
    current = page.locator("tr.cur")
    expect(current).to_have_attribute("data-run", "stays-1")
    site.start("expense", "stays-3", number="203", amount=1)
    page.keyboard.press("n")
    page.locator('tr[data-run="stays-3"]').wait_for()
    expect(current).to_have_attribute("data-run", "stays-1")
    expect(current.get_by_role("link")).to_be_focused()
    expect(page.get_by_label("Choose stays-1")).to_be_checked()
    page.keyboard.press("k")
    page.keyboard.press("x")
    expect(page.get_by_label("Choose stays-2")).to_be_checked()
    expect(page.get_by_role("toolbar", name="What to do with the chosen runs")).to_contain_text("2 chosen")


def test_a_count_sets_the_filter(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("navigation", name="Runs by status").get_by_role("link", name=re.compile("failed, 24 h")).click()
    expect(page).to_have_url(re.compile("status=failed&since=24h"))
    expect(page.get_by_role("link", name="order-refused")).to_be_visible()


def test_newer_runs_wait_until_the_reader_lets_them_in(open_page: OpenPage, site: Site) -> None:
    page = open_page("runs?workflow=expense")
    page.locator("tbody tr").first.wait_for()
    site.start("expense", "newer-1", number="100", amount=1)
    hint = page.get_by_role("button", name=re.compile("newer run"))
    expect(hint).to_be_visible()
    expect(page.get_by_role("link", name="newer-1")).to_have_count(0)
    hint.click()
    expect(page.get_by_role("link", name="newer-1")).to_be_visible()


def test_newer_runs_of_the_time_without_a_server_are_only_counted(open_page: OpenPage, site: Site) -> None:
    page = open_page("runs?workflow=expense", expects="ERR_INTERNET_DISCONNECTED")
    page.locator("tbody tr").first.wait_for()
    expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()
    before = shown_ids(page)
    page.context.set_offline(True)
    page.evaluate("fetch('api/v1/me').catch(() => {})")
    site.start("expense", "while-away", number="while-away", amount=1)
    page.context.set_offline(False)
    expect(page.get_by_role("button", name="1 newer run")).to_be_visible()
    assert shown_ids(page) == before


def test_a_row_changes_while_it_is_shown(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "row-1", number="101", amount=1)
    wait_for_status(site, "row-1", "suspended")
    page = open_page("runs?workflow=expense")
    row = page.locator('tr[data-run="row-1"]')
    expect(row).to_contain_text("suspended")
    expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()
    site.post("runs/row-1/cancel", dry_run=False)
    expect(row).to_contain_text("cancelled")


def test_the_progress_of_a_for_each_is_said_once(open_page: OpenPage, site: Site) -> None:
    site.start("nightly_etl", "progress-1", accounts=400, slow=0.5)
    page = open_page("runs?workflow=nightly_etl")
    stands_at = page.locator('tr[data-run="progress-1"] .c-at')
    expect(stands_at).to_have_text(re.compile(r"^\s*accounts\s*\d+ of 400\s*$"))
    page.get_by_role("link", name="progress-1").click()
    # It waits for its items, so it is at work.
    expect(page.get_by_role("complementary", name="Step accounts").locator(".sec0")).to_contain_text("running")
    site.post("runs/progress-1/cancel", dry_run=False)
    wait_for_status(site, "progress-1", "cancelled")


def open_two_pages(open_page: OpenPage, site: Site) -> Page:
    """The first of two pages of runs."""
    site.start_many(53)
    wait_for_status(site, "paged-052", "completed")
    page = open_page("runs?workflow=slow_steps")
    page.locator("tbody tr").nth(49).wait_for()
    return page


def shown_ids(page: Page) -> list[str]:
    return page.locator("tbody tr").evaluate_all("all => all.map(one => one.dataset.run)")


def test_pages_do_not_overlap_while_runs_come(open_page: OpenPage, site: Site) -> None:
    page = open_two_pages(open_page, site)
    site.start("slow_steps", "paged-late", seconds=0)
    expect(page.get_by_role("button", name="1 newer run")).to_be_visible()
    first = shown_ids(page)
    page.get_by_role("link", name="Older").click()
    page.locator('tr[data-run="paged-000"]').wait_for()
    second = shown_ids(page)
    assert not set(first) & set(second)
    assert {f"paged-{number:03}" for number in range(53)} <= {*first, *second}


WATCH_FIRST_ROW = """() => {
  globalThis.firstRows = [];
  const look = () => firstRows.push(document.querySelector("tbody tr").dataset.run);
  const all = {childList: true, subtree: true, attributes: true};
  new MutationObserver(look).observe(document.querySelector("tbody"), all);
}"""


def test_an_answer_for_a_page_that_was_left_is_not_shown(open_page: OpenPage, site: Site) -> None:
    page = open_two_pages(open_page, site)
    page.get_by_role("status").filter(has_text="live").wait_for()
    held: list[Route] = []
    page.route("**/api/v1/runs?*first=*", lambda route: held.append(route))
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    while not held:
        page.wait_for_timeout(20)
    page.get_by_role("link", name="Older").click()
    page.locator('tr[data-run="paged-000"]').wait_for()
    before = shown_ids(page)
    page.evaluate(WATCH_FIRST_ROW)
    with page.expect_response(lambda answer: "first=" in answer.url):
        held[0].continue_()
    page.wait_for_timeout(300)
    assert {before[0], *page.evaluate("firstRows")} == {before[0]}


def test_chosen_runs_are_retried_after_a_preview(open_page: OpenPage, site: Site) -> None:
    for number in (1, 2):
        site.start("slow_steps", f"bulk-{number}", seconds=0, fail=True)
        wait_for_status(site, f"bulk-{number}", "failed")
    page = open_page("runs?workflow=slow_steps&status=failed")
    page.get_by_label("Choose bulk-1").check()
    page.get_by_label("Choose bulk-2").check()
    page.get_by_role("button", name="Retry…").click()
    page.get_by_role("dialog").get_by_role("button", name="Preview").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Preview: retry 2 runs")
    expect(page.get_by_role("region", name="Runs")).to_contain_text("bulk-2")
    assert site.status("bulk-1") == "failed"
    page.get_by_role("button", name="Retry 2 runs").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("retry 2 runs")
    expect(page.locator(".facts")).to_contain_text("2 changed")


def test_the_palette_goes_anywhere(open_page: OpenPage) -> None:
    page = open_page("fleet")
    page.get_by_role("heading", name="Fleet").wait_for()
    page.keyboard.press("Control+k")
    page.get_by_role("combobox").fill("order-ref")
    expect(page.get_by_role("option", name="order-refused")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", level=1)).to_contain_text("order-refused")
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.get_by_role("heading", name="Workflows")).to_be_visible()


def test_single_letters_can_be_turned_off(open_page: OpenPage) -> None:
    page = open_page()
    page.get_by_role("grid").wait_for()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    expect(dialog).to_contain_text("next row")
    dialog.get_by_role("switch").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    expect(page.locator("tr.cur")).to_have_count(0)
