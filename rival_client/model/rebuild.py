"""Computes the state of a run from its history alone. Pure: it does not read the tables, so that tests can compare them
with it, and so that it can show the run as it was at any moment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.history_entries import REOPENINGS, SET_STATE, SETTLED_BY_OPERATOR, STATUS_AFTER
from rival_client.model.kinds import FLOW, FLOW_WAIT, ITEM
from rival_client.model.rebuilt_records import RebuiltRun, RebuiltStep
from rival_client.model.run_entries import HistoryEntry
from rival_client.model.statuses import STEP_TERMINAL


def rebuild(history: Iterable[HistoryEntry]) -> RebuiltRun:
    """The run after these entries, given in their order."""
    run = RebuiltRun()
    for entry in history:
        if entry.what in _WHOLE and not (entry.what == entries.EXPIRED and entry.path):
            _WHOLE[entry.what](run, entry)
        elif entry.path is None:
            _run_entry(run, entry)
        elif entry.what in STATUS_AFTER:
            _step_entry(run, entry)
        elif entry.what == entries.RECEIVED:
            run.steps[entry.path].end_order = entry.detail["end_order"]
            _flow_acts(run, entry)
    return run


def status_changes(entry: HistoryEntry) -> list[tuple[str, str]]:
    """The steps whose status the entry changes, and the new status; "deleted": the row is deleted."""
    match entry.what:
        case entries.CANCELLED | entries.CANCELLING | entries.EXPIRED if "open" in entry.detail:
            return [(path, statuses.CANCELLED) for path in entry.detail["open"]]
        case entries.RETRY_RUN | entries.REWIND_RUN:
            deleted = [(path, "deleted") for path in entry.detail.get("deleted", ())]
            return [*deleted, *((path, statuses.WAITING) for path in entry.detail.get("revived", ()))]
        case entries.FANNED_OUT:
            return [(f"{entry.path}[{index}]", statuses.WAITING) for index in range(len(entry.detail["items"]))]
    status = STATUS_AFTER.get(entry.what)
    return [] if entry.path is None or status is None else [(entry.path, status)]


# -- the run ----------------------------------------------------------------------------------------------


def _run_entry(run: RebuiltRun, entry: HistoryEntry) -> None:
    match entry.what:
        case entries.STARTED:
            run.status, run.started_at = statuses.RUNNING, entry.at
            run.workflow, run.version = entry.detail["workflow"], entry.detail["version"]
            run.input, options = entry.detail.get("input"), entry.detail.get("options", {})
            run.labels, run.policies = options.get("labels"), options.get("policies")
            run.singleton = options.get("singleton")
            run.deadline, run.priority = options.get("deadline"), options.get("priority")
        case entries.FAILING:
            run.error, run.failed_step = entry.detail["error"], entry.detail.get("failed_step")
        case entries.COMPLETED | entries.FAILED:
            run.status, run.completed_at, run.result = entry.what, entry.at, entry.detail.get("result")
        case entries.PAUSED | entries.RESUMED:
            run.paused = entry.what == entries.PAUSED


def _cancelled(run: RebuiltRun, entry: HistoryEntry) -> None:
    for step in _known(run, entry.detail["open"]):
        step.status, step.completed_at = statuses.CANCELLED, entry.at
    if entry.what in (entries.EXPIRED, entries.CANCELLING):
        run.status, run.error = statuses.RUNNING, entry.detail.get("error", run.error)
    elif entry.path is None:
        run.status, run.completed_at = statuses.CANCELLED, entry.at


def _known(run: RebuiltRun, paths: Iterable[str]) -> Iterable[RebuiltStep]:
    """Without checkpoints of a flow that has continued since: `continue_as` deletes their history."""
    return (run.steps[path] for path in paths if path in run.steps)


def _reopened(run: RebuiltRun, entry: HistoryEntry) -> None:
    """An operator's retry or rewind: some rows are deleted, and composites wait again."""
    run.paused = run.paused and run.completed_at is None
    run.status = statuses.RUNNING if "opened" in entry.detail else statuses.PENDING
    run.result = run.error = run.failed_step = run.completed_at = None
    for path in entry.detail.get("deleted", ()):
        run.steps.pop(path, None)
    for step in _known(run, entry.detail.get("revived", ())):
        # A flow enters its wait for an event again when it reaches it.
        step.status = statuses.PENDING if step.kind == FLOW_WAIT else statuses.WAITING
        step.result, step.error, step.completed_at = None, None, None


