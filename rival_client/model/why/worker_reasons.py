"""Reasons that a run and a step have alike: no worker takes it, or something full or broken holds it up. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from shlex import quote
from typing import Any

from rival_client.model.durations import duration_text
from rival_client.model.limits.singletons import SUFFIX
from rival_client.model.why.why_facts import (
    BreakerFacts,
    Due,
    KeyFacts,
    LimitFacts,
    OpenStepFacts,
    QueueFacts,
    RunFacts,
)
from rival_client.model.why.why_records import Reason, clock_text, command, few, is_ahead

NO_WORKER = "no executor has a valid lease"
#: Reasons that wait for a message: not the right ones if the broker is unreachable.
FOR_A_MESSAGE = ("queued", "not_published")


def later(run: RunFacts) -> Reason:
    evidence: tuple[str, ...] = (f"due at {clock_text(run.due_at)}",)
    kind, text, do, start = "delay", "The run starts at its time.", None, None
    if run.gathered is not None:
        kind, text = "gathering", "The run gathers starts with the same key until its time: they are part of it."
        evidence = (f"starts so far: {run.gathered:,}", *evidence)
    if not run.live_executors:
        evidence = (*evidence, NO_WORKER)
        do, start = "Start a worker: none is alive that begins it.", "rival worker"
    return Reason(kind, text, None, run.created_at, run.due_at, "the clock", do, start, evidence)


def for_a_worker(run: RunFacts, due: Due) -> Reason:
    reason = _no_worker(run, due) or _message(run, due)
    limit = (f"it fails if no attempt has begun by {clock_text(due.start_by)}",) if due.start_by else ()
    evidence = (*reason.evidence, *due.evidence, *limit)
    return replace(reason, step=due.path, since=due.since, until=due.start_by, evidence=evidence)


def _no_worker(run: RunFacts, due: Due) -> Reason | None:
    if run.live_executors == 0:
        text = f"{due.name} waits for a worker, and none is alive."
        return _start_one(text, "Start a worker.", "rival worker", NO_WORKER)
    if due.in_queue not in run.served:
        text = f"{due.name} waits in queue {due.in_queue}, which no live worker serves."
        command = f"rival worker --queues {quote(due.in_queue)}"
        served = f"live workers serve {', '.join(sorted(run.served)) or 'no queue'}"
        return _start_one(text, "Start a worker that serves it.", command, served)
    if run.able is not None and due.in_queue not in run.able:
        text = f"{due.name} waits for a worker that can run it: none that serves queue {due.in_queue} has its version."
        return _start_one(text, _with_version(run), None, *versions_text(run))
    return None


def _start_one(text: str, do: str, command: str | None, *evidence: str) -> Reason:
    return Reason("no_worker", text, who="a worker", do=do, command=command, evidence=evidence)


def _message(run: RunFacts, due: Due) -> Reason:
    if run.broker_away:
        text = f"{due.name} waits for its message: the broker cannot be reached."
        do = "Start the broker, or repair the connection to it. A keeper publishes the message again."
        return Reason("broker_away", text, who="a keeper", do=do, evidence=("the broker does not answer",))
    if is_ahead(due.ring_at, run.now):
        text = f"{due.name} waits for a worker that is free: its message was published."
        return Reason("queued", text, who="a worker", evidence=tuple(_backlog(run, due)))
    text = f"{due.name} waits for its message, which may be lost: a keeper publishes it again."
    late = (f"due since {clock_text(due.ring_at)}",) if due.ring_at else ()
    return Reason("not_published", text, who="a keeper", command="rival recover", evidence=late)


def _backlog(run: RunFacts, due: Due) -> Iterator[str]:
    queue = run.queues.get(due.in_queue, QueueFacts())
    oldest = f", the oldest since {clock_text(queue.oldest)}" if queue.oldest else ""
    number = f"{queue.waiting:,}{'+' if queue.more else ''} runs and steps" if queue.waiting != 1 else "1 run or step"
    yield f"{number} in queue {due.in_queue} {'waits' if queue.waiting == 1 else 'wait'} for a worker{oldest}"
    alive = "1 live worker serves" if queue.workers == 1 else f"{queue.workers} live workers serve"
    load = "" if queue.slots is None else f": {queue.busy} of {queue.slots} slots were in use at the last heartbeats"
    yield f"{alive} it{load}"
    yield from queue.abandoned


def parked(run: RunFacts, due: Due, why: str) -> Reason:
    what = f"{due.path or 'The run'} waits for a worker that can run it: {why}."
    reason = Reason("parked", what, due.path, due.since, due.ring_at, "a worker", evidence=(f"parked: {why}",))
    has_one = run.live_executors > 0 and run.able is not None and due.in_queue in run.able
    if has_one:
        return replace(reason, evidence=(*reason.evidence, "a live worker has its version"))
    return replace(reason, do=_with_version(run), evidence=(*reason.evidence, *versions_text(run)))


def _with_version(run: RunFacts) -> str:
    return f"Start a worker that has version {run.version} of {run.workflow}."


def versions_text(run: RunFacts) -> tuple[str, ...]:
    if run.able is None:
        return ()
    if not run.versions:
        return (f"no live worker has {run.workflow}",)
    each = (f"version {version} ({few(workers)})" for version, workers in run.versions.items())
    return (f"live workers have {run.workflow} at {', '.join(each)}",)


def running(run: RunFacts, step: OpenStepFacts) -> Reason:
    """The reason of a step that an executor runs."""
    until: dict[str, Any] = {"since": step.started_at, "until": step.timeout_at}
    worker = step.worker or f"executor {step.executor}"
    if not step.executor_alive:
        evidence = (f"the lease of executor {step.executor} has expired",)
        text = f"{step.path} ran on a worker that is dead: " + (
            "another one takes it over." if run.live_executors else "no other one is alive that takes it over."
        )
        return Reason("lost_executor", text, step.path, **until, who="a keeper", evidence=evidence)
    number = f"attempt {step.attempts}" if step.attempts > 1 else "its attempt"
    text = f"{step.path} runs on {worker}: {number} has not ended."
    return Reason("running", text, step.path, **until, evidence=tuple(_of_attempt(step, worker)))


def _of_attempt(step: OpenStepFacts, worker: str) -> Iterator[str]:
    lease = f": its lease ends at {clock_text(step.lease_until)}" if step.lease_until else ""
    yield f"{worker} is alive{lease}"
    if step.heartbeat_at:
        yield f"last heartbeat {clock_text(step.heartbeat_at)}"
    if step.logged_at:
        yield f"last log entry {clock_text(step.logged_at)}"
    elif step.is_log_known:
        yield "this attempt has no log entry"
    if step.usual is not None:
        yield f"95 % of its last {step.usual.times} took at most {duration_text(step.usual.most)}"


# -- limits -----------------------------------------------------------------------------------------------


def limited(run: RunFacts, due: Due, limit: LimitFacts) -> Reason:
    if limit.granted and not is_ahead(limit.due_at, run.now):
        return for_a_worker(run, replace(due, ring_at=limit.ring_at, evidence=(f"it has a slot of {_name(limit)}",)))
    reason = _singleton(due, limit) if limit.name.endswith(SUFFIX) else _full(due, limit)
    late = (f"it fails if no attempt has begun by {clock_text(due.start_by)}",) if due.start_by else ()
    until = limit.due_at if limit.granted and limit.maximum else due.start_by
    return replace(reason, step=due.path, since=limit.since, until=until, evidence=(*reason.evidence, *late))


def _singleton(due: Due, limit: LimitFacts) -> Reason:
    text = f"{due.name} waits: another run of the workflow with its singleton key {limit.key} runs, or is the next."
    do = "Wait until it ends, or cancel it."
    return Reason("limit", text, who="another run that ends", do=do, command=_shown(limit), evidence=(_in_use(limit),))


def _full(due: Due, limit: LimitFacts) -> Reason:
    name, command = _name(limit), _shown(limit)
    if limit.maximum == 0:
        text = f"{due.name} waits for {name}, of which an operator lets nothing start: it is set to 0."
        return Reason("limit", text, who="an operator", do="Raise the limit.", command=command)
    if limit.granted:
        text, at = f"{due.name} may start at its time: {name} limits how many start per time.", clock_text(limit.due_at)
        do, evidence = "Wait, or raise the limit.", f"its start is at {at}"
        return Reason("limit", text, who="the clock", do=do, command=command, evidence=(evidence,))
    if limit.is_rate:
        text = f"{due.name} waits for {name}, which limits how many start per time: others are before it."
        return Reason("limit", text, who="the clock", do="Wait, or raise the limit.", command=command)
    text, used = f"{due.name} waits for a slot of {name}.", (_in_use(limit),)
    if limit.held_by is not None:
        text += f" Run {limit.held_by}, whose child it is, uses one until it ends."
        do = "Raise the limit, or cancel one of them, if that run waits for its children."
        return Reason("limit", text, who=f"run {limit.held_by}", do=do, command=command, evidence=used)
    do = "Wait until another one ends, or raise the limit."
    return Reason("limit", text, who="another step that ends", do=do, command=command, evidence=used)


def _name(limit: LimitFacts) -> str:
    return f"limit {limit.name}" + (f" of key {limit.key}" if limit.key else "")


def _in_use(limit: LimitFacts) -> str:
    return f"{limit.used} of {limit.maximum} slots are in use"


def _shown(limit: LimitFacts) -> str:
    return command("limit show", limit.name, **({"key": limit.key} if limit.key else {}))


def keyed(run: RunFacts, due: Due, key: KeyFacts) -> Reason:
    if key.granted or key.owner_run is None:
        free = f"no other step has its idempotency key {key.key}"
        return for_a_worker(run, replace(due, since=key.since, ring_at=key.ring_at, evidence=(free,)))
    owner = f"step {key.owner_step} of run {key.owner_run}"
    text = f"{due.name} waits for the result of {owner}, which has the same idempotency key {key.key}."
    return Reason("idempotency_key", text, due.path, key.since, who=owner, command=command("why", key.owner_run))


def refused(step: OpenStepFacts, breaker: BreakerFacts) -> Reason:
    at: dict[str, Any] = {"since": breaker.since, "until": step.due_at, "who": "the clock"}
    asks = f"it asks again at {clock_text(step.due_at)}"
    if breaker.state in (None, "closed"):
        text = f"{step.path} was not called, since circuit breaker {breaker.name} was open. It is closed now."
        order = "of the steps that waited one is called at once, and two more after each success"
        return Reason("breaker", text, step.path, **at, evidence=(order, f"{asks} at the latest"))
    text = f"{step.path} was not called: circuit breaker {breaker.name} is {breaker.state.replace('_', '-')}."
    do = "Close the circuit breaker, if what it protects works again."
    close = command("breaker close", breaker.name)
    if breaker.state == "open" and breaker.until is None:
        at |= {"until": None, "who": "an operator"}
        by = f"{breaker.by} has opened it until an operator closes it"
        return Reason("breaker", text, step.path, **at, do=do, command=close, evidence=(by, asks))
    opens = (f"it lets an attempt try at {clock_text(breaker.until)}",) if breaker.state == "open" else ()
    return Reason("breaker", text, step.path, **at, do=do, command=close, evidence=(*opens, asks))
