"""Postgres: the usual delivery of an event, to one step that waits for its key, in one round trip and one commit."""

from __future__ import annotations

from rival_client.db.locks import SHARED_RUN_LOCK_SQL
from rival_client.db.prepared import PreparedPool, Statement, Value
from rival_client.model.payload import load
from rival_client.sql.wake import ReadyStep
from rival_workers.store.interface import ClaimBy, Claimed, Delivered
from rival_workers.store.sql.locks import BETWEEN, KEYS, TOPICS

# The lock is a statement of its own: what follows must see what was committed while it was waited for.
_LOCK = f"""
SELECT pg_advisory_xact_lock_shared({TOPICS}, hashtext(topic)),
       pg_advisory_xact_lock({KEYS}, hashtext(topic || E'\\x{ord(BETWEEN):02x}' || key))
FROM rival_events
WHERE id = %(event_id)s AND key IS NOT NULL
"""

# All but the event itself hangs on the step that has left "waiting" under its wait's token. It is claimed in the same
# statement if whoever delivers can go on with it: a wait that is over has no timeout of its own.
_DELIVER = f"""
WITH event AS (
    SELECT e.id, e.topic, e.key, e.run_id, e.payload, e.delivery, e.expires_at
    FROM rival_events asked JOIN rival_events e ON e.topic = asked.topic AND e.key = asked.key
    WHERE asked.id = %(event_id)s AND e.status = 'sent'
    ORDER BY e.created_at, e.id
    LIMIT 1
    FOR UPDATE OF e
), wait AS (
    SELECT w.run_id, w.path, w.token, r.workflow, r.version, r.input,
           %(executor)s::text IS NOT NULL AND r.paused_at IS NULL
             AND r.workflow || '@' || r.version = ANY(%(workflows)s::text[]) AS claims
    FROM event e JOIN rival_waits w ON w.topic = e.topic AND w.key = e.key JOIN rival_runs r ON r.id = w.run_id
    WHERE e.delivery = 'one' AND w.created_at <= e.expires_at
      AND (e.run_id IS NULL OR e.run_id = w.run_id) AND (w.filter IS NULL OR e.payload::jsonb @> w.filter)
      AND NOT EXISTS (SELECT 1 FROM rival_waits any_key WHERE any_key.topic = e.topic AND any_key.key IS NULL)
    ORDER BY w.created_at, w.run_id, w.path
    LIMIT 1
), step AS (
    UPDATE rival_steps s
    SET status = CASE WHEN claims THEN 'running' ELSE 'pending' END, due_at = NULL, rings = 0, parked = NULL,
        execution_token = execution_token + 1, timeout_token = timeout_token + claims::int,
        attempts = attempts + claims::int, executor_id = CASE WHEN claims THEN %(executor)s END,
        started_at = CASE WHEN claims THEN now() END,
        ring_at = CASE WHEN NOT claims THEN now() + make_interval(secs => %(grace)s) END,
        item = json_build_object('id', event.id, 'topic', event.topic, 'key', event.key, 'payload', event.payload)
    FROM wait, event
    WHERE s.run_id = wait.run_id AND s.path = wait.path AND s.execution_token = wait.token
      AND s.status = 'waiting' AND s.kind = 'wait' AND NOT s.paused
      AND {SHARED_RUN_LOCK_SQL.replace("%(run_id)s", "wait.run_id")}
    RETURNING s.run_id, s.path, s.execution_token, s.timeout_token, s.attempts, s.lost, s.item, event.id AS event_id
), forgotten AS (
    DELETE FROM rival_waits w USING step WHERE w.run_id = step.run_id AND w.path = step.path
), consumed AS (
    UPDATE rival_events e SET status = 'consumed', ring_at = NULL FROM step WHERE e.id = step.event_id
), delivered AS (
    INSERT INTO rival_deliveries (event_id, run_id, path, at) SELECT event_id, run_id, path, now() FROM step
), told AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, path, what, detail, CASE WHEN what = 'claimed' THEN %(executor)s ELSE 'event ' || event_id END, now()
    FROM (SELECT step.*, wait.claims FROM step CROSS JOIN wait) AS woken, LATERAL (VALUES
        ('event', json_build_object('topic', item -> 'topic', 'key', item -> 'key')),
        ('resumed', json_build_object('item', item)),
        ('claimed', json_build_object('attempt', attempts))
    ) AS told (what, detail)
    WHERE what <> 'claimed' OR claims
), awake AS (
    UPDATE rival_runs r SET status = 'running' FROM step WHERE r.id = step.run_id AND r.status = 'suspended'
)
SELECT step.run_id, step.path, step.execution_token, wait.workflow, wait.version, wait.claims,
       step.timeout_token, step.attempts, step.lost, wait.input, step.item
FROM step CROSS JOIN wait
"""

LOCK_EVENT = Statement.of("rival_lock_event", _LOCK)
DELIVER_EVENT = Statement.of("rival_deliver_event", _DELIVER)


def deliver(hot: PreparedPool, event_id: str, claim: ClaimBy | None, grace: float) -> Delivered | None:
    """None: it is not the usual case, and the long way finds out which."""
    executor = None if claim is None else claim.executor
    values: dict[str, Value] = {"event_id": event_id, "grace": grace, "executor": executor, "workflows": _array(claim)}
    row = hot.fetch_in_turn(LOCK_EVENT, DELIVER_EVENT, values)
    if row is None:
        return None
    run_id, path, token, workflow, version, claims = (text or "" for text in row[:6])
    if claims != "t":
        return Delivered((ReadyStep(run_id, path, int(token), workflow, version),))
    timeout_token, attempts, lost = (int(text or 0) for text in row[6:9])
    claimed = Claimed(run_id, path, int(token), timeout_token, attempts, lost, load(row[9]), "wait", load(row[10]))
    return Delivered((), claimed, workflow, version)


def _array(claim: ClaimBy | None) -> str:
    """In Postgres' own form, which quotes as JSON does what a name may have."""
    names = () if claim is None else (f"{name}@{version}" for name, version in claim.workflows)
    return "{" + ",".join('"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"' for name in names) + "}"
