"""Somebody outside answers an external step, or shows that it is still at it. An answer is put into the step's row,
under the token; a worker that is rung for it ends the step. Statements on an open connection; whoever commits rings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, and_, case, or_, select, update

from rival_client.db.locks import share_run
from rival_client.db.tables import after, now, runs, steps
from rival_client.model import arguments
from rival_client.model.completion_token import CompletionToken
from rival_client.model.payload import Json, dump, serialise
from rival_client.sql.history import record
from rival_client.sql.wake import ReadyStep, resume_run_status

#: `rings` of a row that nobody has rung for: the keeper rings as soon as it is due.
_NEVER_RUNG = -1
_MAX_MESSAGE = 4000

#: What a worker finds in the row of an external step is about this attempt, by its number; of another one it is old.
ATTEMPT, COMPLETED, FAILED, RETRY, HEARTBEAT = "attempt", "completed", "failed", "retry", "heartbeat"


def completed(result: Any, max_payload: int) -> dict[str, Json]:
    """The answer of one who has done the step."""
    return {COMPLETED: dump(result, what="the result", limit=max_payload)}


def failed(error: str | BaseException | Mapping[str, Any], retry: bool, max_payload: int) -> dict[str, Json]:
    """The answer of one who could not. With `retry` the step is tried again, if it has attempts left."""
    record = {**_record(error), "traceback": ""}
    retry = arguments.flag("retry", retry)
    return {FAILED: dump(record, what="the error", limit=max_payload), RETRY: Json("true" if retry else "false")}


def _record(error: str | BaseException | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(error, BaseException):
        return {"type": _storable(type(error).__qualname__), "message": _message(error)}
    if isinstance(error, Mapping):
        known = {"type": "ExternalFailure", "message": "", **error}
        arguments.name("error['type']", known["type"])
        arguments.text("error['message']", known["message"], arguments.MAX_BIGINT, may_be_blank=True)
        return {**known, "message": known["message"][:_MAX_MESSAGE]}
    if not isinstance(error, str):
        raise arguments.invalid("error", error, "an error: give its message, an exception, or a mapping with `message`")
    return {"type": "ExternalFailure", "message": _storable(error)[:_MAX_MESSAGE]}


def _message(error: BaseException) -> str:
    try:
        return _storable(str(error))[:_MAX_MESSAGE]
    except Exception as broken:
        return f"(its __str__ raised {type(broken).__name__})"


def _storable(message: str) -> str:
    """An error's text comes from elsewhere: what no store keeps is replaced, not refused."""
    return message.replace("\x00", "\\0").encode("utf-8", "replace").decode()


def answer(
    connection: Connection, token: CompletionToken, given: Mapping[str, Json], by: str, grace: float
) -> ReadyStep | None:
    """The step has its answer, and may end. None: it waits for none with this token, which the history keeps."""
    share_run(connection, token.run_id)
    row = connection.execute(_asked(token).with_for_update()).first()
    what = "/".join(name for name in (COMPLETED, FAILED) if name in given)
    if row is None:
        _note_refusal(connection, token, what, by)
        return None
    attempt = _attempt_of(row)
    item = _item(given, attempt)
    answered = _put(connection, token, attempt, item, grace)
    resume_run_status(connection, token.run_id)
    # A claim counts an attempt, and the one that will end the step is none.
    record(connection, token.run_id, token.path, f"{what}_outside", by=by, attempts=attempt - 1, item=item)
    run = connection.execute(select(runs.c.workflow, runs.c.version).where(runs.c.id == token.run_id)).one()
    return ReadyStep(token.run_id, token.path, answered, run.workflow, run.version)


def _item(given: Mapping[str, Json], attempt: int) -> Json:
    pairs = {**given, ATTEMPT: Json(str(attempt))}.items()
    return Json("{" + ",".join(f"{serialise(name)}:{value}" for name, value in pairs) + "}")


def _put(connection: Connection, token: CompletionToken, attempt: int, item: Json, grace: float) -> int:
    """Also while the function still runs: then the step goes on without it, and its end is of no account."""
    answered: int = connection.scalars(
        update(steps)
        .where(_is_asked(token))
        .values(
            status="pending", attempts=attempt - 1, execution_token=steps.c.execution_token + 1,
            timeout_token=steps.c.timeout_token + 1, due_at=None, timeout_at=None, item=item,
            ring_at=after(grace), rings=0,
        )
        .returning(steps.c.execution_token)
    ).one()  # fmt: skip
    return answered


def _attempt_of(row: Row[Any]) -> int:
    """A step that waits has given back the attempt that its claim had counted."""
    return int(row.attempts) if row.status == "running" else int(row.attempts) + 1


def _asked(token: CompletionToken) -> Any:
    columns = (steps.c.status, steps.c.attempts, steps.c.item, steps.c.timeout_at)
    return select(*columns).where(_is_asked(token))


def _is_asked(token: CompletionToken) -> Any:
    """Its attempt runs, under this token; or it waits, one further on, and its time is not up."""
    in_time = or_(steps.c.due_at.is_(None), steps.c.due_at > now())
    running = and_(steps.c.status == "running", steps.c.execution_token == token.token)
    waiting = and_(steps.c.status == "waiting", steps.c.execution_token == token.token + 1, in_time)
    whose = (steps.c.run_id == token.run_id, steps.c.path == token.path, steps.c.kind == "external")
    return and_(*whose, or_(running, waiting))


def _note_refusal(connection: Connection, token: CompletionToken, what: str, by: str) -> None:
    if connection.scalar(select(runs.c.id).where(runs.c.id == token.run_id)) is not None:
        record(connection, token.run_id, token.path, "late_answer_refused", by=by, what_came=what)


def beat(connection: Connection, token: CompletionToken, progress: Json | None) -> bool:
    """Whoever works at it outside is alive; the step waits for as long again. False: nobody waits with this token."""
    share_run(connection, token.run_id)
    row = connection.execute(_asked(token).with_for_update()).first()
    if row is None:
        return False
    values: dict[str, Any] = {"heartbeat_at": now()} | ({} if progress is None else {"progress": progress})
    seconds = (row.item or {}).get(HEARTBEAT) if row.status == "waiting" else None
    if seconds is not None:
        due = _at_most(after(seconds), row.timeout_at)
        values |= {"due_at": due, "ring_at": due, "rings": _NEVER_RUNG}
    return connection.execute(update(steps).where(_is_asked(token)).values(values)).rowcount == 1


def _at_most(time: Any, deadline: Any) -> Any:
    return time if deadline is None else case((steps.c.timeout_at < time, steps.c.timeout_at), else_=time)
