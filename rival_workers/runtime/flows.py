"""`ctx` in a flow: each call is a checkpoint. What has been done before is read, what is new is done and committed, and
what must be waited for suspends the flow: its attempt ends at once, and another one comes here again by replay.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import inspect
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn, Protocol

from pydantic import BaseModel

from rival_client.payload import Json, dump, load
from rival_client.topics import topic_of
from rival_workers.definition.policies import Rule, ruled
from rival_workers.definition.steps import checked_config, name_of, seconds
from rival_workers.engine.decisions import End, Failure, Retry, Success, decide, timed_out
from rival_workers.engine.effects import WaitFor
from rival_workers.engine.plan import StepConfig
from rival_workers.engine.replay import Checkpoint, Ending, Mark, Replay
from rival_workers.errors import ChildFailed, StepFailed
from rival_workers.runtime.calling import async_steps, failure
from rival_workers.runtime.context import Context
from rival_workers.runtime.suspending import Moved, Suspend

#: How many steps of one `gather` run at a time.
GATHER_AT_ONCE = 8
#: Options of a step that is part of a plan.
NOT_IN_FLOWS = ("name", "on_error", "compensate", "heartbeat", "deadline")
#: A timer that is this much early counts as due.
EARLY = 0.005

Duration = float | dt.timedelta


class FlowPort(Protocol):
    """What a flow's attempt can do to its run. Each raises Moved when the attempt does not count any more."""

    max_payload: int

    def checkpoints(self) -> list[Checkpoint]: ...
    def record(self, ending: Ending) -> None: ...
    def suspend(self, ending: Ending, seconds: float | None) -> None: ...
    def wait(self, mark: Mark, waits: Sequence[WaitFor], timeout: float | None) -> dict[str, Any] | None: ...
    def give_up(self, mark: Mark) -> bool: ...
    def start_child(self, mark: Mark, run_id: str, workflow: str, its_input: Json, *, awaited: bool) -> str: ...
    def continue_as(self, its_input: Json) -> None: ...
    def time_limit(self, seconds: float | None, when_over: Callable[[], None]) -> Any: ...


@dataclass(frozen=True)
class Received:
    """What `await_event` gives when it waits for several topics."""

    topic: str
    key: str | None
    payload: Any


