"""The dashboard's files keep to its content security policy, and name only files that exist."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rival_workers.dashboard.static_files import StaticFiles
from tests.support.workers import ROOT

STATIC = ROOT / "rival_workers/dashboard/static"
VENDOR = STATIC / "vendor"
OWN = sorted(path for path in STATIC.rglob("*.js") if VENDOR not in path.parents)
#: What makes text into markup or code: names of users must stay text.
DANGEROUS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|dangerouslySet|\beval\(|new Function|setTimeout\(\s*[\"'`]"
)
IMPORTS = re.compile(r"""(?:^(?:import|export)\b.*?\bfrom |\bimport\()["']([^"']+)["']""", re.MULTILINE)


@pytest.mark.parametrize("path", OWN, ids=lambda path: str(path.relative_to(STATIC)))
def test_a_module_makes_no_markup_from_text_and_imports_what_exists(path: Path) -> None:
    text = path.read_text()
    assert not DANGEROUS.findall(text)
    for name in IMPORTS.findall(text):
        assert name.startswith("."), f"{name} is not relative"
        assert (path.parent / name).resolve().is_file(), f"{name} does not exist"


def test_no_file_names_another_origin() -> None:
    for path in [*OWN, STATIC / "rival.css", STATIC / "index.html"]:
        found = re.findall(r"(?:https?:)?//[\w.-]+\.\w+", path.read_text())
        assert set(found) <= {"http://www.w3.org"}, f"{path.name}: {found}"


def test_the_shell_has_no_inline_code_and_names_files_that_exist() -> None:
    shell = (STATIC / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|javascript:", shell)
    named = re.findall(r"%STATIC%/([\w./-]+)", shell)
    assert {"app.js", "first.js", "rival.css"} <= set(named)
    assert not [name for name in named if not (STATIC / name).is_file()]


@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("", "pages/runs.js"),
        ("runs/order~2F42", "run/graph.js"),
        ("runs/a/diff/b", "pages/compare.js"),
        ("workflows/order/start", "form/fields.js"),
        ("fleet/", "pages/fleet.js"),
        ("none/such", "ui.js"),
    ],
)
def test_the_shell_names_the_modules_of_its_page(page: str, wanted: str) -> None:
    shell = StaticFiles().shell("/", page, is_known=False).decode()
    named = re.findall(r'<link rel="modulepreload" href="static/\w+/([\w./-]+)">', shell)
    assert {"app.js", "vendor/signals-core.js", wanted} <= set(named)
    assert len(named) == len(set(named))
    assert not re.search("%|data-session", shell)


def test_every_vendored_library_has_its_licence() -> None:
    lock = json.loads((VENDOR / "vendor.lock").read_text())
    packages = {key.rpartition("@")[0].removeprefix("@").replace("/", "-") for key in lock}
    licences = {path.suffix[1:] if path.suffix else "" for path in VENDOR.glob("LICENSE.*")}
    tests = {path.name.partition(".")[2] for path in (ROOT / "tests/browser/vendor").glob("LICENSE.*")}
    assert packages == licences | tests
