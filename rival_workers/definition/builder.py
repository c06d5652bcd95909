"""`create_workflow("name").input(Model).step(first).step(second).register()`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from rival_workers.definition.registry import Registry, default_registry
from rival_workers.definition.steps import StepSpec
from rival_workers.definition.workflow import WorkflowDefinition, define_workflow


class WorkflowBuilder:
    """Collects; nothing is checked before `build` or `register`, so that all problems come at once."""

    def __init__(self, name: str, description: str | None = None) -> None:
        self._name, self._description = name, description
        self._steps: list[Any] = []
        self._input: Any = None
        self._on_error: Callable[..., Any] | None = None

    def input(self, model: Any) -> Self:
        self._input = model
        return self

    def step(self, function: Any, /, **options: Any) -> Self:
        """A function, with options as in `step(function, …)`."""
        self._steps.append(StepSpec(function, options) if options else function)
        return self

    def steps(self, steps: Sequence[Any]) -> Self:
        self._steps.extend(steps)
        return self

    def on_error(self, handler: Callable[..., Any]) -> Self:
        self._on_error = handler
        return self

    def build(self) -> WorkflowDefinition:
        return define_workflow(
            self._name, self._steps, input=self._input, description=self._description, on_error=self._on_error
        )

    def register(self, registry: Registry | None = None) -> WorkflowDefinition:
        return (default_registry if registry is None else registry).add(self.build())


def create_workflow(name: str, *, description: str | None = None) -> WorkflowBuilder:
    return WorkflowBuilder(name, description)
