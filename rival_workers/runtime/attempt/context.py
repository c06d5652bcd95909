"""The context of a step: its run, input, log, state, and the results of other steps, which are loaded when read."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, Protocol

from rival_client.errors import RivalError
from rival_client.model import statuses
from rival_client.model.completion_token import CompletionToken
from rival_client.model.lazy import lazy
from rival_client.model.payload import Json, load
from rival_client.model.record import record
from rival_client.model.statuses import StepStatus
from rival_client.model.step_records import Step
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
    #: The labels of the run, such as `run.labels["tenant"]`.
    labels: Mapping[str, str] = field(default_factory=dict)
    #: By when the run must have ended.
    deadline_at: dt.datetime | None = None

    @property
    def id(self) -> str:
        """The same as `run_id`."""
        return self.run_id


class StepState(dict[str, Any]):
    """The state of a step: `state.description = "…"`, `state.skipped = True`, or any other key."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value


@record(frozen=True)
class Ended:
    """The committed outcome of a step that was run by the same message."""

    status: StepStatus
    result: Json | None
    state: Json | None


Loader = Callable[[str], Step | None]
#: Returns the declared type of the result at a path, or None.
ReturnsAt = Callable[[str], Returns | None]


class Steps(Results):
    """The other steps of the run by name, `steps.find_tree.result`, `steps["find-tree"].result`, or by path,
    `steps["lines[3]/pack"].result`.
    """

    def __init__(
        self, scope: NameScope, load: Loader, ended: Mapping[str, Ended], returns_at: ReturnsAt = lambda _: None
    ) -> None:
        self._scope, self._load, self._ended, self._returns_at = scope, load, ended, returns_at
        self._seen: dict[str, StepView] = {}

    def __getattr__(self, name: str) -> StepView:
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> StepView:
        if name not in self._seen:
            found = self._scope.find(name)
            if not found:
                raise UnknownStep(name, list(self._scope))
            self._seen[name] = self._first_there(name, found)
        return self._seen[name]

    def _first_there(self, name: str, paths: tuple[str, ...]) -> StepView:
        views = (self.at(path, name) for path in paths)
        return next((view for view in views if view is not None), StepView(name))

    def at(self, path: str, name: str) -> StepView | None:
        """The step at a path; None when the run has not reached it."""
        # Parsed again for each attempt: a step must not see changes that another made to a shared object.
        if path in self._ended:
            ended = self._ended[path]
            return StepView(name, ended.status, load(ended.result), load(ended.state) or {}, self._restore(path))
        step = self._load(path)
        return None if step is None else StepView(name, step.status, step.result, step.state, self._restore(path))

    def _restore(self, path: str) -> Callable[[Any], Any] | None:
        returns = self._returns_at(path)
        return None if returns is None else partial(returns.restored, where=f"step {path!r}")

    def __contains__(self, name: object) -> bool:
        return name in self._scope

    def __iter__(self) -> Iterator[str]:
        return iter(self._scope)


class UnknownStep(RivalError, AttributeError, KeyError):
    def __init__(self, name: str, known: Collection[str]) -> None:
        super().__init__(f"Unknown step {name!r}: the steps of this workflow are {', '.join(known)}.")

    def __str__(self) -> str:
        return str(self.args[0])


class NotExternal(RivalError):
    def __init__(self, step: str) -> None:
        super().__init__(
            f"Step {step!r} has no completion token, since it is not external. Give it execution_mode='external'."
        )


class Beats(Protocol):
    """The heartbeat of an attempt."""

    #: The timer of the attempt's limit.
    timer: Any

    def beat(self, progress: Any = None) -> None: ...
    def flush(self) -> None: ...
    @property
    def last_progress(self) -> Any: ...


@dataclass
class Context:
    """Everything that a step's function can receive."""

    _why_not_json: ClassVar[str] = "it holds ctx, which cannot be stored: take the values that you need out of it"
    run: RunInfo
    steps: Steps
    log: StepLog
    state: StepState
    read_input: Callable[[], Any]
    #: The path of the step before this one.
    previous: str | None
    read_item: Callable[[], Any] = lambda: None
    #: Reads the event that a step has waited for; only for the step itself.
    read_event: Callable[[], Any] = lambda: None
    #: The number of this iteration of a loop, or of this item of a for_each.
    index: int | None = None
    #: Only in compensations: the path of the step that it undoes.
    undoes: str | None = None
    #: Only in `on_error` handlers and compensations.
    error: dict[str, Any] | None = None
    failed_step_name: str | None = None
    #: Only in `on_error` handlers: True if the run continues despite the failure.
    run_continues: bool = False
    #: The option `metadata` of the step.
    metadata: Mapping[str, Any] = field(default_factory=dict)
    #: Reads the values of the attempt that follows a fallback.
    read_overrides: Callable[[], dict[str, Any]] = dict
    #: Whether steps of this worker may start commands (RIVAL_ALLOW_SHELL).
    allow_shell: bool = False
    #: Reads whether the run has gone on without this attempt: cancelled, timed out, taken over.
    is_over: Callable[[], bool] = lambda: False
    #: Reads the seconds that are left.
    read_remaining: Callable[[], float | None] = lambda: None
    #: Writes the heartbeats.
    beats: Beats | None = None
    #: Reads the monotonic clock of the process.
    read_clock: Callable[[], float] = time.monotonic
    #: Only of external steps: names this attempt for the external system.
    token: CompletionToken | None = None

    def call_function(self, injection: Injection) -> Any:
        """Overridden by the contexts of flows, which can suspend the function."""
        return injection.call(self)

    @property
    def where(self) -> str:
        """For messages."""
        return f"step {self.run.step!r} of run {self.run.run_id!r}"

    @property
    def has_state(self) -> bool:
        """The function has put something into `state`."""
        return bool(self.__dict__.get("state"))

    @property
    def remaining(self) -> float | None:
        """Seconds until the deadline of the run; None if it has none. 0 when it has passed."""
        return self.read_remaining()

    def heartbeat(self, progress: Any = None) -> None:
        """Report that the step is alive, and optionally its progress: any small JSON. A step with the option
        `heartbeat=seconds` must call it in time. Raises StepMovedOn when the run has gone on without this attempt.
        """
        if self.beats is not None:
            self.beats.beat(progress)

    @property
    def last_progress(self) -> Any:
        """The progress in the last heartbeat of the attempt before this one."""
        return None if self.beats is None else self.beats.last_progress

    @property
    def completion_token(self) -> str:
        """The token with which an external system completes this step: `rival.complete_step(token, result)`."""
        if self.token is None:
            raise NotExternal(self.run.step)
        return str(self.token)

    @lazy
    def input(self) -> Any:
        return self.read_input()

    @lazy
    def item(self) -> Any:
        """The item of a for_each."""
        return self.read_item()

    @property
    def event(self) -> Any:
        return self.read_event()

    @cached_property
    def overrides(self) -> dict[str, Any]:
        """What `fallback=retry_with(…)` gives to the attempt after the last failure; {} in other attempts."""
        return self.read_overrides()

    @cached_property
    def last_step(self) -> StepView:
        return self._at(self.previous)

    @property
    def result(self) -> Any:
        """In a compensation: the result of the step that it undoes."""
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
        status: Literal["failing", "running"] = statuses.RUNNING if self.run_continues else "failing"
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
