"""Fleet, events, schedules and the login, each with what can be done there."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Route, expect

from tests.browser.conftest import OpenPage, Site, follow, wait_for_status
from tests.browser.site import FLOWER
from tests.browser.test_pages import violations_of_both_themes
from tests.support.workers import wait_until


def test_the_fleet_shows_its_worker_and_what_it_runs(open_page: OpenPage, site: Site) -> None:
    site.start("slow_steps", "fleet-1", seconds=6)
    page = open_page("fleet")
    workers = page.get_by_role("region", name="Workers")
    expect(workers).to_contain_text("alive")
    expect(workers.get_by_role("link", name="slow_steps.first")).to_be_visible(timeout=10_000)
    expect(page.get_by_role("region", name="Queues")).to_contain_text("rival")


def test_a_queue_shows_what_has_waited_since_a_page_was_opened(open_page: OpenPage) -> None:
    page = open_page("runs")
    page.locator("tbody tr").first.wait_for()
    follow(page, "fleet")
    queues = page.get_by_role("region", name="Queues")
    told = re.compile(r"^waiting, in the last (?!0)[\d.]+ s: at most \d+, now \d+$")
    expect(queues.get_by_role("img", name=told)).to_be_visible()


def test_an_event_is_sent_to_the_run_that_waits_for_it(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "event-1", number="7001", amount=1)
    page = open_page("events")
    page.get_by_role("link", name="expense.decided").click()
    waits = page.get_by_role("region", name="Waits")
    row = waits.get_by_role("row").filter(has_text="event-1")
    expect(row).to_contain_text("7001")
    row.get_by_role("button", name="Send…").click()
    dialog = page.get_by_role("dialog", name="Send an event")
    expect(dialog.get_by_label("Key optional")).to_have_value("7001")
    dialog.get_by_label("Payload as JSON").fill('{"approved": true}')
    expect(dialog.get_by_label("Command", exact=True)).to_contain_text("rival emit expense.decided")
    dialog.get_by_role("button", name="Send", exact=True).click()
    wait_for_status(site, "event-1", "completed")
    expect(page.get_by_role("region", name="Events")).to_contain_text("7001")


def test_who_waits_is_read_again(open_page: OpenPage, site: Site) -> None:
    page = open_page("events?topic=expense.decided")
    waits = page.get_by_role("region", name="Waits")
    expect(waits.get_by_role("row").filter(has_text="expense-2209")).to_be_visible()
    site.start("expense", "expense-late", number="late", amount=1)
    expect(waits.get_by_role("row").filter(has_text="expense-late")).to_be_visible()
    site.post("events", topic="expense.decided", payload={}, key="late")
    expect(waits.get_by_role("row").filter(has_text="expense-late")).to_have_count(0)


def test_a_kept_event_that_nearly_matches_is_shown(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "near-1", number="8001", amount=1)
    site.post("events", topic="expense.decided", payload={"approved": True}, key="8002", delivery="one")
    page = open_page("events?topic=expense.decided")
    row = page.get_by_role("region", name="Waits").get_by_role("row").filter(has_text="near-1")
    expect(row).to_contain_text("the key differs")


def test_a_schedule_is_made_started_paused_and_removed(open_page: OpenPage) -> None:
    page = open_page("schedules")
    page.get_by_role("button", name="New schedule…").click()
    dialog = page.get_by_role("dialog", name="New schedule")
    dialog.get_by_label("Name").fill("nightly")
    dialog.get_by_label("Workflow").select_option("slow_steps")
    dialog.get_by_label("Input as JSON").fill('{"seconds": 0}')
    dialog.get_by_role("button", name="Save").click()
    row = page.get_by_role("row").filter(has_text="nightly")
    expect(row).to_contain_text("0 3 * * *")

    def act(name: str, command: str) -> None:
        row.get_by_role("button", name="Actions of nightly").click()
        page.get_by_role("menuitem", name=f"{name}…").click()
        asked = page.get_by_role("dialog")
        expect(asked.get_by_label("Command", exact=True)).to_have_text(f"rival schedule {command} nightly")
        asked.get_by_role("button", name=name, exact=True).click()
        expect(asked).to_have_count(0)

    act("Start now", "fire")
    expect(page.get_by_role("status").filter(has_text="Started")).to_be_visible()
    act("Pause", "pause")
    expect(row).to_contain_text("paused")
    act("Resume", "resume")
    expect(row).to_contain_text("ok")
    act("Remove", "rm")
    expect(row).to_have_count(0)


def test_an_action_waits_for_its_preview(open_page: OpenPage, site: Site) -> None:
    """One that came later would ask about a schedule that is gone."""
    site.api.put("schedules/gone", json={"workflow": "buying", "cron": "0 4 * * *"}).raise_for_status()
    page = open_page("schedules")
    asked: list[str] = []

    def late(route: Route) -> None:
        page.wait_for_timeout(400)
        asked.append("preview")
        route.continue_()

    page.route(re.compile("schedules/gone.*dry_run=true"), late)
    page.on("request", lambda one: asked.append("removal") if one.url.endswith("schedules/gone") else None)
    page.get_by_role("button", name="Actions of gone").click()
    page.get_by_role("menuitem", name="Remove…").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(page.get_by_role("status").filter(has_text="removed")).to_be_visible()
    assert asked == ["preview", "removal"]


def test_two_versions_of_a_workflow_are_compared(open_page: OpenPage, site: Site) -> None:
    current, earlier = (one["version"] for one in site.get("workflows/letters")["versions"])
    page = open_page("workflows/letters")
    versions = page.get_by_role("region", name="Versions")
    expect(versions.get_by_role("row").filter(has_text=current[:8])).to_contain_text("current")
    link = versions.get_by_role("link", name=f"Difference {earlier[:6]} → {current[:6]}")
    link.click()
    expect(page).to_have_url(re.compile(f"workflows/letters/diff/{earlier}/{current}$"))
    expect(page.get_by_role("heading", level=1)).to_have_text("Two versions of letters")
    plans = page.get_by_role("region", name="Plans")
    expect(plans).to_contain_text("2 differences")
    expect(plans.locator("pre")).to_have_text("- seal\n~ send_letter  max_attempts: 3 → 1\n", use_inner_text=True)
    assert violations_of_both_themes(page) == []
    page.get_by_role("link", name="The workflow").click()
    expect(versions).to_be_visible()


def test_attempts_and_workers_lead_to_flower(open_page: OpenPage) -> None:
    """Flower sends its readers back: `test_flower_shows_every_attempt`."""
    page = open_page("runs/order-done?step=in-stock%3F/payment/authorise")
    for attempt in (1, 2):
        link = page.get_by_role("link", name=f"Attempt {attempt} in Flower")
        task = f"order-done%3Ain-stock%3F%2Fpayment%2Fauthorise%3A{attempt}"
        expect(link).to_have_attribute("href", f"{FLOWER}/task/{task}")
    page.goto(page.url.partition("runs/")[0] + "fleet")
    worker = page.get_by_role("region", name="Workers").get_by_role("link", name="embedded")
    expect(worker).to_have_attribute("href", f"{FLOWER}/worker/embedded")


def test_each_step_leads_to_other_tools(open_page: OpenPage) -> None:
    page = open_page("runs/order-done?step=in-stock%3F/payment/authorise")
    step = page.get_by_role("complementary", name="Step in-stock?/payment/authorise")
    logs = step.get_by_role("link", name="Logs", exact=True)
    wanted = "https://logs.example/?run=order-done&step=in-stock%3F%2Fpayment%2Fauthorise"
    expect(logs).to_have_attribute("href", wanted)
    # Another tool learns neither where its reader comes from, nor can it reach into the page.
    expect(logs).to_have_attribute("rel", "noreferrer")
    expect(logs).to_have_attribute("target", "_blank")
    errors = step.get_by_role("link", name="Errors", exact=True)
    expect(errors).to_have_attribute("href", "https://errors.example/order_fulfilment")


def test_a_name_cannot_change_where_a_link_leads(open_page: OpenPage, site: Site) -> None:
    site.start("slow_steps", "a&step=b#{workflow}", seconds=0)
    page = open_page("runs/a~26step~3Db~23~7Bworkflow~7D")
    logs = page.get_by_role("complementary").get_by_role("link", name="Logs", exact=True)
    wanted = "https://logs.example/?run=a%26step%3Db%23%7Bworkflow%7D&step="
    expect(logs).to_have_attribute("href", re.compile(f"^{re.escape(wanted)}"))


def test_the_task_id_of_flower_finds_the_attempt(open_page: OpenPage) -> None:
    page = open_page("runs?q=order-done%3Ain-stock%3F%2Fpayment%2Fauthorise%3A2")
    expect(page.get_by_role("heading", level=1)).to_contain_text("order-done")
    expect(page.get_by_role("complementary", name="Step in-stock?/payment/authorise")).to_be_visible()


def test_the_foot_says_what_watching_costs(open_page: OpenPage) -> None:
    page = open_page("runs/order-done")
    foot = page.get_by_role("contentinfo")
    expect(foot).to_contain_text(re.compile(r"This page: \d+ queries, [\d.]+ ms"))
    expect(foot).to_contain_text(re.compile(r"\d+ viewers?( together)?: [\d.]+ queries/s, [\d.]+ ms/s"))


def test_the_printed_link_works_in_a_tab_that_has_the_login(browser: Browser, site: Site) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.url)
    expect(page.get_by_role("form", name="Log in")).to_be_visible()
    page.goto(site.link)
    expect(page.get_by_role("heading", name="Runs")).to_be_attached()
    expect(page).not_to_have_url(re.compile("token"))
    context.close()


def test_without_a_login_nothing_is_shown(browser: Browser, site: Site) -> None:
    page = browser.new_context().new_page()
    page.goto(site.url + "runs/order-done")
    expect(page.get_by_role("form", name="Log in")).to_be_visible()
    assert "M. Ferreira" not in page.content()
    page.get_by_role("button", name="With a token").click()
    page.get_by_label("Link or token").fill(site.link)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("order-done")
    page.get_by_role("button", name=re.compile("Log out")).click()
    expect(page.get_by_role("form", name="Log in")).to_be_visible()
    page.context.close()


def test_tabs_share_one_stream(browser: Browser, site: Site, cookies: object) -> None:
    context = browser.new_context(storage_state=cookies)  # type: ignore[arg-type]
    streams: list[str] = []
    ends: list[str] = []
    context.on("request", lambda request: streams.append(request.url) if "/stream?" in request.url else None)
    context.on("requestfailed", lambda request: ends.append(request.url) if "/stream?" in request.url else None)
    first = context.new_page()
    first.goto(site.url + "runs/onboarding-ann")
    expect(first.get_by_role("status").filter(has_text="live")).to_be_visible()
    second = context.new_page()
    second.goto(site.url + "runs/expense-2209")
    expect(second.get_by_role("status").filter(has_text="live")).to_be_visible()
    wait_until(lambda: any("onboarding-ann" in url and "expense-2209" in url for url in streams))
    assert len(streams) - len(ends) == 1
    context.close()


def test_an_idempotency_key_is_dropped(open_page: OpenPage, site: Site) -> None:
    site.start("charging", "charging-1", number="77", amount=1)
    wait_for_status(site, "charging-1", "completed")
    page = open_page("limits")
    keys = page.get_by_role("region", name="Idempotency keys")
    row = keys.get_by_role("row").filter(has_text="charge:77")
    expect(row).to_contain_text("charging.charge")
    row.get_by_role("button", name="Drop charge:77").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Command", exact=True)).to_contain_text("rival key drop charge:77")
    dialog.get_by_role("button", name="Drop", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="charge:77 dropped")).to_be_visible()
    # It is free, until a keeper deletes it.
    expect(row.filter(has_text="completed")).to_have_count(0)
    assert [one["status"] for one in site.get("idempotency-keys")["items"] if one["key"] == "charge:77"] in (
        [],
        ["free"],
    )


def test_long_lists_are_below_the_limits_and_the_breakers(open_page: OpenPage) -> None:
    page = open_page("limits")
    page.get_by_role("region", name="Dead letters").get_by_text("letter-1").first.wait_for()
    titles = page.locator("main section h2").all_text_contents()
    assert titles == ["Limits", "Circuit breakers", "Rules of the fleet", "Dead letters", "Idempotency keys"]
