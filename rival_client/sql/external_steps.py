"""Stores the answer of an external system to a step, and its heartbeats. The answer goes into the row of the step,
guarded by the token; the worker that takes the message ends the step. Statements on an open connection; the caller
commits, then publishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, and_, case, or_, select, update

from rival_client.db.guards import step_can
from rival_client.db.locks import share_run
from rival_client.db.run_tables import runs, steps
from rival_client.db.types import after, now
from rival_client.model import history_entries as entries
from rival_client.model import statuses
from rival_client.model.checks import amounts, argument_errors, arguments
from rival_client.model.completion_token import CompletionToken
from rival_client.model.kinds import EXTERNAL
from rival_client.model.payload import Json, dump, serialise
from rival_client.model.timers import NEVER_PUBLISHED
from rival_client.sql.gates import leave
from rival_client.sql.history import record
from rival_client.sql.wake import ReadyStep, ready_step, wake_run

_MAX_MESSAGE = 4000

#: Keys of the item of an external step. A worker ignores an item whose attempt is another one than its own.
ATTEMPT, COMPLETED, FAILED, RETRY, HEARTBEAT = "attempt", "completed", "failed", "retry", "heartbeat"


def completed(result: Any, max_payload: int) -> dict[str, Json]:
    """The answer of an external system that has done the step."""
    return {COMPLETED: dump(result, what="the result", limit=max_payload)}


def failed(error: str | BaseException | Mapping[str, Any], retry: bool, max_payload: int) -> dict[str, Json]:
    """The answer of an external system that has failed. With `retry` the step is retried, if it has attempts left."""
    stored = {**_as_stored(error), "traceback": ""}
    retry = arguments.flag("retry", retry)
    return {FAILED: dump(stored, what="the error", limit=max_payload), RETRY: Json("true" if retry else "false")}


def _as_stored(error: str | BaseException | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(error, BaseException):
        return {"type": _storable(type(error).__qualname__), "message": _message(error)}
    if isinstance(error, Mapping):
        known = {"type": "ExternalFailure", "message": "", **error}
        arguments.name("error['type']", known["type"])
        arguments.text("error['message']", known["message"], amounts.MAX_BIGINT, may_be_blank=True)
        return {**known, "message": known["message"][:_MAX_MESSAGE]}
    if not isinstance(error, str):
        raise argument_errors.invalid(
            "error", error, "an error: give its message, an exception, or a mapping with `message`"
        )
    return {"type": "ExternalFailure", "message": _storable(error)[:_MAX_MESSAGE]}


def _message(error: BaseException) -> str:
    try:
        return _storable(str(error))[:_MAX_MESSAGE]
    except Exception as broken:
        return f"(its __str__ raised {type(broken).__name__})"


def _storable(message: str) -> str:
    """Replace what no store can keep: the text of an error comes from elsewhere, so it is not refused."""
    return message.replace("\x00", "\\0").encode("utf-8", "replace").decode()


def answer_step(
    connection: Connection, token: CompletionToken, given: Mapping[str, Json], by: str, grace: float
) -> ReadyStep | None:
    """Store the answer; the next claim ends the step. None: the token is stale, which the history records."""
    row = _lock(connection, token, "answer_step")
    what = "/".join(name for name in (COMPLETED, FAILED) if name in given)
    if row is None:
        _record_refusal(connection, token, what, by)
        return None
    attempt = _attempt_of(row)
    item = _item(given, attempt)
    answered = _put(connection, token, attempt, item, grace)
    wake_run(connection, token.run_id)
    # A claim counts an attempt, but the claim that ends the step is not a new attempt.
    record(connection, token.run_id, token.path, f"{what}_externally", by=by, attempts=attempt - 1, item=item)
    ready = ready_step(connection, token.run_id, token.path, answered)
    leave(connection, row.slots or (), grace=0)
    return ready


def _item(given: Mapping[str, Json], attempt: int) -> Json:
    pairs = {**given, ATTEMPT: Json(str(attempt))}.items()
    return Json("{" + ",".join(f"{serialise(name)}:{value}" for name, value in pairs) + "}")


def _put(connection: Connection, token: CompletionToken, attempt: int, item: Json, grace: float) -> Row[Any]:
    """Also while the function still runs: then the step ends without it, and the function's own outcome is stale."""
    tokens = {name: steps.c[name] + 1 for name in ("execution_token", "timeout_token")}
    ready = {"status": statuses.PENDING, "due_at": None, "timeout_at": None, "ring_at": after(grace), "rings": 0}
    return connection.execute(
        update(steps)
        .where(_is_valid(token, "answer_step"))
        .values(**ready, **tokens, attempts=attempt - 1, item=item, slots=None)
        .returning(steps.c.execution_token, steps.c.queue, steps.c.priority)
    ).one()


def _attempt_of(row: Row[Any]) -> int:
    """A step that waits has given back the attempt that its claim had counted."""
    return int(row.attempts) if row.status == statuses.RUNNING else int(row.attempts) + 1


def _lock(connection: Connection, token: CompletionToken, verb: str) -> Any:
    """Lock the step, if the token is still valid for the verb."""
    share_run(connection, token.run_id)
    columns = (steps.c.status, steps.c.attempts, steps.c.item, steps.c.timeout_at, steps.c.slots)
    return connection.execute(select(*columns).where(_is_valid(token, verb)).with_for_update()).first()


def _is_valid(token: CompletionToken, verb: str) -> Any:
    """The attempt runs under this token; or the step waits, one token further, and its time is not up."""
    in_time = or_(steps.c.due_at.is_(None), steps.c.due_at > now())
    running = and_(steps.c.status == statuses.RUNNING, steps.c.execution_token == token.token)
    waiting = and_(steps.c.status == statuses.WAITING, steps.c.execution_token == token.token + 1, in_time)
    step = (steps.c.run_id == token.run_id, steps.c.path == token.path, steps.c.kind == EXTERNAL)
    return and_(*step, step_can(verb), or_(running, waiting))


def _record_refusal(connection: Connection, token: CompletionToken, what: str, by: str) -> None:
    if connection.scalar(select(runs.c.id).where(runs.c.id == token.run_id)) is not None:
        record(connection, token.run_id, token.path, entries.LATE_ANSWER_REFUSED, by=by, what_came=what)


def beat_external_step(connection: Connection, token: CompletionToken, progress: Json | None) -> bool:
    """A heartbeat of the external system: the step waits for as long again. False: the token is stale."""
    row = _lock(connection, token, "beat_external_step")
    if row is None:
        return False
    values: dict[str, Any] = {"heartbeat_at": now()} | ({} if progress is None else {"progress": progress})
    seconds = (row.item or {}).get(HEARTBEAT) if row.status == statuses.WAITING else None
    if seconds is not None:
        due = _at_most(after(seconds), row.timeout_at)
        values |= {"due_at": due, "ring_at": due, "rings": NEVER_PUBLISHED}
    return connection.execute(update(steps).where(_is_valid(token, "beat_external_step")).values(values)).rowcount == 1


def _at_most(time: Any, deadline: Any) -> Any:
    return time if deadline is None else case((steps.c.timeout_at < time, steps.c.timeout_at), else_=time)
