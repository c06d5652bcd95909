"""What a screen reader says: Chromium's accessibility tree of each page, and of the main pages what is in it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import OpenPage, Site, follow, wait_for_status
from tests.browser.test_pages import PAGES, settled

CONTROLS = (
    *("button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "slider", "switch", "spinbutton"),
    *("menuitem", "treeitem", "listbox", "progressbar", "image", "img", "tree", "grid", "toolbar", "dialog"),
)


@dataclass(frozen=True)
class Node:
    role: str
    name: str
    level: int | None
    parent: str | None
    id: str


def accessible(page: Page) -> list[Node]:
    """The tree as assistive technology gets it, in reading order, without what is hidden from it."""
    session = page.context.new_cdp_session(page)
    session.send("Accessibility.enable")
    found = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    return [_node(one) for one in found if not one.get("ignored")]


def _node(one: dict[str, Any]) -> Node:
    about = {its["name"]: its["value"].get("value") for its in one.get("properties", [])}
    name = one.get("name", {}).get("value", "")
    return Node(one["role"]["value"], name.strip(), about.get("level"), one.get("parentId"), one["nodeId"])


def named(nodes: list[Node], *roles: str) -> list[str]:
    return [node.name for node in nodes if node.role in roles]


@pytest.fixture(scope="module")
def page(open_pages: OpenPage) -> Page:
    return open_pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_can_be_understood_without_seeing_it(page: Page, name: str) -> None:
    follow(page, PAGES[name])
    settled(page)
    nodes = accessible(page)
    assert list(_wrong_landmarks(nodes)) == []
    assert list(_wrong_headings(nodes)) == []
    assert [node for node in nodes if node.role in CONTROLS and not node.name] == []
    assert list(_wrong_tables(page)) == []
    # Notices come in one place that is always there, so that they are read aloud.
    assert page.locator('[role=status][aria-live="polite"]').count() == 1


def _wrong_landmarks(nodes: list[Node]) -> Iterator[str]:
    for role in ("banner", "main", "contentinfo"):
        if len(named(nodes, role)) != 1:
            yield f"{len(named(nodes, role))} of {role}"
    if named(nodes, "navigation")[:1] != ["Pages"]:
        yield "the first navigation is not that of the pages"
    for role in ("navigation", "search", "region", "complementary", "form"):
        names = named(nodes, role)
        if "" in names or len(set(names)) < len(names):
            yield f"{role} without a name of its own: {names}"


def _wrong_headings(nodes: list[Node]) -> Iterator[str]:
    headings = [(node.level, node.name) for node in nodes if node.role == "heading"]
    if [level for level, _ in headings].count(1) != 1:
        yield f"not one heading of level 1: {headings}"
    before = 0
    for level, name in headings:
        if level is None or level > before + 1 or not name:
            yield f"{name!r} of level {level} follows level {before}"
        before = level or before


TABLES = """() => {
  const head = (one) => one.innerText.trim() || one.querySelector("[aria-label]")?.ariaLabel || "";
  const width = (row) => [...row.cells].reduce((sum, cell) => sum + cell.colSpan, 0);
  return [...document.querySelectorAll("table")].map((table) => ({
    html: table.outerHTML.slice(0, 120),
    heads: [...table.querySelectorAll("thead th")].map(head),
    widths: [...table.tBodies].flatMap((body) => [...body.rows]).map(width),
  }));
}"""


def _wrong_tables(page: Page) -> Iterator[str]:
    for table in page.evaluate(TABLES):
        if not table["heads"] or "" in table["heads"]:
            yield f"columns without a heading: {table['heads']} {table['html']}"
        if any(width > len(table["heads"]) for width in table["widths"]):
            yield f"rows are wider than the headings: {table['html']}"


# -- what is in the main pages ----------------------------------------------------------------------------


def test_the_list_of_runs(open_page: OpenPage) -> None:
    page = open_page("runs?workflow=order_fulfilment")
    expect(page.get_by_role("main")).to_match_aria_snapshot(r"""
        - main:
          - heading "Runs" [level=1]
          - navigation "Runs by status":
            - link /\d+ open/
            - link /\d+ pending/
            - link /\d+ running/
            - link /\d+ suspended/
            - link /\d+ paused/
            - link /\d+ failed, 24 h/
            - link /\d+ all/
          - search "Filter runs":
            - combobox "Filter"
            - button "Views"
            - button "Export"
          - region "Runs, newest first":
            - grid "Runs":
              - rowgroup:
                - row:
                  - columnheader "Choose all on this page":
                    - checkbox "Choose all on this page"
                  - columnheader "Status"
                  - columnheader "Run"
                  - columnheader "Workflow"
                  - columnheader "At / waits for"
                  - columnheader "Started"
                  - columnheader "Took, against the usual"
                  - columnheader "Input"
              - rowgroup:
                - row /order-refused/:
                  - gridcell "Choose order-refused":
                    - checkbox "Choose order-refused"
                  - gridcell "failed"
                  - rowheader "order-refused"
    """)


def test_a_run_and_its_graph(open_page: OpenPage) -> None:
    page = open_page("runs/order-refused")
    expect(page.get_by_role("main")).to_match_aria_snapshot(r"""
        - main:
          - heading "failed order-refused" [level=1]
          - toolbar "Actions":
            - button "Retry…"
            - button "Rewind"
            - button "Skip"
            - button "More"
          - region "Why":
            - paragraph: /book_carrier failed/
          - navigation "Views":
            - link "Graph"
            - link "Timeline"
            - link /History \d+/
            - link /Logs \d+/
          - region "Graph":
            - tree "Steps of order-refused":
              - treeitem /^completed price \d/ [level=1]
              - treeitem /^in-stock\? yes, so then .* failed$/ [expanded] [level=1]:
                - group:
                  - group:
                    - treeitem /^payment workflow payment .* completed$/ [expanded] [level=2]:
                      - group:
                        - treeitem /completed authorise attempt 2 of 3/ [level=3]
                        - treeitem /completed capture/ [level=3]
                    - treeitem /^send parallel .* failed$/ [expanded] [level=2]:
                      - group:
                        - group:
                          - treeitem "failed book_carrier CarrierRefused, 1 of 3" [level=3] [selected]
                  - group:
                    - treeitem /^not taken put_on_waiting_list/ [level=2]
              - treeitem /^notify not reached/ [level=1]
          - complementary "Step in-stock?/send/book_carrier":
            - heading "book_carrier" [level=2]
            - table:
              - rowgroup:
                - row "No. Outcome Worker Took Why"
    """)


def test_the_sides_of_a_branch_have_names(open_page: OpenPage) -> None:
    page = open_page("workflows/order_fulfilment")
    branch = page.get_by_role("treeitem", name=re.compile(r"^in-stock\? branch"))
    for side, step in (("then", "payment"), ("otherwise", "put_on_waiting_list")):
        steps = branch.get_by_role("group", name=side, exact=True)
        expect(steps.get_by_role("treeitem", name=re.compile(f"^{step}")).first).to_be_attached()
    expect(branch.get_by_role("treeitem", name=re.compile(r"^book_carrier .* fails \d")).first).to_be_attached()


def test_the_form_of_a_workflow(open_page: OpenPage) -> None:
    page = open_page("workflows/slow_steps/start")
    expect(page.get_by_role("main")).to_match_aria_snapshot(r"""
        - main:
          - heading "slow_steps" [level=1]
          - region "Plan":
            - tree "Plan of slow_steps":
              - treeitem /first/ [level=1]
              - treeitem /second/ [level=1]
              - treeitem /third/ [level=1]
          - /children: contain
    """)
    form = page.get_by_role("form", name="Start a run")
    expect(form.get_by_label("seconds", exact=True)).to_be_visible()
    expect(form.get_by_role("checkbox", name="fail")).to_be_visible()
    expect(form.get_by_role("textbox", name="run id")).to_be_visible()
    expect(form.get_by_role("button", name="Start run")).to_be_visible()


def test_the_fleet(open_page: OpenPage) -> None:
    page = open_page("fleet")
    expect(page.get_by_role("main")).to_match_aria_snapshot(r"""
        - main:
          - heading "Fleet" [level=1]
          - term: Slots busy
          - region "Workers":
            - heading "Workers" [level=2]
            - group "Workers":
              - table:
                - rowgroup:
                  - row "State Worker Host:pid Up Heartbeat Lease Slots Runs now Versions"
                - rowgroup:
                  - row /alive embedded/
          - region "Queues":
            - heading "Queues" [level=2]
            - group "Queues":
              - table:
                - rowgroup:
                  - row "Queue State Waiting Oldest Waiting, 15 m Workers Slots busy"
          - region "Doctor":
            - heading "Doctor" [level=2]
            - list:
              - listitem /lease/: /ok settings/
    """)


# -- what is said while the page is open ------------------------------------------------------------------


def test_a_change_of_the_status_is_said(open_page: OpenPage, site: Site) -> None:
    site.start("expense", "said-1", number="said-1", amount=1)
    wait_for_status(site, "said-1", "suspended")
    page = open_page("runs/said-1")
    page.get_by_role("tree").wait_for()
    said = page.get_by_role("main").get_by_role("status")
    expect(said).to_have_text("")
    site.post("runs/said-1/cancel", dry_run=False)
    expect(said).to_have_text("said-1 is cancelled")


def test_newer_runs_are_said(open_page: OpenPage, site: Site) -> None:
    page = open_page("runs?workflow=expense")
    page.locator("tbody tr").first.wait_for()
    said = page.get_by_role("region", name="Runs, newest first").get_by_role("status")
    site.start("expense", "said-2", number="said-2", amount=1)
    expect(said).to_have_text(re.compile("1 newer run"))


def test_how_many_runs_are_chosen_is_said(open_page: OpenPage) -> None:
    page = open_page("runs?workflow=order_fulfilment")
    page.locator("tbody tr").first.wait_for()
    said = page.locator("main > [role=status].vh")
    expect(said).to_have_text("")
    for number in (1, 2):
        page.keyboard.press("j")
        page.keyboard.press("x")
        expect(said).to_have_text(f"{number} chosen")
    page.keyboard.press("x")
    expect(said).to_have_text("1 chosen")
