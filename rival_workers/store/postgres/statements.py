"""Postgres: the hot operations as statements of several data-modifying parts, each one transaction.

The guard is the first part, and the others take their rows from what that part returned, so that a stale token changes
nothing at all. One of the parts tells the history.
"""

from __future__ import annotations

from rival_client.db.locks import SHARED_RUN_LOCK_SQL
from rival_client.db.prepared import Statement
from rival_workers.store.sql.step_transitions import EARLY

_CLAIMED_STEP = """
    INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at)
    SELECT {source}, {path}, %(next_kind)s, 'running', 1, 1, 1, %(executor)s, now(), now(),
           now() + make_interval(secs => %(timeout)s), now() + make_interval(secs => %(timeout)s)
    FROM {table}
"""
_OPENED_STEP = """
    INSERT INTO rival_steps (run_id, path, kind, status, created_at, ring_at)
    SELECT run_id, {path}, %(next_kind)s, 'pending', now(), now() + make_interval(secs => %(grace)s)
    FROM {table}
"""
_NEXT = "%(next_path)s"
# What the statement has done, one entry each, in this order.
_TELL = """
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT {source}, told.path, told.what, told.detail, {actor}, now()
    FROM {table}, LATERAL (VALUES {entries}) AS told (path, what, detail)
"""
_ENDED = "(%(path)s, %(status)s::text, json_build_object('result', %(result)s::json, 'state', %(state)s::json))"
_TOLD_NEXT = "({path}, '{what}', json_build_object('kind', %(next_kind)s::text{more}))"
_CLAIMED_NEXT = _TOLD_NEXT.format(path=_NEXT, what="claimed", more=", 'attempt', 1")
_SCHEDULED_NEXT = _TOLD_NEXT.format(path=_NEXT, what="scheduled", more="")
_STARTED = "(NULL, 'started', json_build_object('workflow', workflow, 'version', version, 'input', input))"
_RUN_COMPLETED = "(NULL, 'completed', json_build_object('result', %(result)s::json))"


def _tell(*entries: str, table: str = "done", source: str = "run_id", actor: str = "executor_id") -> str:
    return _TELL.format(entries=", ".join(entries), table=table, source=source, actor=actor)


# A message is untrusted: it names the workflow whose code would run, and the row must name the same.
_IS_OF = "(%(workflow)s::text IS NULL OR ({run}.workflow = %(workflow)s::text AND {run}.version = %(version)s::text))"

_BEGIN_RUN = f"""
WITH run AS (
    UPDATE rival_runs
    SET status = 'running', started_at = now(), token = token + 1, ring_at = NULL, rings = 0, parked = NULL
    WHERE id = %(run_id)s AND token = %(token)s AND status = 'pending' AND paused_at IS NULL
      AND {_IS_OF.format(run="rival_runs")}
    RETURNING id, workflow, version, input
), step AS ({_CLAIMED_STEP.format(source="id", path=_NEXT, table="run")}
), told AS ({_tell(_STARTED, _CLAIMED_NEXT, table="run", source="id", actor="%(executor)s")})
SELECT input, NULL, NULL FROM run
UNION ALL
SELECT NULL, workflow, version FROM rival_runs
WHERE id = %(run_id)s AND NOT EXISTS (SELECT FROM run) AND NOT {_IS_OF.format(run="rival_runs")}
"""

_CLAIM = f"""
WITH claimed AS (
    UPDATE rival_steps step
    SET status = 'running', attempts = attempts + 1, executor_id = %(executor)s, started_at = now(),
        execution_token = execution_token + 1, timeout_token = timeout_token + 1, rings = 0, parked = NULL,
        timeout_at = now() + make_interval(secs => %(timeout)s), ring_at = now() + make_interval(secs => %(timeout)s)
    FROM rival_runs run
    WHERE step.run_id = %(run_id)s AND path = %(path)s AND execution_token = %(token)s
      AND step.status IN ('pending', 'waiting_retry')
      AND (due_at IS NULL OR due_at <= now() + interval '{EARLY} s')
      AND run.id = step.run_id AND run.status IN ('pending', 'running', 'suspended')
      AND NOT step.paused AND run.paused_at IS NULL AND {_IS_OF.format(run="run")}
    RETURNING step.run_id, execution_token, timeout_token, attempts, lost, input, kind
), told AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, %(path)s, 'claimed', json_build_object('attempt', attempts), %(executor)s, now() FROM claimed
)
SELECT execution_token, timeout_token, attempts, lost, input, kind FROM claimed
"""

_DONE = f"""
WITH done AS (
    UPDATE rival_steps
    SET status = %(status)s, result = %(result)s::json, state = %(state)s::json, completed_at = now(),
        execution_token = execution_token + 1, timeout_token = timeout_token + 1, timeout_at = NULL, ring_at = NULL
    WHERE run_id = %(run_id)s AND path = %(path)s AND execution_token = %(token)s AND status = 'running' AND NOT paused
      AND {SHARED_RUN_LOCK_SQL}
    RETURNING run_id, executor_id
), told AS ({{told}})
"""

