"""What a step sees of its run. Earlier results are loaded when they are read, not before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, Protocol

from rival_client.errors import RivalError
from rival_client.model.completion_token import CompletionToken
from rival_client.model.payload import Json, load
from rival_client.model.records import Step
from rival_client.model.statuses import StepStatus
from rival_workers.definition.inject import Injection
from rival_workers.definition.results import Results, StepView
from rival_workers.definition.returns import Returns
from rival_workers.engine.names import NameScope
from rival_workers.runtime.logs.step_log import StepLog


@dataclass(frozen=True)
class RunInfo:
    """The run an attempt belongs to."""

    run_id: str
    workflow: str
    version: str
    step: str
    attempt: int

    @property
    def id(self) -> str:
        """The same as `run_id`, which is its name everywhere else."""
        return self.run_id


class StepState(dict[str, Any]):
    """A step's own notes: `state.description = "…"`, `state.skipped = True`, or any key of yours."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


@dataclass(frozen=True, slots=True)
class Ended:
    """How a step of this very message ended, as it was committed."""

    status: StepStatus
    result: Json | None
    state: Json | None


Loader = Callable[[str], Step | None]
#: The type of the result at a path, if it was declared.
ReturnsAt = Callable[[str], Returns | None]


class Steps(Results):
    """The run's other steps by name: `steps.find_tree.result`, `steps["find-tree"].result`, or by their whole path:
    `steps["lines[3]/pack"].result`.
    """

    def __init__(
        self, sight: NameScope, load: Loader, ended: Mapping[str, Ended], returns_at: ReturnsAt = lambda _: None
    ) -> None:
        self._sight, self._load, self._ended, self._returns_at = sight, load, ended, returns_at
        self._seen: dict[str, StepView] = {}

    def __getattr__(self, name: str) -> StepView:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> StepView:
        if name not in self._seen:
            found = self._sight.find(name)
            if not found:
                raise UnknownStep(name, list(self._sight))
            self._seen[name] = self._first_there(name, found)
        return self._seen[name]

    def _first_there(self, name: str, paths: tuple[str, ...]) -> StepView:
        views = (self.at(path, name) for path in paths)
        return next((view for view in views if view is not None), StepView(name))

    def at(self, path: str, name: str) -> StepView | None:
        """The step at a path; None when the run has not come there."""
        # Read anew for each attempt, also what is at hand: a step must not see what another did to a shared object.
        if path in self._ended:
            ended = self._ended[path]
            return StepView(name, ended.status, load(ended.result), load(ended.state) or {}, self._restore(path))
        step = self._load(path)
        return None if step is None else StepView(name, step.status, step.result, step.state, self._restore(path))

    def _restore(self, path: str) -> Callable[[Any], Any] | None:
        returns = self._returns_at(path)
        return None if returns is None else partial(returns.restored, where=f"step {path!r}")

    def __contains__(self, name: object) -> bool:
        return name in self._sight

    def __iter__(self) -> Iterator[str]:
        return iter(self._sight)


class UnknownStep(RivalError, AttributeError, KeyError):
    def __init__(self, name: str, known: Collection[str]) -> None:
        super().__init__(f"There is no step {name!r} in this workflow; its steps are {', '.join(known)}.")

    def __str__(self) -> str:
        return str(self.args[0])


class NotExternal(RivalError):
    def __init__(self, step: str) -> None:
        super().__init__(
            f"Step {step!r} has no completion token: nobody outside can complete it. Give it execution_mode='external'."
        )


class Beats(Protocol):
    """An attempt's signs of life."""

    def beat(self, progress: Any = None) -> None: ...
    @property
    def last_progress(self) -> Any: ...


@dataclass
class Context:
    """Everything a step may ask for."""

    _why_not_json: ClassVar[str] = "it holds ctx, which cannot be stored: take the values that you need out of it"
    run: RunInfo
    steps: Steps
    log: StepLog
    state: StepState
    read_input: Callable[[], Any]
    #: The path of the step before this one.
    previous: str | None
    read_item: Callable[[], Any] = lambda: None
    #: What has come for a step that waited; only for the step itself.
    read_event: Callable[[], Any] = lambda: None
    #: The number of this turn in a loop or for_each.
    index: int | None = None
    #: Only of a compensation: the path of the step that it undoes.
    undoes: str | None = None
    #: Only in `on_error` handlers and compensations.
    error: dict[str, Any] | None = None
    failed_step_name: str | None = None
    #: Only in `on_error` handlers: the run does not fail because of this.
    run_continues: bool = False
    #: Whether this worker lets steps start commands (RIVAL_ALLOW_SHELL).
    allow_shell: bool = False
    #: Asks the database whether the run has gone on without this attempt: cancelled, timed out, taken over.
    is_over: Callable[[], bool] = lambda: False
    #: Where its signs of life go.
    beats: Beats | None = None
    #: What somebody outside names this attempt by; only of external steps.
    token: CompletionToken | None = None

    def call_function(self, injection: Injection) -> Any:
        """A flow can be stopped in the middle, so its context has a way of its own."""
        return injection.call(self)

    def heartbeat(self, progress: Any = None) -> None:
        """The step is alive, and so far with its work: any small JSON. With `heartbeat=seconds` among its options it
        must say so in time. StepMovedOn when the run has gone on without this attempt."""
        if self.beats is not None:
            self.beats.beat(progress)

    @property
    def last_progress(self) -> Any:
        """How far the attempt before this one had come, by its last heartbeat."""
        return None if self.beats is None else self.beats.last_progress

    @property
    def completion_token(self) -> str:
        """For whoever is to complete this external step: `rival.complete_step(token, result)`."""
        if self.token is None:
            raise NotExternal(self.run.step)
        return str(self.token)

    @cached_property
    def input(self) -> Any:
        return self.read_input()

    @cached_property
    def item(self) -> Any:
        """What this turn of a for_each is about."""
        return self.read_item()

    @property
    def event(self) -> Any:
        return self.read_event()

    @cached_property
    def last_step(self) -> StepView:
        return self._at(self.previous)

    @property
    def result(self) -> Any:
        """What the step that is to be undone has returned."""
        return self._at(self.undoes).result

    @cached_property
    def failed_step(self) -> StepView:
        return self._at(self.failed_step_name)

    def _at(self, path: str | None) -> StepView:
        if path is None:
            return StepView()
        name = path.rpartition("/")[2]
        return self.steps.at(path, name) or StepView(name)

    @cached_property
    def workflow_state(self) -> WorkflowState:
        status: Literal["failing", "running"] = "running" if self.run_continues else "failing"
        return WorkflowState(self.run.run_id, self.run.workflow, self.input, self.steps, status)


@dataclass(frozen=True)
class WorkflowState:
    """The run as a handler sees it."""

    run_id: str
    workflow: str
    input: Any
    steps: Steps
    #: "running" when the run continues.
    status: Literal["failing", "running"] = "failing"
