-- Groups of steps that have a limit: what limits.sql does for one run, for many runs in one statement. As in
-- groups.sql, a row that does not match is not among the results, and its caller takes the single path.
--
-- A run whose first step has to wait (rival_begin_queued_runs) matches if that gate is full: it locks the row of the
-- gate in share mode, as the single statement does. Its first step waits behind the tickets that already wait.
--
-- Any other row matches if no ticket waits at the gate that it leaves, and if the gate of the next step has room. If
-- both gates are the same, the slot is carried over, and no gate is touched. Slots that tickets wait for are left to
-- the single path, which passes them on. So are attempts after the first, which leave a row of their own.
--
-- Locks: steps, runs, then gates with SKIP LOCKED only, since another statement of the group may have locked gates
-- already. Two starts at one gate are counted one after the other; they do not get a slot that the group frees.

-- part: without_waiting
-- A group does not wait for a row that another transaction has locked: after the timeout its commits are executed
-- alone.
set_config('lock_timeout', '100ms', true) IS NOT NULL

-- part: key
-- As in limits.sql. Null: the portable path computes the key.
CASE WHEN given.key_source IS NULL THEN ''
     WHEN given.key_source = 'run' THEN run.id
     ELSE (
        SELECT CASE WHEN strpos(document::text, '\u') > 0 THEN NULL ELSE (
            SELECT CASE WHEN kind IS NULL OR kind = 'null' THEN ''
                        WHEN kind IN ('string', 'boolean') AND char_length(value) <= 500 THEN value
                        WHEN kind = 'number' AND value ~ '^(0|-?[1-9][0-9]{0,16})$' THEN value END
            FROM (SELECT json_typeof(document #> given.key_path::text[]) AS kind,
                         document #>> given.key_path::text[] AS value) AS found) END
        FROM (SELECT CASE given.key_source WHEN 'labels' THEN run.labels ELSE run.input END AS document) AS source)
END

-- part: next_limit
-- As in limits.sql. The name of the next step's limit; null: it has none.
coalesce(given.limit_name, run.workflow || given.limit_suffix) AS next_limit, :{key} AS next_key

-- part: beginning
run.token = given.token AND (run.status = 'pending') IS TRUE AND paused_at IS NULL
  AND (due_at IS NULL OR due_at <= now() + interval '0.005 s') AND (deadline_at IS NULL OR deadline_at > now())
  AND (given.workflow IS NULL OR (run.workflow = given.workflow AND run.version = given.version))
  AND (given.without IS NULL OR (policies IS NULL AND (labels IS NULL OR given.without = 'policies')))

-- part: started
CASE WHEN labels IS NULL AND deadline_at IS NULL AND priority IS NULL AND policies IS NULL
     THEN json_build_object('workflow', workflow, 'version', version, 'input', input)
     ELSE json_build_object('workflow', workflow, 'version', version, 'input', input, 'options',
        (SELECT json_object_agg(name, value) FROM (VALUES
            ('labels', to_json(labels)), ('policies', to_json(policies)),
            ('deadline', to_json(to_char(deadline_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))),
            ('priority', to_json(CASE priority WHEN -1 THEN 'high' WHEN 0 THEN 'normal' WHEN 1 THEN 'low' END))
         ) AS given (name, value) WHERE value IS NOT NULL)) END

-- part: wanted
SELECT wants.number, gate.id AS gate, 1 AS change
FROM wants JOIN rival_gates gate ON gate.name = wants.next_limit AND gate.key = wants.next_key AND gate.shard = wants.shard
WHERE NOT wants.keeps

-- part: changes
gate AS MATERIALIZED (
    SELECT gate.id, gate.used, gate.max, gate.gap IS NULL AND (
        SELECT waiting.run_id FROM rival_tickets waiting
        WHERE waiting.gate = gate.id AND waiting.granted_at IS NULL LIMIT 1) IS NULL AS is_open
    FROM rival_gates gate
    WHERE gate.id = ANY(ARRAY(SELECT gate FROM place))
    ORDER BY gate.id FOR NO KEY UPDATE OF gate SKIP LOCKED
), change AS MATERIALIZED (
    SELECT place.number, place.gate, place.change,
           place.change < 0 OR (gate.is_open AND gate.used + row_number() OVER (
               PARTITION BY place.gate, place.change ORDER BY place.number) <= gate.max) AS fits,
           place.change < 0 AND gate.used >= gate.max AS was_full
    FROM place JOIN gate ON gate.id = place.gate
)

-- part: counted
UPDATE rival_gates gate SET used = used + total.change, touched_at = now()
FROM (SELECT change.gate, sum(change.change)::int AS change FROM change JOIN fit USING (number) GROUP BY 1) AS total
WHERE gate.id = total.gate AND total.change <> 0

-- part: held
held AS MATERIALIZED (
    SELECT given.*, step.executor_id, step.slots[1] AS slot
    FROM given JOIN rival_steps step ON step.run_id = given.run_id AND step.path = given.path
    WHERE step.execution_token = given.token AND (step.status = 'running') IS TRUE AND NOT step.paused
      AND step.kind <> 'flow' AND step.attempts = 1 AND coalesce(cardinality(step.slots), 0) <= 1
    FOR NO KEY UPDATE OF step
)

-- part: left_gates
-- The gates of slots that are left, and the keys among them at which tickets wait. Each key once: all its shards are
-- examined.
left_gate AS MATERIALIZED (
    SELECT gate.id, gate.name, gate.key, gate.used <= gate.max AS flows
    FROM rival_gates gate WHERE gate.id = ANY(ARRAY(SELECT slot FROM held))
), waited AS MATERIALIZED (
    SELECT one.name, one.key
    FROM (SELECT DISTINCT name, key FROM left_gate) AS one
    WHERE (
        SELECT waiting.run_id
        FROM rival_gates shard, LATERAL (SELECT run_id FROM rival_tickets
                                         WHERE rival_tickets.gate = shard.id AND granted_at IS NULL LIMIT 1) AS waiting
        WHERE shard.name = one.name AND shard.key = one.key LIMIT 1) IS NOT NULL
)

-- part: done
done AS (
    UPDATE rival_steps step
    SET status = fit.status, result = fit.result::json, state = fit.state::json, error = NULL, completed_at = now(),
        slots = NULL, execution_token = execution_token + 1, timeout_token = timeout_token + 1, timeout_at = NULL,
        ring_at = NULL
    FROM fit
    WHERE step.run_id = fit.run_id AND step.path = fit.path
)

-- part: own_detail
CASE WHEN octet_length(fit.result) > 2000
     THEN json_build_object('result_token', token + 1, 'state', fit.state::json)
     ELSE json_build_object('result', fit.result::json, 'state', fit.state::json) END

-- name: rival_begin_limited_runs
-- joins: begin_run
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(:'run_ids'::text[], :'tokens'::int[], :'workflows'::text[], :'versions'::text[],
                         :'withouts'::text[], :'next_paths'::text[], :'next_kinds'::text[], :'timeouts'::float8[],
                         :'policies'::text[], :'limits'::text[], :'limit_suffixes'::text[], :'key_sources'::text[],
                         :'key_paths'::text[], :'shards'::int[])
        WITH ORDINALITY AS given (run_id, token, workflow, version, without, next_path, next_kind, timeout, policy,
                                  limit_name, limit_suffix, key_source, key_path, shard, number)
    WHERE :{without_waiting}
), wants AS MATERIALIZED (
    SELECT given.*, FALSE AS keeps, :{next_limit}
    FROM given JOIN rival_runs run ON run.id = given.run_id
    WHERE :{beginning}
    FOR NO KEY UPDATE OF run
), place AS MATERIALIZED (
    :{wanted}
), :{changes}, fit AS MATERIALIZED (
    SELECT wants.*, change.gate AS slot FROM wants JOIN change ON change.number = wants.number WHERE change.fits
), counted AS (
    :{counted}
), run AS (
    UPDATE rival_runs run
    SET status = 'running', started_at = now(), token = run.token + 1, ring_at = deadline_at, rings = 0, parked = NULL
    FROM fit
    WHERE run.id = fit.run_id AND (run.status = 'pending') IS TRUE
    RETURNING run.id, run.workflow, run.version, input, run.token, labels, deadline_at, priority, run.policies,
              fit.next_path, fit.next_kind, fit.timeout, fit.policy, fit.number, fit.slot
), step AS (
    INSERT INTO rival_steps (run_id, path, kind, slots, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at, policy)
    SELECT id, next_path, next_kind, ARRAY[slot], 'running', 1, token, token, :'executor', now(), clock_timestamp(),
           now() + make_interval(secs => timeout), now() + make_interval(secs => timeout), policy::json
    FROM run
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT id, entry.path, entry.what, entry.detail, :'executor', now()
    FROM run, LATERAL (VALUES
        (NULL, 'started', :{started}),
        (next_path, 'claimed', json_build_object('kind', next_kind, 'attempt', 1))
    ) AS entry (path, what, detail)
)
SELECT number, input, labels, extract(epoch FROM deadline_at), extract(epoch FROM deadline_at - now()), priority,
       policies
FROM run;

-- name: rival_lock_fair_groups
-- joins: begin_run
-- Like rival_lock_fair_group, in one order for all transactions. Returns no row.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(:'run_ids'::text[], :'limits'::text[], :'limit_suffixes'::text[], :'fair_sources'::text[],
                         :'fair_paths'::text[])
        AS given (run_id, limit_name, limit_suffix, fair_source, fair_path)
    WHERE :{without_waiting}
), fair_group AS MATERIALIZED (
    SELECT DISTINCT hashtext(coalesce(given.limit_name, run.workflow || given.limit_suffix) || E'\x1f'
                             || coalesce(:{key as fair}, '')) AS number
    FROM given JOIN rival_runs run ON run.id = given.run_id
    WHERE given.fair_source IS NOT NULL ORDER BY 1
)
SELECT FROM fair_group WHERE pg_advisory_xact_lock(726358, number) IS NULL;

-- name: rival_begin_queued_runs
-- joins: begin_run
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(:'run_ids'::text[], :'tokens'::int[], :'workflows'::text[], :'versions'::text[],
                         :'withouts'::text[], :'next_paths'::text[], :'next_kinds'::text[], :'limits'::text[],
                         :'limit_suffixes'::text[], :'key_sources'::text[], :'key_paths'::text[],
                         :'fair_sources'::text[], :'fair_paths'::text[], :'shards'::int[])
        WITH ORDINALITY AS given (run_id, token, workflow, version, without, next_path, next_kind, limit_name,
                                  limit_suffix, key_source, key_path, fair_source, fair_path, shard, number)
    WHERE :{without_waiting}
), wants AS MATERIALIZED (
    SELECT given.*, FALSE AS keeps, :{next_limit},
           CASE WHEN given.fair_source IS NOT NULL THEN :{key as fair} END AS fair_group
    FROM given JOIN rival_runs run ON run.id = given.run_id
    WHERE :{beginning}
    FOR NO KEY UPDATE OF run
), place AS MATERIALIZED (
    :{wanted}
), full_gate AS MATERIALIZED (
    SELECT gate.id, gate.name, gate.key
    FROM rival_gates gate
    WHERE gate.id = ANY(ARRAY(SELECT gate FROM place)) AND gate.used >= gate.max
    ORDER BY gate.id FOR SHARE OF gate SKIP LOCKED
), fit AS MATERIALIZED (
    SELECT wants.*, full_gate.id AS gate, full_gate.name, full_gate.key, greatest(
        arrives.at, (
            SELECT max(waiting.base) + 3600 FROM rival_tickets waiting
            WHERE waiting.gate = full_gate.id AND waiting.granted_at IS NULL
              AND waiting.fair_group = wants.fair_group), (
            SELECT first.base + 1800 + wants.number * 1e-6 FROM (
                SELECT waiting.base FROM rival_tickets waiting
                WHERE wants.fair_group IS NOT NULL AND waiting.gate = full_gate.id AND waiting.granted_at IS NULL
                ORDER BY waiting.rank, waiting.run_id, waiting.path LIMIT 1) AS first
            WHERE first.base > arrives.at)) AS first_base
    FROM wants JOIN place ON place.number = wants.number JOIN full_gate ON full_gate.id = place.gate,
         LATERAL (SELECT extract(epoch FROM clock_timestamp())::float8 + wants.number * 1e-6 AS at) AS arrives
    WHERE wants.fair_source IS NULL OR wants.fair_group IS NOT NULL
), run AS (
    UPDATE rival_runs run
    SET status = 'suspended', started_at = now(), token = run.token + 1, ring_at = deadline_at, rings = 0, parked = NULL
    FROM (
        SELECT fit.*, CASE WHEN fair_group IS NULL THEN first_base ELSE first_base + 3600 * (row_number() OVER (
            PARTITION BY gate, fair_group ORDER BY number) - 1) END AS base
        FROM fit) AS fit
    WHERE run.id = fit.run_id AND (run.status = 'pending') IS TRUE
    RETURNING run.id, run.workflow, run.version, input, run.token, labels, deadline_at, priority, run.policies,
              fit.next_path, fit.next_kind, fit.number, fit.gate, fit.name, fit.key, fit.fair_group, fit.base
), step AS (
    INSERT INTO rival_steps (run_id, path, kind, status, attempts, execution_token, timeout_token, created_at)
    SELECT id, next_path, next_kind, 'waiting', 0, token, token - 1, now() FROM run
), ticket AS (
    INSERT INTO rival_tickets (run_id, path, token, gate, base, rank, fair_group, workflow, version, attempt, lost,
                               queue, level, created_at)
    SELECT id, next_path, token, gate, base, base + 60 * coalesce(priority, 0), fair_group, workflow, version, 1, 0,
           NULL, coalesce(priority, 0), now()
    FROM run
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT id, entry.path, entry.what, entry.detail, :'executor', now()
    FROM run, LATERAL (VALUES
        (NULL, 'started', :{started}),
        (next_path, 'scheduled', json_build_object('kind', next_kind)),
        (next_path, 'queued', json_strip_nulls(json_build_object('limit', name, 'key', nullif(key, ''),
                                                                 'run', 'suspended')))
    ) AS entry (path, what, detail)
)
SELECT number, input, labels, extract(epoch FROM deadline_at), extract(epoch FROM deadline_at - now()), priority,
       policies
