"""The builder of workflows: `create_workflow("name").input(Model).step(first).step(second).register()`."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Self, Unpack

from pydantic import BaseModel

from rival_client.model.limits.limits import Limit
from rival_client.model.starts.planned_schedules import CatchUp
from rival_client.model.starts.priorities import Priority
from rival_client.model.starts.run_options import CommonOptions
from rival_workers.definition import composites
from rival_workers.definition.call_places import calling_place, in_a_notebook
from rival_workers.definition.composite_specs import Function, Steps
from rival_workers.definition.default_registry import registry_for
from rival_workers.definition.define import define_workflow
from rival_workers.definition.options import (
    CompositeOptions,
    DelayUnits,
    Duration,
    StepOptions,
    WaitOptions,
    WorkflowOptions,
)
from rival_workers.definition.registry import Registry
from rival_workers.definition.results import Results
from rival_workers.definition.rules import PolicyRule
from rival_workers.definition.schedules import Schedule
from rival_workers.definition.steps import StepSpec
from rival_workers.definition.waits import OnTimeout, wait_event_step
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.definition.workflow_references import References
from rival_workers.engine.nodes import OnFailure
from rival_workers.errors import DefinitionError
from rival_workers.predefined.delay import delay_step


class WorkflowBuilder:
    """Collects. Nothing is checked before `build` or `register`, so that all problems are reported at once.

    A builder can be a step of another workflow: as it is, or as `workflow(builder, …)`.
    """

    def __init__(self, name: str, description: str | None = None) -> None:
        self._name, self._description = name, description
        self._steps: list[Any] = []
        self._input: Any = None
        self._on_error: Callable[..., Any] | None = None
        self._results: type[Results] | None = None
        self._policies: list[Any] = []
        #: What it says about its runs as a whole.
        self._options: WorkflowOptions = {}
        self._place = calling_place()

    @property
    def name(self) -> str:
        return self._name

    def input(self, model: Any) -> Self:
        self._input = model
        return self

    def step(self, function: Any, /, **options: Unpack[StepOptions]) -> Self:
        """A function, with options as in `step(function, …)`."""
        self._steps.append(StepSpec(function, options) if options else function)
        return self

    def steps(self, steps: Sequence[Any]) -> Self:
        if isinstance(steps, str | Mapping) or not isinstance(steps, Iterable):
            raise DefinitionError([f"workflow {self._name!r}: steps: give a list of steps, not {steps!r}"])
        self._steps.extend(steps)
        return self

    def branch(
        self, name: str, *, when: Function, then: Steps, otherwise: Steps = (), **options: Unpack[CompositeOptions]
    ) -> Self:
        return self.step(composites.branch(name, when=when, then=then, otherwise=otherwise, **options))

    def parallel(
        self, name: str, steps: Sequence[Any], *, on_failure: OnFailure = "cancel", **options: Unpack[CompositeOptions]
    ) -> Self:
        return self.step(composites.parallel(name, steps, on_failure=on_failure, **options))

    def for_each(
        self,
        name: str,
        *,
        items: Function,
        do: Steps,
        concurrency: int = 1,
        on_failure: OnFailure = "cancel",
        collect: bool = True,
        **options: Unpack[CompositeOptions],
    ) -> Self:
        each = composites.for_each(
            name, items=items, do=do, concurrency=concurrency, on_failure=on_failure, collect=collect, **options
        )
        return self.step(each)

    def loop(
        self,
        name: str,
        *,
        do: Steps,
        until: Function | None = None,
        while_: Function | None = None,
        max_iterations: int | None = None,
        **options: Unpack[CompositeOptions],
    ) -> Self:
        again = composites.loop(name, do=do, until=until, while_=while_, max_iterations=max_iterations, **options)
        return self.step(again)

    def workflow(
        self,
        reference: Any,
        *,
        name: str | None = None,
        input: Function | None = None,
        propagate_failure: bool = True,
        **options: Unpack[CompositeOptions],
    ) -> Self:
        nested = composites.workflow(reference, name=name, input=input, propagate_failure=propagate_failure, **options)
        return self.step(nested)

    def wait_event(
        self,
        name: str,
        topic: str | type[BaseModel],
        *,
        key: str | Function | None = None,
        where: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
        on_timeout: OnTimeout = "stop",
        **options: Unpack[WaitOptions],
    ) -> Self:
        waits = wait_event_step(
            topic, key=key, where=where, timeout=timeout, on_timeout=on_timeout, name=name, **options
        )
        return self.step(waits)

    def delay(self, name: str | None = None, **duration: Unpack[DelayUnits]) -> Self:
        """`.delay("cool_down", minutes=5)`, as in `delay_step`."""
        return self.step(delay_step(name=name, **duration))

    def on_error(self, handler: Callable[..., Any]) -> Self:
        self._on_error = handler
        return self

    def policies(self, *rules: PolicyRule) -> Self:
        """Options for many steps at once: `("charge", {"timeout": 5})`; the first rule that matches applies."""
        self._policies += rules
        return self

    def results(self, results: type[Results]) -> Self:
        """The types of the steps' results: they are checked when a step ends and restored when they are read."""
        self._results = results
        return self

    def schedule(
        self,
        when: str | float | dt.timedelta,
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "none",
        input: Any = None,
        deadline: float | dt.timedelta | None = None,
        **options: Unpack[CommonOptions],
    ) -> Self:
        """A run at each time of a cron expression, or every `when` seconds."""
        self._options["schedule"] = Schedule(when, timezone, catch_up, input, deadline=deadline, **options)
        return self

    def retention(self, seconds: float | dt.timedelta) -> Self:
        """How long its ended runs are kept, instead of the setting of the workers; 0: for ever."""
        self._options["retention"] = seconds
        return self

    def queue(self, name: str) -> Self:
        """The queue of all its steps that have none of their own, and of its runs."""
        self._options["queue"] = name
        return self

    def priority(self, priority: Priority) -> Self:
        """The priority of its runs, unless `run(…, priority=…)` gives another."""
        self._options["priority"] = priority
        return self

    def compensate_on_cancel(self) -> Self:
        """A cancelled run is undone like a failed one."""
        self._options["compensate_on_cancel"] = True
        return self

    def limits(
        self,
        concurrency_limit: int | Limit | Sequence[int | Limit] | None = None,
        rate_limit: Limit | Sequence[Limit] | None = None,
    ) -> Self:
        """How many runs at once, and how many starts of runs per time, in the whole fleet."""
        self._options |= {"concurrency_limit": concurrency_limit, "rate_limit": rate_limit}
        return self

    def hooks(self, **hooks: Any) -> Self:
        """Functions that a worker calls around attempts: `.hooks(on_retry=count, on_end=report)`."""
        self._options["hooks"] = hooks
        return self

    def build(self, registry: Registry | None = None, references: References | None = None) -> WorkflowDefinition:
        """`references`: how the outer workflow finds others, if this one is a step of it."""
        return define_workflow(
            self._name,
            self._steps,
            input=self._input,
            description=self._description,
            on_error=self._on_error,
            results=self._results,
            policies=self._policies,
            place=self._place,
            resolve=references or References(registry_for(registry), within=[self]),
            **self._options,
        )

    def register(self, registry: Registry | None = None) -> WorkflowDefinition:
        """In a notebook, a workflow of the same name is replaced."""
        return registry_for(registry).add(self.build(registry), replace=in_a_notebook())


def create_workflow(name: str, *, description: str | None = None) -> WorkflowBuilder:
    return WorkflowBuilder(name, description)
