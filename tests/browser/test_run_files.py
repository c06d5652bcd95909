"""A run as one file: it needs no server and no network, and shows what a shared link shows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Site, Watched
from tests.browser.shop import HOSTILE, in_path
from tests.browser.test_pages import violations_of_both_themes

REFUSED = "order-refused"
CARRIER = "in-stock?/send/book_carrier"


@contextmanager
def opened(browser: Browser, site: Site, folder: Path, run_id: str, **options: Any) -> Iterator[Page]:
    """The file of a run, in a browser without a network."""
    path = folder / "run.html"
    path.write_text(site.api.get(f"runs/{in_path(run_id)}/export").raise_for_status().text)
    context = browser.new_context(offline=True, reduced_motion="reduce", **options)
    page = context.new_page()
    watched = Watched(page, "file:", None)
    page.goto(path.as_uri())
    yield page
    context.close()
    assert watched.problems == []


def test_a_file_shows_the_run_and_each_of_its_steps(browser: Browser, site: Site, tmp_path: Path) -> None:
    with opened(browser, site, tmp_path, REFUSED) as page:
        expect(page.get_by_role("heading", level=1)).to_contain_text(REFUSED)
        expect(page.locator(".facts")).to_contain_text("as it was")
        step = page.get_by_role("complementary", name=f"Step {CARRIER}")
        expect(step).to_contain_text("no carrier takes 412 parcels before Friday")
        expect(step.get_by_label("Traceback")).to_contain_text("in book_carrier")
        page.locator('[data-path="in-stock?/payment/authorise"]').click()
        step = page.get_by_role("complementary", name="Step in-stock?/payment/authorise")
        expect(step.get_by_role("table", name="Attempts")).to_contain_text("the gateway is busy")
        expect(page.get_by_role("region", name="History")).to_contain_text("compensating")


def test_a_file_hides_secrets_and_breaks_no_rule_of_accessibility(browser: Browser, site: Site, tmp_path: Path) -> None:
    with opened(browser, site, tmp_path, REFUSED) as page:
        page.get_by_role("tree").wait_for()
        assert "4000000000000077" not in page.content()
        assert violations_of_both_themes(page) == []


def test_a_file_fits_a_phone(browser: Browser, site: Site, tmp_path: Path) -> None:
    with opened(browser, site, tmp_path, REFUSED, viewport={"width": 390, "height": 844}) as page:
        page.get_by_role("tree").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_without_scripts_a_file_is_readable(browser: Browser, site: Site, tmp_path: Path) -> None:
    """As a mail program or a ticket system shows it."""
    with opened(browser, site, tmp_path, REFUSED, java_script_enabled=False) as page:
        expect(page.get_by_role("heading", level=1)).to_have_text(f"{REFUSED} failed")
        expect(page.get_by_role("table").first).to_contain_text(CARRIER)


def test_markup_stays_text_in_a_file(browser: Browser, site: Site, tmp_path: Path) -> None:
    run_id = f"file {HOSTILE}</script><script>alert(1)</script>"
    site.post("runs", workflow=HOSTILE, run_id=run_id)
    with opened(browser, site, tmp_path, run_id) as page:
        expect(page.get_by_role("heading", level=1)).to_contain_text(run_id)
        assert page.locator("img").count() == 0
