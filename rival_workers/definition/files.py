"""Loads workflow files: a file is a module with `steps`, and optionally `Input`, `name`, `description`, `on_error`,
`results`, `schedule`, `retention`, `concurrency_limit`, `rate_limit`, `hooks`, `queue`, `priority`,
`compensate_on_cancel`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

from rival_workers.definition.default_registry import registering_in, registry_for
from rival_workers.definition.lookalikes import misspelt
from rival_workers.definition.modules import load_module, python_files
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.definition.workflow_references import Loaded, References
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
    if not hasattr(loaded.modules[file], "steps") and added and not list(misspelt(loaded.modules[file])):
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
            if hasattr(module, "steps") or none_of_its_own or any(misspelt(module)):
                loaded.add(file, module)
    return loaded
