"""The package as users get it: the built wheel and sdist, and environments that have it and its dependencies only.

Environments are made without a package index: the dependencies that the wheel declares are linked from the environment
that the tests run in. What the wheel does not declare is not there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

from benchmarks.venvs import find_uv
from tests.support.workers import ROOT


def build(directory: Path) -> tuple[Path, Path]:
    """(wheel, sdist)"""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(directory)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    [wheel], [sdist] = directory.glob("*.whl"), directory.glob("*.tar.gz")
    return wheel, sdist


def metadata(wheel: Path) -> bytes:
    with ZipFile(wheel) as opened:
        [name] = [name for name in opened.namelist() if name.endswith(".dist-info/METADATA")]
        return opened.read(name)


def environment(directory: Path, wheel: Path, requires: Iterable[str], extras: set[str]) -> Path:
    """A new environment with the wheel, what it requires with these extras, and nothing else. Returns its `bin`."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    [packages] = directory.glob("lib/python*/site-packages")
    for found in closure(requires, extras):
        link(found, packages)
    python = directory / "bin" / "python"
    install = [find_uv(), "pip", "install", "--quiet", "--offline", "--no-deps", "--python", str(python), str(wheel)]
    subprocess.run(install, check=True)
    return directory / "bin"


def closure(requires: Iterable[str], extras: set[str]) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    asked: set[tuple[str, str]] = set()
    waiting = list(_needed(requires, extras))
    while waiting:
        one = waiting.pop()
        if (one.name, str(sorted(one.extras))) in asked:
            continue
        asked.add((one.name, str(sorted(one.extras))))
        found[one.name.lower()] = installed = distribution(one.name)
        waiting += _needed(installed.requires or (), one.extras)
    return list(found.values())


def _needed(requires: Iterable[str], extras: set[str]) -> Iterator[Requirement]:
    for text in requires:
        requirement = Requirement(text)
        contexts = [{"extra": extra} for extra in (*extras, "")]
        if requirement.marker is None or any(requirement.marker.evaluate(context) for context in contexts):
            yield requirement


def link(found: Distribution, packages: Path) -> None:
    """Every top-level file and folder of a distribution, without its scripts."""
    for top in {file.parts[0] for file in found.files or ()}:
        if top not in ("..", "__pycache__") and not (packages / top).exists():
            (packages / top).symlink_to(Path(str(found.locate_file(top))))
