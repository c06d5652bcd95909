"""Explains why a run does not move: what each open step waits for, since when, until when, and what can end it.

Pure: it judges facts that were read in one snapshot, and states only what follows from them. Otherwise the reason is
"unknown".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from rival_client.model import statuses
from rival_client.model.kinds import COMPENSATING, COMPOSITE_KINDS, FLOW, WITH_LANES, waits_for
from rival_client.model.statuses import RUN_TERMINAL
from rival_client.model.why.why_facts import BreakerFacts, Due, OpenStepFacts, RunFacts
from rival_client.model.why.why_records import Reason, Why, clock_text, command, is_ahead, sentence
from rival_client.model.why.worker_reasons import (
    NO_WORKER,
    for_a_worker,
    keyed,
    later,
    limited,
    parked,
    refused,
    running,
)


def explain(run: RunFacts) -> Why:
    reasons = tuple(_ended(run) if run.status in RUN_TERMINAL else _with_deadline(run, [*_open(run)]))
    return Why(run.run_id, run.status, run.now, reasons, run.more)


def _ended(run: RunFacts) -> Iterator[Reason]:
    retry = Reason(
        run.status,
        "",
        since=run.completed_at,
        who="an operator",
        do="Retry continues where it stopped.",
        command=command("retry", run.run_id),
        evidence=(f"the run ended with status {run.status} at {clock_text(run.completed_at)}",),
    )
    match run.status:
        case statuses.FAILED:
            at = f"{run.failed_step} failed" if run.failed_step else "It failed"
            tried = f" after {run.attempts} attempts" if run.attempts > 1 else ""
            evidence = (*retry.evidence, *_of_failure(run))
            yield replace(retry, text=sentence(f"{at}{tried}: {run.error or 'unknown error'}"), evidence=evidence)
        case statuses.CANCELLED:
            by = f" by {run.ended_by}" if run.ended_by else ""
            yield replace(retry, text=f"It was cancelled{by}.")
        case _:
            yield Reason("completed", "It has completed.", since=run.completed_at)


def _of_failure(run: RunFacts) -> Iterator[str]:
    if run.first_error is not None and run.first_error != run.error:
        yield f"its first attempt failed with {run.first_error}"
    if run.not_reached:
        more = run.not_reached_count - len(run.not_reached)
        yield f"never reached: {', '.join(run.not_reached)}" + (f" and {more:,} more" if more else "")


def _open(run: RunFacts) -> Iterator[Reason]:
    found: list[Reason] = []
    if run.paused_at is not None:
        found.append(_paused(run))
    if run.status == statuses.PENDING:
        found += [] if found else [_not_begun(run)]
    else:
        found += [reason for step in _without_silent(run.steps) for reason in reasons_of(run, step)]
    yield from found or [unknown(None)]


def _with_deadline(run: RunFacts, reasons: list[Reason]) -> list[Reason]:
    if run.deadline_at is None:
        return reasons
    if is_ahead(run.deadline_at, run.now):
        first, *rest = reasons
        limit = f"the run must have ended by {clock_text(run.deadline_at)}"
        return [replace(first, evidence=(*first.evidence, limit)), *rest]
    text = "Its deadline has passed: a keeper ends it."
    evidence = (f"the run had to end by {clock_text(run.deadline_at)}",)
    over = Reason("deadline", text, since=run.deadline_at, who="a keeper", evidence=evidence)
    if not run.live_executors:
        over = replace(over, do="Start a worker: none is alive.", command="rival worker")
    return [over, *reasons]


def _paused(run: RunFacts) -> Reason:
    by = (f"{run.paused_by} has paused it",) if run.paused_by else ()
    text = "It is paused: steps that run finish, and nothing new starts."
    resume = command("resume", run.run_id)
    return Reason("paused", text, None, run.paused_at, None, "an operator", "Resume it.", resume, by)


def _not_begun(run: RunFacts) -> Reason:
    due = Due(None, run.due_at or run.created_at, run.ring_at, run.queue)
    if run.parked:
        return parked(run, due, run.parked)
    if run.limit is not None:
        return limited(run, due, run.limit)
    if is_ahead(run.due_at, run.now):
        return later(run)
    return for_a_worker(run, due)


def _without_silent(steps: Sequence[OpenStepFacts]) -> list[OpenStepFacts]:
    """Without composites and flows whose own steps say more."""
    paths = [step.path for step in steps]
    flows = {step.path: step for step in steps if step.kind == FLOW}

    def has_open_below(step: OpenStepFacts) -> bool:
        inside = tuple(f"{step.path}{sign}" for sign in "/[!")
        return any(path.startswith(inside) for path in paths)

    # A composite with lanes is listed with their counts, and compensations always are.
    listed = [one for one in steps if not (_is_silent(one) and has_open_below(one)) or _counts(one)]
    return [_as_of_flow(one, flows) for one in listed]


def _is_silent(step: OpenStepFacts) -> bool:
    """Whether the reasons of the steps in it say what it waits for."""
    is_flow = step.kind == FLOW and step.status == statuses.WAITING
    return step.kind in COMPOSITE_KINDS or (is_flow and step.limit is None and step.idempotency_key is None)


def _as_of_flow(step: OpenStepFacts, flows: dict[str, OpenStepFacts]) -> OpenStepFacts:
    """A checkpoint has no message of its own: a worker that serves the queue of its flow continues it."""
    own = next((flow for path, flow in flows.items() if step.path.startswith(f"{path}/")), None)
    return step if own is None else replace(step, queue=own.queue, ring_at=own.ring_at)


def _counts(step: OpenStepFacts) -> bool:
    return (step.kind in WITH_LANES and bool(step.total)) or step.kind == COMPENSATING


# -- steps ----------------------------------------------------------------------------------------------------


def reasons_of(run: RunFacts, step: OpenStepFacts) -> Iterator[Reason]:
    for reason in _reasons(run, step):
        yield _not_without_workers(run, _with_its_deadline(step, reason))


def _reasons(run: RunFacts, step: OpenStepFacts) -> Iterator[Reason]:
    match step.status:
        case statuses.RUNNING:
            yield unknown(step) if step.executor_alive is None else running(run, step)
        case statuses.WAITING_RETRY:
            yield from _retry(run, step) if step.breaker is None else _refused(run, step, step.breaker)
        case statuses.PENDING:
            if run.paused_at is None:
                yield _pending(run, step)
        case statuses.WAITING:
            yield from _waiting(run, step)
        case _:
            yield unknown(step)


def _not_without_workers(run: RunFacts, reason: Reason) -> Reason:
    """The clock ends nothing by itself: at the time, a worker continues."""
    if run.live_executors or reason.who not in ("the clock", "a keeper"):
        return reason
    do = "Start a worker: none is alive that continues it."
    return replace(reason, do=do, command="rival worker", evidence=(*reason.evidence, NO_WORKER))


def _with_its_deadline(step: OpenStepFacts, reason: Reason) -> Reason:
    if step.deadline_at is None or not reason.known:
        return reason
    return replace(reason, evidence=(*reason.evidence, f"it must have ended by {clock_text(step.deadline_at)}"))


def _due(step: OpenStepFacts, *evidence: str) -> Due:
    since = step.due_at or step.created_at
    return Due(step.path, since, step.ring_at, step.queue, step.start_by, evidence)


def _overdue(run: RunFacts, step: OpenStepFacts, *evidence: str) -> Iterator[Reason]:
    """Its time has come. Nothing of a paused run starts."""
    if run.paused_at is None:
        yield for_a_worker(run, _due(step, f"due since {clock_text(step.due_at)}", *evidence))


def _retry(run: RunFacts, step: OpenStepFacts) -> Iterator[Reason]:
    because = f" with {step.error}" if step.error else ""
    failed = f"attempt {step.attempts} failed{because}"
    if not is_ahead(step.due_at, run.now):
        yield from _overdue(run, step, failed)
        return
    yield Reason(
        "retry",
        sentence(f"{step.path} is tried again: {failed}"),
        step.path,
        since=step.failed_at or step.started_at,
        until=step.due_at,
        who="the clock",
        do="Skip the step, or set its result, to go on without it.",
        evidence=(f"due at {clock_text(step.due_at)}",),
    )


def _refused(run: RunFacts, step: OpenStepFacts, breaker: BreakerFacts) -> Iterator[Reason]:
    if is_ahead(step.due_at, run.now):
        yield refused(step, breaker)
    else:
        yield from _overdue(run, step, f"circuit breaker {breaker.name} was open when it asked before")


def _pending(run: RunFacts, step: OpenStepFacts) -> Reason:
    return parked(run, _due(step), step.parked) if step.parked else for_a_worker(run, _due(step))


# -- waiting ----------------------------------------------------------------------------------------------


def _waiting(run: RunFacts, step: OpenStepFacts) -> Iterator[Reason]:
    if step.limit is not None:
        yield limited(run, _due(step), step.limit)
    elif step.idempotency_key is not None:
        yield keyed(run, _due(step), step.idempotency_key)
    elif waits_for(step.kind) == "steps":
        yield _composite(run, step)
    elif waits_for(step.kind) == "child":
        yield _child(step)
    elif any(one.path == f"{step.path}!fallback" for one in run.steps):
        yield Reason("steps", f"{step.path} has failed, and waits for its fallback.", step.path, step.created_at)
    elif step.due_at is not None and not is_ahead(step.due_at, run.now):
        yield from _overdue(run, step, *_over(step))
    elif waits_for(step.kind) == "event":
        yield _event(run, step)
    elif waits_for(step.kind) == "external" and step.started_at is not None:
        yield _external(step)
    elif step.kind == FLOW and step.started_at is not None:
        # Its checkpoints say what it waits for, and none of them was found.
        yield unknown(step)
    else:
        # A timer, or a step with `delay` or `scheduled_at`.
        yield _timer(step)


def _over(step: OpenStepFacts) -> tuple[str, ...]:
    """What did not come in time."""
    if step.topic is not None:
        return (f"no event of topic {step.topic} came in time",)
    return ("no answer came in time",) if waits_for(step.kind) == "external" and step.started_at else ()


def _timer(step: OpenStepFacts) -> Reason:
    if step.due_at is None:
        return unknown(step)
    text, since = f"{step.path} waits until its time.", step.started_at or step.created_at
    evidence = (f"due at {clock_text(step.due_at)}",)
    return Reason("delay", text, step.path, since, step.due_at, "the clock", evidence=evidence)


def _event(run: RunFacts, step: OpenStepFacts) -> Reason:
    if step.topic is None:
        # Another kind of wait: only its limit is known.
        return _timer(step)
    # Without the run, a step of another one that has waited longer would receive it.
    to = {"run-id": run.run_id} if step.key is None else {"key": step.key, "run-id": run.run_id}
    keyed = f" with key {step.key}" if step.key is not None else ""
    asks = (f"its payload must fit the filter of {', '.join(step.asks)}",) if step.asks else ()
    near = (f"kept event {step.near_event} differs in {', '.join(step.near_differs)}",) if step.near_differs else ()
    return Reason(
        "event",
        f"{step.path} waits for an event of topic {step.topic}{keyed}.",
        step.path,
        since=step.started_at or step.created_at,
        until=step.due_at,
        who="the sender of the event",
        do="Send it.",
        command=command("emit", step.topic, **to),
        evidence=(f"no event of topic {step.topic} that fits has come", *asks, *near),
    )


def _child(step: OpenStepFacts) -> Reason:
    if step.child is None:
        return unknown(step)
    status = f", which is {step.child_status}" if step.child_status else ""
    text = f"{step.path} waits for run {step.child}{status}."
    since, why = step.started_at or step.created_at, command("why", step.child)
    said = (f"run {step.child}: {step.child_why}",) if step.child_why else ()
    return Reason("child", text, step.path, since, who=f"run {step.child}", command=why, evidence=said)


def _external(step: OpenStepFacts) -> Reason:
    return Reason(
        "external",
        f"{step.path} waits for an external system to complete it.",
        step.path,
        since=step.started_at,
        until=step.timeout_at or step.due_at,
        who="the external system",
        do="Complete or fail it with its token, or set its result.",
        # `heartbeat_at` is also set when the function hands the step over.
        evidence=(f"no heartbeat since {clock_text(step.heartbeat_at)}",) if step.heartbeat_at else (),
    )


def _composite(run: RunFacts, step: OpenStepFacts) -> Reason:
    if not step.total or step.remaining is None:
        what = "undoes what was done" if step.kind == COMPENSATING else "waits for the steps in it"
        return Reason("steps", f"{step.path} {what}.", step.path, step.created_at)
    done = step.total - step.remaining
    if step.kind == COMPENSATING:
        text = f"{step.path} undoes what was done: {done:,} of {step.total:,} compensations have ended."
        return Reason("compensating", text, step.path, step.created_at)
    begun = step.total if step.opened is None else max(step.opened, done)
    text = f"{step.path} has ended {done:,} of {step.total:,}."
    ahead = (f"{step.total - begun:,} have not begun",) if begun < step.total else ()
    evidence = (f"{begun - done:,} are open", *ahead, *_slowest(run, step))
    return Reason("steps", text, step.path, step.created_at, evidence=evidence)


def _slowest(run: RunFacts, composite: OpenStepFacts) -> Iterator[str]:
    """The step in the composite that has been open the longest, if there are several and all are known."""
    inside = [one for one in run.steps if one.path.startswith((f"{composite.path}[", f"{composite.path}/"))]
    since = {one.path: one.started_at or one.created_at for one in inside if one.kind not in COMPOSITE_KINDS}
    known = sorted((at, path) for path, at in since.items() if at is not None)
    if not run.more and len(known) > 1:
        at, path = known[0]
        yield f"open the longest: {path}, since {clock_text(at)}"


def unknown(step: OpenStepFacts | None) -> Reason:
    path = step.path if step else None
    return Reason("unknown", f"It is not known what {path or 'the run'} waits for.", path)
