"""Postgres: the usual delivery of an event, to one step that waits for its key, in one short transaction."""

from __future__ import annotations

from rival_client.hotline import HotLine, Statement
from rival_client.waking import Woken
from rival_workers.store.eventing import BETWEEN, KEYS, TOPICS

# The lock is a statement of its own: what follows must see what was committed while it was waited for.
_LOCK = f"""
SELECT pg_advisory_xact_lock_shared({TOPICS}, hashtext(topic)),
       pg_advisory_xact_lock({KEYS}, hashtext(topic || E'\\x{ord(BETWEEN):02x}' || key))
FROM rival_events
WHERE id = %(event_id)s AND status = 'sent' AND delivery = 'one' AND key IS NOT NULL
"""

_DELIVER = """
WITH event AS (
    SELECT id, topic, key, run_id, payload FROM rival_events WHERE id = %(event_id)s AND status = 'sent' FOR UPDATE
), wait AS (
    SELECT w.run_id, w.path, w.token
    FROM event e JOIN rival_waits w ON w.topic = e.topic AND w.key = e.key
    WHERE (e.run_id IS NULL OR e.run_id = w.run_id) AND (w.filter IS NULL OR e.payload @> w.filter)
      AND NOT EXISTS (SELECT 1 FROM rival_waits any_key WHERE any_key.topic = e.topic AND any_key.key IS NULL)
    ORDER BY w.created_at, w.run_id, w.path
    LIMIT 1
), step AS (
    UPDATE rival_steps s
    SET status = 'pending', due_at = NULL, rings = 0, execution_token = execution_token + 1,
        ring_at = now() + make_interval(secs => %(grace)s),
        item = jsonb_build_object('id', event.id, 'topic', event.topic, 'key', event.key, 'payload', event.payload)
    FROM wait, event
    WHERE s.run_id = wait.run_id AND s.path = wait.path AND s.execution_token = wait.token
      AND s.status = 'waiting' AND s.kind = 'wait'
    RETURNING s.run_id, s.path, s.execution_token
), forgotten AS (
    DELETE FROM rival_waits w USING step WHERE w.run_id = step.run_id AND w.path = step.path
), consumed AS (
    UPDATE rival_events SET status = 'consumed', ring_at = NULL FROM step WHERE id = %(event_id)s
), delivered AS (
    INSERT INTO rival_deliveries (event_id, run_id, path, at) SELECT %(event_id)s, run_id, path, now() FROM step
), run AS (
    UPDATE rival_runs r SET status = 'running' FROM step
    WHERE r.id = step.run_id AND r.status IN ('running', 'suspended')
    RETURNING r.id, r.workflow, r.version
)
SELECT step.run_id, step.path, step.execution_token, run.workflow, run.version
FROM step JOIN run ON run.id = step.run_id
"""

LOCK_EVENT = Statement.of("rival_lock_event", _LOCK)
DELIVER_EVENT = Statement.of("rival_deliver_event", _DELIVER)


def deliver(hot: HotLine, event_id: str, grace: float) -> Woken | None:
    """None: it is not the usual case, and the long way finds out which."""
    row = hot.fetch_in_turn(LOCK_EVENT, DELIVER_EVENT, {"event_id": event_id, "grace": grace})
    if row is None:
        return None
    run_id, path, token, workflow, version = (text or "" for text in row)
    return Woken(run_id, path, int(token), workflow, version)
