-- Steps that have a limit: claim and ADMIT in one statement, ENTER, finish and LEAVE and ADMIT the next one.
--
-- The protocol is that of rival_client/sql/gates.py; the difference is which rows are locked. A finish that passes its
-- slot to a ticket does not lock the gate, and steps that arrive at a full gate lock its row FOR SHARE, so a gate at
-- which many wait does not serialise transactions. A transaction that frees a slot updates the gate, so it waits for
-- those that are just entering a ticket, but does not see their tickets: if the gate was full, it LOOKs AGAIN after its
-- commit (rival_look_again). Otherwise the transaction that freed the first slot does so.
--
-- Locks: the step, its composites, the run, the own ticket, then gates, then tickets of others with SKIP LOCKED. The
-- parts of a statement have no order of their own; each takes a value from the part that must come before it. A finish
-- that has changed one gate locks the next one with SKIP LOCKED only.
--
-- A rate limit counts its starts at its gate, so each start updates the gate and grants the next ticket with a time
-- (`wait`). Only a granted ticket uses a slot of a rate limit.
--
-- A start is recorded with the clock's time, not the transaction's: the transaction may have waited for the end of a
-- step.
--
-- A part (`-- part:`) is text that statements contain as :{name}, or as :{key as fair} with the parameters `fair_…`
-- instead of `key_…`.

-- part: run_lock
(SELECT pg_advisory_xact_lock_shared(hashtextextended(:'run_id'::text, 726356)) IS NOT NULL)

