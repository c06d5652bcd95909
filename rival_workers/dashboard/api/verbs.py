"""Routes of the operators' verbs. Each has a preview (`dry_run`), and changes nothing if the run has moved since."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from rival_client.api.bulk_runner import why_unchanged
from rival_client.db.locks import lock_run, newest_entry
from rival_client.errors import NotPossible
from rival_client.model.records import Reopened
from rival_client.sql.reads.run_reads import read_run_head
from rival_client.sql.reads.run_rows import rows_by_id
from rival_workers.dashboard.commands import Commands, as_json, call_text, commands, shell_text
from rival_workers.dashboard.ids import in_path
from rival_workers.dashboard.problem_json import Refused
from rival_workers.dashboard.route import Call, Confirmed, Handler, Route
from rival_workers.dashboard.row_views import views_of
from rival_workers.dashboard.verb_names import NEED_REASON, NEED_STEP, VERBS, refuse_incomplete


class Order(Confirmed):
    step: str | None = None
    result: Any = None
    reason: str | None = Field(default=None, max_length=10_000)


def _handler(verb: str) -> Handler:
    def handle(call: Call) -> dict[str, Any]:
        order: Order = call.body
        refuse_incomplete(verb, order.step, order.reason)
        if order.dry_run:
            return _preview(call, verb, order)
        reopened = _act(call, verb, order)
        done = {"done": True, "run": _row(call, call.names["run_id"])}
        return {**done, **_steps(reopened), "commands": as_commands(call, verb, order)}

    return handle


def _row(call: Call, run_id: str) -> dict[str, Any]:
    with call.board.database.snapshot() as connection:
        return views_of(call.board, connection, rows_by_id(connection, [run_id]))[0]


def _preview(call: Call, verb: str, order: Order) -> dict[str, Any]:
    """Returns what the verb would do. A refusal is also an answer, not an error."""
    moment = _settled_moment(call)
    done = call.board.rival.bulk(
        verb,  # type: ignore[arg-type]
        [call.names["run_id"]],
        step=order.step,
        value=order.result if verb == "set_result" else None,
        reason=order.reason,
        dry_run=True,
        by=call.by,
    )
    [outcome] = done.outcomes
    about = {"possible": outcome.why is None, "reason": outcome.why, "etag": f'"{moment}"'}
    return {**about, **_steps(outcome.reopened), "commands": as_commands(call, verb, order)}


def _settled_moment(call: Call) -> int:
    """The newest entry of the run's history. Read with the lock of the run: an entry with a smaller id may become
    visible later otherwise, and the run would have moved without a sign of it."""
    run_id = call.names["run_id"]

    def read(connection: Any) -> int:
        lock_run(connection, run_id)
        return newest_entry(connection, run_id)

    return call.board.rival.database.transact(read)


def _act(call: Call, verb: str, order: Order) -> Reopened | None:
    method = getattr(call.board.rival, verb)
    run_id, how = call.names["run_id"], {"by": call.by, "if_entry": _if_match(call)}
    if verb in NEED_REASON:
        how["reason"] = order.reason
    step = [order.step] if verb in NEED_STEP else []
    done = method(run_id, *step, *([order.result] if verb == "set_result" else []), **how)
    if done is False:
        with call.board.rival.database.autocommit() as connection:
            raise NotPossible(verb, run_id, why_unchanged(read_run_head(connection, run_id)))
    return done if isinstance(done, Reopened) else None


def _if_match(call: Call) -> int | None:
    """The entry of the history that the run must still end with. The verb compares it in its own transaction."""
    given = call.headers.get("if-match", "*").strip()
    if given == "*":
        return None
    number = given.strip('"')
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise Refused(412, "RunHasMoved", "`If-Match` is not from a preview of this run: make a new one.")
    return int(number)


def _steps(reopened: Reopened | None) -> dict[str, Any]:
    if reopened is None:
        return {"opened": [], "runs_again": [], "children": [], "retried_children": []}
    return {
        "opened": list(reopened.opened),
        "runs_again": list(reopened.runs_again),
        "children": list(reopened.children),
        "retried_children": list(reopened.retried_children),
    }


def as_commands(call: Call, verb: str, order: Order) -> Commands:
    run_id, reason = call.names["run_id"], order.reason if verb in NEED_REASON else None
    step = [order.step] if verb in NEED_STEP and order.step else []
    result = [as_json(order.result)] if verb == "set_result" else []
    shell = shell_text(VERBS[verb], run_id, *step, *result, reason=reason)
    given = [order.result] if verb == "set_result" else []
    python = call_text(verb, run_id, *step, *given, reason=reason)
    body = order.model_dump(exclude_defaults=True, exclude={"dry_run"})
    return commands(call.base, f"runs/{in_path(run_id)}/{VERBS[verb]}", shell, python, body)


_SUMMARIES = {
    "retry": "Continue a failed or cancelled run where it stopped",
    "rewind": "Run a step and everything after it again",
    "skip": "Skip a step",
    "set_result": "Complete a step with a result",
    "pause": "Start no further steps",
    "resume": "Continue a paused run",
    "cancel": "Cancel a run with its children",
}
ROUTES = tuple(
    Route("POST", f"/runs/{{run_id}}/{path}", "operator", _handler(verb), _SUMMARIES[verb], body=Order, does=path)
    for verb, path in VERBS.items()
)
