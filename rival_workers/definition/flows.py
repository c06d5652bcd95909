"""`@flow("onboarding", input=Signup)`: a function that may stop in the middle, as a workflow or as a step of one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rival_workers.definition.lines import in_a_notebook
from rival_workers.definition.registry import Registry, registry_for
from rival_workers.definition.workflow import WorkflowDefinition, define_workflow


class Flow:
    """A flow's function, and what it is called in a plan."""

    def __init__(self, function: Callable[..., Any], name: str, version: str | None) -> None:
        self.function, self.name, self.version = function, name, version
        self.definition: WorkflowDefinition | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<flow {self.name!r}>"


def flow(
    name: str | None = None,
    *,
    input: Any = None,
    description: str | None = None,
    on_error: Callable[..., Any] | None = None,
    policies: Any = (),
    schedule: Any = None,
    retention: Any = None,
    version: str | None = None,
    register: bool = True,
    registry: Registry | None = None,
) -> Callable[[Callable[..., Any]], Flow]:
    """Registers the function as a workflow of this name; with `register=False` it is only for the lists of others.

    The plan of a flow is not known before it runs, so its code is not part of its version: give another `version` when
    you change it in a way that runs in flight must not see.
    """
    if callable(name):
        raise TypeError(f"@flow needs parentheses: @flow() or @flow({name.__name__.replace('_', '-')!r})")

    def decorate(function: Callable[..., Any]) -> Flow:
        made = Flow(function, name or function.__name__.replace("_", "-"), version)
        if register:
            made.definition = define_workflow(
                made.name, [made], input=input, description=description or function.__doc__, on_error=on_error,
                policies=policies, schedule=schedule, retention=retention,
            )  # fmt: skip
            registry_for(registry).add(made.definition, replace=in_a_notebook())
        return made

    return decorate
