"""Whatever a test has of a workflow, into a lab's registry: a file, a module, a builder, a list of steps."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from rival_workers.definition.files import Loaded, References, register_paths
from rival_workers.definition.flows import Flow
from rival_workers.definition.registry import Registry
from rival_workers.definition.workflow import WorkflowDefinition, define_workflow
from rival_workers.testing.errors import LabError


def register(registry: Registry, what: Any, name: str | None, options: dict[str, Any]) -> list[WorkflowDefinition]:
    if isinstance(what, Sequence) and not isinstance(what, str):
        return [registry.add(_from_steps(registry, what, name, options))]
    if name is not None or options:
        raise LabError("A name and options are for a list of steps; a workflow, builder or file has its own.")
    if isinstance(what, WorkflowDefinition):
        return [registry.add(what)]
    if isinstance(what, Flow) and what.definition is not None:
        return [registry.add(what.definition)]
    if hasattr(what, "build"):
        return [registry.add(what.build(registry))]
    if isinstance(what, ModuleType):
        return [registry.add(_from_module(registry, what))]
    if isinstance(what, str | Path):
        return register_paths([what], registry)
    raise LabError(f"{what!r} is no workflow: give a file, a directory, a module, a builder or a list of steps.")


def _from_steps(
    registry: Registry, steps: Sequence[Any], name: str | None, options: dict[str, Any]
) -> WorkflowDefinition:
    if name is None:
        raise LabError("A list of steps needs a name: lab.register([first, second], name='order').")
    return define_workflow(name, steps, resolve=References(registry), **options)


def _from_module(registry: Registry, module: ModuleType) -> WorkflowDefinition:
    """The module as it is, so that what a test has patched in it stays patched."""
    file = Path(module.__file__ or module.__name__)
    return References(registry, Loaded({file: module})).define_file(file)
