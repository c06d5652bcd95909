"""Postgres: what a flow does most, in one round trip and one commit each: a checkpoint, and beginning anew."""

from __future__ import annotations

from rival_client.history import REOPENINGS, as_json
from rival_client.hotline import HotLine, Statement, Value
from rival_client.locks import RUN_LOCK_SQL, SHARED_RUN_LOCK_SQL
from rival_client.payload import Json, serialise
from rival_client.tables import RUN_TERMINAL, STEP_TERMINAL
from rival_workers.engine.replay import Ending
from rival_workers.store.base import Held


def _list(statuses: tuple[str, ...]) -> str:
    return ", ".join(f"'{status}'" for status in statuses)


# The lock keeps the step this attempt's until the commit. What is over stays as it is, and is not told again; only
# what is told forgives earlier losses.
_RECORD = f"""
WITH held AS (
    SELECT run_id, path, executor_id FROM rival_steps
    WHERE run_id = %(run_id)s AND path = %(flow)s AND execution_token = %(token)s AND status = 'running'
      AND {SHARED_RUN_LOCK_SQL}
    FOR UPDATE
), written AS (
    INSERT INTO rival_steps AS step (run_id, path, kind, opened, begun_after, end_order, status, result, error,
                                     attempts, due_at, created_at, started_at, completed_at)
    SELECT run_id, %(path)s::text, %(kind)s::text, %(number)s::int, %(begun_after)s::int, %(end_order)s::int,
           %(status)s::text, %(result)s::json, %(error)s::json, %(attempts)s::int,
           now() + make_interval(secs => %(delay)s), now(), now(),
           CASE WHEN %(status)s::text IN ({_list(STEP_TERMINAL)}) THEN now() END
    FROM held
    ON CONFLICT (run_id, path) DO UPDATE
    SET status = excluded.status, result = excluded.result, error = excluded.error, attempts = excluded.attempts,
        completed_at = excluded.completed_at, due_at = excluded.due_at, end_order = excluded.end_order
    WHERE step.status NOT IN ({_list(STEP_TERMINAL)})
    RETURNING run_id, path, completed_at
), told AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT written.run_id, written.path, %(what)s::text, %(detail)s::json, executor_id, now() FROM written, held
), forgiven AS (
    UPDATE rival_steps step SET lost = 0 FROM held, written
    WHERE step.run_id = held.run_id AND step.path = held.path AND step.lost > 0
)
SELECT coalesce(extract(epoch FROM coalesce(
    (SELECT completed_at FROM written),
    (SELECT completed_at FROM rival_steps WHERE run_id = %(run_id)s AND path = %(path)s)
)), 0) FROM held
"""

_BELOW = "(path >= %(flow)s::text || '{0}' AND path < %(flow)s::text || '{1}')"
_HANGS_ON_IT = " OR ".join(_BELOW.format(sign, chr(ord(sign) + 1)) for sign in "/[!")
_ITS_OWN = f"(path = %(flow)s OR {_HANGS_ON_IT})"
_ITS_RUN = "run_id = %(run_id)s AND EXISTS (SELECT FROM step)"

# What other steps of the plan have gone through, and wait for, stays; so does what has happened to the whole run, and
# the knowledge of what it has had of what is for each run once. Children that have ended are no part of what is
# to come: a run that goes on for ever must not keep them all.
_CONTINUE = f"""
WITH step AS (
    UPDATE rival_steps
    SET status = 'pending', execution_token = execution_token + 1, timeout_token = timeout_token + 1,
        timeout_at = NULL, attempts = 0, lost = 0, item = %(input)s::json, due_at = NULL, rings = 0,
        ring_at = now() + make_interval(secs => %(grace)s)
    WHERE run_id = %(run_id)s AND path = %(flow)s AND execution_token = %(token)s AND status = 'running'
    RETURNING run_id, path, execution_token, executor_id, kind
), checkpoints AS (
    DELETE FROM rival_steps WHERE {_ITS_RUN} AND ({_HANGS_ON_IT})
), tries AS (
    DELETE FROM rival_attempts WHERE {_ITS_RUN} AND {_ITS_OWN}
), lines AS (
    DELETE FROM rival_logs WHERE {_ITS_RUN} AND {_ITS_OWN}
), waiting AS (
    DELETE FROM rival_waits WHERE {_ITS_RUN} AND {_ITS_OWN}
), received AS (
    DELETE FROM rival_deliveries WHERE {_ITS_RUN} AND {_ITS_OWN}
      AND NOT EXISTS (SELECT FROM rival_events WHERE id = event_id AND delivery = 'all')
), entries AS (
    DELETE FROM rival_history WHERE {_ITS_RUN} AND {_ITS_OWN} AND what NOT IN ({_list(REOPENINGS)})
), told AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, path, 'continued', json_build_object('kind', kind, 'item', %(input)s::json), executor_id, now()
    FROM step
), ended AS (
    SELECT id FROM rival_runs
    WHERE parent_run_id = %(run_id)s AND parent_path >= %(flow)s::text || '/' AND parent_path < %(flow)s::text || '0'
      AND status IN ({_list(RUN_TERMINAL)}) AND EXISTS (SELECT FROM step)
    FOR UPDATE SKIP LOCKED
), children AS (
    UPDATE rival_runs SET parent_run_id = NULL, parent_path = NULL WHERE id IN (SELECT id FROM ended)
)
SELECT execution_token FROM step
"""

LOCK_RUN = Statement.of("rival_lock_run", RUN_LOCK_SQL)
RECORD_CHECKPOINT = Statement.of("rival_record_checkpoint", _RECORD)
CONTINUE_FLOW = Statement.of("rival_continue_flow", _CONTINUE)


def record_checkpoint(hot: HotLine, held: Held, ending: Ending) -> float | None:
    mark = ending.mark
    values: dict[str, Value] = {
        **_of(held), "path": mark.path, "kind": mark.kind, "number": mark.number,
        "begun_after": mark.begun_after, "end_order": ending.end_order, "status": ending.status,
        "result": ending.result, "error": None if ending.error is None else serialise(ending.error),
        "attempts": ending.attempts, "delay": ending.delay, "what": ending.what, "detail": as_json(ending.detail),
    }  # fmt: skip
    row = hot.fetch(RECORD_CHECKPOINT, values)
    return None if row is None else float(row[0] or 0.0)


def continue_flow(hot: HotLine, held: Held, its_input: Json, grace: float) -> int | None:
    values: dict[str, Value] = {**_of(held), "input": its_input, "grace": grace}
    row = hot.fetch_in_turn(LOCK_RUN, CONTINUE_FLOW, values)
    return None if row is None else int(row[0] or 0)


def _of(held: Held) -> dict[str, Value]:
    return {"run_id": held.run_id, "flow": held.path, "token": held.token}