-- part: key
-- The key of a limit: the text of the value at a place of the run. Null: the portable path computes the text.
CASE WHEN :'key_source'::text IS NULL THEN ''
     WHEN :'key_source' = 'run' THEN run.id
     ELSE (
        SELECT CASE WHEN strpos(document::text, '\u') > 0 THEN NULL ELSE (
            SELECT CASE WHEN kind IS NULL OR kind = 'null' THEN ''
                        WHEN kind IN ('string', 'boolean') AND char_length(value) <= 500 THEN value
                        WHEN kind = 'number' AND value ~ '^(0|-?[1-9][0-9]{0,16})$' THEN value END
            FROM (SELECT json_typeof(document #> :'key_path'::text[]) AS kind,
                         document #>> :'key_path'::text[] AS value) AS found) END
        FROM (SELECT CASE :'key_source' WHEN 'labels' THEN run.labels ELSE run.input END AS document) AS source) END

-- part: next_limit
-- The name of the next step's limit; null: it has none. Without a name of its own, it is named after the workflow.
coalesce(:'limit'::text, run.workflow || :'limit_suffix'::text) AS next_limit, :{key} AS next_key

-- part: fair_group
-- The group of the next step within a fair limit; null: the limit is not fair, or the portable path computes the group.
CASE WHEN :'fair_source'::text IS NOT NULL THEN :{key as fair} END AS fair_group

-- part: group_known
(:'fair_source'::text IS NULL OR held.fair_group IS NOT NULL)

-- part: arrival
-- The queue position of a new ticket: one round after the last ticket of its group; for the first ticket of a group,
-- the end of the round that is being served (`rival_client.model.limits.fair_base`).
LATERAL (
    SELECT greatest(arrives.at, (
        SELECT max(waiting.base) + 3600 FROM rival_tickets waiting
        WHERE waiting.gate = full_gate.id AND waiting.granted_at IS NULL
          AND waiting.fair_group = full_gate.fair_group), (
        SELECT first.base + 1800 FROM (
            SELECT waiting.base FROM rival_tickets waiting
            WHERE full_gate.fair_group IS NOT NULL AND waiting.gate = full_gate.id AND waiting.granted_at IS NULL
            ORDER BY waiting.rank, waiting.run_id, waiting.path LIMIT 1) AS first
        WHERE first.base > arrives.at)) AS at
    FROM (SELECT extract(epoch FROM clock_timestamp())::float8 AS at) AS arrives
) AS arrival

-- part: has_room
gate.shard = :'shard' AND gate.gap IS NULL AND gate.used < gate.max
  AND NOT EXISTS (SELECT FROM rival_tickets waiting WHERE waiting.gate = gate.id AND waiting.granted_at IS NULL)

-- part: startable
step.run_id = :'run_id' AND step.path = :'path' AND step.execution_token = :'token' AND :{may_start}
  AND (:'workflow'::text IS NULL OR (run.workflow = :'workflow'::text AND run.version = :'version'::text))

-- part: may_start
step.slots IS NULL AND step.kind <> 'external'
  AND (step.due_at IS NULL OR step.due_at <= now() + interval '0.005 s')
  AND coalesce(step.queue, 'default') = ANY(:'queues'::text[])
  AND (step.start_by IS NULL OR step.start_by > now()) AND (step.deadline_at IS NULL OR step.deadline_at > now())
  AND run.status IN ('pending', 'running', 'suspended') AND NOT step.paused AND run.paused_at IS NULL

-- part: starts
status = 'running', attempts = attempts + 1, executor_id = :'executor',
execution_token = execution_token + 1, timeout_token = timeout_token + 1, rings = 0, parked = NULL,
timeout_at = least(now() + make_interval(secs => :'timeout'), step.deadline_at),
ring_at = least(now() + make_interval(secs => :'timeout'), step.deadline_at), start_by = NULL,
policy = :'policy'::json

-- part: end
status = :'status', result = :'result'::json, state = :'state'::json, error = NULL, completed_at = now(), slots = NULL,
execution_token = step.execution_token + 1, timeout_token = step.timeout_token + 1, timeout_at = NULL, ring_at = NULL

-- part: first_tickets
-- For each slot in `left_slots`, the first ticket of its gate or of another shard of it. A gate above a lowered limit
-- grants none.
gate AS (
    SELECT gate.id, gate.name, gate.key, gate.shard, gate.used <= gate.max AS flows, left_slots.is_last
    FROM left_slots JOIN rival_gates gate ON gate.id = ANY(left_slots.slots)
), next AS (
    SELECT gate.id AS slot, first.run_id, first.path, first.token, first.created_at, 0::float8 AS wait,
           :'grace'::float8 AS look
    FROM gate, LATERAL (
        SELECT ticket.run_id, ticket.path, ticket.token, ticket.created_at
        FROM (SELECT shard.id FROM rival_gates shard WHERE shard.name = gate.name AND shard.key = gate.key
              ORDER BY shard.id <> gate.id, shard.shard <= gate.shard, shard.shard) AS shards,
        LATERAL (SELECT run_id, path, token, created_at FROM rival_tickets
                 WHERE rival_tickets.gate = shards.id AND granted_at IS NULL
                 ORDER BY rank, run_id, path LIMIT 1 FOR UPDATE SKIP LOCKED) AS ticket
        LIMIT 1) AS first
    WHERE gate.flows
)

-- part: grant
UPDATE rival_tickets ticket
SET granted_at = now(), slot = next.slot, rings = 0, ring_at = now() + make_interval(secs => next.look),
    due_at = CASE WHEN next.wait > 0 THEN now() + make_interval(secs => next.wait) END
FROM next WHERE ticket.run_id = next.run_id AND ticket.path = next.path

-- part: message
json_build_array(ticket.run_id, ticket.path, ticket.token, ticket.workflow, ticket.version, ticket.attempt, ticket.lost,
                 ticket.queue, ticket.level, next.wait) AS message

-- part: leave
-- Each slot goes to its ticket; without one it is free. `kept`: the slot that the next step takes over.
:{first_tickets}, granted AS (
    :{grant}
    RETURNING :{message}
), kept AS (
    SELECT gate.id FROM gate, left_slots
    WHERE NOT gate.is_last AND cardinality(left_slots.slots) = 1 AND gate.flows AND NOT EXISTS (SELECT FROM next)
      AND :'executor'::text IS NOT NULL AND gate.name = left_slots.next_limit AND gate.key = left_slots.next_key
), freeing AS (
    SELECT locked.id FROM rival_gates locked
    WHERE NOT EXISTS (SELECT FROM kept)
      AND locked.id = ANY(ARRAY(SELECT id FROM gate WHERE id NOT IN (SELECT slot FROM next)))
    ORDER BY locked.id FOR NO KEY UPDATE
), :{freed}

-- part: freed
-- A ticket is only entered at a full gate. So only the transaction that frees the first slot of a gate has to look
-- again.
freed AS (
    UPDATE rival_gates SET used = used - 1, touched_at = now() FROM freeing WHERE rival_gates.id = freeing.id
    RETURNING rival_gates.id, used + 1 >= max AS was_full
)

-- part: take_next
-- The slot of the next step: the one that is kept, or one of a gate that no other transaction has locked.
room AS (
    SELECT gate.id
    FROM left_slots JOIN rival_gates gate ON gate.name = left_slots.next_limit AND gate.key = left_slots.next_key
    WHERE :'executor'::text IS NOT NULL AND NOT left_slots.is_last AND :{has_room}
      AND NOT EXISTS (SELECT FROM kept) AND (SELECT count(*) FROM freed) >= 0
    FOR NO KEY UPDATE OF gate SKIP LOCKED
), taken AS (
    UPDATE rival_gates SET used = used + 1, touched_at = now() FROM room WHERE rival_gates.id = room.id
    RETURNING rival_gates.id
), start AS (
    SELECT CASE WHEN slot.id IS NULL THEN NULL ELSE ARRAY[slot.id] END AS slots,
           :'executor'::text IS NOT NULL AND (left_slots.next_limit IS NULL OR slot.id IS NOT NULL) AS at_once
    FROM left_slots, (SELECT coalesce((SELECT id FROM kept), (SELECT id FROM taken)) AS id) AS slot
)

-- part: next_row
start.slots, CASE WHEN start.at_once THEN 'running' ELSE 'pending' END, start.at_once::int,
token - 1 + start.at_once::int, token - 1 + start.at_once::int, CASE WHEN start.at_once THEN :'executor'::text END,
now(), CASE WHEN start.at_once THEN clock_timestamp() END,
CASE WHEN start.at_once THEN now() + make_interval(secs => :'timeout') END,
now() + make_interval(secs => CASE WHEN start.at_once THEN :'timeout' ELSE :'grace' END::float8),
CASE WHEN start.at_once THEN :'policy'::json END

-- part: next_entry
CASE WHEN start.at_once THEN 'claimed' ELSE 'scheduled' END,
CASE WHEN start.at_once THEN json_build_object('kind', :'next_kind'::text, 'attempt', 1)
     ELSE json_build_object('kind', :'next_kind'::text) END

-- part: following
(SELECT json_agg(id) FROM freed WHERE was_full), (SELECT json_agg(message) FROM granted)

-- part: may_begin
id = :'run_id' AND token = :'token' AND status = 'pending' AND paused_at IS NULL
  AND (due_at IS NULL OR due_at <= now() + interval '0.005 s') AND (deadline_at IS NULL OR deadline_at > now())
  AND (:'workflow'::text IS NULL OR (workflow = :'workflow'::text AND version = :'version'::text))
  AND (:'without'::text IS NULL OR (policies IS NULL AND (labels IS NULL OR :'without'::text = 'policies')))

-- part: started
CASE WHEN labels IS NULL AND deadline_at IS NULL AND priority IS NULL AND policies IS NULL
     THEN json_build_object('workflow', workflow, 'version', version, 'input', input)
     ELSE json_build_object('workflow', workflow, 'version', version, 'input', input, 'options',
        (SELECT json_object_agg(name, value) FROM (VALUES
            ('labels', to_json(labels)), ('policies', to_json(policies)),
            ('deadline', to_json(to_char(deadline_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))),
            ('priority', to_json(CASE priority WHEN -1 THEN 'high' WHEN 0 THEN 'normal' WHEN 1 THEN 'low' END))
         ) AS given (name, value) WHERE value IS NOT NULL)) END

-- name: rival_begin_run_limited
-- shortcuts: begin_run
-- Like rival_begin_run, for a first step that has a limit: without a free slot, the step is left to a claim of its own.
WITH run AS (
    UPDATE rival_runs run
    SET status = 'running', started_at = now(), token = token + 1, ring_at = deadline_at, rings = 0, parked = NULL
    WHERE :{may_begin}
    RETURNING id, workflow, version, input, token, labels, deadline_at, priority, policies, :{next_limit}
), taken AS (
    UPDATE rival_gates gate SET used = used + 1, touched_at = now()
    FROM run
    WHERE :'executor'::text IS NOT NULL AND gate.name = run.next_limit AND gate.key = run.next_key AND :{has_room}
    RETURNING gate.id
), start AS (
    SELECT (SELECT ARRAY[id] FROM taken) AS slots, EXISTS (SELECT FROM taken) AS at_once
), step AS (
    INSERT INTO rival_steps (run_id, path, kind, slots, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at, policy)
    SELECT id, :'next_path', :'next_kind', :{next_row} FROM run, start
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT id, entry.path, entry.what, entry.detail, :'executor', now()
    FROM run, start, LATERAL (VALUES
        (NULL, 'started', :{started}), (:'next_path', :{next_entry})
    ) AS entry (path, what, detail)
)
SELECT input, labels, extract(epoch FROM deadline_at), extract(epoch FROM deadline_at - now()), priority, policies,
       start.at_once
FROM run, start;

-- name: rival_begin_run_queued
-- shortcuts: begin_run
-- The run begins at a full gate: its first step waits with a ticket, as after a claim (rival_claim_step_queued).
WITH held AS (
    SELECT id, :{next_limit}, :{fair_group} FROM rival_runs run WHERE :{may_begin} FOR NO KEY UPDATE
), full_gate AS (
    SELECT gate.id, gate.name, gate.key, held.fair_group
    FROM held JOIN rival_gates gate ON gate.name = held.next_limit AND gate.key = held.next_key
    WHERE gate.shard = :'shard' AND gate.used >= gate.max AND :{group_known}
    FOR SHARE OF gate
), run AS (
    UPDATE rival_runs run
    SET status = 'suspended', started_at = now(), token = token + 1, ring_at = deadline_at, rings = 0, parked = NULL
    FROM full_gate WHERE run.id = :'run_id'
    RETURNING run.id, workflow, version, input, token, labels, deadline_at, priority, policies, full_gate.id AS gate,
              full_gate.name AS gate_name, full_gate.key
), step AS (
    INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, created_at)
    SELECT id, :'next_path', :'next_kind', 'waiting', 0, token, token - 1, now() FROM run
), ticket AS (
    INSERT INTO rival_tickets (run_id, path, token, gate, base, rank, fair_group, workflow, version, attempt, lost,
                               queue, level, created_at)
    SELECT run.id, :'next_path', token, gate, arrival.at, arrival.at + 60 * coalesce(priority, 0),
           full_gate.fair_group, workflow, version, 1, 0, NULL, coalesce(priority, 0), now()
    FROM run, full_gate, :{arrival}
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT id, entry.path, entry.what, entry.detail, :'executor', now()
    FROM run, LATERAL (VALUES
        (NULL, 'started', :{started}),
        (:'next_path', 'scheduled', json_build_object('kind', :'next_kind'::text)),
        (:'next_path', 'queued', json_strip_nulls(json_build_object('limit', gate_name, 'key', nullif(key, ''),
                                                                    'run', 'suspended')))
    ) AS entry (path, what, detail)
)
SELECT input, labels, extract(epoch FROM deadline_at), extract(epoch FROM deadline_at - now()), priority, policies
FROM run;

-- name: rival_claim_step_limited
-- shortcuts: claim_step
-- The step takes a slot of its gate, or the slot of its granted ticket if it has waited.
WITH held AS (
    SELECT step.run_id, step.status, step.paused, run.input, run.labels, run.policies, run.priority AS run_level,
           CASE WHEN run.error IS NULL THEN run.deadline_at END AS run_deadline, :{key} AS key
    FROM rival_steps step JOIN rival_runs run ON run.id = step.run_id
    WHERE :{startable} AND step.status IN ('pending', 'waiting_retry', 'waiting') AND :{run_lock}
    FOR NO KEY UPDATE OF step
), awake AS (
    SELECT run.id FROM held JOIN rival_runs run ON run.id = held.run_id WHERE run.status = 'suspended'
    FOR NO KEY UPDATE OF run
), ticket AS (
    SELECT ticket.run_id, ticket.slot, ticket.created_at, ticket.due_at
    FROM held JOIN rival_tickets ticket ON ticket.run_id = held.run_id AND ticket.path = :'path'
    WHERE (SELECT count(*) FROM awake) >= 0
    FOR UPDATE OF ticket
), taken AS (
    UPDATE rival_gates gate SET used = used + 1, touched_at = now()
    FROM held
    WHERE held.status <> 'waiting' AND NOT EXISTS (SELECT FROM ticket)
      AND gate.name = :'limit' AND gate.key = held.key AND :{has_room}
    RETURNING gate.id
), slot AS (
    SELECT id, NULL::timestamptz AS since FROM taken
    UNION ALL
    SELECT gate.id, ticket.created_at
    FROM ticket JOIN rival_gates gate ON gate.id = ticket.slot JOIN held USING (run_id)
    WHERE held.status = 'waiting' AND ticket.due_at IS NULL AND gate.name = :'limit' AND gate.key = held.key
      AND gate.gap IS NULL
), used AS (
    DELETE FROM rival_tickets ticket USING slot
    WHERE slot.since IS NOT NULL AND ticket.run_id = :'run_id' AND ticket.path = :'path'
), claimed AS (
    UPDATE rival_steps step
    SET :{starts}, started_at = clock_timestamp(), slots = ARRAY[slot.id]
    FROM held, slot
    WHERE step.run_id = held.run_id AND step.path = :'path'
    RETURNING step.run_id, execution_token, timeout_token, attempts, lost, held.input, kind, held.labels,
              held.run_deadline, held.run_level, step.queue, coalesce(step.priority, held.run_level) AS level,
              step.deadline_at, held.policies, slot.since
), woken AS (
    UPDATE rival_runs run SET status = 'running' FROM awake, claimed WHERE run.id = awake.id
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, :'path', 'claimed',
           CASE WHEN since IS NULL THEN json_build_object('attempt', attempts)
                ELSE json_build_object('attempt', attempts,
                                       'waited', extract(epoch FROM clock_timestamp() - since)) END,
           :'executor', now()
    FROM claimed
)
SELECT execution_token, timeout_token, attempts, lost, input, kind, labels, extract(epoch FROM run_deadline),
       extract(epoch FROM run_deadline - now()), run_level, queue, level, extract(epoch FROM deadline_at - now()),
       policies, extract(epoch FROM clock_timestamp() - since)
FROM claimed;

-- name: rival_claim_step_paced
-- shortcuts: claim_step
-- Like rival_claim_step_limited, for a rate limit: the step starts if the locked gate says that it is time, and grants
-- the next ticket. A step whose message came too early only gets the seconds it has to wait. A step without a ticket does
-- not wait for the lock of the gate: granted tickets must not be late because many arrive.
WITH held AS (
    SELECT step.run_id, step.status, step.queue, run.input, run.labels, run.policies, run.priority AS run_level,
           coalesce(step.priority, run.priority) AS level,
           CASE WHEN run.error IS NULL THEN run.deadline_at END AS run_deadline, :{key} AS key
    FROM rival_steps step JOIN rival_runs run ON run.id = step.run_id
    WHERE :{startable} AND step.status IN ('pending', 'waiting_retry', 'waiting') AND :{run_lock}
    FOR NO KEY UPDATE OF step
), awake AS (
    SELECT run.id FROM held JOIN rival_runs run ON run.id = held.run_id WHERE run.status = 'suspended'
    FOR NO KEY UPDATE OF run
), ticket AS (
    SELECT ticket.run_id, ticket.slot, ticket.created_at
    FROM held JOIN rival_tickets ticket ON ticket.run_id = held.run_id AND ticket.path = :'path'
    WHERE (SELECT count(*) FROM awake) >= 0
    FOR UPDATE OF ticket
), own_gate AS MATERIALIZED (
    SELECT gate.id, gate.used, gate.max, gate.gap, gate.slack, gate.next_start, ticket.created_at AS since
    FROM held JOIN ticket ON TRUE JOIN rival_gates gate ON gate.name = :'limit' AND gate.key = held.key
    WHERE gate.shard = 0 AND gate.gap IS NOT NULL AND held.status = 'waiting' AND ticket.slot = gate.id
    FOR NO KEY UPDATE OF gate
), new_gate AS MATERIALIZED (
    SELECT gate.id, gate.used, gate.max, gate.gap, gate.slack, gate.next_start, NULL::timestamptz AS since
    FROM held LEFT JOIN ticket ON TRUE JOIN rival_gates gate ON gate.name = :'limit' AND gate.key = held.key
    WHERE gate.shard = 0 AND gate.gap IS NOT NULL AND held.status <> 'waiting' AND ticket.run_id IS NULL
      AND gate.used = 0 AND (SELECT waiting.run_id FROM rival_tickets waiting
                             WHERE waiting.gate = gate.id AND waiting.granted_at IS NULL LIMIT 1) IS NULL
    FOR NO KEY UPDATE OF gate SKIP LOCKED
), timed AS MATERIALIZED (
    SELECT gate.*, extract(epoch FROM clock_timestamp())::float8 AS at
    FROM (SELECT * FROM own_gate UNION ALL SELECT * FROM new_gate) AS gate
), starting AS MATERIALIZED (
    SELECT id, used, max, gap, slack, since, at, greatest(next_start, at) + gap AS next_start
    FROM timed WHERE next_start - slack <= at
), next AS (
    SELECT starting.id AS slot, first.run_id, first.path, call.wait, call.wait + :'rate_grace'::float8 AS look
    FROM starting, LATERAL (
        SELECT greatest(0, starting.next_start - slack - at + (used - 1) * gap) AS wait) AS call,
    LATERAL (
        SELECT run_id, path FROM rival_tickets
        WHERE rival_tickets.gate = starting.id AND granted_at IS NULL
        ORDER BY rank, run_id, path LIMIT 1 FOR UPDATE SKIP LOCKED) AS first
    WHERE starting.since IS NOT NULL AND starting.used <= starting.max
), granted AS (
    :{grant}
    RETURNING :{message}
), moved AS (
    UPDATE rival_gates gate
    SET next_start = starting.next_start, touched_at = now(),
        used = gate.used - (starting.since IS NOT NULL AND NOT EXISTS (SELECT FROM next))::int
    FROM starting WHERE gate.id = starting.id
    RETURNING gate.id, gate.used < starting.used AND starting.used >= starting.max AS was_full
), spent AS (
    DELETE FROM rival_tickets ticket USING starting
    WHERE starting.since IS NOT NULL AND ticket.run_id = :'run_id' AND ticket.path = :'path'
), claimed AS (
    UPDATE rival_steps step
    SET :{starts}, started_at = to_timestamp(starting.at)
    FROM held, starting
    WHERE step.run_id = held.run_id AND step.path = :'path'
    RETURNING step.run_id, execution_token, timeout_token, attempts, lost, held.input, kind, held.labels,
              held.run_deadline, held.run_level, step.deadline_at, held.policies, starting.since
), woken AS (
    UPDATE rival_runs run SET status = 'running' FROM awake, claimed WHERE run.id = awake.id
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, :'path', 'claimed',
           CASE WHEN since IS NULL THEN json_build_object('attempt', attempts)
                ELSE json_build_object('attempt', attempts,
                                       'waited', extract(epoch FROM clock_timestamp() - since)) END,
           :'executor', now()
    FROM claimed
)
SELECT execution_token, timeout_token, attempts, lost, claimed.input, kind, claimed.labels,
       extract(epoch FROM claimed.run_deadline), extract(epoch FROM claimed.run_deadline - now()), claimed.run_level,
       held.queue, held.level, extract(epoch FROM deadline_at - now()), claimed.policies,
       extract(epoch FROM clock_timestamp() - claimed.since), (SELECT json_agg(id) FROM moved WHERE was_full),
       (SELECT json_agg(message) FROM granted), timed.next_start - timed.slack - timed.at
FROM timed JOIN held ON TRUE LEFT JOIN claimed ON TRUE
WHERE claimed.run_id IS NOT NULL OR timed.since IS NOT NULL;

-- name: rival_lock_fair_group
-- A separate statement, before any row is locked: the next one must see the tickets of the group that were entered
-- while this one waited, to come after them.
SELECT pg_advisory_xact_lock(726358, hashtext(coalesce(:'limit'::text, run.workflow || :'limit_suffix'::text)
                                              || E'\x1f' || coalesce(:{key as fair}, '')))
FROM rival_runs run WHERE run.id = :'run_id';

-- name: rival_claim_step_queued
-- shortcuts: claim_step
-- ENTER: the gate is full, so the step waits with a ticket. A transaction that would free a slot waits for this one. A
-- gate that has room by the time its row is locked, and at which tickets wait, is left to the portable path.
-- At a rate limit, a step that could not start at once (rival_claim_step_paced) waits. The second column is the gate if
-- it has room for another granted ticket; the caller calls look_again for it.
WITH held AS (
    SELECT step.run_id, step.execution_token, step.attempts, step.lost, step.queue, run.workflow, run.version,
           coalesce(step.priority, run.priority, 0) AS level, :{key} AS key, :{fair_group}
    FROM rival_steps step JOIN rival_runs run ON run.id = step.run_id
    WHERE :{startable} AND step.status IN ('pending', 'waiting_retry') AND :{run_lock}
    FOR NO KEY UPDATE OF step
), its_run AS (
    SELECT run.id, run.status FROM held JOIN rival_runs run ON run.id = held.run_id FOR NO KEY UPDATE OF run
), full_gate AS (
    SELECT gate.id, gate.key, held.fair_group, gate.used < gate.max AS has_room
    FROM held JOIN its_run ON its_run.id = held.run_id JOIN rival_gates gate USING (key)
    WHERE gate.name = :'limit' AND gate.shard = :'shard' AND :{group_known}
      AND (gate.used >= gate.max OR gate.gap IS NOT NULL)
      AND NOT EXISTS (SELECT FROM rival_tickets own WHERE own.run_id = :'run_id' AND own.path = :'path')
    FOR SHARE OF gate
), ticket AS (
    INSERT INTO rival_tickets (run_id, path, token, gate, base, rank, fair_group, workflow, version, attempt, lost,
                               queue, level, created_at)
    SELECT held.run_id, :'path', held.execution_token + 1, full_gate.id, arrival.at, arrival.at + 60 * held.level,
           full_gate.fair_group, held.workflow, held.version, held.attempts + 1, held.lost, held.queue, held.level,
           now()
    FROM held, full_gate, :{arrival}
), queued AS (
    UPDATE rival_steps step
    SET status = 'waiting', execution_token = step.execution_token + 1, due_at = NULL,
        ring_at = least(start_by, deadline_at), rings = 0, parked = NULL
    FROM held, full_gate WHERE step.run_id = held.run_id AND step.path = :'path'
), stopped AS (
    UPDATE rival_runs run SET status = 'suspended'
    FROM its_run, full_gate
    WHERE run.id = its_run.id AND its_run.status = 'running'
      AND NOT EXISTS (
        SELECT FROM rival_steps lanes
        WHERE lanes.run_id = :'run_id' AND lanes.path = ANY(:'above'::text[])
          AND lanes.kind = ANY(:'with_lanes'::text[]))
    RETURNING run.status
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT :'run_id', :'path', 'queued',
           json_strip_nulls(json_build_object('limit', :'limit'::text, 'key', nullif(full_gate.key, ''),
                                              'run', (SELECT status FROM stopped))),
           :'executor', now()
    FROM full_gate
)
SELECT key, CASE WHEN has_room THEN id END FROM full_gate;

-- name: rival_look_again
-- shortcuts: look_again
-- Grants the first ticket of gates that have room. Safe at any time: it holds no other lock.
WITH room AS (
    SELECT gate.id, gate.name, gate.key, gate.shard, gate.used, gate.gap, gate.slack, gate.next_start
    FROM rival_gates gate
    WHERE gate.id = ANY(:'gates'::bigint[]) AND gate.used < gate.max
      AND EXISTS (SELECT FROM rival_gates shard JOIN rival_tickets waiting ON waiting.gate = shard.id
                  WHERE shard.name = gate.name AND shard.key = gate.key AND waiting.granted_at IS NULL)
    ORDER BY gate.id FOR NO KEY UPDATE OF gate
), next AS (
    SELECT room.id AS slot, first.run_id, first.path, call.wait,
           call.wait + CASE WHEN room.gap IS NULL THEN :'grace' ELSE :'rate_grace' END::float8 AS look
    FROM room, LATERAL (SELECT CASE WHEN room.gap IS NULL THEN 0 ELSE
            greatest(0, room.next_start - room.slack - extract(epoch FROM clock_timestamp())::float8
                        + room.used * room.gap) END AS wait) AS call, LATERAL (
        SELECT ticket.run_id, ticket.path
        FROM (SELECT shard.id FROM rival_gates shard WHERE shard.name = room.name AND shard.key = room.key
              ORDER BY shard.id <> room.id, shard.shard <= room.shard, shard.shard) AS shards,
        LATERAL (SELECT run_id, path FROM rival_tickets
                 WHERE rival_tickets.gate = shards.id AND granted_at IS NULL
                 ORDER BY rank, run_id, path LIMIT 1 FOR UPDATE SKIP LOCKED) AS ticket
        LIMIT 1) AS first
), counted AS (
    UPDATE rival_gates SET used = used + 1, touched_at = now() FROM next WHERE rival_gates.id = next.slot
), granted AS (
    :{grant}
    RETURNING :{message}
)
SELECT json_agg(message) FROM granted;

-- name: rival_finish_step_limited
-- shortcuts: finish_step
-- A step ends, and one step follows. Either of them may have a limit.
WITH done AS (
    UPDATE rival_steps step SET :{end}
    FROM rival_runs run, rival_steps before
    WHERE step.run_id = :'run_id' AND step.path = :'path' AND step.execution_token = :'token'
      AND step.status = 'running' AND NOT step.paused AND step.kind <> 'flow' AND :{run_lock}
      AND run.id = step.run_id
      AND before.run_id = :'run_id' AND before.path = :'path' AND before.execution_token = :'token'
    RETURNING step.run_id, step.executor_id, step.attempts, step.started_at AS begun_at,
              step.policy AS own_policy, run.token,
              before.slots, :{next_limit}
), left_slots AS (
    SELECT coalesce(slots, '{}') AS slots, next_limit, next_key, FALSE AS is_last FROM done
), :{leave}, :{take_next}, attempt AS (
    INSERT INTO rival_attempts (run_id, path, token, attempt, outcome, executor_id, started_at, ended_at, policy)
    SELECT run_id, :'path', :'token', attempts, :'outcome', executor_id, begun_at, now(), own_policy
    FROM done WHERE attempts > 1
), opened AS (
    INSERT INTO rival_steps (run_id, path, kind, slots, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at, policy)
    SELECT run_id, :'next_path', :'next_kind', :{next_row} FROM done, start
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM done, start, LATERAL (VALUES
        (:'path', :'status'::text, :'own_detail'::json),
        (:'next_path', :{next_entry})
    ) AS entry (path, what, detail)
)
SELECT :{following}, start.at_once, token - 1 FROM done, start;

-- part: ends_run
-- The last step ends, and its run with it, before any gate is locked. Not for a child, whose end resumes the parent.
done AS (
    UPDATE rival_steps step SET :{end}
    FROM rival_runs run, rival_steps before
    WHERE step.run_id = :'run_id' AND step.path = :'path' AND step.execution_token = :'token'
      AND step.status = 'running' AND NOT step.paused AND step.kind <> 'flow' AND :{run_lock}
      AND run.id = step.run_id AND run.parent_run_id IS NULL AND run.status IN ('running', 'suspended')
      AND before.run_id = :'run_id' AND before.path = :'path' AND before.execution_token = :'token'
    RETURNING step.run_id, step.executor_id, step.attempts, step.started_at AS begun_at, step.policy AS own_policy,
              coalesce(before.slots, '{}') || coalesce(run.slots, '{}') AS slots
), ended AS (
    UPDATE rival_runs
    SET status = 'completed', result = :'result'::json, completed_at = now(), token = token + 1, ring_at = NULL,
        slots = NULL
    FROM done
    WHERE id = done.run_id AND status IN ('running', 'suspended')
    RETURNING id
), left_slots AS (
    SELECT slots, NULL::text AS next_limit, NULL::text AS next_key, TRUE AS is_last FROM done
    WHERE (SELECT count(*) FROM ended) >= 0
), attempt AS (
    INSERT INTO rival_attempts (run_id, path, token, attempt, outcome, executor_id, started_at, ended_at, policy)
    SELECT run_id, :'path', :'token', attempts, :'outcome', executor_id, begun_at, now(), own_policy
    FROM done WHERE attempts > 1
)

-- part: record_end
INSERT INTO rival_history (run_id, path, what, detail, actor, at)
SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
FROM done, LATERAL (VALUES
    (:'path', :'status'::text, :'own_detail'::json),
    (NULL, 'completed', :'upper_detail'::json)
) AS entry (path, what, detail)

-- name: rival_finish_step_limited_and_complete
-- shortcuts: finish_step
WITH :{ends_run}, :{leave}, recorded AS (:{record_end})
SELECT :{following} FROM done;

-- name: rival_finish_step_limited_and_take
-- shortcuts: finish_step
-- Like rival_finish_step_limited_and_complete, where the ticket that gets the slot is a step of the same plan and path,
-- which this executor claims in the same commit. Rows of the other run are locked with try-locks only, since the own
-- step is locked: if another transaction holds them, or if the other step is not as expected, the ticket is granted as
-- usual.
WITH :{ends_run}, :{first_tickets}, taking AS (
    SELECT next.slot, next.created_at AS since, step.run_id, run.input, run.labels, run.priority AS run_level,
           CASE WHEN run.error IS NULL THEN run.deadline_at END AS run_deadline
    FROM next JOIN gate ON gate.id = next.slot
    JOIN rival_steps step ON step.run_id = next.run_id AND step.path = next.path
    JOIN rival_runs run ON run.id = next.run_id
    WHERE next.path = :'path' AND step.execution_token = next.token AND step.status = 'waiting' AND :{may_start}
      AND run.workflow = :'workflow' AND run.version = :'version' AND run.policies IS NULL
      AND (run.labels IS NULL OR :'without' = 'policies') AND gate.name = :'limit' AND gate.key = :{key}
      AND pg_try_advisory_xact_lock_shared(hashtextextended(next.run_id, 726356))
    LIMIT 1 FOR NO KEY UPDATE OF step, run SKIP LOCKED
), taken AS (
    UPDATE rival_steps step
    SET :{starts}, started_at = clock_timestamp(), slots = ARRAY[taking.slot]
    FROM taking
    WHERE step.run_id = taking.run_id AND step.path = :'path'
    RETURNING step.run_id, execution_token, timeout_token, attempts, lost, taking.input, kind, taking.labels,
              taking.run_deadline, taking.run_level, step.queue, coalesce(step.priority, taking.run_level) AS level,
              step.deadline_at, taking.since
), used AS (
    DELETE FROM rival_tickets ticket USING taking WHERE ticket.run_id = taking.run_id AND ticket.path = :'path'
), woken AS (
    UPDATE rival_runs run SET status = 'running' FROM taking WHERE run.id = taking.run_id AND run.status = 'suspended'
), recorded AS (
    :{record_end}
    UNION ALL
    SELECT run_id, :'path', 'claimed',
           json_build_object('attempt', attempts, 'waited', extract(epoch FROM clock_timestamp() - since)), :'executor',
           now()
    FROM taken
), granted AS (
    :{grant} AND NOT EXISTS (SELECT FROM taking WHERE taking.run_id = next.run_id AND next.path = :'path')
    RETURNING :{message}
), freeing AS (
    SELECT locked.id FROM rival_gates locked
    WHERE locked.id = ANY(ARRAY(SELECT id FROM gate WHERE id NOT IN (SELECT slot FROM next)))
    ORDER BY locked.id FOR NO KEY UPDATE
), :{freed}
SELECT :{following}, taken.run_id, execution_token, timeout_token, taken.attempts, lost, input, kind, labels,
       extract(epoch FROM run_deadline), extract(epoch FROM run_deadline - now()), run_level, queue, level,
       extract(epoch FROM deadline_at - now()), NULL, extract(epoch FROM clock_timestamp() - since)
FROM done LEFT JOIN taken ON TRUE;

-- name: rival_finish_step_limited_of_lane
-- shortcuts: finish_step
-- A lane of a for_each ends and opens the next item. The last lane takes the portable path, which ends the composite.
WITH held AS (
    SELECT run_id, executor_id, attempts, started_at AS begun_at, policy AS own_policy, slots FROM rival_steps
    WHERE run_id = :'run_id' AND path = :'path' AND execution_token = :'token' AND status = 'running' AND NOT paused
      AND kind <> 'flow' AND :{run_lock}
    FOR UPDATE
), lane AS (
    SELECT composite.run_id, held.executor_id, held.attempts, held.begun_at,
           held.own_policy, held.slots, composite.opened, run.token,
           composite.opened < composite.total AS goes_on, :{next_limit}
    FROM rival_steps composite JOIN held USING (run_id) JOIN rival_runs run ON run.id = held.run_id
    WHERE composite.path = :'join' AND composite.status = 'waiting' AND composite.remaining > 1
    FOR UPDATE OF composite
), joined AS (
    UPDATE rival_steps composite
    SET remaining = remaining - 1, opened = composite.opened + goes_on::int
    FROM lane WHERE composite.run_id = lane.run_id AND composite.path = :'join'
), ended AS (
    UPDATE rival_steps step
    SET status = CASE WHEN path = :'path' THEN :'status' ELSE 'completed' END, result = :'result'::json,
        state = CASE WHEN path = :'path' THEN :'state'::json END, error = NULL, completed_at = now(), slots = NULL,
        execution_token = execution_token + 1, timeout_token = timeout_token + (path = :'path')::int,
        timeout_at = NULL, ring_at = NULL
    FROM lane WHERE step.run_id = lane.run_id AND step.path IN (:'path', :'item')
    RETURNING step.path
), left_slots AS (
    SELECT coalesce(slots, '{}') AS slots, next_limit, next_key, NOT goes_on AS is_last FROM lane
    WHERE (SELECT count(*) FROM ended) >= 0
), :{leave}, :{take_next}, attempt AS (
    INSERT INTO rival_attempts (run_id, path, token, attempt, outcome, executor_id, started_at, ended_at, policy)
    SELECT run_id, :'path', :'token', attempts, :'outcome', executor_id, begun_at, now(), own_policy
    FROM lane WHERE attempts > 1
), next_item AS (
    INSERT INTO rival_steps (run_id, path, kind, slots, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at, policy)
    SELECT run_id, :'join' || '[' || opened || :'next_path', :'next_kind', :{next_row} FROM lane, start WHERE goes_on
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM lane, start, LATERAL (VALUES
        (:'path', :'status'::text, :'own_detail'::json, FALSE),
        (:'item', 'completed', :'upper_detail'::json, FALSE),
        (:'join' || '[' || opened || :'next_path', :{next_entry}, TRUE)
    ) AS entry (path, what, detail, is_next)
    WHERE goes_on OR NOT entry.is_next
)
SELECT :{following}, start.at_once, token - 1, CASE WHEN goes_on THEN opened END FROM lane, start;
