-- Events in groups: what events.sql does for one event, for many in one statement. They share the commit of a group, see
-- groups.sql. 726354 and 726355 are the numbers of the locks of topics and keys (rival_workers/store/sql/locks.py),
-- 726356 that of runs.

-- name: rival_lock_events
-- A separate statement: the next one must see what was committed before this one had the locks. A group does not wait
-- for the locks of topics, which are taken first: an event whose key is locked is delivered alone. The next statement
-- reads the numbers of the locked events. Returns no row.
WITH asked AS MATERIALIZED (
    SELECT given.number, event.topic, event.key
    FROM unnest(:'event_ids'::text[]) WITH ORDINALITY AS given (event_id, number)
    JOIN rival_events event ON event.id = given.event_id
    WHERE event.key IS NOT NULL AND set_config('lock_timeout', '100ms', true) IS NOT NULL
), locked AS (
    SELECT coalesce(array_agg(number), '{}')::text AS numbers FROM asked
    WHERE pg_try_advisory_xact_lock_shared(726354, hashtext(topic))
      AND pg_try_advisory_xact_lock(726355, hashtext(topic || E'\x1f' || key))
)
SELECT FROM locked WHERE set_config('rival.locked_events', numbers, true) IS NULL;

-- part: oldest_waits
-- The oldest of several events with the same topic and key, and the wait that it matches. Empty if a step waits for any
-- key. With BETWEEN, the key is part of the order, which only the index by key has: a plan made while the table was
-- empty could use the index of all events by time.
given AS MATERIALIZED (
    SELECT asked.topic, asked.key, min(given.number) AS number
    FROM unnest(:'event_ids'::text[]) WITH ORDINALITY AS given (event_id, number)
    JOIN rival_events asked ON asked.id = given.event_id
    WHERE given.number = ANY(current_setting('rival.locked_events', true)::bigint[])
    GROUP BY asked.topic, asked.key
), event AS MATERIALIZED (
    SELECT given.number, oldest.*
    FROM given CROSS JOIN LATERAL (
        SELECT e.id, e.topic, e.key, e.run_id, e.payload, e.delivery, e.expires_at
        FROM rival_events e
        WHERE e.topic = given.topic AND e.key BETWEEN given.key AND given.key AND e.status = 'sent'
        ORDER BY e.key, e.created_at, e.id
        LIMIT 1
        FOR UPDATE
    ) AS oldest
    WHERE NOT EXISTS (SELECT FROM rival_waits any_key WHERE any_key.topic = given.topic AND any_key.key IS NULL)
), oldest AS MATERIALIZED (
    SELECT event.*, first.run_id AS waiting, first.path, first.token
    FROM event CROSS JOIN LATERAL (
        SELECT w.run_id, w.path, w.token
        FROM rival_waits w
        WHERE w.topic = event.topic AND w.key = event.key AND w.created_at <= event.expires_at
          AND (event.run_id IS NULL OR event.run_id = w.run_id)
          AND (w.filter IS NULL OR event.payload::jsonb @> w.filter)
        ORDER BY w.created_at, w.run_id, w.path
        LIMIT 1
    ) AS first
    WHERE event.delivery = 'one'
    ORDER BY first.run_id, first.path
)

