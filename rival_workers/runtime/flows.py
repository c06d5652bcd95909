"""`ctx` in a flow: each call is a checkpoint. What has been done before is read, what is new is done and committed, and
what must be waited for suspends the flow: its attempt ends at once, and another one comes here again by replay.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

from pydantic import BaseModel

from rival_client.payload import Json, dump
from rival_client.topics import topic_of
from rival_workers.definition.policies import Rule, ruled
from rival_workers.definition.steps import checked_config, name_of, seconds
from rival_workers.engine.effects import WaitFor
from rival_workers.engine.plan import StepConfig
from rival_workers.engine.replay import Ending, Mark, Replay
from rival_workers.errors import ChildFailed
from rival_workers.runtime import flow_limits
from rival_workers.runtime.context import Context
from rival_workers.runtime.flow_gathering import gather
from rival_workers.runtime.flow_limits import FlowStepLimit
from rival_workers.runtime.flow_steps import EARLY, FlowStep
from rival_workers.runtime.suspending import Suspend

if TYPE_CHECKING:
    # A workflow's file is imported without the store.
    from rival_workers.runtime.flow_port import AttemptPort

#: Options of a step that is part of a plan.
NOT_IN_FLOWS = ("name", "on_error", "compensate", "deadline")

Duration = float | dt.timedelta


@dataclass(frozen=True)
class Received:
    """What `await_event` gives when it waits for several topics."""

    topic: str
    key: str | None
    payload: Any


@dataclass
class FlowContext(Context):
    """What a flow may ask for, and what it can do."""

    port: AttemptPort = field(kw_only=True)
    #: The policies of the workflow, which hold for the flow's steps, too.
    rules: Sequence[Rule] = ()

    @cached_property
    def _replay(self) -> Replay:
        return Replay(self.run.step, self.run.id, self.port.checkpoints())

    # -- steps --------------------------------------------------------------------------------------------

    def step(self, function: Callable[..., Any], *args: Any, name: str | None = None, **options: Any) -> Any:
        """Call the function once, however often the flow is replayed; its result is what it returned then. Options are
        those of a step: max_attempts, backoff, timeout, …"""
        return self._step(self._made(name or name_of(function), function, args, options))

    def _made(
        self, name: str, function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]
    ) -> FlowStep:
        config = self._config(name, options)
        return FlowStep(self._replay.come_to(name, "step"), function, args, config, self.port.max_payload)

    def _config(self, name: str, options: Mapping[str, Any]) -> StepConfig:
        """What no flow's step can have is for the other steps that the rule is for."""
        rule = ruled(self.rules, name, "step", options)
        return _checked({key: value for key, value in rule.items() if key in options or key not in NOT_IN_FLOWS})

    def _step(self, step: FlowStep) -> Any:
        if step.is_over:
            return step.result()
        if step.waiting is not None:
            self._suspend(step.waiting)
        with self.port.limited(step.config, lambda limit: self._over_time(step, limit)):
            ending = step.call()
        if ending.delay is not None:
            self._suspend(ending)
        self.port.record(ending)
        return step.result(ending)

    def _over_time(self, step: FlowStep, limit: FlowStepLimit) -> None:
        """Called from elsewhere while the step still runs: the flow goes on without this attempt."""
        ending = step.over_time(limit)
        self.port.suspend(ending, ending.delay or 0.0)

    def heartbeat(self, progress: Any = None) -> None:
        """The flow is alive, and so is the step of it that calls this; the progress is the flow's. StepMovedOn when the
        run has gone on without this attempt."""
        super().heartbeat(progress)
        flow_limits.beat()

    def gather(self, *calls: Callable[[], Any] | Sequence[Any], **options: Any) -> list[Any]:
        """Several steps at once: each a function, or a tuple of a function and its arguments. All end before it does;
        then the first failure is raised."""
        split = [(one, ()) if callable(one) else (one[0], tuple(one[1:])) for one in calls]
        steps = [self._made(name_of(function), function, args, options) for function, args in split]
        return gather(steps, self.port)

    # -- time ---------------------------------------------------------------------------------------------

    def sleep(self, duration: Duration = 0.0, **units: float) -> None:
        """Stop for a while, from milliseconds to years: `ctx.sleep(days=3)`."""
        self._sleep(seconds(duration) + dt.timedelta(**units).total_seconds())

    def sleep_until(self, when: dt.datetime) -> None:
        """Stop until that moment, which needs a time zone."""
        if when.tzinfo is None:
            raise ValueError("sleep_until needs a time with a time zone")
        self._sleep((when - dt.datetime.now(dt.UTC)).total_seconds())

    def _sleep(self, length: float) -> None:
        mark = self._replay.come_to("sleep", "sleep")
        found = mark.found
        if found is not None and found.is_over:
            return
        left = length if found is None else found.due_in or 0.0
        if left > EARLY:
            self._suspend(Ending(mark, "waiting", delay=left))
        self.port.record(Ending(mark, "completed"))

    def now(self) -> dt.datetime:
        """The time, as it was when the flow first came here."""
        return dt.datetime.fromisoformat(self._once("now", lambda: dt.datetime.now(dt.UTC).isoformat()))

    @cached_property
    def random(self) -> random.Random:
        """Chance that is the same in every replay."""
        return random.Random(f"{self.run.id}:{self.run.step}")

    def uuid(self) -> uuid.UUID:
        """A new one, the same in every replay."""
        return uuid.UUID(self._once("uuid", lambda: str(uuid.uuid4())))

    def _once(self, name: str, make: Callable[[], Any]) -> Any:
        mark = self._replay.come_to(name, "value")
        if mark.found is not None:
            return mark.found.result
        value = make()
        self.port.record(Ending(mark, "completed", dump(value, what=name)))
        return value

    # -- events -------------------------------------------------------------------------------------------

    def await_event(
        self, topic: str | type[BaseModel] | Sequence[str | type[BaseModel]], *, key: str | None = None,
        where: Mapping[str, Any] | None = None, timeout: Duration | None = None,
    ) -> Any:  # fmt: skip
        """Stop until an event comes; its payload, or None when the time is up. Of several topics, the first that comes,
        as a `Received`."""
        several = not isinstance(topic, str | type)
        topics = [_topic(one) for one in topic] if several else [_topic(topic)]  # type: ignore[union-attr]
        mark = self._replay.come_to(f"event:{'|'.join(topics)}", "flow_wait")
        wanted = None if where is None else dict(where)
        waits = [WaitFor(one, None if key is None else str(key), wanted) for one in dict.fromkeys(topics)]
        event = self._event(mark, waits, None if timeout is None else seconds(timeout))
        if event is None or not several:
            return None if event is None else event["payload"]
        return Received(event["topic"], event["key"], event["payload"])

    def _event(self, mark: Mark, waits: Sequence[WaitFor], timeout: float | None) -> dict[str, Any] | None:
        found = mark.found
        if found is None:
            return self.port.wait(mark, waits, timeout)
        if found.is_over:
            return found.result if found.status == "completed" else None
        # Here again although nothing had come: the time is up.
        return self.port.give_up(mark)

    # -- children -----------------------------------------------------------------------------------------

    def call(self, workflow: Any, input: Any = None) -> Any:
        """Start a child run and stop until it has ended; its result. ChildFailed when it failed or was cancelled."""
        name = getattr(workflow, "name", workflow)
        mark = self._replay.come_to(f"call:{name}", "child")
        if mark.found is None:
            self.port.start_child(mark, self._child_id(mark), name, self._payload(input), awaited=True)
        if mark.found is None or not mark.found.is_over:
            raise Suspend
        if mark.found.error is not None:
            raise ChildFailed(mark.path, mark.found.error)
        return mark.found.result

    def spawn(self, workflow: Any, input: Any = None) -> str:
        """Start a child run that goes its own way; its id."""
        name = getattr(workflow, "name", workflow)
        mark = self._replay.come_to(f"spawn:{name}", "child")
        if mark.found is not None:
            return str(mark.found.result)
        return self.port.start_child(mark, self._child_id(mark), name, self._payload(input), awaited=False)

    def _child_id(self, mark: Mark) -> str:
        return f"{self.run.id}/{mark.path.rpartition('/')[2]}"

    def _payload(self, value: Any) -> Json:
        return dump(value, what="the input of a child run", limit=self.port.max_payload)

    # -- going on -----------------------------------------------------------------------------------------

    def continue_as(self, input: Any = None) -> NoReturn:
        """Begin anew with another input, under the same run id: what was done is forgotten, so loops may be endless."""
        self.port.continue_as(dump(input, what="the input to continue with", limit=self.port.max_payload))

    def _suspend(self, ending: Ending) -> NoReturn:
        self.port.suspend(ending, ending.delay)
        raise Suspend


