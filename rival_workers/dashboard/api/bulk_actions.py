"""Routes of verbs on many runs. An action applies to exactly the runs that its preview has shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from rival_client.api.bulk import Bulk, BulkOutcome
from rival_client.api.bulk import BulkOrder as CheckedOrder
from rival_client.model.checks import arguments
from rival_client.sql.bulk_records import KEPT
from rival_client.sql.reads.run_filter import RunFilter
from rival_workers.dashboard.api.filters import RunQuery
from rival_workers.dashboard.audit import audit
from rival_workers.dashboard.bulk_action import BulkAction
from rival_workers.dashboard.bulk_commands import bulk_commands
from rival_workers.dashboard.bulks import new_id
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.roles import ADMINS_BULK, OPERATORS_BULK
from rival_workers.dashboard.route import Answer, Call, Form, Route
from rival_workers.dashboard.verb_names import VERBS, refuse_incomplete

_BY_PATH = {path: verb for verb, path in VERBS.items()}


class BulkOrder(Form):
    """A preview, with `dry_run`; or, with its id as `preview`, the same for real. With `rest_of` a preview of what an
    action that has stopped or failed has left."""

    verb: Literal["retry", "rewind", "skip", "set-result", "pause", "resume", "cancel"] | None = None
    runs: list[str] | None = Field(default=None, max_length=ADMINS_BULK)
    filter: RunQuery | None = None
    step: str | None = None
    result: Any = None
    reason: str | None = None
    limit: int = Field(default=OPERATORS_BULK, ge=1, le=ADMINS_BULK)
    dry_run: bool = True
    preview: str | None = None
    rest_of: str | None = None


def begin(call: Call) -> Answer:
    order: BulkOrder = call.body
    if order.preview is not None:
        shown = _found(call, order.preview)
        if order.dry_run or not shown.dry_run or shown.state not in ("done", "stopped"):
            raise Refused(422, "InvalidArgument", "Give the id of a preview that has ended, and `dry_run: false`.")
        action = _action(call, shown.verb, shown.order, dry_run=False, preview=shown.id)
        return _begun(call, action, shown.run_ids, shown)
    if order.rest_of is not None:
        return _rest(call, _found(call, order.rest_of))
    if not order.dry_run:
        raise Refused(422, "InvalidArgument", "Look at a preview first: `dry_run: true`, then its id as `preview`.")
    if order.verb is None or (order.runs is None) == (order.filter is None):
        raise Refused(422, "InvalidArgument", "Give a verb, and either `runs` or a `filter`.")
    if order.filter is not None:
        order.filter.refuse_hidden(call.board, call.who)
    chosen: RunFilter | Sequence[str] = order.filter.chosen() if order.filter is not None else order.runs or []
    given = order.model_dump(include={"step", "result", "reason", "limit", "runs"})
    given["filter"] = order.filter.model_dump(exclude_none=True) if order.filter else None
    verb = _BY_PATH[order.verb]
    _check(verb, order, call.by)
    return _begun(call, _action(call, verb, given, dry_run=True), chosen)


def _check(verb: str, order: BulkOrder, by: str) -> None:
    """What the preview would fail with."""
    refuse_incomplete(verb, order.step, order.reason)
    CheckedOrder.checked(verb, order.step, order.result, order.reason, by, True)  # type: ignore[arg-type]
    if order.runs is not None:
        arguments.ids("runs", order.runs, arguments.id_looked_for)


def _rest(call: Call, done: BulkAction) -> Answer:
    if done.dry_run or done.is_open:
        raise Refused(409, "NotPossible", "Only an action that has stopped before its last run can be continued.")
    runs = call.board.bulks.rest_of(done)
    if not runs:
        raise Refused(409, "NotPossible", "All of its runs have an outcome: nothing is left to do.")
    given = {**done.order, "filter": None, "runs": runs, "limit": max(1, len(runs))}
    return _begun(call, _action(call, done.verb, given, dry_run=True), runs)


def _action(call: Call, verb: str, order: dict[str, Any], *, dry_run: bool, preview: str | None = None) -> BulkAction:
    action_id = new_id()
    texts = bulk_commands(call, verb, order, action_id if dry_run else None)
    return BulkAction(action_id, verb, dry_run, call.by, texts, order, preview)


def _begun(
    call: Call, action: BulkAction, chosen: RunFilter | Sequence[str], preview: BulkAction | None = None
) -> Answer:
    size = action.order["limit"] if isinstance(chosen, RunFilter) else len(chosen)
    if size > OPERATORS_BULK and not call.board.may(call.who, "admin"):
        raise Refused(403, "Forbidden", f"More than {OPERATORS_BULK} runs at once need the role admin.")
    if preview is not None and not call.board.bulks.confirm(preview):
        raise Refused(409, "NotPossible", "This preview has been confirmed already: look at a new one.")
    action.total = None if isinstance(chosen, RunFilter) else size
    action.runs = None if isinstance(chosen, RunFilter) else list(chosen)
    bulks = call.board.bulks
    begun = bulks.preview(action, _preview(call, action, chosen)) if action.dry_run else bulks.begin(action)
    return Answer(begun.view(outcomes=True), 202)


def _preview(
    call: Call, action: BulkAction, chosen: RunFilter | Sequence[str]
) -> Callable[[Callable[[BulkOutcome], None]], Bulk]:
    order = action.order
    how = {"step": order["step"], "value": order["result"], "reason": order["reason"], "limit": order["limit"]}

    def look(on_outcome: Callable[[BulkOutcome], None]) -> Bulk:
        more: dict[str, Any] = {**how, "dry_run": True, "by": action.by, "on_outcome": on_outcome}
        return call.board.rival.bulk(action.verb, chosen, **more)  # type: ignore[arg-type]

    return look


def _found(call: Call, action_id: str) -> BulkAction:
    found = call.board.bulks.get(action_id)
    if found is None:
        kept = f"a restart of the dashboard drops previews; of others the newest {KEPT} are kept"
        raise Refused(404, "NotFound", f"Unknown bulk action {action_id!r}: {kept}.")
    return found


def read(call: Call) -> dict[str, Any]:
    return _found(call, call.names["bulk_id"]).view(outcomes=True)


def list_(call: Call) -> dict[str, Any]:
    return {"items": [one.view(outcomes=False) for one in call.board.bulks.newest()]}


def stop(call: Call) -> dict[str, Any]:
    """After the run that it is at."""
    found = _found(call, call.names["bulk_id"])
    if not found.dry_run:
        audit(call, "stop_bulk", f"bulk:{found.id}")
    call.board.bulks.stop(found)
    return _found(call, found.id).view(outcomes=False)


ROUTES = (
    Route("POST", "/bulk", "operator", begin, "Preview a verb on many runs, or apply it", body=BulkOrder, status=202),
    Route("GET", "/bulk", "viewer", list_, "List bulk actions"),
    Route("GET", "/bulk/{bulk_id}", "viewer", read, "Read a bulk action"),
    Route("POST", "/bulk/{bulk_id}/stop", "operator", stop, "Stop a bulk action"),
)
