"""Loads workflow files: a file is a module with `steps`, and optionally `Input`, `name`, `description`, `on_error`,
`results`, `schedule`, `retention`, `concurrency_limit`, `rate_limit`, `hooks`, `queue`, `priority`,
`compensate_on_cancel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

from rival_workers.definition.composites import CompositeSpec
from rival_workers.definition.define import define_workflow
from rival_workers.definition.flows import Flow
from rival_workers.definition.modules import load_module, python_files
from rival_workers.definition.options import WorkflowOptions
from rival_workers.definition.registry import Registry, registering_in, registry_for
from rival_workers.definition.source_lines import with_line
from rival_workers.definition.steps import StepSpec
from rival_workers.definition.waits import WaitSpec
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.errors import DefinitionError


def register_workflow_file(path: str | Path, registry: Registry | None = None) -> WorkflowDefinition:
    """Load one file and register it."""
    target, file = registry_for(registry), Path(path)
    loaded = Loaded()
    with registering_in(target):
        before = {workflow.name: workflow for workflow in target}
        loaded.modules[file] = load_module(file)
        added = [workflow for workflow in target if before.get(workflow.name) is not workflow]
    # A file may also have flows only, or build its workflow and register it itself.
    if not hasattr(loaded.modules[file], "steps") and added and not list(_misspelt(loaded.modules[file])):
        return added[0]
    return target.add(References(target, loaded).define_file(file))


def register_workflows_from_directory(
    directory: str | Path, registry: Registry | None = None
) -> list[WorkflowDefinition]:
    """Every .py file below the directory that has `steps`, in a stable order; all problems of all files at once."""
    root = Path(directory)
    if not root.is_dir():
        raise DefinitionError([f"{root}: this directory does not exist"])
    return register_paths([root], registry)


def register_paths(paths: Iterable[str | Path], registry: Registry | None = None) -> list[WorkflowDefinition]:
    """Files and directories. A broken file does not hide the problems of others, and each is reported once."""
    defined, refused = register_each(paths, registry_for(registry))
    if refused:
        raise DefinitionError(each_once(refused.values()))
    return defined


#: The problems of each file that cannot be used.
Refused = dict[Path, list[str]]


def register_each(paths: Iterable[str | Path], target: Registry) -> tuple[list[WorkflowDefinition], Refused]:
    """Registers each file by itself: those that can be used are registered, the others are returned."""
    loaded = _load_all(map(Path, paths), target)
    references = References(target, loaded)
    refused: Refused = {}
    files = [file for file in loaded.files if _succeeds(refused, file, partial(references.define_file, file))]
    defined = [references.define_file(file) for file in files]
    for file, workflow in zip(files, defined, strict=True):
        within_another = workflow.name in references.nested
        _succeeds(refused, file, partial(target.add, workflow, within_another=within_another))
    return defined, refused


def each_once(problems: Iterable[Iterable[str]]) -> list[str]:
    """A file that refers to a broken file has the problems of that file."""
    return list(dict.fromkeys(problem for some in problems for problem in some))


def _succeeds(refused: Refused, file: Path, define: Callable[[], object]) -> bool:
    try:
        define()
        return True
    except DefinitionError as error:
        refused[file.resolve()] = error.problems
        return False


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


def _load_all(paths: Iterable[Path], registry: Registry) -> Loaded:
    """All are loaded before any is checked, so that they may refer to each other."""
    loaded = Loaded()
    for path in paths:
        if not path.exists():
            loaded.add_broken(path, DefinitionError([f"{path}: this file or directory does not exist"]))
            continue
        for file in python_files(path):
            before = {workflow.name for workflow in registry}
            try:
                module = load_module(file)
            except DefinitionError as error:
                registry.keep_only(before)
                loaded.add_broken(file, error)
                continue
            # A file may also build and register its workflows itself, or be imported by others.
            none_of_its_own = path == file and len(registry) == len(before)
            if hasattr(module, "steps") or none_of_its_own or any(_misspelt(module)):
                loaded.add(file, module)
    return loaded


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
        found = [with_line(str(path), name) + f": {problem}" for name, problem in _misspelt(module)]
        raise DefinitionError(found or [f"{path}: no `steps` list: add steps = [first, second, …]"])
    mistaken = [f"{path}: {problem}" for problem in _lookalikes(module)]
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
    """What the file says about its runs as a whole. A module (`import queue`) or a function of such a name is none."""
    found = {name: getattr(module, name, None) for name in WorkflowOptions.__annotations__}
    given = {name: value for name, value in found.items() if not isinstance(value, ModuleType | FunctionType)}
    return cast(WorkflowOptions, given)


def _misspelt(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Lists of steps under a name that is almost `steps`: the file would silently have no workflow."""
    names = {} if hasattr(module, "steps") else vars(module)
    for name, value in names.items():
        is_list = isinstance(value, list | tuple) and bool(value) and all(map(_is_step_like, value))
        if is_list and get_close_matches(name.lower(), ["steps"], 1, 0.7):
            yield name, f"found {name} = [{len(value)} steps], but no `steps`: rename it to steps"


def _is_step_like(thing: Any) -> bool:
    return callable(thing) or isinstance(thing, StepSpec | CompositeSpec | WaitSpec | Flow | dict)


def _lookalikes(module: ModuleType) -> Iterator[str]:
    """Names that are almost `on_error` or `Input`, and would silently have no effect."""
    names = vars(module)
    for name, value in names.items():
        if getattr(value, "__module__", None) != module.__name__:
            continue
        plain = name.lower().replace("_", "").removesuffix("s")
        if plain == "onerror" and isinstance(value, FunctionType) and "on_error" not in names:
            yield f"{name} is not on_error: call it on_error if it is the workflow's handler"
        if plain == "input" and isinstance(value, type) and not names.keys() & {"Input", "input"}:
            yield f"{name} is not Input: call it Input if it is the workflow's input"
