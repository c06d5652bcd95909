"""The form that starts a run: problems at their fields, what it can be filled from, and the run that it starts."""

from __future__ import annotations

import json
import re
from urllib.parse import quote

from playwright.sync_api import Page, expect

from tests.browser import forms
from tests.browser.conftest import OpenPage, Site, wait_for_status
from tests.browser.filling import Filler
from tests.browser.shop import order


def form(page: Page) -> Filler:
    page.locator("form.startf").wait_for()
    return Filler(page)


def test_a_run_is_started_from_its_form_with_the_keyboard(open_page: OpenPage, site: Site) -> None:
    page = open_page("workflows/slow_steps/start")
    filler = form(page)
    page.locator('[id="f--seconds"]').focus()
    page.keyboard.press("Control+a")
    page.keyboard.type("0.05")
    expect(filler.form.get_by_text("fits", exact=True)).to_be_visible()
    page.keyboard.press("Control+Enter")
    expect(page).to_have_url(re.compile(r"/runs/[0-9a-f-]+$"))
    expect(page.locator(".rh .facts")).to_contain_text("completed", timeout=15_000)
    run_id = page.url.rpartition("/")[2]
    assert site.get(f"runs/{run_id}")["run"]["input"]["value"] == {"seconds": 0.05, "fail": False}


def test_what_is_missing_is_said_only_after_an_attempt(open_page: OpenPage) -> None:
    page = open_page("workflows/order_fulfilment/start")
    filler = form(page)
    expect(filler.form).to_contain_text("still to fill")
    expect(filler.form.locator(".err")).to_have_count(0)
    filler.form.get_by_role("button", name="Start run").click()
    expect(filler.form.locator(".err").first).to_be_visible()
    expect(page.locator('[id="f--customer--name"]')).to_be_focused()


def test_a_wrong_value_is_marked_at_its_field(open_page: OpenPage) -> None:
    page = open_page("workflows/order_fulfilment/start")
    filler = form(page)
    filler.fill(order("Ann", ("axe", 2)))
    expect(filler.form.get_by_text("fits", exact=True)).to_be_visible()
    page.get_by_label("lines 1 count").fill("0")
    problem = filler.form.locator(".err", has_text="/lines/0/count").first
    expect(problem).to_contain_text("minimum of 1")
    expect(page.get_by_label("lines 1 count")).to_have_attribute("aria-invalid", "true")
    filler.form.get_by_role("button", name="1 problem").click()
    expect(page.get_by_label("lines 1 count")).to_be_focused()


def test_an_input_that_does_not_fit_is_not_sent(open_page: OpenPage) -> None:
    """Chromium would write the refusal to the console, which fails a test."""
    page = open_page("workflows/order_fulfilment/start")
    filler = form(page)
    filler.fill(order("Ann", ("axe", 2)))
    expect(filler.form.get_by_text("fits", exact=True)).to_be_visible()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(f"{request.method} {request.url.rpartition('/')[2]}"))
    # Sooner than the form asks by itself.
    page.get_by_label("lines 1 count").fill("0")
    page.keyboard.press("Control+Enter")
    expect(page.get_by_label("lines 1 count")).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_label("lines 1 count")).to_be_focused()
    assert "POST validate" in asked
    assert "POST runs" not in asked


def test_json_that_cannot_be_read_starts_nothing(open_page: OpenPage, site: Site) -> None:
    """Also a number that a browser reads as infinite, and would send as null."""
    before = len(site.get("runs", workflow="slow_steps", limit=200)["items"])
    page = open_page("workflows/slow_steps/start")
    filler = form(page)
    filler.form.get_by_role("tab", name="JSON").click()
    box = filler.form.get_by_label("Input as JSON")
    box.fill('{"seconds": 0}')
    expect(filler.form.get_by_text("fits", exact=True)).to_be_visible()
    for text, said in (('{"seconds": 1e400}', "1e400 is too large"), ('{"seconds": ', "not JSON yet")):
        box.fill(text)
        expect(filler.form.get_by_role("alert")).to_contain_text(said)
        expect(filler.form.get_by_text("fits", exact=True)).to_be_hidden()
        filler.form.get_by_role("button", name="Start run").click()
        expect(box).to_be_focused()
    box.fill('{"seconds": 0, "fail": false}')
    expect(filler.form.get_by_role("alert")).to_have_count(0)
    filler.form.get_by_role("button", name="Start run").click()
    page.wait_for_url(re.compile("/runs/"))
    assert len(site.get("runs", workflow="slow_steps", limit=200)["items"]) == before + 1


