-- Events: the usual delivery, to one step that waits for the event's key: one round trip and one commit.
--
-- Parameters are psql variables: set them (\set event_id …) and paste the statement into psql. 726354 and 726355 are
-- the numbers of the locks of topics and keys (rival_workers/store/sql/locks.py), 726356 that of runs.

-- name: rival_lock_event
-- A separate statement: the next one must see what was committed while this one waited.
SELECT pg_advisory_xact_lock_shared(726354, hashtext(topic)),
       pg_advisory_xact_lock(726355, hashtext(topic || E'\x1f' || key))
FROM rival_events
WHERE id = :'event_id' AND key IS NOT NULL;

-- name: rival_deliver_event
-- shortcuts: deliver_event
-- Every part depends on the step that left "waiting" under the token of its wait. The step is claimed in the same
-- statement if the executor that delivers the event knows its workflow: a wait that is over has no timeout of its own.
WITH event AS (
    SELECT e.id, e.topic, e.key, e.run_id, e.payload, e.delivery, e.expires_at
    FROM rival_events asked JOIN rival_events e ON e.topic = asked.topic AND e.key = asked.key
    WHERE asked.id = :'event_id' AND e.status = 'sent'
    ORDER BY e.created_at, e.id
    LIMIT 1
    FOR UPDATE OF e
), wait AS (
    SELECT w.run_id, w.path, w.token, r.workflow, r.version, r.input, r.labels, r.priority, r.policies,
           CASE WHEN r.error IS NULL THEN r.deadline_at END AS deadline_at,
           :'executor'::text IS NOT NULL AND r.paused_at IS NULL
             AND r.workflow || '@' || r.version = ANY(:'workflows'::text[])
             AND (SELECT coalesce(s.queue, 'default') FROM rival_steps s WHERE s.run_id = w.run_id AND s.path = w.path)
                 = ANY(:'queues'::text[]) AS claims
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
        attempts = attempts + claims::int, executor_id = CASE WHEN claims THEN :'executor' END,
        started_at = CASE WHEN claims THEN now() END,
        ring_at = CASE WHEN NOT claims THEN now() + make_interval(secs => :'grace') END,
        item = json_build_object('id', event.id, 'topic', event.topic, 'key', event.key, 'payload', event.payload)
    FROM wait, event
    WHERE s.run_id = wait.run_id AND s.path = wait.path AND s.execution_token = wait.token
      AND s.status = 'waiting' AND s.kind = 'wait' AND NOT s.paused
      AND (SELECT pg_advisory_xact_lock_shared(hashtextextended(wait.run_id::text, 726356)) IS NOT NULL)
    RETURNING s.run_id, s.path, s.execution_token, s.timeout_token, s.attempts, s.lost, s.item, event.id AS event_id,
              s.queue, s.priority
), ended_wait AS (
    DELETE FROM rival_waits w USING step WHERE w.run_id = step.run_id AND w.path = step.path
), consumed AS (
    UPDATE rival_events e SET status = 'consumed', ring_at = NULL FROM step WHERE e.id = step.event_id
), delivered AS (
    INSERT INTO rival_deliveries (event_id, run_id, path, at) SELECT event_id, run_id, path, now() FROM step
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, path, what, detail, CASE WHEN what = 'claimed' THEN :'executor' ELSE 'event ' || event_id END, now()
    FROM (SELECT step.*, wait.claims FROM step CROSS JOIN wait) AS ready, LATERAL (VALUES
        ('event', json_build_object('topic', item -> 'topic', 'key', item -> 'key')),
        ('woken', json_build_object('item', item)),
        ('claimed', json_build_object('attempt', attempts))
    ) AS entry (what, detail)
    WHERE what <> 'claimed' OR claims
), resumed AS (
    UPDATE rival_runs r SET status = 'running' FROM step WHERE r.id = step.run_id AND r.status = 'suspended'
)
SELECT step.run_id, step.path, step.execution_token, wait.workflow, wait.version, wait.claims,
       step.timeout_token, step.attempts, step.lost, wait.input, step.item, wait.labels,
       extract(epoch FROM wait.deadline_at), extract(epoch FROM wait.deadline_at - now()), wait.priority, step.queue,
       coalesce(step.priority, wait.priority), wait.policies
FROM step CROSS JOIN wait;