-- name: rival_deliver_events
-- joins: deliver_event
-- Runs that an operator has locked are left to the single path, and so are the other events of a key. A step is claimed
-- if the executor knows its workflow.
WITH :{oldest_waits}, wait AS MATERIALIZED (
    SELECT oldest.waiting AS run_id, oldest.path, oldest.token, oldest.number, oldest.id AS event_id, r.workflow,
           r.version, r.input, r.labels, r.priority, r.policies,
           CASE WHEN r.error IS NULL THEN r.deadline_at END AS deadline_at,
           json_build_object('id', oldest.id, 'topic', oldest.topic, 'key', oldest.key, 'payload', oldest.payload)
             AS item,
           r.paused_at IS NULL AND r.workflow || '@' || r.version = ANY((:'workflows'::text)::text[]) AS claims
    FROM oldest JOIN rival_runs r ON r.id = oldest.waiting
    WHERE pg_try_advisory_xact_lock_shared(hashtextextended(oldest.waiting, 726356))
), step AS (
    UPDATE rival_steps s
    SET status = CASE WHEN here THEN 'running' ELSE 'pending' END, due_at = NULL, rings = 0, parked = NULL,
        execution_token = execution_token + 1, timeout_token = timeout_token + here::int,
        attempts = attempts + here::int, executor_id = CASE WHEN here THEN :'executor' END,
        started_at = CASE WHEN here THEN now() END,
        ring_at = CASE WHEN NOT here THEN now() + make_interval(secs => :'grace') END, item = wait.item
    FROM (SELECT wait.*, claims AND coalesce(its.queue, 'default') = ANY((:'queues'::text)::text[]) AS here
          FROM wait JOIN rival_steps its ON its.run_id = wait.run_id AND its.path = wait.path) AS wait
    WHERE s.run_id = wait.run_id AND s.path = wait.path AND s.execution_token = wait.token
      AND (s.status = 'waiting') IS TRUE AND s.kind = 'wait' AND NOT s.paused
    RETURNING s.run_id, s.path, s.execution_token, s.timeout_token, s.attempts, s.lost, s.item, s.queue, s.priority,
              wait.number, wait.event_id, wait.here
), ended_wait AS (
    DELETE FROM rival_waits w USING step WHERE w.run_id = step.run_id AND w.path = step.path
), consumed AS (
    UPDATE rival_events e SET status = 'consumed', ring_at = NULL FROM step WHERE e.id = step.event_id
), delivered AS (
    INSERT INTO rival_deliveries (event_id, run_id, path, at) SELECT event_id, run_id, path, now() FROM step
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, path, what, detail, CASE WHEN what = 'claimed' THEN :'executor' ELSE 'event ' || event_id END, now()
    FROM step, LATERAL (VALUES
        ('event', json_build_object('topic', item -> 'topic', 'key', item -> 'key'), 1),
        ('woken', json_build_object('item', item), 2),
        ('claimed', json_build_object('attempt', attempts), 3)
    ) AS entry (what, detail, place)
    WHERE what <> 'claimed' OR here
    ORDER BY number, place
), resumed AS (
    UPDATE rival_runs r SET status = 'running' FROM step WHERE r.id = step.run_id AND (r.status = 'suspended') IS TRUE
), others AS MATERIALIZED (
    -- The next statement delivers only these.
    SELECT set_config('rival.locked_events', coalesce(array_agg(number), '{}')::text, true)
    FROM unnest(current_setting('rival.locked_events', true)::bigint[]) AS locked (number)
    WHERE number NOT IN (SELECT number FROM step)
)
SELECT step.number, step.run_id, step.path, step.execution_token, wait.workflow, wait.version, step.here,
       step.timeout_token, step.attempts, step.lost, wait.input, step.item, wait.labels,
       extract(epoch FROM wait.deadline_at), extract(epoch FROM wait.deadline_at - now()), wait.priority, step.queue,
       coalesce(step.priority, wait.priority), wait.policies
FROM step JOIN wait USING (number) CROSS JOIN others;

