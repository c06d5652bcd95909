"""The documentation is true: links lead somewhere, what is named exists, and what exists is named."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

import click
import pytest

import rival_client
import rival_workers
from docs import generate
from rival_client.db import metadata
from rival_client.model import kinds
from rival_client.model.policies.matchers import KINDS
from rival_client.settings import _NAMES as ENVIRONMENT_NAMES
from rival_workers import testing
from rival_workers.cli.main import SUMMARIES, cli
from rival_workers.definition.given_steps import OPTIONS
from rival_workers.settings import WorkerSettings
from rival_workers.store.migrations import VERSION_TABLE
from tests.support.documents import ON_GITHUB, Page, commands, pages, project_pages, reference
from tests.support.workers import ROOT

COMMANDS = commands(cli)
MAKE_TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


@pytest.mark.parametrize("page", [*pages(), *project_pages()], ids=lambda page: page.name)
def test_links_lead_to_a_file_and_a_heading_that_exist(page: Page) -> None:
    for _, target in page.links():
        if "://" in target and not target.startswith(ON_GITHUB):
            continue
        assert_leads_somewhere(target, page)


def assert_leads_somewhere(target: str, page: Page) -> None:
    name, _, anchor = target.removeprefix(ON_GITHUB).partition("#")
    base = ROOT if target.startswith(ON_GITHUB) else page.path.parent
    path = (base / name).resolve() if name else page.path
    assert path.exists(), f"{page.name}: {target} leads nowhere"
    if anchor:
        assert anchor in Page(path).anchors(), f"{page.name}: {target} has no such heading"


def test_addresses_of_the_documentation_in_code_lead_to_a_page() -> None:
    """In messages, pages of the dashboard and metadata of the package."""
    folders = (ROOT / "rival_client", ROOT / "rival_workers")
    files = [file for folder in folders for kind in ("*.py", "*.js", "*.html") for file in folder.rglob(kind)]
    texts = {file: file.read_text() for file in (*files, ROOT / "pyproject.toml")}
    found = [(Page(file), one) for file, text in texts.items() for one in re.findall(rf"{ON_GITHUB}[\w/.#-]+", text)]
    assert len(found) > 2
    for page, address in found:
        assert_leads_somewhere(address, page)


def test_every_kind_that_matchers_know_is_in_the_reference() -> None:
    row = re.search(r"^\| `of_kind\(\*wanted\)` \|.*$", Page(ROOT / "docs/reference/steps.md").text, re.MULTILINE)
    assert row is not None
    assert tuple(re.findall(r'`"(\w+)"`', row[0])) == KINDS


def test_every_page_can_be_reached_from_the_index() -> None:
    """In one click, or through the index of the decisions."""
    indexes = [Page(ROOT / "docs" / "README.md"), Page(ROOT / "docs" / "decisions" / "README.md")]
    linked = {(page.path.parent / target).resolve() for page in indexes for _, target in page.links()}
    assert indexes[1].path in linked
    documentation = {page.path for page in pages() if page.path.is_relative_to(ROOT / "docs")}
    assert not documentation - linked - {indexes[0].path}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_test_that_a_page_names_is_in_the_file_it_links_to(page: Page) -> None:
    for label, target in page.links():
        if label.startswith("`test_"):
            source = (page.path.parent / target).read_text()
            assert re.search(rf"def {label.strip('`')}\(", source), f"{page.name}: {target} has no {label}"


def test_every_promise_is_shown_by_a_test() -> None:
    rows = re.findall(r"^\| (?!---|promise).*$", (ROOT / "docs" / "guarantees.md").read_text(), re.MULTILINE)
    assert len(rows) > 10
    for row in rows:
        assert "[`test_" in row, f"a promise without a test: {row}"


def modules() -> dict[str, set[str]]:
    """Folder -> its modules; folders of data and of migrations have none."""
    found: dict[str, set[str]] = {}
    for path in (path for package in ("rival_client", "rival_workers") for path in (ROOT / package).rglob("*.py")):
        if path.parent.name != "versions" and path.name != "__init__.py":
            found.setdefault(f"{path.parent.relative_to(ROOT).as_posix()}/", set()).add(path.stem)
    return found


def test_every_module_is_in_the_map_of_the_architecture_page_and_nothing_else() -> None:
    text = Page(ROOT / "docs" / "explanation" / "architecture.md").section("Map of modules") or ""
    rows = re.findall(r"^\| `([\w/]+/)` \| (.+?) \| .+ \|$", text, re.MULTILINE)
    listed = {folder: set(re.findall(r"`(\w+)`", names)) for folder, names in rows}
    assert set(listed) == set(modules())
    for folder, found in modules().items():
        assert not found - listed[folder], f"{folder}: add {sorted(found - listed[folder])} to the map"
        assert not listed[folder] - found, f"{folder}: {sorted(listed[folder] - found)} do not exist"


def test_the_page_of_the_state_machines_is_up_to_date() -> None:
    assert generate.STATE_MACHINES.read_text() == generate.state_machines(), "run `python docs/generate.py`"
    assert generate.POLICIES.read_text() == generate.policies(), "run `python docs/generate.py`"


@pytest.mark.parametrize("field", fields(WorkerSettings), ids=lambda field: field.name)
def test_every_setting_is_in_the_reference_with_its_names_and_default(field) -> None:  # type: ignore[no-untyped-def]
    table = (ROOT / "docs" / "reference" / "settings.md").read_text()
    row = re.search(rf"^\| `{field.name}` \|.*$", table, re.MULTILINE)
    assert row, f"{field.name} is missing"
    for name in ENVIRONMENT_NAMES.get(field.name, (f"RIVAL_{field.name.upper()}",)):
        assert f"`{name}`" in row[0]
    assert field.default is not MISSING
    shown = f"`{field.default}`" if field.default not in (None, "") else "none"
    assert f"| {shown} |" in row[0], f"the default is {field.default!r}"


def test_the_reference_names_no_setting_that_does_not_exist() -> None:
    table = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {field.name for field in fields(WorkerSettings)}


@pytest.mark.parametrize("name", [*rival_client.__all__, *rival_workers.__all__, *testing.__all__])
def test_every_public_name_is_in_the_reference(name: str) -> None:
    assert re.search(rf"`{name}[`(]", reference())


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_of_a_step_is_in_the_reference(option: str) -> None:
    text = (ROOT / "docs" / "reference" / "steps.md").read_text()
    section = text.partition("\n## Options\n")[2].partition("\n## ")[0]
    assert section.count(f"| `{option}` |") == 1


def test_every_problem_of_a_definition_that_is_listed_exists() -> None:
    code = "\0".join(text for package in ("rival_client", "rival_workers") for text in messages(ROOT / package))
    text = (ROOT / "docs" / "reference" / "definition-errors.md").read_text()
    rows = re.findall(r"^\| (`.+?) \| ", text, re.MULTILINE)
    spans = [span for row in rows for span in re.findall(r"``(.+?)``|`([^`]+)`", row)]
    # Names that stand for those of users.
    names = r"…|stpes|on_errors|Inputs|steps\.x,|'x'|(?<=already, )from"
    parts = {part.strip() for span in spans for part in re.split(names, "".join(span))}
    assert len(spans) > 30
    assert not {part for part in parts if part not in code}


def messages(package: Path) -> Iterator[str]:
    """The texts of the code, without what is filled in."""
    for file in package.rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text()))
        yield from (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))


@pytest.mark.parametrize("table", sorted(metadata.tables))
def test_every_table_is_in_the_reference_with_its_columns_and_its_primary_key(table: str) -> None:
    section = Page(ROOT / "docs" / "reference" / "tables.md").section(f"`{table}`")
    assert section, f"{table} is missing"
    rows = re.findall(r"^\| (`[^|]+) \| (.+) \|$", section, re.MULTILINE)
    listed = {column: meaning for cell, meaning in rows for column in re.findall(r"`(\w+)`", cell)}
    columns = metadata.tables[table].columns
    assert set(listed) == {column.name for column in columns}
    keys = {column for column, meaning in listed.items() if meaning.startswith("primary key")}
    assert keys == {column.name for column in columns if column.primary_key}


def test_every_kind_of_row_is_in_the_reference_and_nothing_else() -> None:
    """An address that begins with "!" is a path, not a kind."""
    row = re.search(r"^\| `kind` \|(.*)$", Page(ROOT / "docs/reference/tables.md").text, re.MULTILINE)
    assert row is not None
    names = {value for name, value in vars(kinds).items() if name.isupper() and isinstance(value, str)}
    assert set(re.findall(r"`(\w+)`", row[1])) == {name for name in names if not name.startswith("!")}


def test_the_reference_names_no_table_that_does_not_exist() -> None:
    listed = set(re.findall(r"^## `(\w+)`$", (ROOT / "docs" / "reference" / "tables.md").read_text(), re.MULTILINE))
    assert listed == {*metadata.tables, VERSION_TABLE}


@pytest.mark.parametrize("name", SUMMARIES)
def test_help_says_of_a_command_what_the_command_says_of_itself(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert SUMMARIES[name] == command.get_short_help_str(1000)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_in_the_reference_with_all_its_options(name: str) -> None:
    text = (ROOT / "docs" / "reference" / "cli.md").read_text()
    section = with_what_it_points_to(text, rf"`rival {name}[^\n]*")
    assert section, f"rival {name} is missing"
    for parameter in COMMANDS[name].params:
        if isinstance(parameter, click.Option):
            assert any(f"`{option}" in section for option in parameter.opts), f"{name}: {parameter.opts} is missing"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_a_command_has_a_help_text(name: str) -> None:
    silent = [one.opts for one in COMMANDS[name].params if isinstance(one, click.Option) and not one.help]
    assert not silent, f"rival {name}: {silent}"


def with_what_it_points_to(text: str, heading: str) -> str:
    """A section, and those of the same page that it links to: options that many commands share are listed once."""
    found = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    if found is None:
        return ""
    linked = re.findall(r"\(#([\w-]+)\)", found[1])
    return found[1] + "".join(with_what_it_points_to(text, f"`?{one.replace('-', '[ -]')}`?") for one in linked)


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_command_that_is_shown_exists(page: Page) -> None:
    shell = "\n".join(block.text for block in page.blocks() if block.language in ("sh", "shell", "bash", "console"))
    inline = "\n".join(re.findall(r"`((?:rival|make) [^`]+)`", page.prose))
    for line in f"{shell}\n{inline}".splitlines():
        for said in re.findall(r"(?:^|[ /])(?:(rival|make) +([a-z][^\n#;|&]*))", line.split("#")[0]):
            _assert_exists(page, *said)


def _assert_exists(page: Page, program: str, arguments: str) -> None:
    words = arguments.split()
    if program == "make":
        for word in words:
            assert "=" in word or word in MAKE_TARGETS, f"{page.name}: there is no `make {word}`"
        return
    name = next((" ".join(words[:n]) for n in (3, 2, 1) if " ".join(words[:n]) in COMMANDS), None)
    assert name or words == ["db"], f"{page.name}: there is no `rival {arguments}`"
    if name is None:
        return
    known = {option for parameter in COMMANDS[name].params for option in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        if word.startswith("--"):
            assert word.partition("=")[0] in known | {"--help"}, f"{page.name}: `rival {name}` has no {word}"


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_only_the_roadmap_speaks_of_what_does_not_exist(page: Page) -> None:
    """Pages rot when they promise: what exists is described, what is planned is on the roadmap."""
    if page.name != "docs/roadmap.md":
        found = re.search(r"\b(?:not yet|to come|coming soon|is planned|are planned|in the future)\b", page.prose)
        assert not found, f"{page.name}: {found[0] if found else ''!r} belongs on docs/roadmap.md"


def test_no_page_speaks_of_absolute_speed() -> None:
    for page in pages():
        found = re.search(r"\d[\d,.]* ?(?:steps|runs|tasks|messages)?(?:/s\b| per second)", page.prose)
        assert not found, f"{page.name}: {found[0] if found else ''}"


def test_the_changelog_has_the_version_of_the_package() -> None:
    assert f"## [{rival_client.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
