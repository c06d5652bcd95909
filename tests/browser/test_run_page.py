"""One run: graph, inspector, tabs, verbs with their preview, time travel, live changes."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.conftest import MOMENT, OpenPage, Site, follow, wait_for_status
from tests.browser.shop import order

CARRIER = "in-stock?/send/book_carrier"


@pytest.mark.parametrize(
    ("run_id", "status"),
    [
        ("order-done", "completed"),
        ("order-refused", "failed"),
        ("cancelled-1", "cancelled"),
        ("paused-1", "paused"),
        ("expense-2209", "suspended"),
        ("onboarding-ann", "suspended"),
    ],
)
def test_the_header_says_the_status(open_page: OpenPage, run_id: str, status: str) -> None:
    page = open_page(f"runs/{run_id}")
    expect(page.get_by_role("heading", level=1)).to_contain_text(run_id)
    expect(page.locator(".rh .facts")).to_contain_text(status)
    expect(page).to_have_title(re.compile(status))


def test_a_failed_step_is_chosen_and_explained(open_page: OpenPage) -> None:
    page = open_page("runs/order-refused")
    inspector = page.get_by_role("complementary", name=f"Step {CARRIER}")
    expect(inspector).to_contain_text("CarrierRefused: no carrier takes 412 parcels before Friday")
    expect(inspector.get_by_label("Traceback")).to_contain_text("in book_carrier")
    expect(inspector).to_contain_text("all three have refused")
    expect(page.locator(".lane.not")).to_contain_text("put_on_waiting_list")
    expect(page.locator('[data-path="notify"]')).to_contain_text("not reached")


def test_the_reason_says_what_was_undone_and_what_was_not_reached(open_page: OpenPage) -> None:
    facts = open_page("runs/order-refused").get_by_role("region", name="Why").locator(".facts")
    expect(facts).to_contain_text("undone: pick, capture")
    expect(facts).to_contain_text("not reached: notify")


def test_the_reason_says_since_when_until_when_and_who_can_end_it(open_page: OpenPage) -> None:
    facts = open_page("runs/ticket-1").get_by_role("region", name="Why").locator(".facts")
    text = rf"since {MOMENT}\s*until {MOMENT}, in \d+ m \d+ s\s*who can end it: the clock"
    expect(facts).to_have_text(re.compile(text))


def test_a_secret_of_the_input_model_is_hidden(open_page: OpenPage) -> None:
    page = open_page("runs/order-done?tab=data")
    expect(page.get_by_role("region", name="Input and result")).to_contain_text("***")
    assert "4000000000000077" not in page.content()


def test_arrows_walk_the_graph(open_page: OpenPage) -> None:
    page = open_page("runs/order-done?step=price")
    page.locator('[data-path="price"]').focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator('[data-path="in-stock?"]')).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator('[data-path="in-stock?/payment"]')).to_be_focused()
    expect(page).to_have_url(re.compile(r"step=in-stock%3F%2Fpayment"))
    page.keyboard.press("ArrowLeft")
    expect(page.locator('[data-path="in-stock?/payment"]')).to_have_attribute("aria-expanded", "false")
    page.keyboard.press("ArrowLeft")
    expect(page.locator('[data-path="in-stock?"]')).to_be_focused()
    page.keyboard.press("End")
    expect(page.locator('[data-path="notify"]')).to_be_focused()


def test_the_iterations_of_a_loop_are_counted_and_can_be_looked_at(open_page: OpenPage, site: Site) -> None:
    site.start("polling", "polling-1")
    wait_for_status(site, "polling-1", "completed")
    page = open_page("runs/polling-1")
    box = page.locator('[data-path="until-ready"]')
    expect(box).to_contain_text("5 iterations")
    expect(box.get_by_role("img", name="5 completed")).to_be_visible()
    box.get_by_role("button", name="iterations").click()
    listed = page.get_by_role("complementary", name="Items of until-ready")
    expect(listed).to_contain_text("5 in all")
    listed.get_by_role("button", name="until-ready[3]").click()
    expect(page.get_by_role("complementary", name="Step until-ready[3]/is_ready")).to_contain_text("completed")
    expect(page.locator('[data-path="until-ready[3]/is_ready"]')).to_have_attribute("aria-selected", "true")


def test_numbers_open_the_tabs(open_page: OpenPage) -> None:
    page = open_page("runs/order-refused")
    page.get_by_role("tree").wait_for()
    for number, name in enumerate(["Timeline", "History", "Logs", "Family", "Input and result", "Compare"], start=2):
        page.keyboard.press(str(number))
        expect(page.get_by_role("region", name=name, exact=True)).to_be_visible()
    page.keyboard.press("1")
    expect(page.get_by_role("region", name="Graph")).to_be_visible()


def test_the_timeline_shows_every_place_that_was_reached(open_page: OpenPage) -> None:
    page = open_page("runs/order-refused?tab=timeline")
    tree = page.get_by_role("tree", name="Timeline of order-refused")
    for path in ("price", "in-stock?/payment/authorise", CARRIER):
        expect(tree.locator(f'[data-path="{path}"]')).to_be_visible()
    expect(tree.locator('[data-path="in-stock?/payment/authorise"] .g.waits')).to_have_count(1)
    expect(tree.locator(f'[data-path="{CARRIER}"] .g.failed')).to_have_count(1)


def test_the_timeline_of_an_open_run_goes_on_until_now(open_page: OpenPage) -> None:
    page = open_page("runs/onboarding-ann?tab=timeline")
    where = page.get_by_role("region", name="Timeline").locator("p").first
    expect(where).to_contain_text(re.compile(r"was waiting\.\s*$"))
    waited = page.locator('[data-path="onboarding/event:reply"]')
    expect(waited.locator(".g.waited")).to_have_count(1)
    # A call of a flow has a time at which it ended, and no length.
    expect(page.locator('[data-path="onboarding/greet"] .d')).to_have_text("")
    before = waited.locator(".d").inner_text()
    expect(waited.locator(".d")).not_to_have_text(before)


def test_what_the_timeline_says_does_not_depend_on_what_is_closed(open_page: OpenPage) -> None:
    page = open_page("runs/order-refused?tab=timeline")
    where = page.get_by_role("region", name="Timeline").locator("p").first
    expect(where).to_contain_text(re.compile("was (work|waiting)"))
    before = where.inner_text()
    page.locator('[data-path="in-stock?"] .tgl').first.click()
    expect(page.locator('[data-path="in-stock?"]')).to_have_attribute("aria-expanded", "false")
    expect(where).to_have_text(before)


def test_every_place_says_the_same_time_of_a_run(open_page: OpenPage) -> None:
    """A run waits for a worker first, which is not a part of what it took."""
    page = open_page("runs/order-refused")
    took = page.locator(".rh .facts").get_by_text("took").locator("b").inner_text()
    page.keyboard.press("5")
    expect(page.get_by_role("region", name="Family").locator(".fam .num")).to_have_text(took)
    follow(page, "runs/order-done?tab=compare")
    row = page.get_by_role("region", name="Compare").get_by_role("row").filter(has_text="order-refused")
    expect(row.get_by_role("cell").last).to_have_text(took)
    follow(page, "runs?workflow=order_fulfilment")
    expect(page.locator('[data-run="order-refused"] .vs .t')).to_have_text(took)


def test_a_step_appears_while_the_page_is_open(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "live-1", number="1", amount=1)
    page = open_page("runs/live-1")
    expect(page.get_by_role("status").filter(has_text="live")).to_be_visible()
    expect(page.locator('[data-path="decision"].waits')).to_be_visible()
    site.post("runs/live-1/skip", step="decision", reason="the page is open", dry_run=False)
    expect(page.locator('[data-path="decision"].skipped')).to_be_visible()
    expect(page.locator('[data-path="pay_out"].completed')).to_be_visible()
    expect(page.locator(".rh .facts")).to_contain_text("completed")


def test_items_of_a_for_each_are_paged_and_filtered(open_page: OpenPage) -> None:
    page = open_page("runs/etl-60")
    expect(page.locator('[data-path="accounts"]')).to_contain_text("60 of 60")
    page.get_by_role("button", name="1 failed").click()
    listed = page.get_by_role("complementary", name="Items of accounts")
    expect(listed.get_by_role("button", name=re.compile(r"accounts\[17\]"))).to_be_visible()
    listed.get_by_role("button", name="all", exact=True).click()
    expect(listed.get_by_role("button", name=re.compile(r"accounts\[0\]"))).to_be_visible()
    listed.get_by_label("Items of accounts").evaluate("one => one.scrollTop = one.scrollHeight")
    last = listed.get_by_role("button", name=re.compile(r"accounts\[59\]"))
    expect(last).to_be_visible()
    last.click()
    expect(page.locator('[data-path="accounts[59]/extract"]')).to_be_visible()
    expect(page.get_by_role("complementary", name="Step accounts[59]")).to_contain_text("59")


def test_the_preview_of_a_rewind_is_what_the_server_says(open_page: OpenPage, site: Site) -> None:
    told = site.post("runs/order-refused/rewind", step=CARRIER, dry_run=True)
    page = open_page("runs/order-refused")
    page.get_by_role("button", name="Rewind", exact=True).click()
    page.get_by_role("menuitem", name=CARRIER).click()
    expect(page.get_by_role("region", name="Preview")).to_contain_text("Nothing has changed yet")
    # Items are drawn when they are opened.
    again = {path for path in told["runs_again"] if "!" not in path and "[" not in path}
    page.locator(".graph.pv .again").first.wait_for()
    marked = page.locator(".graph.pv .again").evaluate_all("all => all.map(one => one.dataset.path)")
    assert set(marked) == again
    panel = page.get_by_role("region", name=f"Rewind {CARRIER}")
    expect(panel).to_contain_text("It goes back further than you chose")
    expect(panel.get_by_label("Command", exact=True)).to_have_text(told["commands"]["shell"])
    page.keyboard.press("Escape")
    expect(page.get_by_role("region", name="Preview")).to_have_count(0)
    assert site.status("order-refused") == "failed"


AFTER_A_REWIND = """async () => {
  const application = document.querySelector("script[type=module][src]").src;
  const { applied } = await import(new URL("run/changes.js", application));
  const steps = ["a", "b"].map((path) => ({ path, status: "completed" }));
  const changes = [[2, 0, "b", "rewind_run", "deleted", {}]];
  return applied({ history_id: 1, folded: {}, steps }, { changes, at: 2 }).steps;
}"""


def test_a_live_rewind_removes_the_deleted_steps_at_once(open_page: OpenPage) -> None:
    page = open_page("runs/order-done")
    expect(page.get_by_role("heading", level=1)).to_contain_text("order-done")
    assert page.evaluate(AFTER_A_REWIND) == [{"path": "a", "status": "completed"}]


def test_a_rewind_runs_the_steps_again(open_page: OpenPage, site: Site) -> None:
    site.start("slow_steps", "rewound-1", seconds=0.05)
    wait_for_status(site, "rewound-1", "completed")
    page = open_page("runs/rewound-1?step=second")
    page.get_by_role("button", name="Rewind here…").click()
    panel = page.get_by_role("region", name="Rewind second")
    panel.get_by_role("button", name="Rewind", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="rewound-1: rewound")).to_be_visible()
    expect(page.locator(".rh .facts")).to_contain_text("completed", timeout=15_000)
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("region", name="History")).to_contain_text("rewind run")


def test_a_run_that_moved_shows_a_new_preview(open_page: OpenPage, site: Site) -> None:
    site.start("slow_steps", "moved-1", seconds=0.05, fail=True)
    wait_for_status(site, "moved-1", "failed")
    page = open_page("runs/moved-1", expects="412 (Precondition Failed)")
    page.get_by_role("tree").wait_for()
    page.keyboard.press("r")
    panel = page.get_by_role("region", name="Retry moved-1")
    panel.get_by_label("Command", exact=True).wait_for()
    # The button still has the preview of before.
    page.route("**/retry", lambda route: _move_first(site, route), times=1)
    panel.get_by_role("button", name="Retry moved-1").click()
    expect(panel).to_contain_text("The run has moved since the preview")


def _move_first(site: Site, route: Route) -> None:
    site.post("runs/moved-1/rewind", step="first", dry_run=False)
    route.continue_()


def previewed(page: Page) -> dict[str, str]:
    """What the graph says of each step that a preview marks."""
    marks = page.locator(".graph.pv .tag:not(.plain)")
    marks.first.wait_for()
    return dict(marks.evaluate_all("all => all.map(one => [one.closest('[data-path]').dataset.path, one.textContent])"))


def test_a_step_is_skipped_with_a_reason(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "skipped-1", number="9", amount=1)
    page = open_page("runs/skipped-1?step=decision")
    page.get_by_role("button", name="Skip…").click()
    panel = page.get_by_role("region", name="Skip decision")
    assert previewed(page) == {"decision": "is skipped", "pay_out": "runs"}
    expect(panel.get_by_label("Command", exact=True)).to_have_text("rival skip skipped-1 decision --reason '…'")
    panel.get_by_role("button", name="Skip", exact=True).click()
    expect(panel.get_by_role("alert")).to_contain_text("Say why")
    panel.get_by_label("Reason").fill("decided by phone")
    panel.get_by_role("button", name="Skip", exact=True).click()
    expect(page.locator('[data-path="decision"].skipped')).to_be_visible()


def test_a_result_is_set_by_hand(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "set-1", number="10", amount=1)
    page = open_page("runs/set-1?step=decision")
    page.get_by_role("button", name="Set result…").click()
    panel = page.get_by_role("region", name="Set the result of decision")
    panel.get_by_label("Result as JSON").fill('{"approved": true}')
    panel.get_by_label("Reason").fill("the boss said so")
    typed = """rival set-result set-1 decision '{"approved": true}' --reason 'the boss said so'"""
    expect(panel.get_by_label("Command", exact=True)).to_have_text(typed)
    assert previewed(page) == {"decision": "gets the result", "pay_out": "runs"}
    panel.get_by_role("button", name="Set the result", exact=True).click()
    expect(page.locator(".rh .facts")).to_contain_text("completed", timeout=15_000)
    assert site.get("runs/set-1")["run"]["result"]["value"] == {"approved": True}


def test_pause_and_resume(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "held-1", number="11", amount=1)
    wait_for_status(site, "held-1", "suspended")
    page = open_page("runs/held-1")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Pause…").click()
    assert previewed(page) == {"pay_out": "waits"}
    page.get_by_role("region", name="Pause held-1").get_by_role("button", name="Pause held-1").click()
    expect(page.locator(".rh .facts")).to_contain_text("paused")
    page.get_by_role("button", name="Resume…").click()
    assert previewed(page) == {"pay_out": "runs"}
    page.get_by_role("region", name="Resume held-1").get_by_role("button", name="Resume held-1").click()
    expect(page.locator(".rh .facts")).to_contain_text("suspended")


def test_cancel(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "stopped-1", number="12", amount=1)
    page = open_page("runs/stopped-1")
    expect(page.locator(".rh .facts")).to_contain_text("suspended")
    page.get_by_role("button", name="Cancel…").click()
    assert previewed(page) == {"decision": "is cancelled"}
    page.get_by_role("region", name="Cancel stopped-1").get_by_role("button", name="Cancel stopped-1").click()
    expect(page.locator(".rh .facts")).to_contain_text("cancelled")


def test_the_slider_goes_back_in_time(open_page: OpenPage) -> None:
    page = open_page("runs/order-refused")
    slider = page.get_by_role("slider", name="Moment")
    expect(slider).to_be_enabled()
    for _ in range(3):
        page.keyboard.press("[")
    expect(page.get_by_role("region", name="Time travel")).to_contain_text("The run as it was at")
    expect(page).to_have_url(re.compile(r"at=\d+"))
    slider.evaluate("one => { one.value = 2; one.dispatchEvent(new Event('input', {bubbles: true})) }")
    expect(page.locator('[data-path="notify"]')).to_be_visible()
    expect(page.locator(f'[data-path="{CARRIER}"].failed')).to_have_count(0)
    page.keyboard.press("l")
    expect(page.locator(f'[data-path="{CARRIER}"].failed')).to_be_visible()


def test_logs_follow_the_run(open_page: OpenPage, site: Site) -> None:
    site.post("runs", workflow="order_fulfilment", input=order("L. Okafor", ("axe", 1)), run_id="logs-1")
    page = open_page("runs/logs-1?tab=logs")
    lines = page.get_by_label("Log lines")
    expect(lines).to_contain_text("told the customer", timeout=15_000)
    page.get_by_role("button", name="warnings").click()
    expect(lines).not_to_contain_text("told the customer")
    expect(lines).to_contain_text("the gateway is busy")


def test_two_runs_are_compared(open_page: OpenPage) -> None:
    page = open_page("runs/order-refused?tab=compare")
    page.get_by_role("link", name="order-done").click()
    expect(page.get_by_role("heading", name="Two runs of order_fulfilment")).to_be_visible()
    expect(page.get_by_role("region", name="Steps")).to_contain_text("book_carrier")
    expect(page.get_by_role("region", name="Input")).to_contain_text("/customer/name")