-- name: rival_deliver_events_to_flows
-- joins: deliver_event
-- The same for flows that wait for one event: the checkpoint ends, and the flow is ready, or claimed if the executor knows
-- its time limit. A flow that does not wait any more, or for more than this event, is left to the single path.
-- A claimed flow that has no other open checkpoint receives the event here: it is suspended, so that nothing else can
-- come first. Its checkpoints are those of the moment before; they are returned only if no attempt has run since, as its
-- token shows.
WITH :{oldest_waits}, wait AS MATERIALIZED (
    SELECT oldest.waiting AS run_id, oldest.path, oldest.token, oldest.number, oldest.id AS event_id, oldest.topic,
           oldest.key, r.workflow, r.version, r.priority, r.input, r.labels,
           CASE WHEN r.error IS NULL THEN r.deadline_at END AS run_deadline,
           r.paused_at IS NULL AND r.policies IS NULL AND (r.status IN ('pending', 'running', 'suspended')) IS TRUE
             AS is_plain,
           left(oldest.path, length(oldest.path) - strpos(reverse(oldest.path), '/')) AS flow,
           json_build_object('id', oldest.id, 'topic', oldest.topic, 'key', oldest.key, 'payload', oldest.payload)
             AS item
    FROM oldest JOIN rival_runs r ON r.id = oldest.waiting
    WHERE pg_try_advisory_xact_lock_shared(hashtextextended(oldest.waiting, 726356))
      AND (SELECT count(*) FROM rival_waits w WHERE w.run_id = oldest.waiting AND w.path = oldest.path) = 1
), held AS MATERIALIZED (
    SELECT wait.*
    FROM wait JOIN rival_steps leaf ON leaf.run_id = wait.run_id AND leaf.path = wait.path
    WHERE leaf.execution_token = wait.token AND (leaf.status = 'waiting') IS TRUE AND leaf.kind = 'flow_wait'
      AND NOT leaf.paused
    FOR UPDATE OF leaf
), claim AS MATERIALIZED (
    SELECT held.*, its.execution_token AS its_token, its.item AS carried, its.state, known.timeout,
           known.place IS NOT NULL AND is_plain AND coalesce(its.queue, 'default') = ANY((:'queues'::text)::text[])
             AND (its.start_by IS NULL OR its.start_by > now())
             AND (its.deadline_at IS NULL OR its.deadline_at > now()) AS here
    FROM held JOIN rival_steps its ON its.run_id = held.run_id AND its.path = held.flow
    LEFT JOIN unnest((:'flows'::text)::text[], (:'timeouts'::text)::float8[]) AS known (place, timeout)
      ON known.place = held.workflow || '@' || held.version || '/' || held.flow
), stored AS MATERIALIZED (
    SELECT claim.number, past.checkpoints, CASE WHEN past.open = 1 THEN past.next_order END AS end_order
    FROM claim CROSS JOIN LATERAL (
        SELECT json_agg(json_build_array(
                   path, kind, status, opened, attempts, result, error, extract(epoch FROM due_at - now()), end_order,
                   extract(epoch FROM completed_at), CASE WHEN json_typeof(item) = 'string' THEN item END, begun_after
               )) AS checkpoints,
               count(*) FILTER (WHERE end_order IS NULL AND kind <> 'value' AND status <> 'cancelled') AS open,
               coalesce(max(end_order) + 1, 0) AS next_order
        FROM rival_steps one
        WHERE one.run_id = claim.run_id AND one.path > claim.flow || '/' AND one.path < claim.flow || '0'
          AND one.opened IS NOT NULL
    ) AS past
    WHERE claim.here
), ready AS (
    UPDATE rival_steps flow
    SET status = CASE WHEN here THEN 'running' ELSE 'pending' END, due_at = NULL, rings = 0,
        execution_token = execution_token + 1 + here::int, timeout_token = timeout_token + here::int,
        attempts = attempts + here::int, executor_id = CASE WHEN here THEN :'executor' ELSE executor_id END,
        started_at = CASE WHEN here THEN now() ELSE started_at END,
        parked = CASE WHEN NOT here THEN parked END, start_by = CASE WHEN NOT here THEN start_by END,
        policy = CASE WHEN NOT here THEN policy END,
        timeout_at = CASE WHEN here THEN least(now() + make_interval(secs => timeout), flow.deadline_at)
                          ELSE timeout_at END,
        ring_at = CASE WHEN here THEN least(now() + make_interval(secs => timeout), flow.deadline_at)
                       ELSE now() + make_interval(secs => :'grace') END
    FROM claim
    WHERE flow.run_id = claim.run_id AND flow.path = claim.flow AND flow.kind = 'flow'
      AND flow.execution_token = claim.its_token AND (flow.status = 'waiting') IS TRUE AND NOT flow.paused
    RETURNING claim.*, flow.execution_token, flow.timeout_token, flow.attempts, flow.lost, flow.queue,
              flow.priority AS own_priority, flow.deadline_at
), ended AS (
    UPDATE rival_steps leaf
    SET status = 'completed', result = ready.item, error = NULL, completed_at = now(), ring_at = NULL,
        execution_token = leaf.execution_token + 1, end_order = coalesce(stored.end_order, leaf.end_order)
    FROM ready LEFT JOIN stored USING (number) WHERE leaf.run_id = ready.run_id AND leaf.path = ready.path
), ended_wait AS (
    DELETE FROM rival_waits w USING ready WHERE w.run_id = ready.run_id AND w.path = ready.path
), consumed AS (
    UPDATE rival_events e SET status = 'consumed', ring_at = NULL FROM ready WHERE e.id = ready.event_id
), delivered AS (
    INSERT INTO rival_deliveries (event_id, run_id, path, at) SELECT event_id, run_id, path, now() FROM ready
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail,
           CASE WHEN entry.place > 3 THEN :'executor' ELSE 'event ' || event_id END, now()
    FROM ready LEFT JOIN stored USING (number), LATERAL (VALUES
        (ready.path, 'event', json_build_object('topic', topic, 'key', key), 1),
        (ready.path, 'completed', json_build_object('result', ready.item), 2),
        (ready.flow, 'woken', json_build_object(), 3),
        (ready.flow, 'claimed', json_build_object('attempt', attempts), 4),
        (ready.path, 'received', json_build_object('end_order', stored.end_order), 5)
    ) AS entry (path, what, detail, place)
    WHERE entry.place <= 3 OR (entry.place = 4 AND here) OR (entry.place = 5 AND stored.end_order IS NOT NULL)
    ORDER BY number, entry.place
), resumed AS (
    UPDATE rival_runs r SET status = 'running' FROM ready
    WHERE r.id = ready.run_id AND (r.status = 'suspended') IS TRUE
)
SELECT number, run_id, flow, execution_token, workflow, version, queue, coalesce(own_priority, priority), here,
       timeout_token, attempts, lost, input, carried, labels, extract(epoch FROM run_deadline),
       extract(epoch FROM run_deadline - now()), priority, extract(epoch FROM deadline_at - now()), state, checkpoints,
       path, item, end_order, extract(epoch FROM now())
FROM ready LEFT JOIN stored USING (number);