FROM run;

-- name: rival_carry_limited_steps
-- joins: finish_step
-- Each step is followed by a step with the same limit, which takes over the slot: no gate is touched.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(:'run_ids'::text[], :'paths'::text[], :'tokens'::int[], :'statuses'::text[],
                         :'results'::text[], :'states'::text[], :'next_paths'::text[], :'next_kinds'::text[],
                         :'timeouts'::float8[], :'policies'::text[], :'limits'::text[], :'limit_suffixes'::text[],
                         :'key_sources'::text[], :'key_paths'::text[])
        WITH ORDINALITY AS given (run_id, path, token, status, result, state, next_path, next_kind, timeout, policy,
                                  limit_name, limit_suffix, key_source, key_path, number)
    WHERE :{without_waiting} AND pg_try_advisory_xact_lock_shared(hashtextextended(given.run_id, 726356))
), :{held}, :{left_gates}, fit AS MATERIALIZED (
    SELECT after.*
    FROM (SELECT given.*, run.token AS run_token, :{next_limit}
          FROM held AS given JOIN rival_runs run ON run.id = given.run_id OFFSET 0) AS after
    JOIN left_gate AS gate ON gate.id = after.slot
    WHERE gate.flows AND gate.name = after.next_limit AND gate.key = after.next_key
      AND NOT EXISTS (SELECT FROM waited WHERE waited.name = gate.name AND waited.key = gate.key)
), :{done}, next AS (
    INSERT INTO rival_steps (run_id, path, kind, slots, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at, policy)
    SELECT run_id, next_path, next_kind, ARRAY[slot], 'running', 1, run_token, run_token, :'executor', now(),
           clock_timestamp(), now() + make_interval(secs => timeout), now() + make_interval(secs => timeout),
           policy::json
    FROM fit
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM fit, LATERAL (VALUES
        (fit.path, fit.status, :{own_detail}),
        (next_path, 'claimed', json_build_object('kind', next_kind, 'attempt', 1))
    ) AS entry (path, what, detail)
)
SELECT number, run_token - 1 FROM fit;

