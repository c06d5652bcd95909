"""Routes of verbs on many runs. An action applies to exactly the runs that its preview has shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pydantic import Field

from rival_client.api.bulk import LIMIT, Bulk, BulkOutcome
from rival_client.sql.bulk_records import KEPT
from rival_client.sql.reads.run_filter import RunFilter
from rival_workers.dashboard.api.filters import RunQuery
from rival_workers.dashboard.audit import audit
from rival_workers.dashboard.bulk_action import BulkAction
from rival_workers.dashboard.bulks import new_id
from rival_workers.dashboard.commands import as_json, call_text, commands, each_line, shell_text
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.roles import ADMINS_BULK, OPERATORS_BULK
from rival_workers.dashboard.route import Answer, Call, Form, Route
from rival_workers.dashboard.verb_names import NEED_REASON, VERBS

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
    return _begun(call, _action(call, _BY_PATH[order.verb], given, dry_run=True), chosen)


def _rest(call: Call, done: BulkAction) -> Answer:
    if done.dry_run or done.is_open:
        raise Refused(409, "NotPossible", "Only an action that has stopped before its last run can be continued.")
    runs = call.board.bulks.rest_of(done)
    if not runs:
        raise Refused(409, "NotPossible", "All of its runs have an outcome: nothing is left to do.")
    given = {**done.order, "filter": None, "runs": runs, "limit": max(1, len(runs))}
    return _begun(call, _action(call, done.verb, given, dry_run=True), runs)


def _action(call: Call, verb: str, order: dict[str, Any], *, dry_run: bool, preview: str | None = None) -> BulkAction:
    # Every viewer sees the commands of an action.
    result = call.board.wide_veil().hidden(order["result"])
    shown = {**order, "result": result, "filter": _shown_filter(call, order["filter"])}
    named = {"step": order["step"], "value": shown["result"], "reason": order["reason"]}
    chosen = RunQuery(**shown["filter"]).chosen() if shown["filter"] else order["runs"]
    limit = order["limit"] if shown["filter"] and order["limit"] != LIMIT else None
    python = call_text("bulk", verb, chosen, **named, limit=limit)
    body = {"verb": VERBS[verb], **{name: value for name, value in shown.items() if value is not None}}
    texts = commands(call.base, "bulk", _shell(verb, shown), python, body)
    return BulkAction(new_id(), verb, dry_run, call.by, texts, order, preview)


def _shown_filter(call: Call, chosen: dict[str, Any] | None) -> dict[str, Any] | None:
    """The filter as people may see it: hidden values are masked, and the values to look for are JSON text."""
    if chosen is None:
        return None
    veil = call.board.wide_veil() if "workflow" not in chosen else call.board.current_veil(chosen["workflow"])
    sought = {name: chosen[name] for name in ("input", "result") if name in chosen}
    return {**chosen, **{name: as_json(veil.hidden(json.loads(text))) for name, text in sought.items()}}


def _shell(verb: str, order: dict[str, Any]) -> str:
    """With a filter one command; for chosen runs one command each."""
    value = as_json(order["result"]) if verb == "set_result" else None
    reason = order["reason"] if verb in NEED_REASON else None
    if order["filter"] is not None:
        limit = order["limit"] if order["limit"] != LIMIT else None
        how = {"step": order["step"], "value": value, "reason": reason, "limit": limit}
        return shell_text(VERBS[verb], **_options(order["filter"]), **how, yes=True)
    step = [order["step"]] if order["step"] else []
    given = [*step, *([value] if value is not None else [])]
    return each_line(shell_text(VERBS[verb], one, *given, reason=reason) for one in order["runs"])


def _options(chosen: dict[str, Any]) -> dict[str, Any]:
    """A filter as options of the command."""
    found = {name: value for name, value in chosen.items() if name not in ("status", "paused", "labels")}
    if "status" in chosen:
        found["status"] = chosen["status"].split(",")
    if "labels" in chosen:
        found["label"] = [f"{name}={value}" for name, value in json.loads(chosen["labels"]).items()]
    if "paused" in chosen:
        found["paused" if chosen["paused"] else "not-paused"] = True
    return found


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
