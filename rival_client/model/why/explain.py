"""Why a run does not move: what each open step waits for, since when, until when, and what can end it.

Pure: it judges facts that were read in one snapshot. It says only what follows from them. Where they do not say it, the
reason is "unknown".
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from shlex import quote
from typing import Any

from rival_client.model import statuses
from rival_client.model.kinds import COMPENSATING, COMPOSITE_KINDS, FLOW, WITH_LANES, waits_for
from rival_client.model.limits.singletons import SUFFIX
from rival_client.model.starts.queues import DEFAULT_QUEUE
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.model.why.why_facts import KeyFacts, LimitFacts, OpenStepFacts, RunFacts
from rival_client.model.why.why_records import Reason, Why


def explain(run: RunFacts) -> Why:
    reasons = tuple(_ended(run) if run.status in RUN_TERMINAL else _open(run))
    return Why(run.run_id, run.status, run.now, reasons, run.more)


# -- runs -------------------------------------------------------------------------------------------------


def _ended(run: RunFacts) -> Iterator[Reason]:
    match run.status:
        case statuses.FAILED:
            at = f"{run.failed_step} failed" if run.failed_step else "It failed"
            tried = f" after {run.attempts} attempts" if run.attempts > 1 else ""
            yield Reason(
                "failed",
                f"{at}{tried}: {run.error or 'unknown error'}.",
                since=run.completed_at,
                who="an operator",
                do="Retry continues where it stopped.",
                command=f"rival retry {quote(run.run_id)}",
                evidence=(f"the run ended with status failed at {_clock(run.completed_at)}",),
            )
        case statuses.CANCELLED:
            by = f" by {run.ended_by}" if run.ended_by else ""
            again: dict[str, Any] = {"do": "Retry continues where it stopped.", "command": f"rival retry {run.run_id}"}
            yield Reason("cancelled", f"It was cancelled{by}.", since=run.completed_at, who="an operator", **again)
        case _:
            yield Reason("completed", "It has completed.", since=run.completed_at)


def _open(run: RunFacts) -> Iterator[Reason]:
    found: list[Reason] = []
    if run.paused_at is not None:
        found.append(_paused(run))
    if run.status == statuses.PENDING:
        found += [] if found else [_not_begun(run)]
    else:
        found += [reason for step in _telling(run.steps) for reason in _step(run, step)]
    yield from found or [_unknown(None)]


def _paused(run: RunFacts) -> Reason:
    return Reason(
        "paused",
        "It is paused: steps that run finish, and nothing new starts.",
        since=run.paused_at,
        who="an operator",
        do="Resume it.",
        command=f"rival resume {quote(run.run_id)}",
    )


def _not_begun(run: RunFacts) -> Reason:
    if run.parked:
        return _parked(run, None, run.parked, run.created_at)
    if run.limit is not None:
        return _limited(None, run.limit)
    if _is_ahead(run.due_at, run.now):
        evidence = (f"due at {_clock(run.due_at)}",)
        text = "The run starts at its time."
        return Reason("delay", text, None, run.created_at, run.due_at, "the clock", evidence=evidence)
    return _for_a_worker(run, None, run.created_at, run.ring_at, run.queue)


def _telling(steps: Sequence[OpenStepFacts]) -> list[OpenStepFacts]:
    """Without composites and flows whose own steps say more."""
    paths = [step.path for step in steps]

    def has_open_below(step: OpenStepFacts) -> bool:
        return any(path != step.path and path.startswith((f"{step.path}/", f"{step.path}[")) for path in paths)

    silent = (*COMPOSITE_KINDS, FLOW)
    # One with lanes also counts them, and compensations are worth saying.
    return [one for one in steps if not (one.kind in silent and has_open_below(one)) or _counts(one)]


def _counts(step: OpenStepFacts) -> bool:
    return (step.kind in WITH_LANES and bool(step.total)) or step.kind == COMPENSATING


# -- steps ------------------------------------------------------------------------------------------------


def _step(run: RunFacts, step: OpenStepFacts) -> Iterator[Reason]:
    match step.status:
        case statuses.RUNNING:
            yield _running(step)
        case statuses.WAITING_RETRY:
            yield _retry(run, step) if step.breaker is None else _breaker(step, step.breaker)
        case statuses.PENDING:
            if run.paused_at is None:
                yield _pending(run, step)
        case statuses.WAITING:
            yield _waiting(run, step)
        case _:
            yield _unknown(step)


def _running(step: OpenStepFacts) -> Reason:
    until: dict[str, Any] = {"since": step.started_at, "until": step.timeout_at}
    if step.executor_alive is False:
        evidence = (f"the lease of executor {step.executor} has expired",)
        return Reason(
            "lost_executor",
            f"{step.path} ran on a worker that is dead: another one takes it over.",
            step.path,
            **until,
            who="a keeper",
            evidence=evidence,
        )
    if step.executor_alive is None:
        return _unknown(step)
    beat = (f"last heartbeat {_clock(step.heartbeat_at)}",) if step.heartbeat_at else ()
    evidence = (f"executor {step.executor} is alive", *beat)
    number = f"attempt {step.attempts}" if step.attempts > 1 else "its attempt"
    return Reason("running", f"{step.path} runs: {number} has not ended.", step.path, **until, evidence=evidence)


def _retry(run: RunFacts, step: OpenStepFacts) -> Reason:
    of = f" of {step.max_attempts}" if step.max_attempts else ""
    return Reason(
        "retry",
        f"{step.path} is tried again: attempt {step.attempts}{of} failed{_because(step.error)}.",
        step.path,
        since=step.started_at,
        until=step.due_at,
        who="the clock" if _is_ahead(step.due_at, run.now) else "a worker",
        do="Skip the step, or set its result, to go on without it.",
        evidence=(f"due at {_clock(step.due_at)}",),
    )


def _breaker(step: OpenStepFacts, name: str) -> Reason:
    return Reason(
        "breaker",
        f"{step.path} was not called: circuit breaker {name} is open. It asks again.",
        step.path,
        until=step.due_at,
        who="the clock",
        do="Close the circuit breaker, if what it protects works again.",
        evidence=(f"postponed until {_clock(step.due_at)}",),
    )


def _pending(run: RunFacts, step: OpenStepFacts) -> Reason:
    if step.parked:
        return _parked(run, step.path, step.parked, step.created_at)
    return _for_a_worker(run, step.path, step.due_at or step.created_at, step.ring_at, step.queue)


def _parked(run: RunFacts, path: str | None, why: str, since: dt.datetime | None) -> Reason:
    return Reason(
        "parked",
        f"{path or 'The run'} waits for a worker that can run it: {why}.",
        path,
        since=since,
        who="a worker",
        do=f"Start a worker that has version {run.version} of {run.workflow}.",
        evidence=(f"parked: {why}",),
    )


def _for_a_worker(
    run: RunFacts, path: str | None, since: dt.datetime | None, ring_at: dt.datetime | None, queue: str | None
) -> Reason:
    what, queue = path or "The run", queue or DEFAULT_QUEUE
    if run.live_executors == 0:
        evidence = ("no executor has a valid lease",)
        do, command = "Start a worker.", "rival worker"
        text = f"{what} waits for a worker, and none is alive."
        return Reason("no_worker", text, path, since, who="a worker", do=do, command=command, evidence=evidence)
    if queue not in run.served:
        evidence = (f"live workers serve {', '.join(sorted(run.served)) or 'no queue'}",)
        do, command = "Start a worker that serves it.", f"rival worker --queues {quote(queue)}"
        text = f"{what} waits in queue {queue}, which no live worker serves."
        return Reason("no_worker", text, path, since, who="a worker", do=do, command=command, evidence=evidence)
    if _is_ahead(ring_at, run.now):
        waiting = f"{run.waiting} runs and steps wait for a worker, {run.live_executors} executors are alive"
        text = f"{what} waits for a worker that is free: its message was published."
        return Reason("queued", text, path, since, who="a worker", evidence=(waiting,))
    text = f"{what} waits for its message, which may be lost: a keeper publishes it again."
    late = (f"due since {_clock(ring_at)}",) if ring_at else ()
    return Reason("not_published", text, path, since, who="a keeper", command="rival recover", evidence=late)


def _limited(path: str | None, limit: LimitFacts) -> Reason:
    what, of = path or "The run", f" of key {limit.key}" if limit.key else ""
    name = f"limit {limit.name}{of}"
    if limit.granted:
        text = f"{what} has a slot of {name}: its message was published."
        return Reason("queued", text, path, limit.since, limit.due_at, "a worker")
    if limit.name.endswith(SUFFIX):
        text = f"{what} waits: another run of the workflow with its singleton key {limit.key} runs, or is the next."
        do, show = "Wait until it ends, or cancel it.", f"rival limit show {quote(limit.name)} --key {quote(limit.key)}"
        return Reason("limit", text, path, limit.since, limit.due_at, "another run that ends", do, show)
    used = f"{limit.used} of {limit.maximum} slots are in use"
    text, do = f"{what} waits for a slot of {name}.", "Wait until another one ends, or raise the limit."
    return Reason("limit", text, path, limit.since, limit.due_at, "another step that ends", do, evidence=(used,))


def _keyed(path: str, key: KeyFacts) -> Reason:
    if key.granted or key.owner_run is None:
        text = f"{path} may start: no other step has its idempotency key {key.key}, and its message was published."
        return Reason("queued", text, path, key.since, who="a worker")
    owner = f"step {key.owner_step} of run {key.owner_run}"
    text = f"{path} waits for the result of {owner}, which has the same idempotency key {key.key}."
    return Reason("idempotency_key", text, path, key.since, who=owner, command=f"rival why {quote(key.owner_run)}")


def _waiting(run: RunFacts, step: OpenStepFacts) -> Reason:
    if step.limit is not None:
        return _limited(step.path, step.limit)
    if step.idempotency_key is not None:
        return _keyed(step.path, step.idempotency_key)
    match waits_for(step.kind):
        case "time":
            return _timer(run, step)
        case "event":
            return _event(step)
        case "child":
            return _child(step)
        case "external":
            return _external(step)
        case "steps":
            return _composite(step)
    # A step with `delay` or `scheduled_at`; others that have no time are unknown.
    return _timer(run, step)


def _timer(run: RunFacts, step: OpenStepFacts) -> Reason:
    if step.due_at is None:
        return _unknown(step)
    ahead = _is_ahead(step.due_at, run.now)
    text = f"{step.path} waits until its time." if ahead else f"{step.path} is due: a worker continues it."
    who = "the clock" if ahead else "a keeper"
    evidence = (f"due at {_clock(step.due_at)}",)
    return Reason("delay", text, step.path, step.started_at or step.created_at, step.due_at, who, evidence=evidence)


def _event(step: OpenStepFacts) -> Reason:
    if step.topic is None:
        return _unknown(step)
    keyed = f" with key {step.key}" if step.key is not None else ""
    near = (f"kept event {step.near_event} differs in {', '.join(step.near_differs)}",) if step.near_differs else ()
    return Reason(
        "event",
        f"{step.path} waits for an event of topic {step.topic}{keyed}.",
        step.path,
        since=step.started_at or step.created_at,
        until=step.due_at,
        who="the sender of the event",
        do="Send it.",
        command=f"rival emit {quote(step.topic)}" + (f" --key {quote(step.key)}" if step.key is not None else ""),
        evidence=(f"no event of topic {step.topic} that fits has come", *near),
    )


def _child(step: OpenStepFacts) -> Reason:
    if step.child is None:
        return _unknown(step)
    status = f", which is {step.child_status}" if step.child_status else ""
    text = f"{step.path} waits for run {step.child}{status}."
    command = f"rival why {quote(step.child)}"
    since = step.started_at or step.created_at
    return Reason("child", text, step.path, since, who=f"run {step.child}", command=command)


def _external(step: OpenStepFacts) -> Reason:
    beat = (f"last heartbeat {_clock(step.heartbeat_at)}",) if step.heartbeat_at else ()
    return Reason(
        "external",
        f"{step.path} waits for an external system to complete it.",
        step.path,
        since=step.started_at,
        until=step.timeout_at or step.due_at,
        who="the external system",
        do="Complete or fail it with its token, or set its result.",
        evidence=beat,
    )


def _composite(step: OpenStepFacts) -> Reason:
    if step.kind == COMPENSATING:
        return Reason("compensating", f"{step.path} undoes what was done.", step.path, step.created_at)
    if not step.total or step.remaining is None:
        return Reason("steps", f"{step.path} waits for the steps in it.", step.path, step.created_at)
    done = step.total - step.remaining
    begun = step.total if step.opened is None else max(step.opened, done)
    text = f"{step.path} has ended {done:,} of {step.total:,}."
    later = (f"{step.total - begun:,} have not begun",) if begun < step.total else ()
    return Reason("steps", text, step.path, step.created_at, evidence=(f"{begun - done:,} are open", *later))


def _unknown(step: OpenStepFacts | None) -> Reason:
    path = step.path if step else None
    return Reason("unknown", f"It is not known what {path or 'the run'} waits for.", path)


# -- words ------------------------------------------------------------------------------------------------


def _is_ahead(at: dt.datetime | None, now: dt.datetime) -> bool:
    return at is not None and at > now


def _because(error: str | None) -> str:
    return f" with {error}" if error else ""


def _clock(at: dt.datetime | None) -> str:
    return "at an unknown time" if at is None else f"{at.astimezone(dt.UTC):%Y-%m-%d %H:%M:%S} UTC"
