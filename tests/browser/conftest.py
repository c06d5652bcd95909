"""Chromium, and a dashboard with runs in every status. Without Chromium these tests are skipped, which pytest reports.

Every page that a test opens is watched: a message in the console, an error, a report of the content security policy or
a request to another origin fails the test.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.browser.site import PASSWORD
from tests.support.workers import ROOT, wait_until

WIDE = {"width": 1440, "height": 900}
NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
WHY_SKIPPED = "tests/browser needs Chromium: `apt-get install chromium` (make test does so where it can)"
#: Milliseconds that a page may need on a busy machine; a test asserts order, not speed.
PATIENCE = 30_000
#: A moment as a page writes it: with its seconds if it is of today, else with its day. Tests also run across midnight.
MOMENT = r"(\d\d:\d\d:\d\d|[A-Z][a-z]{2} \d\d:\d\d)"
#: How much slower than this machine the browser's pages are, to find what depends on speed: RIVAL_TEST_SLOWDOWN=8.
SLOWDOWN = float(os.environ.get("RIVAL_TEST_SLOWDOWN", "1"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.browser)
            # In CI they must run: there the fixture below fails.
            if CHROMIUM is None and not os.environ.get("CI"):
                item.add_marker(pytest.mark.skip(reason=WHY_SKIPPED))


class Site:
    """The dashboard under test, asked directly for what is not the browser's matter."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.link = link = self._line()
        assert link.startswith("http"), "the site did not start"
        self.url, _, token = link.partition("#token=")
        self._states: dict[str, Any] = {}
        self._is_large = False
        self.api = self.client()
        self.post("session", token=token)

    def client(self) -> httpx.Client:
        headers = {"sec-fetch-site": "same-origin"}
        return httpx.Client(base_url=self.url + "api/v1/", headers=headers, timeout=30)

    def state_of(self, role: str) -> Any:
        """The state of a browser in which the user of that role has logged in."""
        if role not in self._states:
            with self.client() as asked:
                asked.post("session", json={"name": role, "password": PASSWORD}).raise_for_status()
                [cookie] = asked.cookies.jar
            about = {"domain": "127.0.0.1", "path": "/", "expires": -1, "httpOnly": True, "secure": False}
            kept = {"name": cookie.name, "value": cookie.value, "sameSite": "Strict", **about}
            self._states[role] = {"cookies": [kept], "origins": []}
        return self._states[role]

    def get(self, path: str, **query: Any) -> Any:
        return self.api.get(path, params=query).raise_for_status().json()

    def post(self, path: str, **body: Any) -> Any:
        return self.api.post(path, json=body).raise_for_status().json()

    def start(self, workflow: str, run_id: str, **given: Any) -> str:
        self.post("runs", workflow=workflow, input=given, run_id=run_id)
        return run_id

    def status(self, run_id: str) -> str:
        return str(self.get(f"runs/{run_id}")["run"]["status"])

    def enlarge(self) -> None:
        """Adds `big-items` and `big-flow`, runs of ten thousand steps, once."""
        if self._is_large:
            return
        self._is_large = True
        self._order("enlarge")

    def start_many(self, number: int) -> None:
        """`paged-000` and so on, all at once."""
        self._order(str(number))

    def delete_short_lived(self) -> None:
        """What retention does, with all ended runs of that workflow."""
        self._order("delete")

    def stop(self) -> None:
        """The server ends; the worker and its runs go on."""
        self._order("stop")

    def restart(self) -> None:
        self._order("start")

    def _order(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        self.link = self._line()
        assert self.link.startswith(self.url), "the site did not carry out the order"

    def close(self) -> None:
        self.api.close()
        assert self._process.stdin is not None
        self._process.stdin.close()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@pytest.fixture(scope="session")
def site() -> Iterator[Site]:
    """Of the whole session: tests of other folders may come in between, and it takes seconds to start."""
    command = [sys.executable, "-m", "tests.browser.site"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        found = Site(process)
        yield found
        found.close()


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    assert CHROMIUM is not None, WHY_SKIPPED
    # In this package only: while Playwright is open, no other event loop runs in this thread.
    expect.set_options(timeout=PATIENCE)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


@pytest.fixture(scope="package")
def cookies(browser: Browser, site: Site) -> Any:
    """The state of a browser that has opened the printed link."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(site.link)
    page.get_by_role("heading", name="Runs").wait_for(state="attached")
    state = context.storage_state()
    context.close()
    return state


class Watched:
    """Everything that a page said or asked for and should not have. `expects`: a part of messages that a test provokes,
    since Chromium writes one for each refusal."""

    def __init__(self, page: Page, origin: str, expects: str | None) -> None:
        self.problems: list[str] = []
        self._expects = expects
        page.on("console", lambda message: self._heard(f"console: {message.text} {message.location}"))
        page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        page.on("request", lambda request: self._check(request.url, origin))

    def _heard(self, text: str) -> None:
        if self._expects is None or self._expects not in text:
            self.problems.append(text)

    def _check(self, url: str, origin: str) -> None:
        if not url.startswith((origin, "data:", "blob:")):
            self.problems.append(f"off the origin: {url}")


class Contexts:
    """Browser contexts by their options: pages of one context share what they have loaded before."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._made: dict[str, BrowserContext] = {}

    def new_page(self, **options: Any) -> Page:
        key = json.dumps(options, sort_keys=True)
        if key not in self._made:
            self._made[key] = self._browser.new_context(**options)
        page = self._made[key].new_page()
        if SLOWDOWN > 1:
            page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWDOWN})
        return page


@pytest.fixture(scope="package")
def contexts(browser: Browser) -> Contexts:
    return Contexts(browser)


OpenPage = Callable[..., Page]


def opening(contexts: Contexts, site: Site, cookies: Any) -> Iterator[OpenPage]:
    made: list[tuple[Page, Watched]] = []

    def opened(path: str = "runs", expects: str | None = None, role: str | None = None, **context: Any) -> Page:
        state = cookies if role is None else site.state_of(role)
        # Without motion: it would be drawn by the processors that the other tests need.
        page = contexts.new_page(**{"viewport": WIDE, "storage_state": state, "reduced_motion": "reduce", **context})
        page.set_default_timeout(PATIENCE)
        made.append((page, Watched(page, site.url, expects)))
        page.goto(site.url + path)
        return page

    yield opened
    for page, _ in made:
        page.evaluate("localStorage.clear()")
        page.close()
    problems = [one for _, watched in made for one in watched.problems]
    assert not problems, "\n".join(problems)


@pytest.fixture
def open_page(contexts: Contexts, site: Site, cookies: Any) -> Iterator[OpenPage]:
    """Opens a page of the dashboard by its path, logged in: as an admin, or with the given role."""
    yield from opening(contexts, site, cookies)


@pytest.fixture(scope="module")
def open_pages(contexts: Contexts, site: Site, cookies: Any) -> Iterator[OpenPage]:
    """The same for pages that all tests of a module use."""
    yield from opening(contexts, site, cookies)


def follow(page: Page, path: str) -> None:
    """Goes to a page of the dashboard as a link inside it does."""
    page.evaluate("path => { history.pushState(null, '', path); dispatchEvent(new PopStateEvent('popstate')) }", path)


@pytest.fixture(scope="session")
def pictures() -> Path | None:
    """Where `make screenshots` wants its pictures; None: no pictures are asked for."""
    folder = os.environ.get("RIVAL_SCREENSHOTS")
    return Path(folder) if folder else None


def wait_for_status(site: Site, run_id: str, status: str) -> None:
    wait_until(lambda: site.status(run_id) == status, timeout=90, what=f"{run_id} is {status}")