@dataclass
class FlowContext(Context):
    """What a flow may ask for, and what it can do."""

    port: FlowPort = field(kw_only=True)
    #: The policies of the workflow, which hold for the flow's steps, too.
    rules: Sequence[Rule] = ()

    @cached_property
    def _replay(self) -> Replay:
        return Replay(self.run.step, self.run.id, self.port.checkpoints())

    # -- steps --------------------------------------------------------------------------------------------

    def step(self, function: Callable[..., Any], *args: Any, name: str | None = None, **options: Any) -> Any:
        """Call the function once, however often the flow is replayed; its result is what it returned then. Options are
        those of a step: max_attempts, backoff, timeout, …"""
        its_name = name or name_of(function)
        config = self._config(its_name, options)
        return self._step(self._replay.come_to(its_name, "step"), function, args, config)

    def _config(self, name: str, options: Mapping[str, Any]) -> StepConfig:
        """What no flow's step can have is for the other steps that the rule is for."""
        rule = ruled(self.rules, name, "step", options)
        return _checked({key: value for key, value in rule.items() if key in options or key not in NOT_IN_FLOWS})

    def _step(self, mark: Mark, function: Callable[..., Any], args: Sequence[Any], config: StepConfig) -> Any:
        found = mark.found
        if found is not None and found.is_over:
            return _replayed(found)
        if found is not None and (found.due_in or 0.0) > EARLY:
            self._suspend(Ending(mark, found.status, error=found.error, attempts=found.attempts, delay=found.due_in))
        attempt = 1 if found is None else found.attempts + 1
        with self.port.time_limit(config.timeout, lambda: self._over_time(mark, attempt, config)):
            outcome = self._called(function, args, attempt)
        return self._settle(mark, decide(config, attempt, outcome, random.random()), attempt)

    def _called(self, function: Callable[..., Any], args: Sequence[Any], attempt: int) -> Success | Failure:
        try:
            value = function(*args)
            if inspect.isawaitable(value):
                value = async_steps.run(value)
            return Success(dump(value, what=f"the result of {name_of(function)}", limit=self.port.max_payload))
        except (Suspend, Moved, KeyboardInterrupt):
            raise
        except BaseException as error:
            return failure(error, attempt)

    def _settle(self, mark: Mark, decision: End | Retry, attempt: int) -> Any:
        if isinstance(decision, Retry):
            self._suspend(Ending(mark, "waiting_retry", error=decision.error, attempts=attempt, delay=decision.delay))
        ending = _ending(mark, decision, attempt)
        self.port.record(ending)
        return _replayed(
            Checkpoint(mark.path, mark.kind, ending.status, mark.number, attempt, load(ending.result), ending.error)
        )

    def _over_time(self, mark: Mark, attempt: int, config: StepConfig) -> None:
        """Called from elsewhere while the step still runs: the flow goes on without this attempt."""
        error = {"type": "StepTimeout", "message": f"took longer than its timeout of {config.timeout:g} s",
                 "attempt": attempt}  # fmt: skip
        decision = decide(config, attempt, timed_out(config, error), random.random())
        if isinstance(decision, Retry):
            retried = Ending(mark, "waiting_retry", error=error, attempts=attempt, delay=decision.delay)
            self.port.suspend(retried, decision.delay)
        else:
            self.port.suspend(_ending(mark, decision, attempt), 0.0)

    def gather(self, *calls: Callable[[], Any] | Sequence[Any], **options: Any) -> list[Any]:
        """Several steps at once: each a function, or a tuple of a function and its arguments. All end before it does;
        then the first failure is raised."""
        split = [(one, ()) if callable(one) else (one[0], tuple(one[1:])) for one in calls]
        configs = {function: self._config(name_of(function), options) for function, _ in split}
        marks = [self._replay.come_to(name_of(function), "step") for function, _ in split]

        def one(mark: Mark, function: Callable[..., Any], args: Sequence[Any]) -> Any:
            try:
                return self._step(mark, function, args, configs[function])
            except (Suspend, Moved, StepFailed) as end:
                return end

        with ThreadPoolExecutor(min(GATHER_AT_ONCE, len(split)) or 1) as threads:
            jobs = [threads.submit(one, mark, *call) for mark, call in zip(marks, split, strict=True)]
            results = [job.result() for job in jobs]
        for kind in (Moved, Suspend, StepFailed):
            for result in results:
                if isinstance(result, kind):
                    raise result
        return results

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
        waits = [WaitFor(one, None if key is None else str(key), wanted) for one in topics]
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
        # Here again although nothing has come: the time is up, unless it has come at this very moment.
        if not self.port.give_up(mark):
            raise Suspend
        return None

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
        raise Suspend

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
        problems.append("a flow waits for somebody outside with ctx.await_event(…); an external step stands in a plan")
    if "compensate" in options:
        problems.append("a flow undoes what it has done by itself: try: … except: ctx.step(undo, …); raise")
    if problems or config is None:
        raise ValueError("; ".join(problems))
    return config


def _ending(mark: Mark, end: End, attempt: int) -> Ending:
    error = None if end.error is None else {**end.error, "soft": not end.hard}
    return Ending(mark, end.status, end.result, error, attempt)


def _replayed(found: Checkpoint) -> Any:
    if found.status != "failed" or found.error is None:
        return found.result
    if found.error.get("soft"):
        return None
    raise StepFailed(found.path, found.error)


def _topic(topic: Any) -> str:
    return topic_of(topic) if isinstance(topic, type) else str(topic)


def flow_context(context: Context, port: FlowPort, rules: Sequence[Rule] = (), *, awaited: bool) -> Context:
    """A step's context with a flow's abilities; `rules`: the workflow's policies; `awaited`: for an async flow."""
    fields = {name: getattr(context, name) for name in Context.__dataclass_fields__}
    made = FlowContext(**fields, port=port, rules=rules)
    return AsyncFlowContext(made) if awaited else made  # type: ignore[return-value]
