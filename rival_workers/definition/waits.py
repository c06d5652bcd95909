"""Steps that wait for an event. While it waits, a step is a row and occupies no worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Unpack

from pydantic import BaseModel

from rival_client.model.policies.policy_options import seconds
from rival_client.model.topics import topic_of
from rival_workers.definition.options import Duration, WaitOptions
from rival_workers.errors import EventTimeout

OnTimeout = Literal["stop", "continue"]


@dataclass(frozen=True)
class WaitSpec:
    """A wait, not checked yet. `options`: of the function that makes the key."""

    kind: ClassVar[str] = "wait_event"

    name: str
    topic: Any
    key: str | Callable[..., Any] | None
    where: Mapping[str, Any] | None
    timeout: Any
    on_timeout: OnTimeout
    options: Mapping[str, Any] = field(default_factory=dict)
    #: The model of a typed event.
    model: type[BaseModel] | None = None


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
            raise EventTimeout(
                f"no event {topic!r} within {timeout:g} s", behavior="continue" if on_timeout == "continue" else "stop"
            )
        return event["payload"]

    return received
