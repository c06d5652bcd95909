"""Postgres: what a flow does most, in one round trip and one commit each: a checkpoint, and beginning anew."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rival_client.db.locks import RUN_LOCK_SQL, SHARED_RUN_LOCK_SQL
from rival_client.db.prepared import PreparedPool, Statement, Value
from rival_client.db.tables import RUN_TERMINAL, STEP_TERMINAL
from rival_client.model.payload import Json, load, serialise
from rival_client.sql.history import REOPENINGS, as_json
from rival_workers.engine.replay import Checkpoint, CheckpointWrite
from rival_workers.store.flow_records import EARLY, FlowCommit, FlowProgress, StoredFlow
from rival_workers.store.interface import Claim


def _list(statuses: tuple[str, ...]) -> str:
    return ", ".join(f"'{status}'" for status in statuses)


# The lock keeps the step this attempt's until the commit. What is over stays as it is, and is not told again; only
# what is told forgives earlier losses, and has the flow's state with it. A state that has not changed is NULL: then the
# flow's row is not written.
_RECORD = f"""
WITH held AS (
    SELECT run_id, path, executor_id FROM rival_steps
    WHERE run_id = %(run_id)s AND path = %(flow)s AND execution_token = %(token)s AND status = 'running' AND NOT paused
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
), flow AS (
    UPDATE rival_steps step SET lost = 0, state = coalesce(%(state)s::json, step.state) FROM held, written
    WHERE step.run_id = held.run_id AND step.path = held.path AND (step.lost > 0 OR %(state)s::json IS NOT NULL)
)
SELECT coalesce(extract(epoch FROM coalesce(
    (SELECT completed_at FROM written),
    (SELECT completed_at FROM rival_steps WHERE run_id = %(run_id)s AND path = %(path)s)
)), 0) FROM held
"""

# The same for several steps that ended beside one another. What is there already stays, and is counted by the caller.
_END_STEPS = f"""
WITH held AS (
    SELECT run_id, path, executor_id FROM rival_steps
    WHERE run_id = %(run_id)s AND path = %(flow)s AND execution_token = %(token)s AND status = 'running' AND NOT paused
      AND {SHARED_RUN_LOCK_SQL}
    FOR UPDATE
), ending AS (
    SELECT * FROM json_to_recordset(%(endings)s::json) AS one (
        path text, kind text, number int, begun_after int, end_order int, status text, result json, error json,
        attempts int, what text, detail json, flow_state json
    )
), written AS (
    INSERT INTO rival_steps (run_id, path, kind, opened, begun_after, end_order, status, result, error, attempts,
                             created_at, started_at, completed_at)
    SELECT run_id, ending.path, kind, number, begun_after, end_order, status,
           CASE WHEN error IS NULL THEN coalesce(result, 'null') END, error, attempts, now(), now(), now()
    FROM held, ending
    ON CONFLICT (run_id, path) DO NOTHING
    RETURNING run_id, path
), told AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT written.run_id, written.path, what, detail, executor_id, now()
    FROM written JOIN ending ON ending.path = written.path CROSS JOIN held
    ORDER BY end_order
), stated AS (
    SELECT flow_state FROM written JOIN ending ON ending.path = written.path WHERE flow_state IS NOT NULL
), flow AS (
    UPDATE rival_steps step SET lost = 0, state = coalesce((SELECT flow_state FROM stated), step.state) FROM held
    WHERE step.run_id = held.run_id AND step.path = held.path AND EXISTS (SELECT FROM written)
      AND (step.lost > 0 OR EXISTS (SELECT FROM stated))
)
SELECT extract(epoch FROM now()), (SELECT count(*) FROM written) FROM held
"""

# A flow that waits for one checkpoint receives its end. The checkpoint is locked before the flow: see `flow_commits`.
_RECEIVE = f"""
WITH leaf AS (
    SELECT run_id, path, status = 'waiting' AS is_due FROM rival_steps
    WHERE run_id = %(run_id)s AND path = %(path)s AND end_order IS NULL AND opened IS NOT NULL
      AND {SHARED_RUN_LOCK_SQL}
      AND (status IN ('completed', 'skipped', 'failed') OR (
        status = 'waiting' AND kind = 'sleep' AND due_at <= now() + make_interval(secs => {EARLY})))
    FOR UPDATE
), held AS (
    SELECT flow.run_id, flow.path, flow.executor_id FROM leaf CROSS JOIN rival_steps flow
    WHERE flow.run_id = %(run_id)s AND flow.path = %(flow)s AND flow.execution_token = %(token)s
      AND flow.status = 'running' AND NOT flow.paused
    FOR UPDATE OF flow
), received AS (
    UPDATE rival_steps step
    SET end_order = %(end_order)s::int, status = CASE WHEN is_due THEN 'completed' ELSE status END,
        completed_at = coalesce(completed_at, now()), execution_token = execution_token + is_due::int
    FROM leaf, held
    WHERE step.run_id = leaf.run_id AND step.path = leaf.path
    RETURNING step.run_id, step.path, step.kind, step.status, step.opened, step.attempts, step.result, step.error,
              step.completed_at, step.item, is_due, held.executor_id
), told AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, path, CASE WHEN is_due THEN 'completed' ELSE 'received' END,
           %(detail)s::json, executor_id, now()
    FROM received
), flow AS (
    UPDATE rival_steps step SET lost = 0, state = coalesce(%(state)s::json, step.state) FROM held, received
    WHERE step.run_id = held.run_id AND step.path = held.path AND (step.lost > 0 OR %(state)s::json IS NOT NULL)
)
SELECT path, kind, status, opened, attempts, result, error, extract(epoch FROM completed_at) FROM received
"""

# All of them as one value: a row for each would be read column by column.
_READ_CHECKPOINTS = """
SELECT (SELECT state FROM rival_steps WHERE run_id = %(run_id)s AND path = %(flow)s), (
    SELECT json_agg(json_build_array(
        path, kind, status, opened, attempts, result, error, extract(epoch FROM due_at - now()), end_order,
        extract(epoch FROM completed_at), CASE WHEN json_typeof(item) = 'string' THEN item END
    ))
    FROM rival_steps
    WHERE run_id = %(run_id)s AND path > %(flow)s::text || '/' AND path < %(flow)s::text || '0' AND opened IS NOT NULL
)
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
        ring_at = now() + make_interval(secs => %(grace)s), state = coalesce(%(state)s::json, state)
    WHERE run_id = %(run_id)s AND path = %(flow)s AND execution_token = %(token)s AND status = 'running'
    RETURNING run_id, path, execution_token, executor_id, kind, state
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
    SELECT run_id, path, 'continued', CASE
        WHEN state IS NULL THEN json_build_object('kind', kind, 'item', %(input)s::json)
        ELSE json_build_object('kind', kind, 'item', %(input)s::json, 'state', state)
    END, executor_id, now()
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
READ_CHECKPOINTS = Statement.of("rival_read_checkpoints", _READ_CHECKPOINTS)
RECORD_CHECKPOINT = Statement.of("rival_record_checkpoint", _RECORD)
END_STEPS = Statement.of("rival_end_steps", _END_STEPS)
RECEIVE_END = Statement.of("rival_receive_end", _RECEIVE)
CONTINUE_FLOW = Statement.of("rival_continue_flow", _CONTINUE)