-- name: rival_finish_limited_steps
-- joins: finish_step
-- The third column is a gate that was full; the caller calls look_again for it.
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(:'run_ids'::text[], :'paths'::text[], :'tokens'::int[], :'statuses'::text[],
                         :'results'::text[], :'states'::text[], :'next_paths'::text[], :'next_kinds'::text[],
                         :'timeouts'::float8[], :'policies'::text[], :'limits'::text[], :'limit_suffixes'::text[],
                         :'key_sources'::text[], :'key_paths'::text[], :'shards'::int[])
        WITH ORDINALITY AS given (run_id, path, token, status, result, state, next_path, next_kind, timeout, policy,
                                  limit_name, limit_suffix, key_source, key_path, shard, number)
    WHERE :{without_waiting} AND pg_try_advisory_xact_lock_shared(hashtextextended(given.run_id, 726356))
), :{held}, ending AS MATERIALIZED (
    SELECT run.id FROM held JOIN rival_runs run ON run.id = held.run_id
    WHERE held.next_path IS NULL AND (run.status IN ('running', 'suspended')) IS TRUE AND run.parent_run_id IS NULL
      AND run.slots IS NULL
    FOR NO KEY UPDATE OF run
), :{left_gates}, wants AS MATERIALIZED (
    SELECT after.*, coalesce(gate.name = after.next_limit AND gate.key = after.next_key, FALSE) AS keeps
    FROM (SELECT given.*, run.token AS run_token, :{next_limit}
          FROM held AS given JOIN rival_runs run ON run.id = given.run_id OFFSET 0) AS after
    LEFT JOIN left_gate AS gate ON gate.id = after.slot
    WHERE (after.next_path IS NOT NULL OR after.run_id IN (SELECT id FROM ending))
      AND (after.slot IS NULL OR (gate.flows AND NOT EXISTS (
        SELECT FROM waited WHERE waited.name = gate.name AND waited.key = gate.key)))
), place AS MATERIALIZED (
    :{wanted}
    UNION ALL
    SELECT number, slot, -1 FROM wants WHERE slot IS NOT NULL AND NOT keeps
), :{changes}, fit AS MATERIALIZED (
    SELECT wants.*, CASE WHEN keeps THEN slot ELSE (
        SELECT gate FROM change WHERE change.number = wants.number AND change.change = 1) END AS next_slot
    FROM wants
    WHERE keeps OR (slot IS NOT NULL)::int + (next_limit IS NOT NULL)::int
                   = (SELECT count(*) FROM change WHERE change.number = wants.number AND change.fits)
), counted AS (
    :{counted}
), :{done}, next AS (
    INSERT INTO rival_steps (run_id, path, kind, slots, status, attempts, execution_token, timeout_token, executor_id,
                             created_at, started_at, timeout_at, ring_at, policy)
    SELECT run_id, next_path, next_kind, CASE WHEN next_slot IS NOT NULL THEN ARRAY[next_slot] END, 'running', 1,
           run_token, run_token, :'executor', now(), clock_timestamp(), now() + make_interval(secs => timeout),
           now() + make_interval(secs => timeout), policy::json
    FROM fit WHERE next_path IS NOT NULL
), ended AS (
    UPDATE rival_runs run
    SET status = 'completed', result = fit.result::json, completed_at = now(), token = run.token + 1, ring_at = NULL
    FROM fit
    WHERE fit.next_path IS NULL AND run.id = fit.run_id AND (run.status IN ('running', 'suspended')) IS TRUE
), recorded AS (
    INSERT INTO rival_history (run_id, path, what, detail, actor, at)
    SELECT run_id, entry.path, entry.what, entry.detail, executor_id, now()
    FROM fit, LATERAL (VALUES
        (fit.path, fit.status,
         :{own_detail}),
        (next_path, CASE WHEN next_path IS NULL THEN 'completed' ELSE 'claimed' END,
         CASE WHEN next_path IS NOT NULL THEN json_build_object('kind', next_kind, 'attempt', 1)
              WHEN octet_length(fit.result) > 2000
              THEN json_build_object('result_of', fit.path, 'result_token', token + 1)
              ELSE json_build_object('result', fit.result::json) END)
    ) AS entry (path, what, detail)
)
SELECT number, CASE WHEN next_path IS NOT NULL THEN run_token - 1 END,
       (SELECT change.gate FROM change WHERE change.number = fit.number AND change.was_full)
FROM fit;