_FINISH_AND_CLAIM = f"""{_DONE.format(told=_tell(_ENDED, _CLAIMED_NEXT))}
    {_CLAIMED_STEP.format(source="run_id", path=_NEXT, table="done")} RETURNING 1
"""

_FINISH_AND_OPEN = f"""{_DONE.format(told=_tell(_ENDED, _SCHEDULED_NEXT))}
    {_OPENED_STEP.format(path=_NEXT, table="done")} RETURNING 1
"""

_FINISH_AND_COMPLETE = f"""{_DONE.format(told=_tell(_ENDED, _RUN_COMPLETED))}
    UPDATE rival_runs
    SET status = 'completed', result = %(result)s::json, completed_at = now(), token = token + 1, ring_at = NULL
    FROM done
    WHERE id = done.run_id AND status IN ('running', 'suspended')
    RETURNING 1
"""


# A lane of a for_each ends and takes the next item. The composite is locked before anything is written, after the
# step itself: from the leaf up, as everywhere. When it was the last lane nothing is found, and the long way is taken.
_LANE = """
WITH held AS (
    SELECT run_id, executor_id FROM rival_steps
    WHERE run_id = %(run_id)s AND path = %(path)s AND execution_token = %(token)s AND status = 'running' AND NOT paused
      AND {run_lock}
    FOR UPDATE
), lane AS (
    SELECT composite.run_id, held.executor_id, composite.opened, composite.opened < composite.total AS goes_on
    FROM rival_steps composite JOIN held USING (run_id)
    WHERE composite.path = %(join)s AND composite.status = 'waiting' AND composite.remaining > 1
    FOR UPDATE OF composite
), joined AS (
    UPDATE rival_steps composite
    SET remaining = remaining - 1, opened = composite.opened + goes_on::int
    FROM lane WHERE composite.run_id = lane.run_id AND composite.path = %(join)s
), ended AS (
    UPDATE rival_steps step
    SET status = CASE WHEN path = %(path)s THEN %(status)s ELSE 'completed' END, result = %(result)s::json,
        state = CASE WHEN path = %(path)s THEN %(state)s::json END, completed_at = now(),
        execution_token = execution_token + 1, timeout_token = timeout_token + 1, timeout_at = NULL, ring_at = NULL
    FROM lane WHERE step.run_id = lane.run_id AND step.path IN (%(path)s, %(item)s)
), next AS ({next} WHERE goes_on
), told AS ({told} WHERE goes_on OR told.what NOT IN ('claimed', 'scheduled'))
SELECT CASE WHEN goes_on THEN opened END FROM lane
"""
_NEXT_ITEM = "%(join)s || '[' || opened || %(next_path)s"
_ITEM_ENDED = "(%(item)s, 'completed', json_build_object('result', %(result)s::json))"
_FINISH_LANE_AND_CLAIM = _LANE.format(
    run_lock=SHARED_RUN_LOCK_SQL,
    next=_CLAIMED_STEP.format(source="run_id", path=_NEXT_ITEM, table="lane"),
    told=_tell(_ENDED, _ITEM_ENDED, _CLAIMED_NEXT.replace(_NEXT, _NEXT_ITEM), table="lane"),
)
_FINISH_LANE_AND_OPEN = _LANE.format(
    run_lock=SHARED_RUN_LOCK_SQL,
    next=_OPENED_STEP.format(path=_NEXT_ITEM, table="lane"),
    told=_tell(_ENDED, _ITEM_ENDED, _SCHEDULED_NEXT.replace(_NEXT, _NEXT_ITEM), table="lane"),
)

BEGIN_RUN = Statement.of("rival_begin_run", _BEGIN_RUN)
READ_ITEM = Statement.of(
    "rival_read_item", "SELECT item FROM rival_steps WHERE run_id = %(run_id)s AND path = %(path)s"
)
CLAIM_STEP = Statement.of("rival_claim_step", _CLAIM)
FINISH_AND_CLAIM = Statement.of("rival_finish_and_claim", _FINISH_AND_CLAIM)
FINISH_AND_OPEN = Statement.of("rival_finish_and_open", _FINISH_AND_OPEN)
FINISH_AND_COMPLETE = Statement.of("rival_finish_and_complete", _FINISH_AND_COMPLETE)
FINISH_LANE_AND_CLAIM = Statement.of("rival_finish_lane_and_claim", _FINISH_LANE_AND_CLAIM)
FINISH_LANE_AND_OPEN = Statement.of("rival_finish_lane_and_open", _FINISH_LANE_AND_OPEN)