def test_form_and_json_are_the_same_input(open_page: OpenPage) -> None:
    page = open_page("workflows/slow_steps/start")
    filler = form(page)
    filler.form.get_by_role("tab", name="JSON").click()
    filler.form.get_by_label("Input as JSON").fill('{"seconds": 4, "fail": true}')
    filler.form.get_by_role("tab", name="Form").click()
    expect(page.locator('[id="f--seconds"]')).to_have_value("4")
    expect(page.locator('[id="f--fail"]')).to_be_checked()


def test_a_link_fills_the_form(open_page: OpenPage) -> None:
    given = {"seconds": 3, "fail": True}
    page = open_page(f"workflows/slow_steps/start?input={quote(json.dumps(given))}")
    filler = form(page)
    expect(page.locator('[id="f--seconds"]')).to_have_value("3")
    assert filler.result() == given


def test_a_run_like_another_has_its_secrets_and_the_changes(open_page: OpenPage, site: Site) -> None:
    page = open_page("runs/order-done")
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Start like this…").click()
    filler = form(page)
    expect(filler.form).to_contain_text("is copied on the server")
    page.locator('[id="f--customer--name"]').fill("Somebody else")
    filler.form.get_by_label("run id").fill("like-1")
    expect(filler.form.get_by_label("Command", exact=True)).to_contain_text("--run-id like-1")
    expect(filler.form.get_by_text("fits", exact=True)).to_be_visible()
    filler.form.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("like-1")
    wait_for_status(site, "like-1", "completed")
    shown = site.get("runs/like-1")["run"]["input"]["value"]
    assert shown["customer"]["name"] == "Somebody else"


def test_a_button_that_is_pressed_twice_starts_one_run(open_page: OpenPage, site: Site) -> None:
    page = open_page("workflows/slow_steps/start")
    filler = form(page)
    filler.fill({"seconds": 0})
    expect(filler.form.get_by_text("fits", exact=True)).to_be_visible()
    before = len(site.get("runs", workflow="slow_steps", limit=200)["items"])
    filler.form.get_by_role("button", name="Start run").dblclick()
    page.wait_for_url(re.compile("/runs/"))
    assert len(site.get("runs", workflow="slow_steps", limit=200)["items"]) == before + 1


def test_a_long_number_stays_as_it_is(open_page: OpenPage, site: Site) -> None:
    """A number of a browser holds 53 bits."""
    given = {"id": 2**60 + 1, "amounts": [2**63 - 1], "free": {"a": -(2**60) - 1}}
    site.post("runs", workflow=forms.name_of(forms.LongNumber), input=given, run_id="long-1")
    page = open_page("runs/long-1?tab=data")
    page.get_by_role("button", name="raw").first.click()
    assert json.loads(page.locator("pre").first.inner_text()) == given
    page.get_by_role("button", name="More").click()
    page.get_by_role("menuitem", name="Start like this…").click()
    filler = form(page)
    expect(page.locator('[id="f--id"]')).to_have_value(str(2**60 + 1))
    filler.form.get_by_label("run id").fill("long-2")
    expect(filler.form.get_by_text("fits", exact=True)).to_be_visible()
    filler.form.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("long-2")
    assert site.get("runs/long-2")["run"]["input"]["value"] == given


def test_the_command_is_the_one_that_starts_the_same_run(open_page: OpenPage) -> None:
    page = open_page("workflows/slow_steps/start")
    filler = form(page)
    command = filler.form.get_by_label("Command", exact=True)
    expect(command).to_contain_text("rival run slow_steps")
    filler.form.get_by_role("button", name="Python").click()
    expect(command).to_contain_text("rival.run('slow_steps'")
    filler.form.get_by_role("button", name="curl").click()
    expect(command).to_contain_text("curl -X POST")


def test_the_plan_shows_what_is_usual(open_page: OpenPage, site: Site) -> None:
    page = open_page("workflows/order_fulfilment")
    plan = page.get_by_role("tree", name="Plan of order_fulfilment")
    expect(plan.locator('[data-path="price"] .heat')).to_be_visible()
    expect(plan.locator('[data-path="in-stock?/payment/authorise"]')).to_contain_text("3 attempts")
    page.get_by_role("button", name="Plan as text").click()
    expect(page.get_by_role("dialog")).to_contain_text("book_carrier")
