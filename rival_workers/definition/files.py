"""A file is a workflow: a module with `steps`, and optionally `Input`, `name`, `description` and `on_error`."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from rival_workers.definition.registry import Registry, default_registry
from rival_workers.definition.workflow import WorkflowDefinition, define_workflow
from rival_workers.errors import DefinitionError


def register_workflow_file(path: str | Path, registry: Registry | None = None) -> WorkflowDefinition:
    """Load one file and register it."""
    target = default_registry if registry is None else registry
    return target.add(References(target).define_file(Path(path)))


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
    problems: list[str] = []
    modules = _load_all(map(Path, paths), target, problems)
    references = References(target, modules)
    found: list[WorkflowDefinition] = []
    for file in modules:
        try:
            found.append(target.add(references.define_file(file)))
        except DefinitionError as error:
            problems += [problem for problem in error.problems if problem not in problems]
    if problems:
        raise DefinitionError(problems)
    return found


def _load_all(paths: Iterable[Path], registry: Registry, problems: list[str]) -> dict[Path, ModuleType]:
    """The modules that are workflows. All are loaded before any is checked, so that they may refer to each other."""
    modules: dict[Path, ModuleType] = {}
    for path in paths:
        if not path.exists():
            problems.append(f"{path}: there is no such file or directory")
            continue
        for file in _files(path):
            before = len(registry)
            try:
                module = _load(file)
            except DefinitionError as error:
                problems += error.problems
                continue
            # A file may also build and register its workflows itself.
            if hasattr(module, "steps") or (path == file and len(registry) == before):
                modules[file] = module
    return modules


class References:
    """Finds the workflows that others refer to: by file, by name, or given as themselves."""

    def __init__(self, registry: Registry, modules: Mapping[Path, ModuleType] | None = None) -> None:
        self._registry = registry
        self._modules = {file.resolve(): (file, module) for file, module in (modules or {}).items()}
        self._defined: dict[Path, WorkflowDefinition] = {}
        #: The files that are being defined, each because of the one before.
        self._within: list[Path] = []

    def define_file(self, path: Path) -> WorkflowDefinition:
        file = path.resolve()
        if file not in self._defined:
            shown, module = self._modules.get(file) or (path, _load(path))
            self._modules[file] = shown, module
            self._within.append(file)
            try:
                self._defined[file] = _from_module(shown, module, self)
            finally:
                self._within.pop()
        return self._defined[file]

    def __call__(self, reference: Any) -> WorkflowDefinition:
        if isinstance(reference, WorkflowDefinition):
            return reference
        if hasattr(reference, "build"):
            return self._checked(lambda: reference.build(self._registry))
        if not isinstance(reference, str | Path):
            raise ValueError(f"workflow({reference!r}): give a file, a name, or the workflow itself")
        file = self._file(reference)
        if file is None:
            return self._named(str(reference))
        if file in self._within:
            way = [*self._within[self._within.index(file) :], file]
            raise ValueError(f"workflows contain one another: {' → '.join(one.name for one in way)}")
        return self._checked(lambda: self.define_file(file))

    def _checked(self, define: Callable[[], WorkflowDefinition]) -> WorkflowDefinition:
        try:
            return define()
        except DefinitionError as error:
            raise ValueError(str(error)) from error

    def _file(self, reference: str | Path) -> Path | None:
        """The file that a reference means, relative to the one it stands in, or that has this name."""
        if str(reference).endswith(".py"):
            base = self._within[-1].parent if self._within else Path()
            return (base / reference).resolve()
        named = (file for file, (shown, module) in self._modules.items() if _name(shown, module) == reference)
        return next(named, None)

    def _named(self, name: str) -> WorkflowDefinition:
        for workflow in self._registry:
            if workflow.name == name:
                return workflow
        known = ", ".join(sorted(workflow.name for workflow in self._registry)) or "none"
        raise ValueError(
            f"there is no workflow {name!r} (known so far: {known}). Register it first, or give its file: "
            f"workflow('./{name.replace('-', '_')}.py')"
        )


def _files(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*.py") if not _is_hidden(p.relative_to(path)))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)


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


def _name(path: Path, module: ModuleType) -> str:
    return getattr(module, "name", None) or path.stem.replace("_", "-")


def _from_module(path: Path, module: ModuleType, references: References) -> WorkflowDefinition:
    if not hasattr(module, "steps"):
        raise DefinitionError([f"{path}: no `steps` list: add steps = [first, second, …]"])
    return define_workflow(
        _name(path, module),
        module.steps,
        input=getattr(module, "Input", None) or getattr(module, "input", None),
        description=getattr(module, "description", None),
        on_error=getattr(module, "on_error", None),
        source=str(path),
        resolve=references,
    )
