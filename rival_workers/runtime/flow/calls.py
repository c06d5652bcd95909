"""Makes the operations of a flow's calls on `ctx`, with checked arguments. Does not start them: that is done by sync
and async contexts, `ctx.start`, `ctx.gather` and `ctx.first`.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import inspect
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Unpack

from pydantic import BaseModel

from rival_client.errors import InvalidArgument
from rival_client.model.checks import amounts, argument_errors, arguments
from rival_client.model.kinds import CHILD, FLOW_WAIT, SLEEP, STEP
from rival_client.model.payload import Json, dump
from rival_client.model.policies.step_config import StepConfig
from rival_client.model.record import record
from rival_client.model.starts.labels import merged
from rival_client.model.starts.run_options import RunOptions
from rival_client.model.starts.start_options import StartOptions
from rival_client.model.topics import topic_of
from rival_workers.definition.given_steps import name_of
from rival_workers.definition.options import Duration, SleepUnits
from rival_workers.definition.return_types import known_returns_of, returns_of_model
from rival_workers.definition.returns import Returns
from rival_workers.definition.steps import StepSpec
from rival_workers.definition.workflow import WorkflowDefinition
from rival_workers.engine.effects import WaitFor
from rival_workers.engine.replay import CheckpointRef
from rival_workers.runtime.flow.pending_operations import (
    ChildOperation,
    EventOperation,
    Operation,
    SleepOperation,
    StepOperation,
)
from rival_workers.runtime.flow.scheduler import FlowScheduler
from rival_workers.runtime.flow.step import CallFunction, FlowStep, call_function
from rival_workers.runtime.flow.step_options import FlowPolicies, StepCall, checked_options, key_of, step_call
from rival_workers.runtime.logs.failure_log import FlowFailures

if TYPE_CHECKING:
    from rival_workers.store.flow_records import ChildRun

#: The longest name of a checkpoint that waits for many topics.
MAX_CHECKPOINT = 400
#: The most calls of steps that an attempt of a flow keeps.
MOST_KNOWN = 1000
_SIGNS_OF_PATHS = "~:#[]!"
#: The methods of ctx that `ctx.start`, `ctx.gather` and `ctx.first` can begin.
STARTABLE = ("step", "call", "sleep", "sleep_until", "await_event")

Topic = str | type[BaseModel]


class Named(Protocol):
    """A workflow, a builder or a flow itself."""

    @property
    def name(self) -> str: ...


#: An argument of `ctx.gather` and `ctx.first` beside handles: a function, or a tuple of one and its arguments.
Callee = Callable[..., Any] | StepSpec | tuple[Callable[..., Any] | StepSpec, *tuple[Any, ...]]
#: The newest version of a workflow by its name, if this worker has it.
FindWorkflow = Callable[[str], WorkflowDefinition | None]


@dataclass(frozen=True)
class Received:
    """The result of `await_event` for several topics, and for an event without a payload."""

    topic: str
    key: str | None
    payload: Any


@record(frozen=True)
class PlainStep:
    """What the steps of one function have in common."""

    name: str
    function: Callable[..., Any]
    config: StepConfig
    #: The type of its result.
    returns: Returns | None


def child_run(run_id: str, workflow: str, payload: Json, options: StartOptions) -> ChildRun:
    # Imported when a flow runs: a workflow file can be imported without SQL.
    from rival_workers.store.flow_records import ChildRun

    return ChildRun(run_id, workflow, payload, options)


class FlowCalls:
    def __init__(
        self,
        scheduler: FlowScheduler,
        flow: str,
        run_id: str,
        policies: FlowPolicies,
        max_payload: int,
        failures: FlowFailures,
        find_workflow: FindWorkflow = lambda name: None,
        labels: Mapping[str, str] | None = None,
        deadline: dt.datetime | None = None,
        calling: CallFunction = call_function,
    ) -> None:
        """`policies`: the rules of the workflow apply to the flow's steps, too. `labels`, `deadline`: of the run."""
        self.scheduler, self._flow, self._run_id = scheduler, flow, run_id
        self._policies, self._max_payload, self._failures = policies, max_payload, failures
        self._find_workflow, self._labels, self._deadline = find_workflow, labels, deadline
        self._calling = calling
        #: Of steps without options of their own, by name: a flow calls them again and again.
        self._configs: dict[str, StepConfig] = {}
        #: By `key_of`: what all steps of such calls have in common.
        self._known: dict[Any, PlainStep] = {}

    def step(
        self,
        function: Callable[..., Any] | StepSpec,
        *args: Any,
        name: str | None = None,
        options: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> StepOperation:
        key = None if options is not None else key_of(function, name, len(args), keywords)
        known = None if key is None else self._known.get(key)
        if known is not None:
            return self._begun(known, args, {})
        named = keywords if name is None else {"name": name, **keywords}
        call = step_call(function, args, named, options, {})
        described = self._described(call)
        if key is not None and len(self._known) < MOST_KNOWN:
            self._known[key] = described
        return self._begun(described, args, call.keywords)

    def _step(self, call: StepCall, args: Sequence[Any]) -> StepOperation:
        return self._begun(self._described(call), args, call.keywords)

    def _begun(self, plain: PlainStep, args: Sequence[Any], keywords: Mapping[str, Any]) -> StepOperation:
        ref = self.scheduler.come_to(plain.name, STEP)
        limits = (self._max_payload, self._failures)
        step = FlowStep(ref, plain.function, args, plain.config, *limits, keywords, self._calling, plain.returns)
        return StepOperation(self.scheduler, step)

    def _described(self, call: StepCall) -> PlainStep:
        options = dict(call.options)
        given = options.pop("name", None)
        name = name_of(call.function) if given is None else _step_name(given)
        try:
            config = self._config(name, options, call.function) if options else self._config_of(name, call.function)
        except ValueError as error:
            raise ValueError(f"step {name!r} of flow {self._flow!r}: {call.origin}{error}") from None
        return PlainStep(name, call.function, config, known_returns_of(call.function))

    def _gathered_step(
        self,
        gathered: Mapping[str, Any],
        function: Callable[..., Any] | StepSpec,
        *args: Any,
        options: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> StepOperation:
        return self._step(step_call(function, args, keywords, options, gathered), args)

    def _config_of(self, name: str, function: Any) -> StepConfig:
        if name not in self._configs:
            self._configs[name] = self._config(name, {}, function)
        return self._configs[name]

    def _config(self, name: str, options: Mapping[str, Any], function: Any = None) -> StepConfig:
        """Options of a rule that a flow's step cannot have are for other steps, and are left out."""
        own, tags = checked_options(options) if options else ({}, ())
        return self._policies.of_step(name, own, tags, function)

    def sleep(self, duration: Duration = 0.0, **units: Unpack[SleepUnits]) -> SleepOperation:
        length = sleep_length(duration, units)
        return SleepOperation(self.scheduler, self.scheduler.come_to("sleep", SLEEP), length)

    def sleep_until(self, when: dt.datetime) -> SleepOperation:
        left = amounts.moment("when", when) - self.scheduler.now()
        if left.total_seconds() > amounts.MAX_SECONDS:
            raise argument_errors.invalid("when", when, "a time within the next hundred years")
        return self.sleep(max(0.0, left.total_seconds()))

    def await_event(
        self,
        topic: Topic | Sequence[Topic],
        *,
        key: str | None = None,
        where: Mapping[str, Any] | None = None,
        timeout: Duration | None = None,
    ) -> EventOperation:
        several = not isinstance(topic, str | type)
        given = arguments.several("topic", topic) if several else [topic]
        topics = _topics(given)
        models = {topic_of(one): returns_of_model(one) for one in given if isinstance(one, type)}
        wanted = arguments.optional(arguments.fields, "where", where)
        its_key = None if key is None else arguments.key(key)
        waits = [WaitFor(one, its_key, wanted) for one in dict.fromkeys(topics)]
        limit = None if timeout is None else amounts.seconds("timeout", timeout)
        ref = self.scheduler.come_to(bounded(f"event:{'|'.join(topics)}", MAX_CHECKPOINT), FLOW_WAIT)
        return EventOperation(self.scheduler, ref, waits, limit, functools.partial(_read_event, models, several))

    def call(self, workflow: Any, input: Any = None, **options: Unpack[RunOptions]) -> ChildOperation:
        name, payload, how = workflow_name(workflow), self.payload(input), self.child_options(options)
        ref = self.scheduler.come_to(f"call:{name}", CHILD)
        child = child_run(self.child_id(ref), name, payload, how)
        return ChildOperation(self.scheduler, ref, child.run_id, child, returns=self.returns_of(workflow))

    def child_options(self, given: RunOptions) -> StartOptions:
        """A child has the labels of its parent, and its own over them; and the time that its parent has left."""
        options = StartOptions.of(given)
        options.refuse_gathering("of a child run: start it with Rival.run in a step")
        if options.singleton is not None:
            raise InvalidArgument("singleton", "not of a child run: start it with Rival.run in a step.")
        return replace(options, labels=merged(self._labels, options.labels), until=self._deadline)

    def returns_of(self, workflow: Any) -> Returns | None:
        """The type of a workflow's result: of the workflow itself, or of the one that this worker has by its name."""
        its_own = getattr(workflow, "definition", workflow)
        known = its_own if isinstance(its_own, WorkflowDefinition) else self._find_workflow(workflow_name(workflow))
        return None if known is None else known.its_returns

    def result_of(self, spawn: CheckpointRef, run_id: str, returns: Returns | None) -> ChildOperation:
        """A wait for a child that was spawned."""
        self.scheduler.check()
        ref = self.scheduler.replay.result_of(spawn, self.scheduler.next_order)
        return ChildOperation(self.scheduler, ref, run_id, returns=returns)

    def child_id(self, ref: CheckpointRef) -> str:
        return bounded(f"{self._run_id}/{ref.path[len(self._flow) + 1 :]}", arguments.MAX_NAME)

    def payload(self, value: Any) -> Json:
        return dump(value, what="the input of a child run", limit=self._max_payload, is_input=True)

    def one_of(self, call: Any, context: object, options: Mapping[str, Any], argument: str) -> Operation:
        """The operation of an argument of `gather` or `first`: a function, a tuple of one and its arguments, `ctx.call`
        and the like in place of the function, or an operation."""
        if isinstance(call, Operation):
            return call
        function, *args = call if isinstance(call, tuple | list) and call else (call,)
        if not callable(function) and not isinstance(function, StepSpec):
            raise _not_a_call(argument, function)
        method, keywords = function, {}
        if isinstance(function, functools.partial) and _belongs_to(function.func, context):
            method, keywords, args = function.func, function.keywords, [*function.args, *args]
        if not _belongs_to(method, context):
            return self._step(step_call(function, args, {}, None, options), args)
        if method.__name__ not in STARTABLE:
            raise InvalidArgument(argument, f"ctx.{method.__name__} cannot be started. {_TAKEN}")
        begin = getattr(self, method.__name__)
        if begin == self.step:
            begin = functools.partial(self._gathered_step, options)
        try:
            inspect.signature(begin).bind(*args, **keywords)
        except TypeError as error:
            raise InvalidArgument(argument, f"ctx.{method.__name__}: {error}.") from None
        made: Operation = begin(*args, **keywords)
        return made


_TAKEN = (
    "ctx.gather and ctx.first take functions, tuples of a function (or of "
    f"ctx.{', ctx.'.join(STARTABLE)}) and its arguments, and handles."
)


def _not_a_call(argument: str, value: object) -> InvalidArgument:
    if inspect.isawaitable(value):
        if isinstance(value, Coroutine):
            value.close()
        return InvalidArgument(argument, f"a coroutine is not a call. Await it, or use asyncio.gather. {_TAKEN}")
    return InvalidArgument(argument, f"{argument_errors.shown(value)} is not a call. {_TAKEN}")


def _step_name(given: Any) -> str:
    """Some characters have a meaning in paths: with one, a step could have the path of another checkpoint."""
    checked = arguments.name("name", given)
    if any(sign in checked for sign in _SIGNS_OF_PATHS):
        raise argument_errors.invalid("name", given, f"a name for a step: leave {' '.join(_SIGNS_OF_PATHS)} out")
    return checked


def _belongs_to(function: Any, context: object) -> bool:
    return getattr(function, "__self__", None) is context


def _topics(topics: Sequence[Any]) -> list[str]:
    if not topics:
        raise argument_errors.invalid("topic", topics, "a topic: give one, or several")
    return [arguments.name("topic", topic_of(one) if isinstance(one, type) else one) for one in topics]


def workflow_name(workflow: Any) -> str:
    return arguments.name("workflow", getattr(workflow, "name", workflow))


def sleep_length(duration: Duration, units: SleepUnits) -> float:
    """In seconds. A negative length ends at once."""
    try:
        more = dt.timedelta(**units).total_seconds()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgument(
            ", ".join(units), f"give numbers of weeks, days, hours, minutes, seconds ({error})."
        ) from None
    least = -amounts.MAX_SECONDS
    return amounts.seconds("duration", amounts.seconds("duration", duration, least=least) + more, least=least)


def bounded(text: str, most: int) -> str:
    """A text of at most `most` characters, as index entries need: a longer one is cut, and its hash keeps it unique.
    The stores recognise the id of a child run by its slash."""
    if len(text) <= most:
        return text
    return f"{text[: most - 17]}/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _read_event(models: Mapping[str, Returns], several: bool, event: dict[str, Any] | None) -> Any:
    """None only if no event has come: an event without a payload is a `Received`."""
    if event is None:
        return None
    topic, payload = event["topic"], event["payload"]
    if topic in models:
        payload = models[topic].of_event(payload, topic)
    return Received(topic, event["key"], payload) if several or payload is None else payload