class AsyncFlowContext:
    """The same for an async flow: each of the methods that are checkpoints is awaited."""

    _AWAITED = ("step", "gather", "sleep", "sleep_until", "now", "uuid", "await_event", "call", "spawn", "continue_as")

    def __init__(self, context: FlowContext) -> None:
        self._context = context

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._context, name)
        if name not in self._AWAITED:
            return member

        async def awaited(*args: Any, **kwargs: Any) -> Any:
            return await asyncio.to_thread(member, *args, **kwargs)

        return awaited


def _checked(options: Mapping[str, Any]) -> StepConfig:
    problems: list[str] = []
    others = {key: value for key, value in options.items() if key != "compensate"}
    config = checked_config(others, problems, not_known=NOT_IN_FLOWS)
    if config is not None and config.is_external:
        problems.append(
            "a flow waits for somebody outside with ctx.await_event(…); an external step stands in a workflow of "
            "steps, which a flow can ctx.call(…)"
        )
    if "compensate" in options:
        problems.append("a flow undoes what it has done by itself: try: … except: ctx.step(undo, …); raise")
    if problems or config is None:
        raise ValueError("; ".join(problems))
    return config


def _topic(topic: Any) -> str:
    return topic_of(topic) if isinstance(topic, type) else str(topic)


def flow_context(context: Context, port: AttemptPort, rules: Sequence[Rule] = (), *, awaited: bool) -> Context:
    """A step's context with a flow's abilities; `rules`: the workflow's policies; `awaited`: for an async flow."""
    fields = {name: getattr(context, name) for name in Context.__dataclass_fields__}
    made = FlowContext(**fields, port=port, rules=rules)
    return AsyncFlowContext(made) if awaited else made  # type: ignore[return-value]
