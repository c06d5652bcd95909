"""The dashboard's files keep to its content security policy, and name only files that exist."""

from __future__ import annotations

import json
import posixpath
import re
import zlib
from pathlib import Path
from urllib.parse import parse_qsl

import pytest

from rival_workers.dashboard.static_files import StaticFiles, bare_file
from rival_workers.dashboard.static_files.joined_modules import joined, needed
from tests.support.output import whole
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
        ("", ["pages/runs.js"]),
        ("runs/order~2F42", ["pages/run.js", "run/inspector.js"]),
        ("runs/a?tab=timeline", ["pages/run.js", "run/timeline.js"]),
        ("runs/a?do=rewind&step=b", ["pages/run.js", "run/preview.js"]),
        ("runs/a?tab=none", ["pages/run.js"]),
        ("runs/a/diff/b", ["pages/compare.js"]),
        ("workflows/order/start", ["pages/workflow.js"]),
        ("fleet/", ["pages/fleet.js"]),
        ("none/such", []),
    ],
)
def test_the_shell_names_the_modules_of_its_page(page: str, wanted: list[str]) -> None:
    path, _, query = page.partition("?")
    shell = StaticFiles().shell("/", path, dict(parse_qsl(query)), is_known=False).decode()
    named = re.findall(r'<link rel="modulepreload" href="static/\w+/([\w./-]+)">', shell)
    assert named == ["app.js", *wanted]
    assert not re.search("%|data-session", shell)


# -- joined modules ---------------------------------------------------------------------------------------

SOURCES = {path.relative_to(STATIC).as_posix(): path.read_text() for path in [*OWN, *VENDOR.glob("*.js")]}
JOINED = joined(SOURCES)


def page_of(entry: str) -> list[str]:
    """The modules that are there before a view of a page is asked for."""
    named = re.compile(rf'import\("[\w./]*/{posixpath.basename(entry)}"\)')
    pages = [name for name, text in SOURCES.items() if named.search(text)]
    return needed(SOURCES, pages[0]) if len(pages) == 1 else []


@pytest.mark.parametrize("entry", JOINED)
def test_a_joined_file_has_each_module_that_it_needs_once(entry: str) -> None:
    defined = re.findall(r'^\$define\("([^"]+)", ', JOINED[entry], re.MULTILINE)
    beyond = set() if entry == "app.js" else {*needed(SOURCES, "app.js"), *page_of(entry)}
    assert defined == [name for name in needed(SOURCES, entry) if name not in beyond]
    assert set(re.findall(r'\$need\("([^"]+)"\)', JOINED[entry])) <= {*defined, *beyond}


@pytest.mark.parametrize("entry", JOINED)
def test_a_joined_file_imports_only_files_that_are_joined(entry: str) -> None:
    at_once = re.findall(r'\bfrom ?"(\.[^"]+)"', JOINED[entry])
    assert at_once == (
        [] if entry == "app.js" else [f"{posixpath.relpath('.', posixpath.dirname(entry) or '.')}/app.js"]
    )
    for later in re.findall(r'\bimport\("([^"]+)"\)', JOINED[entry]):
        assert posixpath.normpath(posixpath.join(posixpath.dirname(entry), later)) in JOINED


def test_a_module_is_a_function_that_returns_its_exports() -> None:
    sources = {
        "app.js": 'import draw, { a, b as c } from "./x/y.js";\nexport const later = () => import("./page.js");\n',
        "x/y.js": 'export{Signal as S}from"./z.js";export{q as a,b};\nexport default function(s){return s}\n',
        "x/z.js": "export class Signal {}\n",
        "page.js": 'import { S } from "./x/y.js";\nexport default function Page() {}\nexport const one = S;\n',
    }
    made = joined(sources)
    assert list(made) == ["app.js", "page.js"]
    assert 'const { default: draw, a: a, b: c } = $need("x/y.js");' in made["app.js"]
    assert 'return { S: $need("x/z.js").Signal, a: q, b: b, default: $default };' in made["app.js"]
    assert made["page.js"] == (
        'import { $define, $need } from "./app.js";\n'
        '$define("page.js", () => {\nconst { S: S } = $need("x/y.js");\nfunction Page() {}\nconst one = S;\n\n'
        "return { default: Page, one: one };\n});\n"
        'const $own = $need("page.js");\nexport default $own.default;\nexport const { one } = $own;\n'
    )


def test_modules_that_import_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match=whole("modules import each other: app.js -> a.js -> app.js")):
        joined({"app.js": 'import { a } from "./a.js";', "a.js": 'import { b } from "./app.js";'})


def test_the_files_make_the_wheel_little_larger() -> None:
    """A wheel is a zip: each file is compressed by itself."""
    sizes = {path: len(zlib.compress(path.read_bytes(), 6)) for path in STATIC.rglob("*") if path.is_file()}
    assert sum(sizes.values()) < 250_000, sorted(sizes.items(), key=lambda one: -one[1])[:5]


def test_every_vendored_library_has_its_licence() -> None:
    lock = json.loads((VENDOR / "vendor.lock").read_text())
    packages = {key.rpartition("@")[0].removeprefix("@").replace("/", "-") for key in lock}
    licences = {path.suffix[1:] if path.suffix else "" for path in VENDOR.glob("LICENSE.*")}
    tests = {path.name.partition(".")[2] for path in (ROOT / "tests/browser/vendor").glob("LICENSE.*")}
    assert packages == licences | tests


def test_a_style_sheet_is_sent_without_what_means_nothing() -> None:
    content = (
        b"/* a */\n.a > .b:not(.c :hover) { color: red; & i { margin: 0 auto } }\n  @media (a: b) { c { d: e } }\n"
    )
    sent = b"\n.a > .b:not(.c :hover){color:red;& i{margin:0 auto}}\n@media (a:b){c{d:e}}\n"
    assert bare_file("x.css", content) == sent
