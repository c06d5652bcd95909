"""A filter of the list of runs that is refused: no rows are below it, since it is unknown which match."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import OpenPage

REFUSED = "status of 422"


@pytest.mark.parametrize("word", ["status:nope", "since:zzz"])
def test_a_filter_that_is_refused_leaves_no_rows_to_act_on(open_page: OpenPage, word: str) -> None:
    page = open_page("runs?workflow=order_fulfilment", expects=REFUSED)
    rows = page.get_by_role("grid").locator("tbody tr")
    expect(rows.filter(has_text="order-done")).to_have_count(1)
    page.get_by_role("combobox", name="Filter").fill(f"{word} ")
    expect(page.get_by_role("alert")).to_contain_text(word.partition(":")[2])
    expect(rows).to_have_count(0)
    expect(page.get_by_role("toolbar")).to_have_count(0)
    expect(page.get_by_role("button", name=f"Remove {word.replace(':', ' ')}")).to_be_visible()
    page.get_by_role("button", name=f"Remove {word.replace(':', ' ')}").click()
    expect(rows.filter(has_text="order-done")).to_have_count(1)
    expect(page.get_by_role("alert")).to_have_count(0)
