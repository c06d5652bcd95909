"""Steps that wait: for a time, for an event. While it waits, a step is a row and occupies no worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Unpack

from pydantic import BaseModel, ValidationError

from rival_client.errors import InvalidArgument
from rival_client.model.checks import amounts, arguments
from rival_client.model.durations import duration_text
from rival_client.model.policies.policy_options import seconds
from rival_client.model.topics import topic_of
from rival_workers.definition.function_calls import Call
from rival_workers.definition.given_steps import is_name
from rival_workers.definition.inject import Injection
from rival_workers.definition.options import Duration, WaitOptions
from rival_workers.definition.problems import Collector, Scope
from rival_workers.definition.return_types import returns_of_model
from rival_workers.engine.nodes import AnyNode, SleepNode, WaitNode
from rival_workers.errors import EventTimeout

OnTimeout = Literal["stop", "continue"]


@dataclass(frozen=True)
class Sleep:
    """`delay_step(seconds=20)`, not checked yet."""

    name: str
    seconds: Any
    #: Problems of its arguments.
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class WaitSpec:
    """A wait for an event, not checked yet. `options`: of the function that makes the key."""

    kind: ClassVar[str] = "wait_event"
    problems: ClassVar[tuple[str, ...]] = ()

    name: str
    topic: Any
    key: str | Callable[..., Any] | None
    where: Mapping[str, Any] | None
    timeout: Any
    on_timeout: OnTimeout
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The model of a typed event.
    model: type[BaseModel] | None = None


#: What a list of steps may contain that waits.
Wait = Sleep | WaitSpec


def wait_event_step(
    topic: str | type[BaseModel],
    *,
    key: str | Callable[..., Any] | None = None,
    where: Mapping[str, Any] | None = None,
    timeout: Duration | None = None,
    on_timeout: OnTimeout = "stop",
    name: str | None = None,
    **options: Unpack[WaitOptions],
) -> WaitSpec:
    """Wait for an event with this topic, and `key` if one is given (a string, or a function that makes it), whose
    payload contains `where`. The event's payload is the step's result; of a typed event, the model.

    After `timeout` seconds (or a timedelta) it fails with EventTimeout; with on_timeout="continue" the run goes on.
    """
    text = topic_of(topic) if isinstance(topic, type) else topic
    own = name or (f"wait_{_as_name(text)}" if isinstance(text, str) else "wait")
    model = topic if isinstance(topic, type) else None
    return WaitSpec(own, text, key, where, seconds(timeout), on_timeout, options, model)


def _as_name(topic: str) -> str:
    return "".join(sign if sign.isalnum() else "_" for sign in topic)


def receive(topic: str, timeout: float | None, on_timeout: OnTimeout) -> Callable[[Any], Any]:
    """The function of a wait: called when the event has come, or when the time is up."""

    def received(event: Any) -> Any:
        if event is None:
            within = f" within {duration_text(timeout)}" if timeout is not None else ""
            raise EventTimeout(
                f"no event {topic!r}{within}",
                behavior="continue" if on_timeout == "continue" else "stop",
            )
        return event["payload"]

    return received


def _wake_up() -> None:
    """The function of a sleep."""


@dataclass
class WaitBuilder(Collector):
    """Checks waits and makes their nodes."""

    def _wait(self, spec: Wait, scope: Scope) -> AnyNode | None:
        for problem in spec.problems:
            self._problem(problem)
        if not is_name(spec.name):
            self._problem(f"step name {spec.name!r}: use letters, digits, _, - and .; give one with name=…")
            return None
        with self._at(f" {spec.name!r}"):
            try:
                match spec:
                    case Sleep():
                        return self._sleep(spec, scope)
                    case WaitSpec():
                        return self._wait_event(spec, scope)
            except ValidationError as error:
                self._invalid(spec.name, error)
                return None

    def _sleep(self, sleep: Sleep, scope: Scope) -> SleepNode:
        self._add(scope.prefix + sleep.name, Injection(_wake_up, (), ()))
        return SleepNode(type="sleep", name=sleep.name, seconds=sleep.seconds)

    def _wait_event(self, spec: WaitSpec, scope: Scope) -> WaitNode:
        common = self._common(spec, scope)
        place = scope.prefix + spec.name
        self._check_wait(spec)
        if callable(spec.key):
            self._ask(place, "key", spec.key, scope)
        received = receive(spec.topic, spec.timeout, spec.on_timeout)
        self.calls[place] = Call(Injection(received, ("event",), ()))
        if spec.model is not None:
            self.returns[place] = returns_of_model(spec.model)
        return WaitNode(
            type="wait_event",
            topic=spec.topic,
            key=None if callable(spec.key) else spec.key,
            own_key=callable(spec.key),
            where=None if spec.where is None else dict(spec.where),
            timeout=spec.timeout,
            on_timeout=spec.on_timeout,
            **common,
        )

    def _check_wait(self, spec: WaitSpec) -> None:
        checks: list[tuple[Callable[[str, object], Any], str, Any]] = [
            (arguments.name, "topic", spec.topic),
            (arguments.fields, "where", spec.where),
            (amounts.seconds, "timeout", spec.timeout),
        ]
        if not callable(spec.key):
            checks.append((arguments.name, "key", spec.key))
        for check, option, value in checks:
            try:
                arguments.optional(check, option, value)
            except InvalidArgument as error:
                self._problem(f"option {option} of {spec.name!r}: {error.problem}")
