"""The path of a newcomer: open the link that `rival dev` prints, start the example from its form, watch it, rewind it
with the preview, see it end. `make screenshots` takes its pictures along this path.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import PATIENCE
from tests.browser.filling import Filler
from tests.support.workers import ROOT

EXAMPLES = ("order_fulfilment", "approval", "nightly_etl", "llm_pipeline")
ORDERS = {"ann": {"axe": 2, "gloves": 1}, "mallory": {"axe": 1}, "bob": {"rope": 1}, "eve": {"axe": 6}}
#: Run id -> workflow, input, and the status that it comes to.
OTHERS: dict[str, tuple[str, Any, str]] = {
    "ticket-9912": ("answer-ticket", {"text": "My tent arrived without poles", "tenant": "acme"}, "completed"),
    "etl-2026-11-16": ("nightly-etl", {"day": "2026-11-16", "accounts": 300}, "completed"),
    "expense-2209": ("expense", {"number": "2209", "amount": 480}, "suspended"),
}
LINK = re.compile(r"http://127\.0\.0\.1:\d+/#token=\S+")


@pytest.fixture
def link(tmp_path: Path) -> Iterator[str]:
    """What `rival dev` prints for the examples; real servers and workers."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RIVAL_", "CELERY_"))}
    paths = [part for name in EXAMPLES for part in ("--workflows", str(ROOT / "examples" / name))]
    command = [sys.executable, "-m", "rival_workers.cli", "dev", *paths]
    options = {"cwd": tmp_path, "env": clean | {"PYTHONPATH": str(ROOT)}, "start_new_session": True, "text": True}
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as process:  # type: ignore[call-overload]
        found = next((seen[0] for line in process.stdout if (seen := LINK.search(line))), None)
        assert found is not None, "no link was printed"
        yield found
        os.killpg(process.pid, signal.SIGTERM)
        process.stdout.read()


class Camera:
    """Takes pictures when they are asked for."""

    def __init__(self, page: Page, folder: Path | None) -> None:
        self._page, self._folder = page, folder

    def take(self, name: str, wait: float = 400, themes: tuple[str, ...] = ("light",)) -> None:
        if self._folder is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        self._page.wait_for_timeout(wait)
        expect(self._page.locator(".notice p")).to_have_count(0)
        for theme in themes:
            self._page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
            self._page.screenshot(path=self._folder / f"{name}-{theme}.png")
        self._page.evaluate("document.documentElement.dataset.theme = 'light'")


@pytest.mark.slow
def test_the_example_is_started_watched_rewound_and_ends(link: str, browser: Browser, pictures: Path | None) -> None:
    page = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").new_page()
    page.set_default_timeout(PATIENCE)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    camera = Camera(page, pictures)
    page.goto(link)
    expect(page.get_by_role("heading", name="No runs yet")).to_be_visible()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Workflows").click()
    for customer, lines in ORDERS.items():
        start(page, "order", f"order-{customer}", {"customer": customer, "lines": lines}, "completed|failed", camera)
    for run_id, (workflow, given, status) in OTHERS.items():
        start(page, workflow, run_id, given, status, camera)
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Runs").click()
    expect(page.locator("tbody tr")).to_have_count(len(ORDERS) + len(OTHERS))
    expect(page.locator("tbody tr").filter(has_text="failed")).to_have_count(2)
    camera.take("runs")
    page.get_by_role("link", name="order-eve").click()
    expect(page.get_by_role("region", name="Why")).to_contain_text("book_carrier")
    camera.take("run")
    rewind(page, camera)
    page.get_by_role("link", name="Timeline").click()
    camera.take("timeline", wait=1500)
    page.keyboard.press("g")
    page.keyboard.press("f")
    expect(page.get_by_role("region", name="Workers")).to_contain_text("alive")
    camera.take("fleet", wait=1500)
    page.context.close()
    assert not problems


def start(page: Page, workflow: str, run_id: str, given: Any, status: str, camera: Camera) -> None:
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Workflows").click()
    page.get_by_role("link", name=f"Start {workflow}", exact=True).click()
    page.locator("form.startf").wait_for()
    filler = Filler(page)
    filler.fill(given)
    filler.form.get_by_label("run id").fill(run_id)
    expect(filler.form.get_by_text("fits", exact=True)).to_be_visible()
    if run_id == "order-eve":
        camera.take("start")
    filler.form.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(run_id)
    expect(page.locator(".rh .facts")).to_contain_text(re.compile(status), timeout=60_000)


