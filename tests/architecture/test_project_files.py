"""The files around the code say what is true: licence, contributing guide, decisions, CI, package metadata."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.documents import Page
from tests.support.workers import ROOT

PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
DECISIONS = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
#: What CONTRIBUTING must answer: where it goes, and which files change.
RECIPES = [
    "A column on runs",
    "A filter of `rival ls`",
    "A step option",
    "A predefined step",
    "A wait kind",
    "A history entry",
    "An operator verb",
    "A metric",
    "A broker",
    "An error",
]
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
POSTGRES = {"15", "16", "17", "18"}
BROKERS = {"redis", "valkey"}


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def ci() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    return loaded


# -- documents --------------------------------------------------------------------------------------------


def test_the_licence_is_mit_in_the_file_and_in_the_metadata() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.startswith("MIT License\n")
    assert "The Rival authors" in text
    assert PROJECT["license"] == "MIT"
    assert PROJECT["license-files"] == ["LICENSE"]


def paths_in(text: str) -> set[str]:
    """What is written as code and looks like a path of this repository: `rival_client/errors.py`, `tests/unit/`."""
    written = re.findall(r"`([\w.-]+(?:/[\w.*<>-]+)*/?)`", text)
    return {path for path in written if "/" in path or path in {"Makefile", "pyproject.toml", "CHANGELOG.md"}}


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "tests/README.md"])
def test_every_path_that_the_guides_name_exists(page: str) -> None:
    path = ROOT / page
    named = paths_in(path.read_text())
    assert len(named) > 10
    bases = (ROOT, path.parent)
    missing = {name for name in named if not any(list(base.glob(name.rstrip("/"))) for base in bases)}
    assert not missing


@pytest.mark.parametrize("what", RECIPES)
def test_contributing_says_where_it_goes_and_which_files_change(what: str) -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = re.search(rf"^### {re.escape(what)}$(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)
    assert section, f"CONTRIBUTING.md has no section {what!r}"
    assert any(name.startswith(("rival_client/", "rival_workers/")) for name in paths_in(section[1]))
    assert any(name.startswith("tests/") for name in paths_in(section[1])), "which tests?"


def test_the_guide_to_the_tests_names_every_folder() -> None:
    text = (ROOT / "tests" / "README.md").read_text()
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/*.py")}
    assert not {name for name in folders if f"| `{name}/` |" not in text}


@pytest.mark.parametrize("path", DECISIONS, ids=lambda path: path.stem)
def test_a_decision_has_context_decision_and_cost_in_40_lines(path: Path) -> None:
    text = path.read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["Context", "Decision", "Cost"]
    assert len(text.splitlines()) <= 40
    number, _, title = text.splitlines()[0].removeprefix("# ").partition(". ")
    assert path.name.startswith(f"{int(number):02}-")
    assert f"| {number} | [{title}]({path.name}) |" in (path.parent / "README.md").read_text()


def test_there_are_decisions() -> None:
    assert [path.name[:2] for path in DECISIONS] == [f"{n:02}" for n in range(1, len(DECISIONS) + 1)]
    assert len(DECISIONS) >= 10


def test_links_of_the_readme_work_on_a_package_index() -> None:
    relative = [target for _, target in Page(ROOT / "README.md").links() if "://" not in target]
    assert not relative


def test_the_readme_says_how_to_install() -> None:
    lines = [line for block in Page(ROOT / "README.md").blocks() for line in block.text.splitlines()]
    assert "pip install 'rival-workflows[workers]'" in lines
    extras = set(re.findall(r"rival-workflows\[([\w,]+)\]", (ROOT / "README.md").read_text()))
    assert {extra for named in extras for extra in named.split(",")} == set(PROJECT["optional-dependencies"])


# -- metadata ---------------------------------------------------------------------------------------------


def test_the_metadata_names_every_python_that_ci_tests() -> None:
    named = [c.rpartition(" ")[2] for c in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d+$", c)]
    assert named == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_all_addresses_are_of_one_repository() -> None:
    repository = PROJECT["urls"]["Repository"]
    assert all(url.startswith(repository) for url in PROJECT["urls"].values())
    for page in (ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"):
        for _, target in Page(page).links():
            assert "github.com" not in target or target.startswith(f"{repository}/"), target


# -- CI ---------------------------------------------------------------------------------------------------


def check_schema(path: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_follows_the_schema_of_github(path: Path) -> None:
    done = check_schema(path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_schema_rejects_a_misspelt_key(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yml"
    wrong.write_text((ROOT / ".github/workflows/ci.yml").read_text().replace("timeout-minutes", "timeout-minuets"))
    assert check_schema(wrong).returncode == 1


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_refers_to_exists(path: Path) -> None:
    """What the schema cannot know: expressions, jobs that are needed, workflows and steps that are used."""
    jobs = yaml.safe_load(path.read_text())["jobs"]
    for job in jobs.values():
        needed = job.get("needs", [])
        assert {needed} <= set(jobs) if isinstance(needed, str) else set(needed) <= set(jobs)
        if job.get("uses", "").startswith("./"):
            assert (ROOT / job["uses"]).is_file()
        cells = job.get("strategy", {}).get("matrix", {}).get("include", [])
        for name in re.findall(r"\$\{\{ matrix\.(\w+) \}\}", yaml.safe_dump(job, width=10_000)):
            assert cells
            assert all(name in cell for cell in cells), name


@pytest.mark.parametrize("path", [*WORKFLOWS, ROOT / ".pre-commit-config.yaml"], ids=lambda path: path.name)
def test_yamllint_finds_nothing(path: Path) -> None:
    command = [sys.executable, "-m", "yamllint", "--strict", "-c", str(ROOT / "deploy" / "yamllint.yml"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_matrix_has_every_python_postgres_and_broker() -> None:
    cells = ci()["jobs"]["test"]["strategy"]["matrix"]["include"]
    assert {cell["python"] for cell in cells} == set(PYTHONS)
    assert {cell["postgres"] for cell in cells} == POSTGRES
    assert {cell["broker"] for cell in cells} == BROKERS
    newest, oldest = max(POSTGRES), min(POSTGRES)
    pairs = {(cell["python"], cell["postgres"]) for cell in cells}
    assert {(PYTHONS[0], newest), (PYTHONS[-1], oldest), (PYTHONS[0], oldest), (PYTHONS[-1], newest)} <= pairs


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_ci_calls_targets_that_the_makefile_has(path: Path) -> None:
    called = re.findall(r"\bmake ([a-z-]+)", path.read_text())
    assert called
    assert set(called) <= make_targets()


def test_only_the_job_that_publishes_may_get_a_token() -> None:
    release = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())
    allowed = {name for name, job in release["jobs"].items() if "id-token" in job.get("permissions", {})}
    assert allowed == {"publish"}
    assert release["permissions"] == ci()["permissions"] == {"contents": "read"}
    assert release["jobs"]["publish"]["needs"] == "build"
    assert release["jobs"]["build"]["needs"] == "ci"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_checkout_leaves_no_credentials_for_later_steps(path: Path) -> None:
    jobs = yaml.safe_load(path.read_text())["jobs"].values()
    checkouts = [step for job in jobs for step in job.get("steps", ()) if "checkout@" in step.get("uses", "")]
    assert checkouts
    assert all(step["with"] == {"persist-credentials": False} for step in checkouts)


def test_pre_commit_runs_programs_that_make_install_brings() -> None:
    check = [sys.executable, "-m", "pre_commit", "validate-config", str(ROOT / ".pre-commit-config.yaml")]
    assert subprocess.run(check, check=False).returncode == 0
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    for hook in (hook for repo in config["repos"] for hook in repo["hooks"]):
        program = hook["entry"].split()[0]
        assert program.startswith(".venv/bin/")
        assert shutil.which(Path(program).name, path=str(Path(sys.executable).parent)), program
