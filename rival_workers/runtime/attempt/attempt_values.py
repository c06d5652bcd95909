"""What an attempt reads from the rows of its run: its input and item, the values of a fallback, and the failure that a
handler or a compensation is called for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from rival_client.errors import InvalidInput
from rival_client.model import statuses
from rival_client.model.kinds import FLOW
from rival_client.model.payload import copied, load
from rival_client.model.step_records import Step
from rival_workers.definition.workflow import InputMismatch
from rival_workers.engine import interpreter, names, paths
from rival_workers.engine.paths import COMPENSATION
from rival_workers.engine.plan import Plan
from rival_workers.runtime.attempt.attempts import Attempt
from rival_workers.runtime.attempt.outage import AttemptReads
from rival_workers.store.claim_records import Claimed

#: Reads the step that has failed a run, and its error.
ReadRun = Callable[[str], tuple[str | None, dict[str, Any] | None]]
View = Callable[[str], Step | None]


@dataclass(frozen=True, slots=True)
class FailureSeen:
    """What a handler receives: the step that failed, and its error."""

    step: str | None
    error: dict[str, Any] | None


def failure_seen(attempt: Attempt, view: View, read_run: ReadRun) -> FailureSeen:
    """A step's handler receives the failure of that step; a workflow's handler, that of the step that has failed the
    run. A compensation receives the failure of the scope that is being compensated.
    """
    path = attempt.claimed.path
    of = _compensated_scope(attempt, view) if paths.is_compensation(path) else paths.role_of(path)[0]
    if not of:
        return FailureSeen(*read_run(attempt.claimed.run_id))
    step = view(of)
    error = dict(step.error or {}) if step else {}
    # A composite's error names the step that failed.
    return FailureSeen(error.pop("step", of), error)


def _compensated_scope(attempt: Attempt, view: View) -> str:
    """The path of the nested workflow that is being compensated, or "" for the whole run."""
    for scope in interpreter.absorbing(attempt.definition.plan, attempt.claimed.path):
        compensating = view(scope + COMPENSATION)
        if compensating is not None and compensating.status == statuses.WAITING:
            return scope
    return ""


def overrides_of(claimed: Claimed, view: View) -> dict[str, Any]:
    """A step falls back after an attempt of its own, so the first one has none."""
    row = None if claimed.attempt == 1 else view(claimed.path)
    found: dict[str, Any] = {} if row is None or row.fallback is None else row.fallback.get("overrides", {})
    return found


def item_of(plan: Plan, path: str, read: Callable[[str], Any]) -> Any:
    row = names.item_of(plan, path)
    return None if row is None else read(row)


def given_values(attempt: Attempt, reads: AttemptReads) -> dict[str, Any]:
    """The values that a text such as `charge:{input.order}` can name."""
    claimed = attempt.claimed
    item = item_of(attempt.definition.plan, claimed.path, partial(reads.item, claimed.run_id))
    its_input = _given_input(attempt, partial(reads.step, claimed.run_id))
    return {"input": its_input, "item": item, "labels": claimed.facts.labels, "run": {"id": claimed.run_id}}


def _given_input(attempt: Attempt, view: View) -> Any:
    """The input of the workflow that has the step, as it is stored."""
    made_by = names.input_of(attempt.definition.plan, attempt.claimed.path)
    if made_by is None:
        # A copy, since later steps of the same message receive the same object.
        return copied(attempt.claimed.input)
    made = attempt.ended.get(made_by)
    found = None if made else view(made_by)
    return load(made.result) if made else found.result if found else None


def input_of(attempt: Attempt, view: View, read_item: Callable[[str], Any]) -> Any:
    claimed, definition = attempt.claimed, attempt.definition
    carried = None
    if attempt.continued is not None:
        carried = load(attempt.continued.input)
    elif claimed.kind == FLOW:
        carried = read_item(claimed.path) if claimed.stored is None else claimed.item
    value = _given_input(attempt, view) if carried is None else carried
    call = definition.call_at(claimed.path)
    try:
        return value if call is None or call.read_input is None else call.read_input(value)
    except InputMismatch as error:
        raise InvalidInput(error.workflow, [str(error)], started_run=claimed.run_id) from error
