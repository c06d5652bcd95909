"""Imports workflow files, each under a name of its own. Does not read what they define."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from rival_workers.definition.call_places import is_users_file
from rival_workers.errors import DefinitionError


def python_files(path: Path) -> list[Path]:
    """The file itself, or all files below the directory, in a stable order."""
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*.py") if not _is_hidden(p.relative_to(path)))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def load_module(path: Path) -> ModuleType:
    """Imports a workflow file. Its directory becomes importable, so that files can share steps."""
    if not path.is_file():
        raise DefinitionError([f"{path}: this file does not exist"])
    digest = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]
    name = f"rival_workflow_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise DefinitionError([f"{path}: is not a Python file"])
    module = importlib.util.module_from_spec(spec)
    if str(path.parent.resolve()) not in sys.path:
        sys.path.append(str(path.parent.resolve()))
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except DefinitionError:
        raise
    except (Exception, SystemExit) as error:
        raise DefinitionError(
            [f"{path}: cannot be imported: {type(error).__name__}: {error} ({_place(error)})"]
        ) from error
    return module


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    frames = traceback.extract_tb(error.__traceback__)
    # The innermost line of user code: the cause of an error in a library is the line that calls it.
    users = [frame for frame in frames if is_users_file(frame.filename)]
    last = (users or frames)[-1]
    called = "" if last is frames[-1] else f", in {frames[-1].name} of {Path(frames[-1].filename).name}"
    return f"{last.filename}:{last.lineno}{called}"
