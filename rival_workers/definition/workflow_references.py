"""Finds the workflows that others refer to, and defines a workflow from the module of its file."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

from rival_workers.definition.define import define_workflow
from rival_workers.definition.lookalikes import lookalikes, misspelt
from rival_workers.definition.modules import load_module
from rival_workers.definition.options import WorkflowOptions
from rival_workers.definition.registry import Registry
from rival_workers.definition.source_lines import with_line
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.errors import DefinitionError


@dataclass
class Loaded:
    """The modules that are workflows, and the files that could not be imported. `files` has both, in the order in which
    they were given: problems are reported in that order."""

    modules: dict[Path, ModuleType] = field(default_factory=dict)
    broken: dict[Path, DefinitionError] = field(default_factory=dict)
    files: list[Path] = field(default_factory=list)

    def add(self, file: Path, module: ModuleType) -> None:
        self.files.append(file)
        self.modules[file] = module

    def add_broken(self, file: Path, error: DefinitionError) -> None:
        self.files.append(file)
        self.broken[file.resolve()] = error


class References:
    """Finds the workflows that others refer to: by file, by name, or given as themselves."""

    def __init__(self, registry: Registry, loaded: Loaded | None = None, within: Iterable[Any] = ()) -> None:
        loaded = loaded or Loaded()
        self._registry = registry
        self._modules = {file.resolve(): (file, module) for file, module in loaded.modules.items()}
        self._defined: dict[Path, WorkflowDefinition] = {}
        self._broken = dict(loaded.broken)
        #: The files and builders that are being defined, each because of the one before.
        self._within: list[Any] = list(within)
        #: The names of the workflows that are steps of others.
        self.nested: set[str] = set()

    def define_file(self, path: Path) -> WorkflowDefinition:
        file = path.resolve()
        if file in self._broken:
            # The same text each time, so that it is reported once.
            raise DefinitionError(self._broken[file].problems)
        if file not in self._defined:
            try:
                self._defined[file] = self._define(path, file)
            except DefinitionError as error:
                self._broken[file] = error
                raise
        return self._defined[file]

    def _define(self, path: Path, file: Path) -> WorkflowDefinition:
        shown, module = self._modules.get(file) or (path, load_module(path))
        self._modules[file] = shown, module
        return self._inside(file, lambda: _from_module(shown, module, self))

    def _inside(self, outer: Any, define: Callable[[], WorkflowDefinition]) -> WorkflowDefinition:
        if outer in self._within:
            cycle = [*self._within[self._within.index(outer) :], outer]
            raise ValueError(f"workflows contain one another: {' → '.join(one.name for one in cycle)}")
        self._within.append(outer)
        try:
            return define()
        finally:
            self._within.pop()

    def __call__(self, reference: Any) -> WorkflowDefinition:
        found = self._find(reference)
        self.nested.add(found.name)
        return found

    def _find(self, reference: Any) -> WorkflowDefinition:
        if isinstance(reference, WorkflowDefinition):
            return reference
        if hasattr(reference, "build"):
            return self._inside(reference, lambda: reference.build(self._registry, self))
        if not isinstance(reference, str | Path):
            raise ValueError(f"workflow({reference!r}): give a file, a name, or the workflow itself")
        file = self._file(reference)
        return self._named(str(reference)) if file is None else self._of_file(file)

    def _of_file(self, file: Path) -> WorkflowDefinition:
        if file in self._within:
            return self._inside(file, lambda: self.define_file(file))
        return self.define_file(file)

    def _file(self, reference: str | Path) -> Path | None:
        """The file of a reference: relative to the file that contains the reference, or with this name."""
        if str(reference).endswith(".py"):
            files = [one for one in self._within if isinstance(one, Path)]
            return ((files[-1].parent if files else Path()) / reference).resolve()
        named = (file for file, (shown, module) in self._modules.items() if _name(shown, module) == reference)
        return next(named, None)

    def _named(self, name: str) -> WorkflowDefinition:
        workflow = self._registry.newest(name)
        if workflow is not None:
            return workflow
        known = ", ".join(sorted(workflow.name for workflow in self._registry)) or "none"
        raise ValueError(
            f"unknown workflow {name!r} (known so far: {known}). Register it first, or give its file: "
            f"workflow('./{name.replace('-', '_')}.py')"
        )


def _name(path: Path, module: ModuleType) -> str:
    return getattr(module, "name", None) or path.stem.replace("_", "-")


def _from_module(path: Path, module: ModuleType, references: References) -> WorkflowDefinition:
    if not hasattr(module, "steps"):
        found = [with_line(str(path), name) + f": {problem}" for name, problem in misspelt(module)]
        raise DefinitionError(found or [f"{path}: no `steps` list: add steps = [first, second, …]"])
    mistaken = [f"{path}: {problem}" for problem in lookalikes(module)]
    try:
        workflow = define_workflow(
            _name(path, module),
            module.steps,
            input=getattr(module, "Input", None) or getattr(module, "input", None),
            description=getattr(module, "description", None),
            on_error=getattr(module, "on_error", None),
            results=getattr(module, "results", None),
            policies=getattr(module, "policies", ()),
            source=str(path),
            resolve=references,
            **_options(module),
        )
    except DefinitionError as error:
        raise DefinitionError([*mistaken, *error.problems]) from error
    if mistaken:
        raise DefinitionError(mistaken)
    return workflow


def _options(module: ModuleType) -> WorkflowOptions:
    """The settings of the file for whole runs. A module (`import queue`) or a function of such a name is ignored."""
    found = {name: getattr(module, name, None) for name in WorkflowOptions.__annotations__}
    given = {name: value for name, value in found.items() if not isinstance(value, ModuleType | FunctionType)}
    return cast(WorkflowOptions, given)
