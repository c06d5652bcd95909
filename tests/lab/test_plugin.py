"""The pytest plugin, and what importing the kit costs whom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rival_workers.testing import Lab
from tests.architecture.test_imports import run_without
from tests.support.output import is_printed

UNUSED = """
import sys

def test_nothing():
    loaded = {name for name in sys.modules if name.startswith(("rival_workers", "rival_client", "sqlalchemy"))}
    names = {"rival_client", "rival_client.late_names"}
    assert loaded == {"rival_workers", "rival_workers.testing", "rival_workers.testing.pytest_plugin", *names}
"""


def run_pytest(directory: Path, text: str) -> str:
    (directory / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--strict-markers", "test_it.py"]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_fixture_is_there_without_any_import(rival_lab: Lab) -> None:
    assert isinstance(rival_lab, Lab)


@pytest.mark.rival_lab(shuffle=3)
def test_a_mark_opens_the_fixture_s_lab_with_options(rival_lab: Lab) -> None:
    assert rival_lab._world.broker._random is not None


def test_a_suite_that_does_not_use_it_imports_the_plugin_alone(tmp_path: Path) -> None:
    shown = [".… [100%]", "1 passed in …s"]
    assert is_printed(shown, run_pytest(tmp_path, UNUSED).splitlines())


def test_the_kit_needs_no_celery_and_no_pytest() -> None:
    done = run_without({"celery", "billiard", "rich", "click", "pytest"}, "import rival_workers.testing")
    assert (done.returncode, done.stderr) == (0, "")
