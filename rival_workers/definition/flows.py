"""`@flow("onboarding", input=Signup)`: a function that can wait in the middle, as a workflow or as a step of one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Unpack

from typing_extensions import ParamSpec, TypeVar

from rival_workers.definition.call_places import calling_place, in_a_notebook
from rival_workers.definition.default_registry import registry_for
from rival_workers.definition.define import define_workflow
from rival_workers.definition.given_steps import keep_decorator_options
from rival_workers.definition.options import WorkflowOptions
from rival_workers.definition.registry import Registry
from rival_workers.definition.rules import PolicyRule
from rival_workers.definition.whole_run import unknown_workflow_options
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.errors import DefinitionError

P = ParamSpec("P", default=...)
Q = ParamSpec("Q")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True, default=Any)


class Flow(Generic[P, R_co]):
    """A flow's function and its name in plans. `P`, `R_co`: the parameters of the function, and what it returns: of an
    async function, the awaitable."""

    def __init__(self, function: Callable[P, R_co], name: str, version: str | None) -> None:
        self.function, self.name, self.version = function, name, version
        self.definition: WorkflowDefinition | None = None
        keep_decorator_options(of=function, on=self)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<flow {self.name!r}>"


def flow(
    name: str | None = None,
    *,
    input: Any = None,
    description: str | None = None,
    on_error: Callable[..., Any] | None = None,
    policies: Sequence[PolicyRule] = (),
    version: str | None = None,
    register: bool = True,
    registry: Registry | None = None,
    **options: Unpack[WorkflowOptions],
) -> Callable[[Callable[Q, R]], Flow[Q, R]]:
    """Registers the function as a workflow of this name; with `register=False` it is only a step for lists of steps.

    Its code is not part of its version: give another `version` when a change must not apply to runs in flight.
    """
    if callable(name):
        raise TypeError(f"@flow needs parentheses: @flow() or @flow({name.__name__.replace('_', '-')!r})")

    if not register and (problems := unknown_workflow_options(options)):
        raise DefinitionError(problems)

    def decorate(function: Callable[Q, R]) -> Flow[Q, R]:
        made = Flow(function, name or function.__name__.replace("_", "-"), version)
        if register:
            made.definition = define_workflow(
                made.name,
                [made],
                input=input,
                description=description or function.__doc__,
                on_error=on_error,
                policies=policies,
                place=calling_place(function),
                **options,
            )
            registry_for(registry).add(made.definition, replace=in_a_notebook())
        return made

    return decorate