def rewind(page: Page, camera: Camera) -> None:
    """The order of ann is packed again."""
    page.keyboard.press("g")
    page.keyboard.press("r")
    page.get_by_role("link", name="order-ann").click()
    expect(page.locator(".rh .facts")).to_contain_text("completed")
    page.locator('[data-path="in-stock?/pick"]').click()
    page.get_by_role("button", name="Rewind here…").click()
    panel = page.get_by_role("region", name="Rewind in-stock?/pick")
    expect(panel).to_contain_text("runs again")
    expect(page.locator('[data-path="in-stock?/pick"].again')).to_be_visible()
    camera.take("rewind", themes=("light", "dark"))
    panel.get_by_role("button", name="Rewind", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="order-ann: rewound")).to_be_visible()
    expect(page.locator(".rh .facts")).to_contain_text("completed", timeout=30_000)
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("region", name="History")).to_contain_text("rewind run")


# -- from `make demo` -------------------------------------------------------------------------------------


@pytest.fixture
def demo_link() -> Iterator[str]:
    """What `make demo KEEP=1` prints, as soon as it prints it."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("RIVAL_", "CELERY_"))}
    options = {"env": clean, "start_new_session": True, "text": True, "stdout": subprocess.PIPE}
    with subprocess.Popen(["make", "-s", "-C", str(ROOT), "demo", "KEEP=1"], **options) as process:  # type: ignore[call-overload]
        try:
            found = next((seen[0] for line in process.stdout if (seen := LINK.search(line))), None)
            assert found is not None, "no link was printed"
            yield found
            assert any("every run ended as expected" in line for line in process.stdout), "the demo has stopped before"
        finally:
            os.killpg(process.pid, signal.SIGTERM)
        process.stdout.read()


@pytest.mark.slow
def test_an_order_of_the_demo_is_started_watched_rewound_and_ends(demo_link: str, browser: Browser) -> None:
    page = browser.new_context(viewport={"width": 1440, "height": 900}, reduced_motion="reduce").new_page()
    page.set_default_timeout(PATIENCE)
    problems: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(demo_link)
    # The runs of the demo appear by themselves.
    expect(page.locator("tbody tr")).to_have_count(6, timeout=60_000)
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Workflows").click()
    page.get_by_role("link", name="Start order-fulfilment", exact=True).click()
    page.locator("form.startf").wait_for()
    filler = Filler(page)
    filler.fill({"customer": "Ann", "items": {"axe": 2}, "email": "ann@example.com"})
    filler.form.get_by_label("run id").fill("order-ann")
    expect(filler.form.get_by_text("fits", exact=True)).to_be_visible()
    filler.form.get_by_role("button", name="Start run").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("order-ann")
    facts = page.locator(".rh .facts")
    expect(facts).to_contain_text("completed", timeout=60_000)

    page.locator('[data-path="ship"]').click()
    page.get_by_role("button", name="Rewind here…").click()
    panel = page.get_by_role("region", name="Rewind ship")
    expect(panel).to_contain_text("runs again")
    for path, is_again in (("validate", False), ("charge", False), ("ship", True), ("notify", True)):
        expect(page.locator(f'[data-path="{path}"].again')).to_have_count(int(is_again))
    panel.get_by_role("button", name="Rewind", exact=True).click()
    expect(page.get_by_role("status").filter(has_text="order-ann: rewound")).to_be_visible()
    page.get_by_role("link", name="History").click()
    expect(page.get_by_role("region", name="History")).to_contain_text("rewind run")
    expect(facts).to_contain_text("completed", timeout=30_000)
    see_the_killed_worker(page)
    page.context.close()
    assert not problems


def see_the_killed_worker(page: Page) -> None:
    """The demo kills the worker of its run `video`. It is in the list until its attempt is taken over."""
    pages = page.get_by_role("navigation", name="Pages")
    pages.get_by_role("link", name="Fleet").click()
    takeovers = page.locator(".kpi > div").filter(has_text="Takeovers, 1 h")
    expect(takeovers).to_have_text(re.compile(r"^Takeovers, 1 h[1-9]$|^[1-9]Takeovers, 1 h$"), timeout=60_000)
    expect(page.get_by_role("region", name="Workers").get_by_role("cell", name="dead", exact=True)).to_have_count(0)
    pages.get_by_role("link", name="Runs").click()
    page.locator("tbody tr").filter(has_text="video").get_by_role("link").click()
    expect(page.locator(".rh .facts")).to_contain_text("completed", timeout=60_000)
    page.get_by_role("navigation", name="Views").get_by_role("link", name="History").click()
    expect(page.get_by_role("region", name="History")).to_contain_text("taken over")
