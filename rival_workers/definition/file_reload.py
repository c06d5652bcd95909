"""Detects changed workflow files by their times, and imports them again together with the modules that they share."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

from rival_workers.definition.files import register_paths
from rival_workers.definition.modules import python_files
from rival_workers.definition.registry import Registry, registering_in

#: When each file was written last, and how long it is.
Snapshot = dict[Path, tuple[int, int]]

_INSTALLED = ("site-packages", "dist-packages")
_OURS = ("rival_workers", "rival_client", "rival_workers.testing.pytest_plugin", "__main__")


def snapshot(paths: Iterable[str]) -> Snapshot:
    """The workflow files below the paths, and the imported modules of these files."""
    roots = [Path(path) for path in paths]
    files = {file.resolve() for root in roots if root.exists() for file in python_files(root)}
    files |= {Path(module.__file__ or "").resolve() for module in modules_below(roots).values()}
    return {file: seen for file in sorted(files) if (seen := _seen(file)) is not None}


def _seen(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size


def modules_below(paths: Iterable[Path]) -> dict[str, ModuleType]:
    """The imported modules of files below the paths; of a file, those of its directory, which it can import."""
    roots = [str((path if path.is_dir() else path.parent).resolve()) + os.sep for path in paths]
    return {name: module for name, module in list(sys.modules.items()) if _is_below(name, module, roots)}


def _is_below(name: str, module: ModuleType, roots: list[str]) -> bool:
    file = getattr(module, "__file__", None)
    if not isinstance(file, str) or not file.endswith(".py") or name.partition(".")[0] in _OURS:
        return False
    path = _real(file)
    return any(_own(path.removeprefix(root)) for root in roots if path.startswith(root))


@cache
def _real(file: str) -> str:
    """Cached, since each check asks for all modules of the process."""
    return os.path.realpath(file)


def _own(path: str) -> bool:
    """Installed packages below the path, in a .venv for example, are not followed."""
    return not any(part.startswith(".") or part in _INSTALLED for part in path.split(os.sep))


def load_again(paths: list[str], changed: Iterable[Path]) -> Registry:
    """The workflows as the files are now. DefinitionError, and the modules as they were, when they can't be loaded."""
    for file in changed:
        _delete_bytecode(file)
    importlib.invalidate_caches()
    fresh = Registry()
    with _without_modules([Path(path) for path in paths]), registering_in(fresh):
        register_paths(paths, fresh)
    return fresh


@contextlib.contextmanager
def _without_modules(paths: list[Path]) -> Iterator[None]:
    before = modules_below(paths)
    for name in before:
        sys.modules.pop(name, None)
    try:
        yield
    except BaseException:
        for name in modules_below(paths):
            sys.modules.pop(name, None)
        sys.modules.update(before)
        raise


def _delete_bytecode(file: Path) -> None:
    """Its time is kept in whole seconds: a second change within one would not be seen."""
    with contextlib.suppress(OSError, NotImplementedError):
        Path(importlib.util.cache_from_source(str(file))).unlink()
