"""A file is a workflow: a module with `steps`, and optionally `Input`, `name`, `description` and `on_error`."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from rival_workers.definition.registry import Registry, default_registry
from rival_workers.definition.workflow import WorkflowDefinition, define_workflow
from rival_workers.errors import DefinitionError


def register_workflow_file(path: str | Path, registry: Registry | None = None) -> WorkflowDefinition:
    """Load one file and register it."""
    target = default_registry if registry is None else registry
    return target.add(_define(Path(path)))


def register_workflows_from_directory(
    directory: str | Path, registry: Registry | None = None
) -> list[WorkflowDefinition]:
    """Every .py file below the directory that has `steps`, in a stable order; all problems of all files at once."""
    root = Path(directory)
    if not root.is_dir():
        raise DefinitionError([f"{root}: there is no such directory"])
    return register_paths([root], registry)


def register_paths(paths: Iterable[str | Path], registry: Registry | None = None) -> list[WorkflowDefinition]:
    """Files and directories, mixed. One broken file does not hide the others' problems."""
    target = default_registry if registry is None else registry
    found: list[WorkflowDefinition] = []
    problems: list[str] = []
    for path in map(Path, paths):
        if not path.exists():
            problems.append(f"{path}: there is no such file or directory")
            continue
        for file in _files(path):
            before = len(target)
            try:
                module = _load(file)
                if hasattr(module, "steps") or (path == file and len(target) == before):
                    found.append(target.add(_from_module(file, module)))
            except DefinitionError as error:
                problems += error.problems
    if problems:
        raise DefinitionError(problems)
    return found


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*.py") if not _is_hidden(p.relative_to(path)))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


def _define(path: Path) -> WorkflowDefinition:
    return _from_module(path, _load(path))


def _load(path: Path) -> ModuleType:
    """Import the file under a name of its own; its directory is importable, so that steps can be shared."""
    if not path.is_file():
        raise DefinitionError([f"{path}: there is no such file"])
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
    except Exception as error:
        raise DefinitionError(
            [f"{path}: cannot be imported: {type(error).__name__}: {error} ({_place(error)})"]
        ) from error
    return module


def _place(error: Exception) -> str:
    if isinstance(error, SyntaxError):
        return f"{error.filename}:{error.lineno}"
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.filename}:{last.lineno}"


def _from_module(path: Path, module: ModuleType) -> WorkflowDefinition:
    if not hasattr(module, "steps"):
        raise DefinitionError([f"{path}: no `steps` list: add steps = [first, second, …]"])
    return define_workflow(
        getattr(module, "name", None) or path.stem.replace("_", "-"),
        module.steps,
        input=getattr(module, "Input", None) or getattr(module, "input", None),
        description=getattr(module, "description", None),
        on_error=getattr(module, "on_error", None),
        source=str(path),
    )