def read_checkpoints(hot: PreparedPool, run_id: str, flow: str) -> StoredFlow:
    row = hot.fetch(READ_CHECKPOINTS, {"run_id": run_id, "flow": flow})
    assert row is not None, "it has no FROM"
    return StoredFlow([Checkpoint(*columns) for columns in load(row[1]) or ()], load(row[0]))


def record_checkpoint(hot: PreparedPool, claim: Claim, ending: CheckpointWrite, state: Json | None) -> float | None:
    mark = ending.mark
    values: dict[str, Value] = {
        **_of(claim), "path": mark.path, "kind": mark.kind, "number": mark.number,
        "begun_after": mark.begun_after, "end_order": ending.end_order, "status": ending.status,
        "result": ending.result, "error": None if ending.error is None else serialise(ending.error),
        "attempts": ending.attempts, "delay": ending.delay, "what": ending.what,
        "detail": as_json({**ending.detail, "state": state}), "state": state,
    }  # fmt: skip
    row = hot.fetch(RECORD_CHECKPOINT, values)
    return None if row is None else float(row[0] or 0.0)


def end_steps(hot: PreparedPool, claim: Claim, commit: FlowCommit) -> FlowProgress | None:
    """None: the flow has moved on, or an earlier try has written some of them; the long way finds out."""
    in_order = sorted(commit.endings, key=lambda one: (-one.ago, one.mark.path))
    numbered = [replace(one, end_order=order) for order, one in enumerate(in_order, start=commit.next_order)]
    states = (commit.state, *(None for _ in numbered[1:]))
    given = "[" + ",".join(as_json(_row(*one)) for one in zip(numbered, states, strict=True)) + "]"
    row = hot.fetch(END_STEPS, {**_of(claim), "endings": given})
    if row is None or int(row[1] or 0) != len(numbered):
        return None
    ended_at = float(row[0] or 0.0)
    return FlowProgress(tuple(_checkpoint(one, ended_at) for one in numbered))


def receive_end(hot: PreparedPool, claim: Claim, path: str, commit: FlowCommit) -> FlowProgress | None:
    """None: it has not ended, an earlier try has received it, or the flow has moved on."""
    end_order, state = commit.next_order, commit.state
    detail = as_json({"end_order": end_order, "state": state})
    values = {**_of(claim), "path": path, "end_order": end_order, "detail": detail, "state": state}
    row = hot.fetch(RECEIVE_END, values)
    if row is None:
        return None
    found, kind, status, number, attempts = row[:5]
    received = Checkpoint(
        found or "", kind or "", status or "", int(number or 0), int(attempts or 0), load(row[5]), load(row[6]),
        end_order=end_order, ended_at=float(row[7] or 0.0),
    )  # fmt: skip
    return FlowProgress((received,))


def _row(ending: CheckpointWrite, flow_state: Json | None) -> dict[str, Any]:
    mark, detail = ending.mark, {**ending.detail, "state": flow_state}
    return {
        "path": mark.path, "kind": mark.kind, "number": mark.number, "begun_after": mark.begun_after,
        "end_order": ending.end_order, "status": ending.status, "result": ending.result, "error": ending.error,
        "attempts": ending.attempts, "what": ending.what, "detail": as_json(detail), "flow_state": flow_state,
    }  # fmt: skip


def _checkpoint(ending: CheckpointWrite, ended_at: float) -> Checkpoint:
    mark = ending.mark
    return Checkpoint(
        mark.path, mark.kind, ending.status, mark.number, ending.attempts, load(ending.result), ending.error,
        end_order=ending.end_order, ended_at=ended_at,
    )  # fmt: skip


def continue_flow(hot: PreparedPool, claim: Claim, its_input: Json, state: Json | None, grace: float) -> int | None:
    values: dict[str, Value] = {**_of(claim), "input": its_input, "state": state, "grace": grace}
    row = hot.fetch_in_turn(LOCK_RUN, CONTINUE_FLOW, values)
    return None if row is None else int(row[0] or 0)


def _of(claim: Claim) -> dict[str, Value]:
    return {"run_id": claim.run_id, "flow": claim.path, "token": claim.token}