def _fanned_out(run: RebuiltRun, entry: HistoryEntry) -> None:
    for index, item in enumerate(entry.detail["items"]):
        run.steps[f"{entry.path}[{index}]"] = RebuiltStep(ITEM, statuses.WAITING, item=item)


_WHOLE: dict[str, Callable[[RebuiltRun, HistoryEntry], None]] = {
    entries.CANCELLED: _cancelled,
    entries.CANCELLING: _cancelled,
    entries.EXPIRED: _cancelled,
    entries.FANNED_OUT: _fanned_out,
    **dict.fromkeys(REOPENINGS, _reopened),
}


#: The run may have waited with a step that ends without an attempt.
_WAKES = SETTLED_BY_OPERATOR | {entries.EXPIRED}


# -- a step -----------------------------------------------------------------------------------------------


def _step_entry(run: RebuiltRun, entry: HistoryEntry) -> None:
    path, detail = entry.path or "", entry.detail
    status = STATUS_AFTER[entry.what]
    step = run.steps.get(path)
    # A compensation that was cancelled with its workflow starts again with that of the run.
    if step is None or entry.what == entries.CONTINUED or (step.status == statuses.CANCELLED and "kind" in detail):
        step = run.steps[path] = RebuiltStep(detail["kind"], status)
    step.status = status
    step.completed_at = entry.at if status in STEP_TERMINAL else None
    _keep(step, entry)
    _keep_state(run, step, entry)
    _count(step, entry)
    _flow_acts(run, entry)
    if status == statuses.WAITING:
        run.status = detail.get("run", run.status)
    elif (status in (statuses.RUNNING, statuses.PENDING) or entry.what in _WAKES) and run.status == statuses.SUSPENDED:
        run.status = statuses.RUNNING


def _flow_acts(run: RebuiltRun, entry: HistoryEntry) -> None:
    """An entry of a checkpoint resets the losses of its flow, and has the new state of the flow."""
    for flow in _flows_above(run, entry.path or ""):
        flow.lost = 0
        flow.state = entry.detail.get("state", flow.state)


def _flows_above(run: RebuiltRun, path: str) -> Iterable[RebuiltStep]:
    """At most one. The name of a checkpoint can contain slashes."""
    ends = (at for at, sign in enumerate(path) if sign == "/")
    above = (run.steps.get(path[:end]) for end in ends)
    return (step for step in above if step is not None and step.kind == FLOW)


def _keep(step: RebuiltStep, entry: HistoryEntry) -> None:
    detail = entry.detail
    if step.status in STEP_TERMINAL or "result" in detail:
        step.result = detail.get("result")
    if step.status in STEP_TERMINAL or entry.what in (entries.RETRIED, entries.FELL_BACK):
        step.error = detail.get("error")
    if entry.what == entries.FELL_BACK:
        step.fallback = detail["fallback"]
    step.item = detail.get("item", step.item)
    step.queue, step.priority = detail.get("queue", step.queue), detail.get("priority", step.priority)
    step.begun_after = detail.get("begun_after", step.begun_after)
    step.end_order = None if entry.what == entries.GIVEN_UP else detail.get("end_order", step.end_order)


def _keep_state(run: RebuiltRun, step: RebuiltStep, entry: HistoryEntry) -> None:
    if not any(_flows_above(run, entry.path or "")):  # a checkpoint has no state of its own
        step.state = entry.detail.get("state", None if entry.what in SET_STATE else step.state)


#: Ends of an attempt that does not use up one.
_NOT_COUNTED = {
    *(entries.SUSPENDED, entries.WAITS_FOR_EXTERNAL, entries.HANDED_BACK, entries.TAKEN_OVER, entries.POSTPONED),
}


def _count(step: RebuiltStep, entry: HistoryEntry) -> None:
    if entry.what == entries.CLAIMED:
        step.attempts, step.executor, step.started_at = entry.detail["attempt"], entry.by, entry.at
    elif entry.what in _NOT_COUNTED:
        step.attempts -= 1
        # A flow that waits has come further than the attempts that were lost.
        step.lost = 0 if entry.what == entries.SUSPENDED else step.lost + (entry.what == entries.TAKEN_OVER)
    else:
        step.attempts = entry.detail.get("attempts", step.attempts)
